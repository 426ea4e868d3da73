//! The changelog of a shard in its stream.
//!
//! The stream takes one subject, the one of its name. `Nats-Expected-Last-Sequence` is the fence.
//! Its messages are read from the leader, one request each: a follower may not have the newest
//! ones.

use async_nats::{
    connection::State,
    jetstream::{
        self, ErrorCode,
        context::{PublishError, PublishErrorKind},
        message::PublishMessage,
        response::Response,
        stream::{Info, RawMessageErrorKind, Stream},
    },
};
use bytes::Bytes;
use futures_util::{StreamExt, stream};

use super::{ANSWER_WAIT, NatsConnection, count_missing_replicas};
use crate::changelog::{Changelog, ChangelogBounds, ChangelogError};

/// The changelog in a stream.
pub struct NatsChangelog {
    pub(super) connection: NatsConnection,
    pub(super) name: String,
}

impl NatsChangelog {
    async fn stream(&self) -> Result<Stream<()>, ChangelogError> {
        let stream = self.connection.context.get_stream_no_info(&self.name).await;
        stream.map_err(|error| ChangelogError::Refused(error.to_string()))
    }

    async fn info(&self) -> Result<Info, ChangelogError> {
        let request = self
            .connection
            .context
            .request(format!("STREAM.INFO.{}", self.name), &());
        match request
            .await
            .map_err(|error| ChangelogError::Unavailable(error.to_string()))?
        {
            Response::Ok(info) => Ok(info),
            Response::Err { error } => Err(jetstream_error(&error)),
        }
    }

    /// Waits for a response, and no longer than a call may take. Without a connection it makes no
    /// call: the client would keep it and make it after the reconnection, when the owner may be
    /// another one.
    fn wait<T>(
        &self,
        call: impl Future<Output = Result<T, ChangelogError>>,
    ) -> Result<T, ChangelogError> {
        if self.connection.context.client().connection_state() != State::Connected {
            return Err(ChangelogError::Unavailable(
                "the connection is lost".to_owned(),
            ));
        }
        let call = async {
            let answer = tokio::time::timeout(ANSWER_WAIT, call).await;
            answer.unwrap_or_else(|_| {
                Err(ChangelogError::Unavailable(
                    "no answer came in time".to_owned(),
                ))
            })
        };
        self.connection.runtime.block_on(call)
    }
}

impl Changelog for NatsChangelog {
    fn append(&self, record: &Bytes, expected: Option<u64>) -> Result<u64, ChangelogError> {
        let message = PublishMessage::build()
            .payload(record.clone())
            .expected_stream(&self.name);
        let message = match expected {
            Some(expected) => message.expected_last_sequence(expected),
            None => message,
        };
        self.wait(async {
            let sent = self
                .connection
                .context
                .send_publish(self.name.clone(), message)
                .await;
            let acknowledged = match sent {
                Ok(acknowledged) => acknowledged.await,
                Err(error) => Err(error),
            };
            acknowledged
                .map(|acknowledged| acknowledged.sequence)
                .map_err(|error| publish_error(&error))
        })
    }

    fn bounds(&self) -> Result<ChangelogBounds, ChangelogError> {
        let info = self.wait(self.info())?;
        Ok(ChangelogBounds {
            first: info.state.first_sequence,
            last: info.state.last_sequence,
            bytes: info.state.bytes,
            missing_replicas: count_missing_replicas(&info),
        })
    }

    fn trim(&self, through: u64, keep_bytes: u64) -> Result<(), ChangelogError> {
        self.wait(async {
            let Info { state, .. } = self.info().await?;
            let records = (state.last_sequence + 1)
                .saturating_sub(state.first_sequence)
                .max(1);
            // The sizes of single records are not known.
            let kept = keep_bytes / (state.bytes / records).max(1);
            let first = (through + 1).min(state.last_sequence.saturating_sub(kept));
            if first <= state.first_sequence {
                return Ok(());
            }
            let purged = self.stream().await?.purge().sequence(first).await;
            purged
                .map(drop)
                .map_err(|error| ChangelogError::Unavailable(error.to_string()))
        })
    }

    fn read(&self, from: u64, most: usize) -> Result<Vec<Bytes>, ChangelogError> {
        let mut records = Vec::new();
        let read = self.wait(async {
            let stream = self.stream().await?;
            let sequences = stream::iter((from..).take(most));
            let mut messages = sequences
                .map(|sequence| stream.get_raw_message(sequence))
                .buffered(most.max(1));
            while let Some(message) = messages.next().await {
                match message {
                    Ok(message) => records.push(message.payload),
                    Err(error) => match error.kind() {
                        RawMessageErrorKind::NoMessageFound => break,
                        RawMessageErrorKind::JetStream(error) => {
                            return Err(jetstream_error(&error));
                        }
                        _ => return Err(ChangelogError::Unavailable(error.to_string())),
                    },
                }
            }
            Ok(())
        });
        match read {
            // Large records may take longer than a call. The next call continues behind those that
            // came.
            Err(ChangelogError::Unavailable(_)) if !records.is_empty() => {}
            read => read?,
        }
        Ok(records)
    }
}

fn publish_error(error: &PublishError) -> ChangelogError {
    use std::error::Error as _;
    match error.kind() {
        PublishErrorKind::WrongLastSequence => ChangelogError::WrongLast,
        PublishErrorKind::MaxPayloadExceeded => ChangelogError::Refused(error.to_string()),
        PublishErrorKind::WrongLastMessageId | PublishErrorKind::Other => {
            let cause = error
                .source()
                .and_then(|cause| cause.downcast_ref::<jetstream::Error>());
            cause.map_or_else(
                || ChangelogError::Unavailable(error.to_string()),
                jetstream_error,
            )
        }
        // Without a leader no server takes the subject, as if there were no stream.
        PublishErrorKind::StreamNotFound
        | PublishErrorKind::TimedOut
        | PublishErrorKind::BrokenPipe
        | PublishErrorKind::MaxAckPending => ChangelogError::Unavailable(error.to_string()),
    }
}

fn jetstream_error(error: &jetstream::Error) -> ChangelogError {
    match error.error_code() {
        ErrorCode::STREAM_WRONG_LAST_SEQUENCE | ErrorCode::STREAM_WRONG_LAST_SEQUENCE_CONSTANT => {
            ChangelogError::WrongLast
        }
        ErrorCode::STREAM_NOT_FOUND => ChangelogError::Missing,
        ErrorCode::STREAM_STORE_FAILED
        | ErrorCode::INSUFFICIENT_RESOURCES
        | ErrorCode::STORAGE_RESOURCES_EXCEEDED => ChangelogError::Full,
        ErrorCode::STREAM_MESSAGE_EXCEEDS_MAXIMUM => ChangelogError::Refused(error.to_string()),
        _ => ChangelogError::Unavailable(error.to_string()),
    }
}
