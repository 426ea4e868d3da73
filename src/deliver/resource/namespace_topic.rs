//! `NamespaceTopic`: a topic of a namespace of this server. Events are appended to its log in this
//! process, as if a publisher had sent them: a batch that is repeated after a crash is stored
//! again, unless the topic has a duplicate window.

use std::{rc::Rc, sync::Arc};

use bytes::Bytes;
use futures_util::future::{BoxFuture, LocalBoxFuture};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{
    BatchMaxima, EventResults, InvalidProperty, Kind, ResourceTarget, SenderContext, result_of,
    send_within,
};
use crate::{
    Batch, Sender, Sent,
    error::{SenderError, UnreachableError},
};
use gridhook_event::{Schema, WallTime};

/// The topics of namespaces, as a destination.
pub trait LocalTopics: Send + Sync {
    /// Appends CloudEvents to the topic with this resource id, as if they were published.
    fn publish_events<'a>(
        &'a self,
        resource_id: &'a str,
        events: Vec<Bytes>,
    ) -> BoxFuture<'a, Result<(), PublishFailure>>;

    fn topic_exists<'a>(&'a self, resource_id: &'a str) -> BoxFuture<'a, bool>;
}

/// Why events were not appended: the status that a publisher would get, and the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublishFailure {
    pub status: u16,
    pub reason: String,
}

/// A topic of a namespace of this server
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(as = NamespaceTopicDestinationProperties)]
pub struct NamespaceTopic {
    /// Resource id of the topic
    pub resource_id: String,
}

impl Kind for NamespaceTopic {
    const SCHEMES: &'static [&'static str] = &[];
    const HAS_PROPERTIES: bool = false;

    fn check_properties(&self) -> Result<(), InvalidProperty> {
        Ok(())
    }

    fn check_schema(&self, delivery: Schema) -> Result<(), InvalidProperty> {
        match delivery {
            Schema::CloudEvents => Ok(()),
            Schema::EventGrid | Schema::Custom => Err(InvalidProperty {
                key: "resourceId",
                problem: "names a topic of a namespace, which takes CloudEvents only; expected \
                    this with the eventDeliverySchema CloudEventSchemaV1_0"
                    .to_owned(),
            }),
        }
    }

    fn service_limits(&self) -> BatchMaxima {
        // One write to the disk for many events.
        BatchMaxima {
            events: 100,
            bytes: 512 * 1024,
        }
    }

    fn new_sender(&self, at: &SenderContext<'_>) -> Result<Rc<dyn Sender>, SenderError> {
        let topics = at
            .options
            .topics
            .get()
            .cloned()
            .ok_or(SenderError::Starting)?;
        Ok(Rc::new(Publishing {
            topics,
            target: at.target.clone(),
        }))
    }
}

struct Publishing {
    topics: Arc<dyn LocalTopics>,
    target: ResourceTarget,
}

impl Sender for Publishing {
    fn send_batch(&self, batch: Batch) -> LocalBoxFuture<'_, Sent<'_>> {
        let events: Result<Vec<Bytes>, _> = batch
            .events
            .iter()
            .map(|event| self.target.delivered_bytes(event))
            .collect();
        let wait = batch.wait;
        let results = EventResults::new(&batch);
        drop(batch);
        Box::pin(async move {
            let id = self.target.resource.resource_id();
            let publish = async |events, _: &EventResults| {
                let result = self.topics.publish_events(id, events).await;
                result.map_err(|PublishFailure { status, reason }| result_of(status, reason))
            };
            (send_within(wait, id, results, events, publish).await, None)
        })
    }

    fn check_reachable(&self, _: WallTime) -> LocalBoxFuture<'_, Result<(), UnreachableError>> {
        let id = self.target.resource.resource_id();
        Box::pin(async move {
            if self.topics.topic_exists(id).await {
                Ok(())
            } else {
                Err(UnreachableError::Service(format!("there is no topic {id}")))
            }
        })
    }
}
