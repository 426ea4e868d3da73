//! `POST …/testFilter` and `POST …/testTransform`: what a filter or a transformation makes of
//! events. Nothing is published, delivered or changed.
//!
//! Each is that of the event subscription or a draft; a draft filter needs no event subscription.
//! The events are in the request, in the topic's input schema, or are the newest of the log. What
//! the events make is bounded in total.

use crate::AdminResult;
use std::{ops::Range, sync::Arc};

use actix_web::{HttpResponse, http::header::ContentType};
use serde::Serialize;
use serde_json::value::RawValue;

use super::{
    AdminError,
    arm::{Call, FoundSubscription},
    model::{
        InvalidRequest, refuse_value,
        subscription::{
            test::{self, TestEvents, TestRequest},
            transform::compile_program,
        },
    },
    permissions::Permissions,
};
use gridhook_api::{
    filter_test::{FilterReportLine, FilterTestReport},
    transform_test::{TransformReportLine, TransformTestReport},
};
use gridhook_compute::Meter;
use gridhook_engine::control::registry::TopicHandle;
use gridhook_event::{
    Event, Schema, Seq, Timestamp, Transformed,
    chunk::{Chunk, RunningTotals},
};
use gridhook_journal as journal;
use gridhook_policy::{
    filter::{Filter, FilterResult},
    transform::{Program, Transform, TransformError},
};
use gridhook_publish::{PublishLimits, schema};
use gridhook_record::topic::TopicRecord;

/// Bytes of a line of a report beside its texts.
const LINE_BYTES: usize = 256;

/// A text of a report is in it, and then in its JSON with more escapes.
const COPIES: usize = 3;

pub(crate) fn add_filter_result(report: &mut FilterTestReport, filter: &Filter, event: &Event) {
    let id = event.id().into_owned();
    let line = match filter.explain_mismatch(event) {
        FilterResult::Match => FilterReportLine {
            id,
            matches: true,
            ..FilterReportLine::default()
        },
        FilterResult::Stopped { clause, why, seen } => FilterReportLine {
            id,
            matches: false,
            stopped_by: Some(clause),
            reason: Some(why.to_owned()),
            value: seen,
        },
    };
    report.tested += 1;
    report.matched += usize::from(line.matches);
    report.results.push(line);
}

fn add_transform_result(
    report: &mut TransformTestReport,
    id: String,
    result: Result<Transformed, TransformError>,
) {
    let line = TransformReportLine {
        id,
        ..TransformReportLine::default()
    };
    let line = match result {
        Ok(Transformed {
            body,
            method,
            path_suffix,
            headers,
        }) => {
            let body = body.map(|body| String::from_utf8_lossy(&body).into_owned());
            TransformReportLine {
                body,
                method,
                path_suffix,
                headers: headers.into_iter().collect(),
                ..line
            }
        }
        Err(error) => TransformReportLine {
            error: Some(error.to_string()),
            ..line
        },
    };
    report.tested += 1;
    report.failed += usize::from(line.error.is_some());
    report.results.push(line);
}

/// `POST …/testFilter` of a topic or of an event subscription.
pub(super) async fn test_filter(call: Call<'_>) -> AdminResult {
    let topic = call.find_topic()?;
    let record = topic.record();
    let subscription = match call.path.optional_name("eventSubscriptionName") {
        Some(_) => Some(call.find_subscription()?.record),
        None => None,
    };
    let ranges = call.control.editions.edition_ranges(&record.edition)?;
    let TestRequest { draft, sample } = test::read_filter_test(&record, ranges, call.body)?;
    // A draft filter gets the domain topic of the event subscription.
    let stored_filter = subscription
        .as_ref()
        .map(|subscription| &subscription.filter);
    let domain_topic = stored_filter.and_then(|filter| filter.domain_topic.clone());
    let draft = draft.map(|filter| Filter {
        domain_topic,
        ..filter
    });
    let Some(filter) = draft.or(stored_filter.cloned()) else {
        let problem = "is missing; without an event subscription there is no other filter";
        return refuse_value("filter", problem);
    };
    check_sample(call.permissions, &sample)?;
    let report = call.compute(|meter| report_filter(topic, sample, filter, meter));
    Ok(report_response(report.await??))
}

async fn report_filter(
    topic: Arc<TopicHandle>,
    sample: TestEvents,
    filter: Filter,
    meter: Meter,
) -> AdminResult<Vec<u8>> {
    let mut sample = SampleReader::new(topic, sample)?;
    let mut report = FilterTestReport::default();
    while let Some(event) = sample.next().await? {
        meter.pause_if_used_up().await?;
        meter.reserve_bytes(LINE_BYTES + COPIES * event.id().len())?;
        add_filter_result(&mut report, &filter, &event);
    }
    serialize(&report)
}

/// `POST …/testTransform`.
pub(super) async fn test_transform(call: Call<'_>) -> AdminResult {
    let FoundSubscription { topic, record, .. } = call.find_subscription()?;
    let TestRequest::<Transform> { draft, sample } = test::read(call.body, "transform", Ok)?;
    let Some(transform) = draft.as_ref().or(record.transform.as_deref()) else {
        let problem = "is missing, and the event subscription has none";
        return refuse_value("transform", problem);
    };
    let program = compile_program(transform, &record)?;
    check_sample(call.permissions, &sample)?;
    let schema = record.delivery_schema;
    let report = call.compute(|meter| report_transform(topic, sample, (program, schema), meter));
    Ok(report_response(report.await??))
}

async fn report_transform(
    topic: Arc<TopicHandle>,
    sample: TestEvents,
    (program, schema): (Program, Schema),
    meter: Meter,
) -> AdminResult<Vec<u8>> {
    let mut sample = SampleReader::new(topic, sample)?;
    let mut report = TransformTestReport::default();
    while let Some(event) = sample.next().await? {
        meter.pause_if_used_up().await?;
        let id = event.id().into_owned();
        let result = program.apply(&event, schema);
        let bytes = id.len() + result.as_ref().map_or(0, Transformed::bytes);
        meter.reserve_bytes(LINE_BYTES + COPIES * bytes)?;
        add_transform_result(&mut report, id, result);
    }
    serialize(&report)
}

/// Refuses a sample that the caller may not see.
fn check_sample(permissions: &Permissions, sample: &TestEvents) -> AdminResult<()> {
    if matches!(sample, TestEvents::Newest(_)) && permissions.is_by_portal() {
        let why = "the newest events of a topic are not for one event subscription only; give \
            events to test";
        return Err(AdminError::PortalLink(why));
    }
    Ok(())
}

fn serialize(report: &impl Serialize) -> AdminResult<Vec<u8>> {
    serde_json::to_vec(report).map_err(|_| AdminError::Broken("a report is not JSON"))
}

fn report_response(report: Vec<u8>) -> HttpResponse {
    HttpResponse::Ok()
        .content_type(ContentType::json())
        .body(report)
}

/// Reads the events of a sample, a part of the log at a time.
struct SampleReader {
    topic: Arc<TopicHandle>,
    events: std::vec::IntoIter<Event>,
    /// The part of the log that is not read yet.
    rest: Range<Seq>,
}

impl SampleReader {
    fn new(topic: Arc<TopicHandle>, sample: TestEvents) -> AdminResult<Self> {
        let (events, rest) = match sample {
            TestEvents::Given(events) => (
                read_given_events(&topic.record(), &events)?,
                Seq::FIRST..Seq::FIRST,
            ),
            TestEvents::Newest(count) => (Vec::new(), topic.newest_range(count)),
        };
        Ok(Self {
            topic,
            events: events.into_iter(),
            rest,
        })
    }

    async fn next(&mut self) -> AdminResult<Option<Event>> {
        loop {
            if let Some(event) = self.events.next() {
                return Ok(Some(event));
            }
            if self.rest.is_empty() {
                return Ok(None);
            }
            let (events, rest) = self
                .topic
                .events_of(self.rest.clone())
                .await
                .map_err(unreadable_events)?;
            (self.events, self.rest) = (events.into_iter(), rest);
        }
    }
}

/// The given events, read by the rules of publishing.
fn read_given_events(topic: &TopicRecord, events: &RawValue) -> AdminResult<Vec<Event>> {
    let content_type = match topic.input_schema {
        Schema::CloudEvents => "application/cloudevents-batch+json",
        Schema::EventGrid | Schema::Custom => "application/json",
    };
    let content = schema::RequestContent {
        content_type: Some(content_type),
        ..schema::RequestContent::default()
    };
    let body = events.get().trim().to_owned();
    let body = if body.starts_with('[') {
        body
    } else {
        format!("[{body}]")
    };
    let draft = schema::read_events(
        &schema::EventTarget::for_topic(topic),
        &content,
        &body.into(),
        &PublishLimits::default(),
    )
    .map_err(|refusal| {
        InvalidRequest::new(
            "events",
            format!(
                "would be refused: {}",
                refusal.to_string().trim_end_matches('.')
            ),
        )
    })?;
    let mut read = Vec::new();
    for chunk in draft.into_chunks() {
        let chunk = Chunk::decode(
            Seq::FIRST,
            chunk.stamp_record(Timestamp::default(), RunningTotals::default()),
        );
        let events = chunk.and_then(|chunk| chunk.decode_events());
        read.extend(
            events.map_err(|damaged| {
                unreadable_events(journal::Error::Damaged(damaged.to_string()))
            })?,
        );
    }
    Ok(read)
}

fn unreadable_events(error: journal::Error) -> AdminError {
    AdminError::Unavailable(format!("The log of the topic could not be read: {error}."))
}
