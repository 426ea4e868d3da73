//! The recovery of the state machine from its records and from the requests without a durable
//! outcome.

use std::{collections::HashSet, sync::Arc};

use super::{
    OutgoingBatch, SendItem, SubscriptionSettings,
    in_flight::InFlight,
    jobs::Jobs,
    log::LogReading,
    ordering::{KeyOrder, Ordering},
    queue::SendQueue,
    queues::SendQueues,
    settlement::{RecoveredParts, Settlement},
};
use crate::{
    endpoint::Endpoint,
    lane::LaneReader,
    record::{BLOCKING, Cursor, Traffic, lease::RELEASED_FOR},
    retry,
    retry_window::RetryWindow,
};
use gridhook_event::{Lane, RequestId, Seq, Timestamp};

type LaneEvents = Vec<(Lane, Seq)>;

pub(super) fn recover_endpoint(
    settings: &SubscriptionSettings,
    cursor: &Cursor,
    requests: &[Arc<OutgoingBatch>],
    now: Timestamp,
) -> Endpoint {
    let own_requests = requests
        .iter()
        .filter(|request| request.endpoint == settings.endpoint);
    let left = own_requests.map(|request| (request.id, request.sent));
    Endpoint::from_cursor(settings, cursor, left, now)
}

pub(super) fn recover_settlement(
    settings: Arc<SubscriptionSettings>,
    cursor: &Cursor,
    end: Seq,
    requests: Vec<Arc<OutgoingBatch>>,
    next_request: RequestId,
    now: Timestamp,
) -> Settlement {
    let mut log = LogReading::from_cursor(cursor, end);
    let lost = find_lost(&log, &requests);
    note_first_attempts(&mut log, &requests);
    let order = KeyOrder::new(recover_order(&settings, cursor, &requests, &lost));
    let recovered = RecoveredParts {
        log,
        queues: recover_queues(&settings, cursor, lost),
        requests: InFlight::from_requests(requests, next_request),
        order,
        jobs: Jobs::from_cursor(&cursor.jobs, cursor.jobs_begun, now),
        settings,
    };
    Settlement::new(recovered, cursor)
}

/// The items of these requests.
fn iter_items(requests: &[Arc<OutgoingBatch>]) -> impl Iterator<Item = &SendItem> {
    requests.iter().flat_map(|request| &request.items)
}

/// Events that are open and in no request.
fn find_lost(log: &LogReading, requests: &[Arc<OutgoingBatch>]) -> Vec<(Lane, Seq)> {
    let in_flight: HashSet<(Lane, Seq)> = iter_items(requests).map(SendItem::key).collect();
    log.iter()
        .flat_map(open_events)
        .filter(|key| !in_flight.contains(key))
        .collect()
}

fn open_events(lane: &LaneReader) -> impl Iterator<Item = (Lane, Seq)> {
    lane.in_flight().iter().map(|seq| (lane.lane(), seq))
}

/// A first attempt sent after the previous incarnation's last write is open, although the cursor
/// does not include it.
fn note_first_attempts(log: &mut LogReading, requests: &[Arc<OutgoingBatch>]) {
    for item in iter_items(requests).filter(|item| item.due.is_none()) {
        if let Some(lane) = log.lane_mut(item.lane) {
            lane.note_in_flight(item.seq);
        }
    }
}

fn recover_order(
    settings: &SubscriptionSettings,
    cursor: &Cursor,
    requests: &[Arc<OutgoingBatch>],
    lost: &[(Lane, Seq)],
) -> Option<Box<Ordering>> {
    let order = settings.order.as_ref()?;
    let open = iter_items(requests)
        .map(SendItem::key)
        .chain(lost.iter().copied())
        .filter(|(lane, _)| !lane.is_job());
    let detached_keys = requests
        .iter()
        .flat_map(|request| request.detached_keys.iter().copied());
    let one_of_a_key = settings.pull.is_some() || order.one_of_a_key;
    Some(Box::new(Ordering::from_settings(
        order,
        one_of_a_key,
        open,
        detached_keys,
        cursor.next_due.is_some(),
    )))
}

fn recover_queues(
    settings: &SubscriptionSettings,
    cursor: &Cursor,
    lost: Vec<(Lane, Seq)>,
) -> SendQueues {
    let longest_wait = match settings.pull {
        None => retry::longest_wait(&settings.edition, settings.destination),
        Some(pull) => RELEASED_FOR.max(pull.lock),
    };
    let is_ordered = settings.order.is_some();
    // An event that is held back is not in the window, unless the order was removed.
    let next_due = cursor.next_due.filter(|due| !is_ordered || *due < BLOCKING);
    let window = match settings.pull {
        None => RetryWindow::from_first_due(next_due, longest_wait),
        // The number of leased events is bounded, and due events are examined even if no client
        // waits.
        Some(_) => RetryWindow::recover_roomy(next_due, longest_wait),
    };
    let (lost_by_jobs, lost): (LaneEvents, LaneEvents) = lost
        .into_iter()
        .partition(|(lane, _)| Traffic::from_lane(*lane) == Traffic::Jobs);
    let live = SendQueue::new(window, lost.into_iter(), is_ordered);
    // Without a job no job delivery is pending.
    let jobs_due = next_due.filter(|_| !cursor.jobs.is_empty());
    let has_jobs = jobs_due.is_some() || !lost_by_jobs.is_empty();
    let jobs =
        has_jobs.then(|| Box::new(SendQueue::for_jobs(jobs_due, longest_wait, lost_by_jobs)));
    SendQueues::new(live, jobs)
}
