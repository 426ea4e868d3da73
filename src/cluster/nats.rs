//! The records of a cluster in a bucket of NATS' key-value store. The only file of the cluster that
//! uses async-nats.
//!
//! A bucket is a stream with a subject for each key, of which only the last message is kept. All
//! records are read with one request, from any server that has the bucket, so that a read may be
//! old: `claim` checks that. A write goes to the leader, which compares the revision.

use async_nats::{
    StatusCode,
    header::{NATS_SEQUENCE, NATS_SUBJECT, NATS_TIME_STAMP},
    jetstream::{
        context::{Context, PublishErrorKind},
        message::PublishMessage,
        stream::{Config, DiscardPolicy},
    },
};
use bytes::Bytes;
use futures_util::StreamExt as _;

use super::records::{RecordError, RecordStore, StoredRecord};
use gridhook_journal::changelog::nats::{NatsConnection, NatsError};

/// The most keys that a bucket is expected to have: NATS reads no more at once.
const KEYS_MAX: usize = 1024;

/// The number of keys up to which a new node joins. The others are for shards and requests.
const NODE_KEYS: usize = KEYS_MAX - 224;

/// The number of writes after which a deleted record is removed. A node whose record was deleted
/// while it runs has noticed by then.
const DELETED_REVISIONS: u64 = 100_000;

/// The room that the servers reserve for a bucket: with the largest cluster it has a few MiB.
pub const BUCKET_BYTES: u64 = 16 << 20;

/// The records in a bucket.
pub struct NatsRecords {
    context: Context,
    /// The stream of the bucket.
    stream: String,
    /// The beginning of the subject of each key.
    prefix: String,
}

impl NatsRecords {
    /// Opens the records in the bucket of this name, which is made if it does not exist, on
    /// `replicas` servers. Without it there are no claims, and the next one makes a record again.
    ///
    /// # Errors
    /// If the bucket cannot be made.
    pub async fn open(
        connection: &NatsConnection,
        bucket: &str,
        replicas: usize,
    ) -> Result<Self, NatsError> {
        let records = Self::open_bucket(connection, bucket);
        let config = Config {
            name: records.stream.clone(),
            subjects: vec![format!("{}>", records.prefix)],
            num_replicas: replicas,
            max_messages_per_subject: 1,
            // Reserved, so that streams that are full leave room for it.
            max_bytes: BUCKET_BYTES as i64,
            discard: DiscardPolicy::New,
            allow_direct: true,
            allow_rollup: true,
            deny_delete: true,
            ..Config::default()
        };
        let context = records.context.clone();
        connection
            .retry_until_available(&records.stream, || {
                context.get_or_create_stream(config.clone())
            })
            .await?;
        Ok(records)
    }

    /// Whether a node that has no record yet would need a record too many.
    pub fn is_full(known: &[StoredRecord]) -> bool {
        known.len() >= NODE_KEYS
    }

    /// Removes what is left of records that were deleted long ago.
    ///
    /// # Errors
    /// If the bucket cannot be reached.
    pub async fn remove_deleted(&self, known: &[StoredRecord]) -> Result<(), RecordError> {
        let newest = known.iter().map(|record| record.revision).max();
        let limit = newest.unwrap_or_default().saturating_sub(DELETED_REVISIONS);
        let is_old = |record: &&StoredRecord| record.value.is_empty() && record.revision <= limit;
        let stream = self.context.get_stream_no_info(&self.stream).await;
        let stream = stream.map_err(unavailable)?;
        for record in known.iter().filter(is_old) {
            let subject = format!("{}{}", self.prefix, record.key);
            // A record that was written meanwhile is not below it.
            let purge = stream.purge().sequence(record.revision + 1).filter(subject);
            purge.await.map_err(unavailable)?;
        }
        Ok(())
    }

    /// The records in a bucket that is there.
    pub fn open_bucket(connection: &NatsConnection, bucket: &str) -> Self {
        let stream = format!("KV_{bucket}");
        let prefix = format!("$KV.{bucket}.");
        Self {
            context: connection.context().clone(),
            stream,
            prefix,
        }
    }
}

fn unavailable(error: impl ToString) -> RecordError {
    RecordError::Unavailable(error.to_string())
}

impl RecordStore for NatsRecords {
    async fn read(&self) -> Result<Vec<StoredRecord>, RecordError> {
        let client = self.context.client();
        let inbox = client.new_inbox();
        let mut responses = client.subscribe(inbox.clone()).await.map_err(unavailable)?;
        let keys =
            serde_json::json!({ "multi_last": [format!("{}>", self.prefix)], "batch": KEYS_MAX });
        let subject = format!("$JS.API.DIRECT.GET.{}", self.stream);
        client
            .publish_with_reply(subject, inbox, keys.to_string().into())
            .await
            .map_err(unavailable)?;
        let mut records = Vec::new();
        while let Some(response) = responses.next().await {
            match response.status {
                // The end of the response, and an empty bucket.
                Some(status) if status == StatusCode::from_u16(204).map_err(unavailable)? => {
                    return Ok(records);
                }
                // Behind records it is no end: the bucket was removed meanwhile.
                Some(StatusCode::NOT_FOUND) if records.is_empty() => return Ok(records),
                Some(status) if status.as_u16() == 413 => {
                    let why = format!("there are more than {KEYS_MAX}; forget nodes that are gone");
                    return Err(unavailable(why));
                }
                Some(status) => return Err(unavailable(format!("{status:?}"))),
                None => {}
            }
            let header = |name| {
                Some(
                    response
                        .headers
                        .as_ref()?
                        .get_last(name)?
                        .as_str()
                        .to_owned(),
                )
            };
            let key = header(NATS_SUBJECT)
                .and_then(|subject| Some(subject.strip_prefix(&self.prefix)?.to_owned()));
            let revision = header(NATS_SEQUENCE).and_then(|sequence| sequence.parse().ok());
            let (Some(key), Some(revision)) = (key, revision) else {
                continue;
            };
            let written = header(NATS_TIME_STAMP).unwrap_or_default();
            records.push(StoredRecord {
                key,
                value: response.payload,
                revision,
                written,
            });
        }
        Err(unavailable("the connection is closed"))
    }

    async fn write(&self, key: &str, value: Bytes, revision: u64) -> Result<u64, RecordError> {
        let message = PublishMessage::build().expected_last_subject_sequence(revision);
        // As NATS' own tools mark it.
        let message = if value.is_empty() {
            message.header("KV-Operation", "DEL")
        } else {
            message
        };
        let subject = format!("{}{key}", self.prefix);
        let pending_ack = self
            .context
            .send_publish(subject, message.payload(value))
            .await;
        let ack = match pending_ack {
            Ok(acknowledged) => acknowledged.await,
            Err(error) => Err(error),
        };
        ack.map(|acknowledged| acknowledged.sequence)
            .map_err(|error| match error.kind() {
                PublishErrorKind::WrongLastSequence => RecordError::Conflict,
                _ => unavailable(error),
            })
    }
}
