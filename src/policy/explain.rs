//! Why an event waits, and when each of its next attempts would be.
//!
//! The same functions are asked that will decide ([`retry::judge`] above all), so that the answer is what would happen. It is
//! a forecast all the same: it takes every further attempt to fail like the last one, and the endpoint not to be suspended
//! meanwhile nor to ask for a longer wait. A pace is named, not reckoned with: it depends on all the others who wait.
//!
//! Invariants: chance is named, never drawn: each attempt has the time before which it will not be, and how much later it
//! may be by chance. The schedule ends as the event would, by attempts, by time to live or with the probation that it falls
//! due in, and says by which.
//!
//! Absent on purpose: how what is known was found. Whoever asks gathers the [`ExplainInput`], from the disk and from memory; where
//! the two were read at different moments, the later word is the flights'.

mod pulled;

use std::{sync::Arc, time::Duration};

use crate::{
    event::{Lane, Seq, Timestamp},
    policy::{
        OutgoingBatch, SendItem, SubscriptionSettings,
        batch::LastAttempt,
        endpoint,
        outcome::{Outcome, Reason, RequestResult},
        record::{Cursor, DeadLetterRecord, EndpointView, Health, HeldBy, LaneCursor, PendingDelivery, Rate},
        retry::{self, Failed, Jitter, RetryDecision},
    },
};

/// So many attempts are foretold at the most: more than any edition of Azure's allows.
const FORETOLD_MAX: usize = 100;

/// What is known of an event and of a subscription that it may be for.
#[derive(Clone, Copy, Debug)]
pub struct ExplainInput<'a> {
    /// How the subscription wants to be served.
    pub settings: &'a SubscriptionSettings,
    /// How far it has come, with its health.
    pub cursor: &'a Cursor,
    /// Its endpoint, beside what the cursor says of it.
    pub endpoint: EndpointView,
    /// Its requests on their way.
    pub requests: &'a [Arc<OutgoingBatch>],
    /// Where its log ends.
    pub end: Seq,
    /// Which event.
    pub seq: Seq,
    /// The event, where the store has it.
    pub event: Option<StoredEvent>,
    /// What is owed of it, for which lane.
    pub pending: Option<(Lane, &'a PendingDelivery)>,
    /// Whether it waits for the dead-letter destination.
    pub dead: Option<WaitingDeadLetter<'a>>,
    /// How many clients wait for events, where they are pulled.
    pub clients: usize,
    /// What time it is.
    pub now: Timestamp,
}

/// What an explanation needs of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredEvent {
    /// When the journal took it.
    pub appended: Timestamp,
    /// Whether the filter, as it is now, lets it through.
    pub matches: bool,
}

/// A dead letter that is not written yet.
#[derive(Clone, Copy, Debug)]
pub struct WaitingDeadLetter<'a> {
    /// Its record and when its file is due, where they were found.
    pub record: Option<(&'a DeadLetterRecord, Timestamp)>,
}

/// Where an event is, what holds it up, and what would become of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// Where it is.
    pub state: EventState,
    /// What else stands before its next attempt; nothing where none is to come.
    pub obstacles: Vec<Obstacle>,
    /// Its next attempts; none where none is to come.
    pub forecast: Option<Forecast>,
}

/// Where an event is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventState {
    /// A request with it is on its way.
    InFlight {
        /// Which attempt it is, counted from 1.
        attempt: u32,
        /// When it left.
        since: Timestamp,
        /// When it counts as lost.
        deadline: Timestamp,
    },
    /// It was tried and will be tried again.
    Pending {
        /// When.
        due: Timestamp,
        /// Attempts made.
        attempts: u32,
        /// How the last one ended.
        last: LastAttempt,
    },
    /// A client that pulls has it.
    Locked {
        /// Which attempt it is, counted from 1: the delivery count that the client sees.
        attempt: u32,
        /// When it received it.
        received: Timestamp,
        /// When the lock expires, unless it is renewed.
        until: Timestamp,
        /// When it can be renewed no more.
        renewable: Timestamp,
    },
    /// A client gave it back, and nobody receives it before.
    Released {
        /// When that is over.
        until: Timestamp,
        /// How often it was received.
        attempts: u32,
        /// How the last time ended.
        last: LastAttempt,
    },
    /// It was received before and nobody has it: the next client may.
    Available {
        /// Since when.
        since: Timestamp,
        /// How often it was received.
        attempts: u32,
        /// How the last time ended.
        last: LastAttempt,
    },
    /// It was sent for the first time, by a process that ended before it knew the outcome; it is sent again.
    Open,
    /// It is in the log and not read yet, behind so many others, before the filter.
    Unread {
        /// How many.
        behind: u64,
    },
    /// The filter does not let it through.
    Filtered,
    /// It was given up and waits to be written to the dead-letter destination.
    DeadLetter {
        /// Why, and when its file is due, where the record was found.
        given_up: Option<(Reason, Timestamp)>,
    },
    /// It was delivered or given up: the ledger knows.
    Passed,
    /// It was not published yet.
    Unpublished,
}

/// What stands before every attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// The subscription is held. The forecast is what it would be if it were let go now.
    Held {
        /// Who said so.
        by: HeldBy,
    },
    /// The endpoint is left alone.
    Suspended {
        /// The outcome that decided for how long.
        cause: Outcome,
        /// When it began.
        since: Timestamp,
        /// When a probe may go out.
        until: Timestamp,
        /// How many times in a row.
        consecutive_suspensions: u32,
    },
    /// The endpoint asked to be left alone, with `Retry-After`.
    RetryAfter {
        /// No request leaves before.
        until: Timestamp,
    },
    /// A probe is on its way: everything else waits for its answer.
    Probing {
        /// The outcome that began it.
        cause: Outcome,
        /// When the suspension began.
        since: Timestamp,
        /// How many times in a row it was suspended.
        consecutive_suspensions: u32,
    },
    /// The endpoint is called at a pace: who is due waits for his turn, and the forecast does not know how long.
    Paced {
        /// Requests at most.
        rate: Rate,
    },
    /// So many events were received and have not ended that clients get no new ones.
    Full {
        /// How many.
        pending: u64,
        /// How many there may be.
        most: u32,
    },
    /// No client waits for events.
    NobodyWaits,
}

/// What would happen if every attempt failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forecast {
    /// How each is taken to fail: like the last one, or else as the endpoint was suspended for, or else by silence.
    pub failure: Outcome,
    /// With which status, if with any.
    pub status: Option<u16>,
    /// The attempts, in order. Where one is in flight, they are counted as if it failed now.
    pub attempts: Vec<ForecastAttempt>,
    /// How it ends; [`None`] where more attempts follow than are foretold.
    pub end: Option<ForecastEnd>,
}

/// An attempt to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForecastAttempt {
    /// Which, counted from 1.
    pub number: u32,
    /// Not before.
    pub at: Timestamp,
    /// By chance so much later at the most.
    pub later_max: Duration,
}

/// The end of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForecastEnd {
    /// Which limit ends it.
    pub reason: Reason,
    /// When, but for chance.
    pub at: Timestamp,
}

/// Explains an event.
pub fn explain(facts: ExplainInput<'_>) -> Explanation {
    if let Some(pull) = facts.settings.pull {
        return pulled::explain(&facts, pull);
    }
    let state = state(&facts);
    let next = match &state {
        EventState::InFlight { attempt, since, .. } => {
            Some(FirstStep::AfterFailure { attempts: *attempt, sent: *since })
        }
        EventState::Pending { due, attempts, .. } => Some(FirstStep::At { due: *due, attempts: *attempts }),
        EventState::Open | EventState::Unread { .. } => Some(FirstStep::At { due: facts.now, attempts: 0 }),
        EventState::Locked { .. } | EventState::Released { .. } | EventState::Available { .. } => None,
        EventState::Filtered | EventState::DeadLetter { .. } | EventState::Passed | EventState::Unpublished => None,
    };
    let obstacles = if next.is_some() { obstacles(&facts) } else { Vec::new() };
    Explanation { state, obstacles, forecast: next.map(|next| forecast(&facts, next)) }
}

fn state(facts: &ExplainInput<'_>) -> EventState {
    let ExplainInput { settings, cursor, requests, seq, event, pending: owed, dead, now, .. } = *facts;
    let is_it = |item: &&SendItem| item.seq == seq && !item.lane.is_job();
    let in_flight = requests.iter().find_map(|request| Some((request, request.items.iter().find(is_it)?)));
    if let Some((request, item)) = in_flight {
        return EventState::InFlight { attempt: item.attempts + 1, since: request.sent, deadline: request.deadline };
    }
    if let Some((_, owed)) = owed.filter(|_| settings.pull.is_some()) {
        return pulled::pending_state(owed, now);
    }
    if let Some((_, PendingDelivery { attempts, due, last, status, tried, received: _ })) = owed {
        let last = LastAttempt { outcome: *last, status: *status, tried: *tried };
        return EventState::Pending { due: *due, attempts: *attempts, last };
    }
    if let Some(WaitingDeadLetter { record }) = dead {
        return EventState::DeadLetter { given_up: record.map(|(dead, due)| (dead.reason, due)) };
    }
    if seq >= facts.end {
        return EventState::Unpublished;
    }
    if cursor.own_lanes().any(|lane| lane.open.binary_search(&seq).is_ok()) {
        return EventState::Open;
    }
    if event.is_some_and(|event| !event.matches) {
        return EventState::Filtered;
    }
    let is_unread = |lane: &&LaneCursor| {
        lane.read <= seq && lane.end.is_none_or(|end| seq < end) && lane.done.binary_search(&seq).is_err()
    };
    // The lane that comes to it first.
    match cursor.own_lanes().filter(is_unread).map(|lane| seq.0 - lane.read.0).min() {
        // Sequences may have gaps: at most so many.
        Some(behind) => EventState::Unread { behind },
        None => EventState::Passed,
    }
}

fn obstacles(facts: &ExplainInput<'_>) -> Vec<Obstacle> {
    let ExplainInput { cursor, endpoint, requests, .. } = *facts;
    let health = match cursor.health {
        Health::Healthy { .. } => endpoint.rate.map(|rate| Obstacle::Paced { rate }),
        // A probe leaves before that is written.
        Health::Suspended { cause, since, until, consecutive_suspensions }
            if requests.iter().any(|request| request.sent >= until) =>
        {
            Some(Obstacle::Probing { cause, since, consecutive_suspensions })
        }
        Health::Suspended { cause, since, until, consecutive_suspensions } => {
            Some(Obstacle::Suspended { cause, since, until, consecutive_suspensions })
        }
        Health::Probing { cause, since, consecutive_suspensions } => {
            Some(Obstacle::Probing { cause, since, consecutive_suspensions })
        }
    };
    let asked = cursor.pace.not_before.filter(|until| facts.now < *until).map(|until| Obstacle::RetryAfter { until });
    cursor.held.map(|by| Obstacle::Held { by }).into_iter().chain(asked).chain(health).collect()
}

/// What the forecast begins with.
enum FirstStep {
    /// The failure of the attempt in flight.
    AfterFailure { attempts: u32, sent: Timestamp },
    /// An attempt, after so many.
    At { due: Timestamp, attempts: u32 },
}

/// No attempt is foretold, and no end.
fn forecast_of_nothing(failure: Outcome) -> Forecast {
    Forecast { failure, status: None, attempts: Vec::new(), end: None }
}

/// Until when whatever falls due becomes a dead letter at once.
fn condemned_until(facts: &ExplainInput<'_>) -> Option<Timestamp> {
    endpoint::misused_until(facts.cursor.health).filter(|_| facts.settings.dead_letter_in_probation)
}

fn forecast(facts: &ExplainInput<'_>, next: FirstStep) -> Forecast {
    let ExplainInput { settings, cursor, now, .. } = *facts;
    let (opens, cause) = match cursor.health {
        Health::Healthy { .. } => (now, None),
        Health::Suspended { cause, until, .. } => (now.max(until), Some(cause)),
        Health::Probing { cause, .. } => (now, Some(cause)),
    };
    let opens = opens.max(cursor.pace.not_before.unwrap_or_default());
    let failure = match facts.pending {
        Some((_, owed)) if owed.attempts > 0 => RequestResult { status: owed.status, ..RequestResult::bare(owed.last) },
        Some(_) | None => RequestResult::bare(cause.unwrap_or(Outcome::TimedOut)),
    };
    let terms = settings.edition.rules(settings.destination).terms(settings.dead_letter);
    // When its first attempt left, if one has.
    let known = facts.pending.and_then(|(_, owed)| owed.received);
    let fails = |number, first: Option<Timestamp>, sent, ended, jitter| {
        let failed = Failed { number, first: known.or(first).unwrap_or(sent), sent, ended };
        retry::judge(&settings.edition, terms, settings.attempts_max, failed, &failure, jitter)
    };
    let told = |attempts, end| Forecast { failure: failure.outcome, status: failure.status, attempts, end };
    let mut attempts = Vec::new();
    // The first attempt where it is foretold, without chance and with all of it.
    let mut first = None;
    let (mut made, mut at, mut latest) = match next {
        FirstStep::At { due, attempts } => (attempts, due, due),
        FirstStep::AfterFailure { attempts: made, sent } => {
            first = Some((sent, sent));
            match [0.0, 1.0].map(|jitter| fails(made, None, sent, now, Jitter(jitter))) {
                [RetryDecision::Again(at), RetryDecision::Again(latest)] => (made, at, latest),
                [RetryDecision::Never(reason), _] | [_, RetryDecision::Never(reason)] => {
                    return told(attempts, Some(ForecastEnd { reason, at: now }));
                }
            }
        }
    };
    let taken = at.max(now);
    let condemned = condemned_until(facts).is_some_and(|until| taken < until);
    let Some(stored) = facts.event else {
        let at = if condemned { taken } else { at.max(opens) };
        return told(attempts, Some(ForecastEnd { reason: Reason::Missing, at }));
    };
    let expires = settings.expires(stored.appended);
    if condemned {
        let reason = if taken < expires { Reason::ProbationCausedByClientError } else { Reason::TimeToLiveExceeded };
        return told(attempts, Some(ForecastEnd { reason, at: taken }));
    }
    while attempts.len() < FORETOLD_MAX {
        (at, latest) = (at.max(opens), latest.max(opens));
        if at >= expires {
            return told(attempts, Some(ForecastEnd { reason: Reason::TimeToLiveExceeded, at }));
        }
        made += 1;
        attempts.push(ForecastAttempt { number: made, at, later_max: latest.since(at) });
        let (soonest, slowest) = *first.get_or_insert((at, latest));
        let after = fails(made, Some(soonest), at, at, Jitter(0.0));
        match (after, fails(made, Some(slowest), latest, latest, Jitter(1.0))) {
            (RetryDecision::Again(next), RetryDecision::Again(next_latest)) => (at, latest) = (next, next_latest),
            (RetryDecision::Never(reason), _) | (_, RetryDecision::Never(reason)) => {
                return told(attempts, Some(ForecastEnd { reason, at }));
            }
        }
    }
    told(attempts, None)
}
