//! `POST …/retry`: pending deliveries are sent now instead of when they are due, given ones or all
//! of them, in parts.

use std::time::Duration;

use tracing::info;

use super::{
    arm::Call,
    model::{CheckResult, InvalidRequest},
};
use crate::{AdminResult, model::refuse_value, respond_json};
use gridhook_api::retry::{DELIVERIES_MAX, RetriedView, RetryNowBody};
use gridhook_engine::control::registry::SubscriptionStatus;
use gridhook_event::{Lane, Seq, Timestamp};
use gridhook_policy::record::{BLOCKING, DueKey, Health, RetryRequest};

/// `POST …/retry`.
pub(super) async fn retry_deliveries(call: Call<'_>) -> AdminResult {
    let control = call.control;
    let topic = call.find_topic()?;
    let subscription = call.path.subscription()?;
    let missing = || call.no_subscription();
    let now = control.clock.now();
    let RetryNowBody {
        all,
        sequences,
        after,
    } = call.read_body()?;
    let (request, next) = match (all, sequences) {
        (true, None) => {
            let first = || (DueKey::first_at(now.after(Duration::from_micros(1))), now);
            let (from, started) = after
                .as_deref()
                .map(parse_position)
                .transpose()?
                .unwrap_or_else(first);
            let page = topic
                .pending_from(&subscription, from, DELIVERIES_MAX)
                .await?;
            let (mut keys, is_end) = page.ok_or_else(missing)?;
            // Deliveries that wait for another event of their order key are last.
            let waiting = keys.partition_point(|key| key.due < BLOCKING);
            let is_end = is_end || waiting < keys.len();
            keys.truncate(waiting);
            let next = keys
                .last()
                .filter(|_| !is_end)
                .map(|last| format_position(last, started));
            (
                RetryRequest {
                    keys: keys.iter().map(|key| (key.lane, key.seq)).collect(),
                    tried_before: started,
                },
                next,
            )
        }
        (false, Some(sequences))
            if (1..=DELIVERIES_MAX).contains(&sequences.len()) && after.is_none() =>
        {
            let lanes =
                |seq: u64| [Lane::LIVE, Lane::BACKLOG, Lane::RECENT].map(|lane| (lane, Seq(seq)));
            let keys = sequences.into_iter().flat_map(lanes).collect();
            (
                RetryRequest {
                    keys,
                    tried_before: Timestamp::NEVER,
                },
                None,
            )
        }
        _ => {
            let problem = format!(
                "is not a selection; expected either \"all\": true, with or without \"after\", \
                 or 1 to {DELIVERIES_MAX} \"sequences\""
            );
            return refuse_value("the body", problem);
        }
    };
    let topic_key = topic.record().key();
    let events = control
        .registry
        .send_retry(&topic_key, &subscription, request)
        .await?;
    let status = topic
        .read_status(&subscription)
        .await?
        .ok_or_else(missing)?;
    let waits_until = wait_end(&status)
        .filter(|until| control.clock.now() < *until)
        .map(|until| until.to_string());
    info!(
        topic = topic_key,
        subscription, events, "retries brought forward"
    );
    respond_json(&RetriedView {
        events,
        next,
        waits_until,
    })
}

/// The time until which the endpoint is not called.
fn wait_end(SubscriptionStatus { cursor, .. }: &SubscriptionStatus) -> Option<Timestamp> {
    match cursor.health {
        Health::Suspended { until, .. } => Some(until),
        Health::Healthy { .. } | Health::Probing { .. } => cursor.pace.not_before,
    }
}

/// The position behind a key, and the time of the first part, as the response has them.
fn format_position(DueKey { due, lane, seq }: &DueKey, started: Timestamp) -> String {
    format!("{}-{}-{}-{}", due.0, lane.0, seq.plus(1).0, started.0)
}

fn parse_position(text: &str) -> CheckResult<(DueKey, Timestamp)> {
    let parts: Result<Vec<u64>, _> = text.split('-').map(str::parse).collect();
    let lane = |lane: u64| u16::try_from(lane).map(Lane).ok();
    let position = match parts.as_deref() {
        Ok(&[due, of, seq, started]) => lane(of).map(|lane| {
            (
                DueKey {
                    due: Timestamp(due),
                    lane,
                    seq: Seq(seq),
                },
                Timestamp(started),
            )
        }),
        Ok(_) | Err(_) => None,
    };
    position.ok_or_else(|| InvalidRequest::unexpected("after", text, "`next` of a response"))
}
