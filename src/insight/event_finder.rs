//! Finds an event that somebody asks about, and what is known of it, for [`policy::explain`](crate::policy::explain).
//!
//! By its sequence it is found exactly. By its id it is searched for where pending events are, each place with a bound:
//! among the requests on their way, among what falls due next, and in the log from a little below the cursor on. An answer
//! that finds nothing says where it has looked. An id may be published twice; the first that is found is told.
//!
//! It reads beside the actor and asks it nothing: an actor that is busy, or dead, can be explained too.

use std::{collections::BTreeSet, sync::Arc};

use crate::{
    event::{Event, Lane, Seq, Timestamp},
    journal::{self, ReaderPool},
    policy::{
        OutgoingBatch,
        explain::{self, ExplainInput, Explanation, StoredEvent, WaitingDeadLetter},
        record::{Cursor, DueKey},
    },
    subscription::shared_state::SharedState,
};

/// 4,096 events on their way, and as many that fall due next, are looked at: a second's work for the reading threads.
const EVENTS_MAX: usize = 4_096;

/// 16 MiB of the log …
const LOG_BYTES_MAX: usize = 16 * 1024 * 1024;

/// … in slices, so that others read in between …
const SLICE_BYTES: usize = 512 * 1024;

/// … from so many events below the cursor on: what has just been delivered is asked about too.
const PASSED_EVENTS: u64 = 4_096;

/// Which event is asked about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventSelector {
    /// The one at this place of the log.
    Seq(Seq),
    /// One with this id.
    Id(String),
}

/// What is told of an event.
#[derive(Clone, Debug)]
pub struct EventAccount {
    /// Its place in the log.
    pub seq: Seq,
    /// Its id, where the store has it.
    pub id: Option<String>,
    /// When the journal took it, where the store has it.
    pub appended: Option<Timestamp>,
    /// How far the subscription has come.
    pub cursor: Cursor,
    /// Where it is, and what would become of it.
    pub explanation: Explanation,
}

/// Where an event was searched for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SearchedRange {
    /// Events on their way.
    pub in_flight: usize,
    /// Owed events, in the order of falling due.
    pub pending: usize,
    /// The log from here …
    pub from: Seq,
    /// … to before here.
    pub upto: Seq,
}

/// What came of a question.
#[derive(Clone, Debug)]
pub enum ExplainAnswer {
    /// It was found.
    Found(Box<EventAccount>),
    /// It was not, there.
    NotFound(SearchedRange),
}

/// Explains an event to whoever asks; the log ends at `end`.
///
/// # Errors
/// Where the store cannot be read, or does not have the subscription any more.
pub async fn explain(
    shared: &SharedState,
    reads: &ReaderPool,
    wanted: EventSelector,
    end: Seq,
    now: Timestamp,
) -> Result<ExplainAnswer, journal::Error> {
    // Before the disk is read: a request that lands meanwhile is told as it was, and never as if it had not been.
    let (plan, requests) = (shared.plan(), shared.requests_in_flight());
    let seq = match wanted {
        EventSelector::Seq(seq) => seq,
        EventSelector::Id(id) => match search(shared, reads, &requests, &id, end).await? {
            Ok(seq) => seq,
            Err(looked) => return Ok(ExplainAnswer::NotFound(looked)),
        },
    };
    let dossier = reads.event_records(shared.subscription_key, seq).await?;
    let stored = |event: &Event| StoredEvent { appended: event.appended, matches: plan.filter().matches(event) };
    let record = dossier.dead.as_ref().map(|(dead, due)| (dead, *due));
    let explanation = explain::explain(ExplainInput {
        settings: &plan.settings,
        cursor: &dossier.cursor,
        endpoint: shared.state().endpoint,
        requests: &requests,
        end,
        seq,
        event: dossier.event.as_ref().map(stored),
        // What a replay owes is another obligation.
        pending: dossier.pending.iter().find(|(lane, _)| !lane.is_job()).map(|(lane, owed)| (*lane, owed)),
        dead: dossier.is_dead.then_some(WaitingDeadLetter { record }),
        clients: shared.waiting(),
        now,
    });
    let id = dossier.event.as_ref().map(|event| event.id().into_owned());
    let appended = dossier.event.as_ref().map(|event| event.appended);
    Ok(ExplainAnswer::Found(Box::new(EventAccount { seq, id, appended, cursor: dossier.cursor, explanation })))
}

/// The place of the first event with this id, or where it is not.
async fn search(
    shared: &SharedState,
    reads: &ReaderPool,
    requests: &[Arc<OutgoingBatch>],
    id: &str,
    end: Seq,
) -> Result<Result<Seq, SearchedRange>, journal::Error> {
    let in_flight: BTreeSet<(Lane, Seq)> =
        requests.iter().flat_map(|request| &request.items).map(|item| item.key()).collect();
    let in_flight: Vec<(Lane, Seq)> = in_flight.into_iter().take(EVENTS_MAX).collect();
    let (due, _) = reads.due(shared.subscription_key, DueKey::at(Timestamp::default()), EVENTS_MAX).await?;
    let owed: Vec<(Lane, Seq)> = due.into_iter().map(|key| (key.lane, key.seq)).collect();
    let (in_flight_count, owed_count) = (in_flight.len(), owed.len());
    for mut keys in [in_flight, owed] {
        while !keys.is_empty() {
            let fetched = reads.fetch(shared.subscription_key, keys.clone(), SLICE_BYTES).await?;
            if let Some(found) =
                fetched.iter().filter_map(|fetched| fetched.event.as_ref()).find(|event| event.id() == id)
            {
                return Ok(Ok(found.seq));
            }
            // At least one is always answered.
            keys.drain(..fetched.len().max(1).min(keys.len()));
        }
    }
    let read = shared.state().own_low.min(end);
    let from = Seq(read.0.saturating_sub(PASSED_EVENTS).max(Seq::FIRST.0));
    let (mut upto, mut bytes) = (from, 0);
    while upto < end && bytes < LOG_BYTES_MAX {
        let slice = reads.log(shared.subscription_key.partition, upto, end, SLICE_BYTES).await?;
        for chunk in &slice.chunks {
            bytes += chunk.bytes_len();
            let events = chunk.events().map_err(|error| journal::Error::Damaged(error.to_string()))?;
            if let Some(found) = events.iter().find(|event| event.seq >= from && event.id() == id) {
                return Ok(Ok(found.seq));
            }
        }
        upto = slice.upto;
    }
    Ok(Err(SearchedRange { in_flight: in_flight_count, pending: owed_count, from, upto }))
}
