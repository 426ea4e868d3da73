//! `POST …/testFilter`: tests a filter with events, and reports for each event which condition rejects it. Nothing is
//! published, delivered or changed.
//!
//! The filter is that of the event subscription or a draft, which needs no event subscription. The events are in the request, in the topic's input schema, or
//! are the newest of the log.

use actix_web::HttpResponse;
use serde_json::value::RawValue;

use super::{
    AdminError, Control,
    arm::{no_subscription, path::TopicPath, topic},
    model::{
        InvalidRequest,
        subscription::{self, test::FilterTestEvents},
    },
};
use crate::{
    api::filter_test::{FilterTestLine, FilterTestReport},
    control::record::topic::TopicRecord,
    event::{Event, Schema, Seq, Timestamp},
    journal,
    policy::filter::{Filter, FilterResult},
    publish::{PublishLimits, schema},
    store::chunk::{Chunk, LogTail},
};

impl FilterTestReport {
    fn add(&mut self, filter: &Filter, event: &Event) {
        let id = event.id().into_owned();
        let line = match filter.explain(event) {
            FilterResult::Match => FilterTestLine { id, matches: true, stopped_by: None, reason: None, value: None },
            FilterResult::Stopped { clause, why, seen } => FilterTestLine {
                id,
                matches: false,
                stopped_by: Some(clause),
                reason: Some(why.to_owned()),
                value: seen,
            },
        };
        self.tested += 1;
        self.matched += usize::from(line.matches);
        self.results.push(line);
    }
}

/// `POST …/testFilter`.
pub(super) async fn test_filter(
    control: &Control,
    path: &TopicPath,
    name: Option<&str>,
    body: &[u8],
) -> Result<HttpResponse, AdminError> {
    let topic = topic(control, path)?;
    let record = topic.record();
    let find = |name| topic.subscription(name).ok_or_else(|| no_subscription(path, name));
    let subscription = name.map(find).transpose()?;
    let ranges = control.editions.ranges(&record.edition)?;
    let test = subscription::test::read(&record, ranges, body)?;
    // A draft filter gets the domain topic of the event subscription.
    let stored = subscription.as_ref().map(|subscription| &subscription.filter);
    let domain_topic = stored.and_then(|filter| filter.domain_topic.clone());
    let draft = test.filter.map(|filter| Filter { domain_topic, ..filter });
    let missing =
        || InvalidRequest::new("filter", "is missing; without an event subscription there is no other filter");
    let filter = draft.as_ref().or(stored).ok_or_else(missing)?;
    let mut report = FilterTestReport::default();
    match test.sample {
        FilterTestEvents::Given(events) => {
            for event in given(&record, &events)? {
                report.add(filter, &event);
            }
        }
        FilterTestEvents::Newest(count) => {
            topic.each_newest(count, &mut |event| report.add(filter, &event)).await.map_err(unreadable)?;
        }
    }
    Ok(HttpResponse::Ok().json(report))
}

/// The given events, read by the rules of publishing.
fn given(topic: &TopicRecord, events: &RawValue) -> Result<Vec<Event>, AdminError> {
    let content_type = match topic.input_schema {
        Schema::CloudEvents => "application/cloudevents-batch+json",
        Schema::EventGrid | Schema::Custom => "application/json",
    };
    let content = schema::RequestContent { content_type: Some(content_type), ..schema::RequestContent::default() };
    let body = events.get().trim().to_owned();
    let body = if body.starts_with('[') { body } else { format!("[{body}]") };
    let draft = schema::read(&schema::EventTarget::of(topic), &content, &body.into(), &PublishLimits::default())
        .map_err(|refusal| {
            InvalidRequest::new("events", format!("would be refused: {}", refusal.to_string().trim_end_matches('.')))
        })?;
    let mut read = Vec::new();
    for chunk in draft.into_chunks() {
        let chunk = Chunk::decode(Seq::FIRST, chunk.stamp(Timestamp::default(), LogTail::default()));
        let events = chunk.and_then(|chunk| chunk.events());
        read.extend(events.map_err(|damaged| unreadable(journal::Error::Damaged(damaged.to_string())))?);
    }
    Ok(read)
}

fn unreadable(error: journal::Error) -> AdminError {
    AdminError::Unavailable(format!("The log of the topic could not be read: {error}."))
}
