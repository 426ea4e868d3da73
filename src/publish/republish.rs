//! Reads an event that was published before, for a redrive.

use bytes::Bytes;

use super::{
    PublishLimits,
    schema::{self, EventTarget, RequestContent},
};
use gridhook_event::{Schema, chunk::SealedChunk};
use gridhook_record::topic::TopicRecord;

/// Reads one event in this schema as its topic would. It may come from an earlier publisher or from
/// another server.
///
/// Its size is not limited: it was accepted before, and has since received properties that its
/// publisher did not send. The file that it was read from has a limit.
///
/// # Errors
/// If the topic would refuse it, with the text that its publisher would read.
pub fn read_for_redrive(
    topic: &TopicRecord,
    schema: Schema,
    event: &str,
    limits: &PublishLimits,
) -> Result<SealedChunk, String> {
    let (content_type, body) = match schema {
        Schema::EventGrid | Schema::Custom => ("application/json", format!("[{event}]")),
        Schema::CloudEvents => ("application/cloudevents+json", event.to_owned()),
    };
    // An event that was delivered in another schema returns in that schema.
    let topic = TopicRecord {
        input_schema: schema,
        ..topic.clone()
    };
    let content = RequestContent {
        content_type: Some(content_type),
        attributes: Vec::new(),
    };
    let limits = PublishLimits {
        request_bytes_max: usize::MAX,
        event_bytes_max: usize::MAX,
        ..*limits
    };
    let draft = schema::read_events(
        &EventTarget::for_topic(&topic),
        &content,
        &Bytes::from(body),
        &limits,
    );
    let chunks = draft.map_err(|refusal| refusal.to_string())?.into_chunks();
    chunks
        .into_iter()
        .next()
        .ok_or_else(|| "it has no event".to_owned())
}
