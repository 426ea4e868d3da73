//! Publishes events about the server to the topic that `system_topic.name` names: changes, health
//! and dead letters of event subscriptions, dead-letter files, certificates, the disk and actions
//! of operators.
//!
//! Invariants:
//! - An event about an event subscription to which system events are delivered is never published.
//!   Its endpoint would receive its own failures without end.
//! - Each dead-letter file is announced at least once. The id of its event is the file's GUID, so a
//!   repeated one has the same id. All other events are published at most once, and may be dropped
//!   (`gridhook_engine::control::system_events`).
//! - A topic that does not exist or rejects an event is logged. It holds up nothing.
//! - In a cluster with several shards the shard of the topic's name publishes its events, and each
//!   other one only if the topic is spread: then it has a part of it.

mod watch;

use std::{collections::HashSet, sync::Arc, time::Duration};

use bytes::Bytes;
use serde_json::json;
use tokio::sync::mpsc;

use self::watch::Watch;
use super::{
    certificates::ShownCertificates, local_topics, router::OtherShards, settings,
    startup::ServerParts,
};
use gridhook_cluster::shard_of;
use gridhook_config as config;
use gridhook_dead_letter as dead_letter;
use gridhook_dead_letter::{FileWritten, sink::BlobLocation};
use gridhook_deliver::resource::Resource;
use gridhook_engine::control::{
    registry::{Registry, TopicHandle},
    system_events::{SystemEvent, SystemEvents},
};
use gridhook_event::{PartitionId, Schema, WallTime, chunk::ChunkBuilder};
use gridhook_journal as journal;
use gridhook_journal::Journal;
use gridhook_publish as publish;
use gridhook_publish::schema::{self, EventTarget, RequestContent};

/// Wait before an event is published again that the journal did not accept.
const RETRY_WAIT: Duration = Duration::from_secs(1);

/// The publisher of events about the server.
pub(super) struct SystemTopic {
    registry: Arc<Registry>,
    journal: Journal,
    name: String,
    /// Whether another shard leads the topic, so that this one has it only if it is spread.
    is_led_elsewhere: bool,
    limits: publish::PublishLimits,
    pub(super) events: Arc<SystemEvents>,
}

/// The event was not published.
enum PublishError {
    /// A retry would fail again.
    Permanent(String),
    Temporary(journal::Error),
}

/// Starts the publisher and the watch of event subscriptions, certificates and the disk, if the
/// settings name a topic. `others` are the other shards of a cluster with several.
pub(super) fn start(
    parts: &ServerParts,
    certificates: ShownCertificates,
    others: Option<&OtherShards>,
) -> Option<Arc<SystemTopic>> {
    let ServerParts {
        config,
        clock,
        journal,
        registry,
        ..
    } = parts;
    let config::SystemTopic {
        name,
        interval,
        disk_free_bytes,
        certificate_expiry,
    } = config.system_topic.clone();
    let (events, waiting) = SystemEvents::new(clock.clone());
    let limits = settings::publish_limits(config);
    let events_of_registry = Arc::clone(&events);
    let name = name?;
    let topic = Arc::new(SystemTopic {
        registry: Arc::clone(registry),
        journal: journal.clone(),
        is_led_elsewhere: others
            .is_some_and(|others| shard_of(&name, others.shards()) != others.own),
        name,
        limits,
        events,
    });
    registry.report_changes_to(events_of_registry);
    let mut watch = Watch::new(certificates, disk_free_bytes, certificate_expiry);
    let publisher = Arc::clone(&topic);
    let watch_topic = Arc::clone(&topic);
    let clock = clock.clone();
    actix_rt::spawn(async move { publisher.run(waiting).await });
    actix_rt::spawn(async move {
        loop {
            watch
                .report_changes(
                    &watch_topic.registry,
                    &watch_topic.journal,
                    &watch_topic.events,
                    clock.wall_time(),
                )
                .await;
            tokio::time::sleep(interval).await;
        }
    });
    Some(topic)
}

impl SystemTopic {
    /// Publishes a `Microsoft.Storage.BlobCreated` event for each dead-letter file, as an Azure
    /// storage account does.
    pub(super) fn notifier(self: &Arc<Self>) -> dead_letter::Notifier {
        let topic = Arc::clone(self);
        Box::new(move |filed| {
            let topic = Arc::clone(&topic);
            Box::pin(async move {
                topic
                    .publish_event(&blob_created(&filed, topic.events.wall_time()))
                    .await
            })
        })
    }

    async fn run(&self, mut waiting: mpsc::Receiver<SystemEvent>) {
        while let Some(event) = waiting.recv().await {
            while let Err(error) = self.publish_event(&event).await {
                if matches!(error, journal::Error::Closed) {
                    return;
                }
                tokio::time::sleep(RETRY_WAIT).await;
            }
        }
    }

    /// Publishes an event, or logs why it never can be.
    ///
    /// # Errors
    /// If a retry may succeed.
    async fn publish_event(&self, event: &SystemEvent) -> Result<(), journal::Error> {
        match self.append_event(event).await {
            Ok(is_published) => {
                if is_published {
                    self.events.count_event(true);
                }
                Ok(())
            }
            Err(PublishError::Permanent(why)) => {
                self.events.count_event(false);
                let SystemEvent {
                    event_type,
                    subject,
                    ..
                } = event;
                let topic = &self.name;
                tracing::warn!(
                    topic,
                    event_type,
                    subject,
                    why,
                    "system event not published; see system_topic.name"
                );
                Ok(())
            }
            Err(PublishError::Temporary(error)) => Err(error),
        }
    }

    /// False if the event is about an event subscription that receives it, or if only other shards
    /// have the topic.
    async fn append_event(&self, event: &SystemEvent) -> Result<bool, PublishError> {
        let no_topic = || PublishError::Permanent("the topic does not exist".to_owned());
        let topic = match self.registry.find_topic(&self.name) {
            Some(topic) => topic,
            None if self.is_led_elsewhere => return Ok(false),
            None => return Err(no_topic()),
        };
        if event
            .partition
            .is_some_and(|partition| self.fed_partitions(&topic).contains(&partition))
        {
            return Ok(false);
        }
        let draft = self
            .draft_event(&topic, event)
            .map_err(PublishError::Permanent)?;
        // Without a permit: one event at a time, and few.
        let window = topic.record().ingress.duplicate_window();
        let outcome = match self.journal.append_new_events(
            topic.partition(),
            draft.into_chunks(),
            window,
            None,
        ) {
            Ok(appended) => appended.await,
            Err(error) => Err(error),
        };
        match outcome {
            Ok(_) => Ok(true),
            // The topic was deleted meanwhile.
            Err(journal::Error::Unknown) => Err(no_topic()),
            // A subscriber that does not take events must not hold up dead letters.
            Err(error @ journal::Error::Backlog(_)) => {
                Err(PublishError::Permanent(error.to_string()))
            }
            Err(
                error @ (journal::Error::Full
                | journal::Error::Fenced
                | journal::Error::Damaged(_)
                | journal::Error::Closed),
            ) => Err(PublishError::Temporary(error)),
        }
    }

    /// The partitions with events of the system topic: its own, and those of namespace topics to
    /// which its event subscriptions deliver, directly or through another topic.
    fn fed_partitions(&self, topic: &Arc<TopicHandle>) -> HashSet<PartitionId> {
        let mut partitions = HashSet::new();
        let mut open = vec![Arc::clone(topic)];
        while let Some(topic) = open.pop() {
            if !partitions.insert(topic.partition()) {
                continue;
            }
            for subscription in topic.list_subscriptions() {
                if let Some(Resource::NamespaceTopic(target)) = subscription.resource.as_deref() {
                    open.extend(local_topics::find_namespace_topic(
                        &self.registry,
                        &target.resource_id,
                    ));
                }
            }
        }
        partitions
    }

    fn draft_event(
        &self,
        topic: &TopicHandle,
        event: &SystemEvent,
    ) -> Result<ChunkBuilder, String> {
        let record = topic.record();
        let target = EventTarget::for_topic(&record);
        let SystemEvent {
            id,
            event_type,
            subject,
            at,
            data,
            partition: _,
        } = event;
        let at = at.to_string();
        let (content_type, body) = match target.schema {
            _ if record.is_domain() => return Err("a domain cannot be the system topic".to_owned()),
            Schema::EventGrid => {
                // Storage accounts have no version.
                let version = if event_type.starts_with("Microsoft.Storage.") {
                    ""
                } else {
                    "1"
                };
                let event = json!({
                    "id": id, "subject": subject, "eventType": event_type, "eventTime": at, "dataVersion": version,
                    "data": data,
                });
                ("application/json", json!([event]))
            }
            Schema::CloudEvents => {
                let event = json!({
                    "specversion": "1.0", "id": id, "source": record.resource_id(), "subject": subject,
                    "type": event_type, "time": at, "data": data,
                });
                ("application/cloudevents+json", event)
            }
            Schema::Custom => return Err("the topic has a custom schema".to_owned()),
        };
        let content = RequestContent {
            content_type: Some(content_type),
            attributes: Vec::new(),
        };
        let read = schema::read_events(
            &target,
            &content,
            &Bytes::from(body.to_string()),
            &self.limits,
        );
        read.map_err(|refusal| refusal.to_string())
    }
}

/// The event about a dead-letter file, with the data of Azure's sample.
fn blob_created(filed: &FileWritten, wall: WallTime) -> SystemEvent {
    let FileWritten {
        subscription_key,
        blob: BlobLocation {
            container,
            path,
            url,
        },
        bytes,
        at,
    } = filed;
    let id = filed.id();
    let data = json!({
        "api": "PutBlob",
        "clientRequestId": id,
        "requestId": id,
        // As Azure's: a number that changes with every write, and grows for one blob.
        "eTag": format!("0x{:X}", at.0),
        "contentType": "application/json",
        "contentLength": bytes,
        "blobType": "BlockBlob",
        "url": url,
        "sequencer": format!("{:048x}", at.0),
        "storageDiagnostics": { "batchId": id },
    });
    SystemEvent {
        id: id.to_owned(),
        event_type: "Microsoft.Storage.BlobCreated",
        subject: format!("/blobServices/default/containers/{container}/blobs/{path}"),
        at: wall,
        data,
        partition: Some(subscription_key.partition),
    }
}
