//! Publishes a `Microsoft.Storage.BlobCreated` event for each dead-letter file to the topic `dead_letter.notification_topic`, as
//! an Azure storage account does for its blobs. A handler of dead letters subscribes to that topic.
//!
//! The event's id is the file's GUID, so a repeated notification has the same id. Dead letters of that topic's own
//! subscriptions cause no notification: their endpoint would receive only its own failures. A topic that does not exist or
//! rejects the event is logged. A journal that does not accept the event is an error, and the notification is retried.

use std::sync::Arc;

use bytes::Bytes;
use serde::Serialize;

use super::settings;
use crate::{
    config::Config,
    control::registry::{Registry, TopicHandle},
    dead_letter::{self, FileWritten, sink::BlobLocation},
    event::Schema,
    journal::{self, Journal},
    publish::{
        self,
        schema::{self, EventTarget, RequestContent},
    },
    store::chunk::ChunkBuilder,
};

/// The notifier of the settings, if they name a topic.
pub(super) fn of(config: &Config, registry: &Arc<Registry>, journal: &Journal) -> Option<dead_letter::Notifier> {
    let topic = config.dead_letter.notification_topic.clone()?;
    let limits = settings::publish_limits(config);
    let notifier = Arc::new(BlobNotifier { registry: Arc::clone(registry), journal: journal.clone(), topic, limits });
    Some(Box::new(move |filed| {
        let notifier = Arc::clone(&notifier);
        Box::pin(async move { notifier.notify(&filed).await })
    }))
}

struct BlobNotifier {
    registry: Arc<Registry>,
    journal: Journal,
    /// The topic's name.
    topic: String,
    limits: publish::PublishLimits,
}

/// The notification was not published.
enum NotifyError {
    /// A retry would fail again.
    Permanent(String),
    /// A retry may succeed.
    Temporary(journal::Error),
}

impl BlobNotifier {
    async fn notify(&self, filed: &FileWritten) -> Result<(), journal::Error> {
        match self.publish(filed).await {
            Ok(()) => Ok(()),
            Err(NotifyError::Permanent(why)) => {
                let Self { topic, .. } = self;
                tracing::warn!(
                    topic,
                    file = filed.blob.url,
                    why,
                    "no notification for a dead-letter file; see dead_letter.notification_topic"
                );
                Ok(())
            }
            Err(NotifyError::Temporary(error)) => Err(error),
        }
    }

    async fn publish(&self, filed: &FileWritten) -> Result<(), NotifyError> {
        let none = || NotifyError::Permanent("the topic does not exist".to_owned());
        let topic = self.registry.topic(&self.topic).ok_or_else(none)?;
        if topic.partition() == filed.subscription_key.partition {
            return Ok(());
        }
        let draft = self.draft(&topic, filed).map_err(NotifyError::Permanent)?;
        // Without a permit: a pass publishes at most one event here, and passes are few.
        match self.journal.publish(topic.partition(), draft.into_chunks(), None).await {
            Ok(_) => Ok(()),
            // The topic was deleted meanwhile.
            Err(journal::Error::Unknown) => Err(none()),
            // A subscriber that does not take notifications must not hold up dead letters.
            Err(error @ journal::Error::Backlog(_)) => Err(NotifyError::Permanent(error.to_string())),
            Err(
                error @ (journal::Error::Full
                | journal::Error::Fenced
                | journal::Error::Damaged(_)
                | journal::Error::Closed),
            ) => Err(NotifyError::Temporary(error)),
        }
    }

    fn draft(&self, topic: &TopicHandle, filed: &FileWritten) -> Result<ChunkBuilder, String> {
        let record = topic.record();
        let target = EventTarget::of(&record);
        if record.is_domain() || target.schema != Schema::EventGrid {
            return Err("the topic does not have the Event Grid schema".to_owned());
        }
        let content = RequestContent { content_type: Some("application/json"), attributes: Vec::new() };
        let read = schema::read(&target, &content, &Bytes::from(body(filed)), &self.limits);
        read.map_err(|refusal| refusal.to_string())
    }
}

/// The body of a request with the event, in the order of Azure's sample.
fn body(filed: &FileWritten) -> Vec<u8> {
    let FileWritten { subscription_key: _, blob: BlobLocation { container, path, url }, bytes, at } = filed;
    let id = filed.id();
    let data = BlobCreated {
        api: "PutBlob",
        client_request_id: id,
        request_id: id,
        // As Azure's: a number that changes with every write, and grows for one blob.
        e_tag: format!("0x{:X}", at.0),
        content_type: "application/json",
        content_length: *bytes,
        blob_type: "BlockBlob",
        url,
        sequencer: format!("{:048x}", at.0),
        storage_diagnostics: StorageDiagnostics { batch_id: id },
    };
    let event = BlobEvent {
        id,
        subject: format!("/blobServices/default/containers/{container}/blobs/{path}"),
        event_type: "Microsoft.Storage.BlobCreated",
        event_time: at.to_event_grid(),
        data_version: "",
        data,
    };
    serde_json::to_vec(&[event]).expect("structs of strings and numbers are JSON")
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct BlobEvent<'a> {
    id: &'a str,
    subject: String,
    event_type: &'static str,
    event_time: String,
    data_version: &'static str,
    data: BlobCreated<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct BlobCreated<'a> {
    api: &'static str,
    client_request_id: &'a str,
    request_id: &'a str,
    e_tag: String,
    content_type: &'static str,
    content_length: usize,
    blob_type: &'static str,
    url: &'a str,
    sequencer: String,
    storage_diagnostics: StorageDiagnostics<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct StorageDiagnostics<'a> {
    batch_id: &'a str,
}
