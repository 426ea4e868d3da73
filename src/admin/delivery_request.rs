//! `GET …/request`: the request that delivers events of the log, with its body and without secrets.
//!
//! Bodies are not stored. The request is made again from the stored events with the present
//! settings of the event subscription, by the code that sends it. Nothing is sent. Only events that
//! match the filter are in it, so that holders of portal links see no others.

use std::sync::Arc;

use serde::Deserialize;

use super::{AdminError, arm::Call, events::require_shard, model::InvalidRequest, query};
use crate::{AdminResult, model::refuse_value, respond_json};
use gridhook_api::delivery_request::DeliveryRequestView;
use gridhook_compute::Meter;
use gridhook_engine::control::registry::TopicHandle;
use gridhook_event::{Event, Seq, WallTime};
use gridhook_subscription::DeliveryPlan;

/// Maximum bytes of the events of a shown request.
const SHOWN_BYTES_MAX: usize = 1 << 20;

/// Maximum reads of the log for a shown request.
const SHOWN_READS_MAX: usize = 40;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RangeQuery {
    from: u64,
    to: Option<u64>,
    #[serde(default = "first_attempt")]
    attempt: u32,
    /// The shard of a spread topic. The router reads it.
    #[serde(rename = "shard")]
    _shard: Option<u32>,
    /// The API version. Azure's clients send it with every request.
    #[serde(rename = "api-version")]
    _api_version: Option<String>,
}

fn first_attempt() -> u32 {
    1
}

/// The events of a request, and whether there are more.
struct RequestEvents {
    events: Vec<Event>,
    is_cut: bool,
}

/// `GET …/request?from=…&to=…&attempt=…`.
pub(super) async fn show_request(call: Call<'_>) -> AdminResult {
    let query: RangeQuery = query::read(call.request()?.query_string(), "from, to or attempt")?;
    let first = Seq(query.from);
    let end = Seq(query.to.unwrap_or(query.from)).plus(1);
    if first < Seq::FIRST || end <= first {
        return refuse_value(
            "to",
            "is before `from`; expected a range of sequence numbers",
        );
    }
    let topic = call.find_topic()?;
    require_shard(call, &topic)?;
    let plan = topic
        .delivery_plan(&call.path.subscription()?)
        .ok_or_else(|| call.no_subscription())?;
    let wall = call.control.clock.wall_time();
    let attempts_before = query.attempt.saturating_sub(1);
    let view = call
        .compute(|meter| rebuild_request(topic, plan, first..end, (attempts_before, wall), meter));
    respond_json(&view.await??)
}

async fn rebuild_request(
    topic: Arc<TopicHandle>,
    plan: Arc<DeliveryPlan>,
    range: std::ops::Range<Seq>,
    (attempts_before, wall): (u32, WallTime),
    meter: Meter,
) -> AdminResult<DeliveryRequestView> {
    let RequestEvents { events, is_cut } = read_matching(&topic, &plan, range, &meter).await?;
    if events.is_empty() {
        let missing =
            "The log of the topic no longer has these events, or none matches the filter.";
        return Err(AdminError::NotFound(missing.to_owned()));
    }
    let count = events.len();
    let request = plan
        .show_request(events, attempts_before, wall)
        .map_err(|error| InvalidRequest::new("from", format!("cannot be delivered: {error}")))?;
    let system_data = plan.record.system_data.as_ref();
    Ok(DeliveryRequestView {
        head: request.head,
        body: String::from_utf8_lossy(&request.body).into_owned(),
        events: count,
        truncated: is_cut,
        settings_since: system_data.map(|data| data.modified.at.to_string()),
    })
}

async fn read_matching(
    topic: &TopicHandle,
    plan: &DeliveryPlan,
    mut rest: std::ops::Range<Seq>,
    meter: &Meter,
) -> AdminResult<RequestEvents> {
    let mut events = Vec::new();
    let mut bytes = 0;
    for _ in 0..SHOWN_READS_MAX {
        if rest.is_empty() {
            break;
        }
        let (read, after) = topic.events_of(rest).await?;
        rest = after;
        for event in read {
            meter.pause_if_used_up().await?;
            if !plan.record.filter.matches(&event) {
                continue;
            }
            bytes += event.wire_len();
            if bytes > SHOWN_BYTES_MAX && !events.is_empty() {
                let is_cut = true;
                return Ok(RequestEvents { events, is_cut });
            }
            events.push(event);
        }
    }
    let is_cut = !rest.is_empty();
    Ok(RequestEvents { events, is_cut })
}
