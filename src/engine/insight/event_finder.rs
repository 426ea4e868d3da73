//! Finds an event by sequence or id, with everything that
//! [`policy::explain`](gridhook_policy::explain) needs.
//!
//! A sequence is found exactly. An id is searched for, each step with a bound: among the requests
//! in flight, the events that are due next, and the log from a little below the cursor. If it is
//! not found, the response lists the searched ranges. If an id was published twice, the first match
//! is returned.
//!
//! It reads shared state and the store, and sends nothing to the actor: a busy or stopped actor can
//! be explained too.

use std::{collections::BTreeSet, sync::Arc};

use gridhook_event::{Event, Lane, Seq, Timestamp};
use gridhook_journal as journal;
use gridhook_journal::ReaderPool;
use gridhook_policy::{
    OutgoingBatch,
    explain::{self, ExplainInput, Explanation, StoredEvent, WaitingDeadLetter},
    record::{Cursor, DueKey},
};
use gridhook_subscription::shared_state::SharedState;

/// Maximum requests in flight, and maximum due events, that are searched: about a second of
/// reading.
const EVENTS_MAX: usize = 4_096;

/// Maximum bytes of the log that are searched.
const LOG_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Bytes per read, so that other reads run in between.
const SLICE_BYTES: usize = 512 * 1024;

/// The search begins this many events below the cursor, to find recently delivered events too.
const PASSED_EVENTS: u64 = 4_096;

/// The event that is searched for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventSelector {
    Seq(Seq),
    Id(String),
}

#[derive(Clone, Debug)]
pub struct EventReport {
    pub seq: Seq,
    /// The id of the event, if the store has it.
    pub id: Option<String>,
    /// The time at which the event was appended, if the store has it.
    pub appended: Option<Timestamp>,
    pub cursor: Cursor,
    /// The state of the event, and what will happen to it.
    pub explanation: Explanation,
}

/// The ranges that were searched for an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SearchedRange {
    /// Number of events in flight.
    pub in_flight: usize,
    /// Number of pending events, in order of their due time.
    pub pending: usize,
    /// The first searched sequence.
    pub from: Seq,
    /// The sequence after the last searched one.
    pub upto: Seq,
}

/// The result of an explanation.
#[derive(Clone, Debug)]
pub enum ExplainResult {
    Found(Box<EventReport>),
    /// The event was not found in these ranges.
    NotFound(SearchedRange),
}

/// Explains an event of a log that ends at `end`.
///
/// # Errors
/// If the store cannot be read or no longer has the subscription.
pub async fn explain_event(
    shared: &SharedState,
    reads: &ReaderPool,
    selector: EventSelector,
    end: Seq,
    now: Timestamp,
) -> Result<ExplainResult, journal::Error> {
    // Taken before the store is read: a request that ends meanwhile is reported as in flight, never
    // as absent.
    let plan = shared.plan();
    let requests = shared.requests_in_flight();
    let seq = match selector {
        EventSelector::Seq(seq) => seq,
        EventSelector::Id(id) => match search_id(shared, reads, &requests, &id, end).await? {
            Ok(seq) => seq,
            Err(range) => return Ok(ExplainResult::NotFound(range)),
        },
    };
    let mut records = reads.event_records(shared.subscription_key, seq).await?;
    // The cursor has the wait requested of another subscription once the actor has run.
    let pace = &mut records.cursor.pace;
    let endpoint = plan.settings.endpoint;
    pace.not_before = pace.wait_of(endpoint).max(plan.requested_wait());
    pace.requested_by = Some(endpoint);
    let stored_event = |event: &Event| StoredEvent {
        appended: event.appended,
        matches: plan.filter().matches(event),
    };
    let record = records.dead.as_ref().map(|(dead, due)| (dead, *due));
    let explanation = explain::explain_event(ExplainInput {
        settings: &plan.settings,
        cursor: &records.cursor,
        endpoint: &shared.read_state(|state| state.endpoint.clone()),
        requests: &requests,
        end,
        seq,
        event: records.event.as_ref().map(stored_event),
        // A replay's pending delivery is separate from the regular one.
        pending: records
            .pending
            .iter()
            .find(|(lane, _)| !lane.is_job())
            .map(|(lane, pending)| (*lane, pending)),
        dead: records.is_dead.then_some(WaitingDeadLetter { record }),
        clients: shared.waiting_clients(),
        now,
    });
    let id = records.event.as_ref().map(|event| event.id().into_owned());
    let append_time = records.event.as_ref().map(|event| event.appended);
    Ok(ExplainResult::Found(Box::new(EventReport {
        seq,
        id,
        appended: append_time,
        cursor: records.cursor,
        explanation,
    })))
}

/// The sequence of the first event with this id, or what was searched.
async fn search_id(
    shared: &SharedState,
    reads: &ReaderPool,
    requests: &[Arc<OutgoingBatch>],
    id: &str,
    end: Seq,
) -> Result<Result<Seq, SearchedRange>, journal::Error> {
    let in_flight: BTreeSet<(Lane, Seq)> = requests
        .iter()
        .flat_map(|request| &request.items)
        .map(|item| item.key())
        .collect();
    let in_flight: Vec<(Lane, Seq)> = in_flight.into_iter().take(EVENTS_MAX).collect();
    let (due, _) = reads
        .read_due_keys(
            shared.subscription_key,
            DueKey::first_at(Timestamp::default()),
            EVENTS_MAX,
        )
        .await?;
    let pending: Vec<(Lane, Seq)> = due.into_iter().map(|key| (key.lane, key.seq)).collect();
    let in_flight_count = in_flight.len();
    let pending_count = pending.len();
    for mut keys in [in_flight, pending] {
        while !keys.is_empty() {
            let page = reads
                .fetch_pending(shared.subscription_key, keys.clone(), SLICE_BYTES)
                .await?;
            let mut events = page.iter().filter_map(|delivery| delivery.event.as_ref());
            if let Some(event) = events.find(|event| event.id() == id) {
                return Ok(Ok(event.seq));
            }
            // A fetch returns at least one entry.
            keys.drain(..page.len().max(1).min(keys.len()));
        }
    }
    let cursor = shared.current_state().own_low.min(end);
    let from = Seq(cursor.0.saturating_sub(PASSED_EVENTS).max(Seq::FIRST.0));
    let mut upto = from;
    let mut bytes = 0;
    while upto < end && bytes < LOG_BYTES_MAX {
        let slice = reads
            .read_log(shared.subscription_key.partition, upto, end, SLICE_BYTES)
            .await?;
        for chunk in &slice.chunks {
            bytes += chunk.bytes_len();
            let events = chunk
                .decode_events()
                .map_err(|error| journal::Error::Damaged(error.to_string()))?;
            let is_match = |event: &&Event| event.seq >= from && event.id() == id;
            if let Some(event) = events.iter().find(is_match) {
                return Ok(Ok(event.seq));
            }
        }
        upto = slice.upto;
    }
    Ok(Err(SearchedRange {
        in_flight: in_flight_count,
        pending: pending_count,
        from,
        upto,
    }))
}
