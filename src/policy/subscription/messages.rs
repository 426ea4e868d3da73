//! The words of the machine: how it is to serve, what it hears, what it says.
//!
//! Invariants:
//! - Each effect names the input that answers it, and each write is answered by [`Input::Durable`].
//! - What is said twice or comes too late does no harm: an answer names what was asked.
//! - They are values: no handle, no address, no channel. Whoever tells the story of a machine can tell it again.

use std::{sync::Arc, time::Duration};

use crate::{
    event::{Event, Lane, RequestId, Seq, Timestamp},
    policy::{
        batch::BatchLimits,
        edition::{Edition, EndpointKind},
        filter::key::FilterKey,
        outcome::RequestResult,
        record::{
            Command, DueKey, FetchedPending, PendingDelivery, Rate, RecordChange, RedrivePage, Traffic,
            lease::{Lease, LeaseClaim, LeaseResult, ReceiveId},
        },
    },
};

/// How a subscription wants to be served.
#[derive(Clone, Debug)]
pub struct SubscriptionSettings {
    /// Which version of the subscription this is: what its filter stops is noted under it.
    pub version: u32,
    /// The tables that it follows.
    pub edition: Arc<Edition>,
    /// Which of them: by the kind of its destination.
    pub destination: EndpointKind,
    /// Attempts, the first one counted.
    pub attempts_max: u32,
    /// How long after its append an event is still tried.
    pub time_to_live: Duration,
    /// What was appended before counts as appended then: a subscription that starts in the past is not to find that all of
    /// it is too old.
    pub since: Timestamp,
    /// What goes into one request.
    pub batch: BatchLimits,
    /// What the events of one request must have in common, besides.
    pub grouping: Arc<[FilterKey]>,
    /// Requests on their way at once, at most.
    pub concurrency_max: u32,
    /// The rate of requests that the endpoint allows, if it said so.
    pub rate_max: Option<Rate>,
    /// When an endpoint returns, fewer unread events than this stay in the live lane: no backlog is made of them.
    pub backlog_min: u32,
    /// So many failed requests in a row suspend the endpoint.
    pub suspend_after: u32,
    /// The least pause between bare connections to an endpoint that could not be reached; none where they are not tried.
    pub reconnect_wait: Duration,
    /// When a request that nobody heard of again counts as lost: longer than any request lasts.
    pub request_wait: Duration,
    /// Whether there is a place for dead letters.
    pub dead_letter: bool,
    /// Whether what falls due while the endpoint is left alone for a client's error becomes a dead letter at once.
    pub dead_letter_in_probation: bool,
    /// Whether 410 holds the subscription.
    pub hold_when_gone: bool,
    /// How clients pull its events; [`None`] where they are pushed.
    pub pull: Option<PullSettings>,
}

impl SubscriptionSettings {
    /// When the time to live ends of an event that was appended then, unless a job sends it once more.
    pub fn expires(&self, appended: Timestamp) -> Timestamp {
        appended.max(self.since).after(self.time_to_live)
    }
}

/// How clients pull.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PullSettings {
    /// For so long a client has an event that it received.
    pub lock: Duration,
    /// So many events at most are received and neither acknowledged nor given up: then new ones wait.
    pub leases_max: u32,
}

/// One obligation, on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendItem {
    /// For which lane.
    pub lane: Lane,
    /// Which event.
    pub seq: Seq,
    /// When the journal took it.
    pub appended: Timestamp,
    /// Attempts made before this one.
    pub attempts: u32,
    /// When it fell due; [`None`] where it was not owed.
    pub due: Option<Timestamp>,
    /// From when on its time to live counts, where that is not its append; of what is pulled, when a client first received
    /// it; where retries are counted from the first attempt, when that left.
    pub since: Option<Timestamp>,
}

impl SendItem {
    /// Which obligation of its subscription it is.
    pub fn key(&self) -> (Lane, Seq) {
        (self.lane, self.seq)
    }
}

/// One request on its way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutgoingBatch {
    /// Which.
    pub id: RequestId,
    /// With these events, all tried equally often before; without those that a late answer has settled since.
    pub items: Vec<SendItem>,
    /// With how many it left.
    pub events: usize,
    /// When it left.
    pub sent: Timestamp,
    /// When it counts as lost.
    pub deadline: Timestamp,
}

/// What has happened.
#[derive(Clone, Debug)]
pub enum Input {
    /// The log ends at `end` by now.
    Appended {
        /// The place of the next event.
        end: Seq,
    },
    /// A slice of the log was read for a lane.
    Read {
        /// Which lane.
        lane: Lane,
        /// From here.
        from: Seq,
        /// Up to here.
        upto: Seq,
        /// How many events it has.
        total: u64,
        /// Those that match.
        events: Vec<Event>,
    },
    /// What was asked for of the log for a lane cannot be read: the store is damaged there.
    Unreadable {
        /// Which lane.
        lane: Lane,
        /// From here.
        from: Seq,
        /// Up to here.
        upto: Seq,
    },
    /// Where in the log events are young enough.
    Position {
        /// What was asked: when these were appended, at the earliest.
        before: Timestamp,
        /// The first of them; the log's end where there is none.
        at: Seq,
        /// When that one was appended, if there is one.
        appended: Option<Timestamp>,
    },
    /// The topic's backlog is too large, and its operator lets the oldest events go.
    Overflow {
        /// What is unread below goes.
        below: Seq,
    },
    /// Others need the memory: what was read and is not sent is forgotten, and read again.
    LetGo,
    /// The next keys in the order of falling due were read.
    DueRead {
        /// Of which part.
        of: Traffic,
        /// The keys.
        keys: Vec<DueKey>,
        /// Whether there are no more.
        all: bool,
    },
    /// What was to be fetched, or the first part of it.
    Fetched(Vec<FetchedPending>),
    /// A request came back, or did not.
    Finished {
        /// Which.
        request: RequestId,
        /// With what.
        answer: RequestResult,
    },
    /// A request that was given up as timed out was answered with success after all. Comes after its
    /// [`Input::Finished`]; that it came is told until it is durable ([`SubscriptionWrite::late`]).
    Late {
        /// The request, as it left.
        request: Arc<OutgoingBatch>,
    },
    /// What is owed of the events that were asked for, in the same order; [`None`] for what is not.
    PendingRead(Vec<(Lane, Seq, Option<PendingDelivery>)>),
    /// A connection to the endpoint was made, or was not.
    Connected(bool),
    /// A client waits for so many events at most.
    Receive(ReceiveId, u32),
    /// It waits no more.
    Withdraw(ReceiveId),
    /// A client says what it did with what it holds; answered by [`Effect::ReportResults`].
    Claim(LeaseClaim),
    /// Time has passed.
    Tick,
    /// What was being written is durable.
    Durable,
    /// An operator asked for something.
    Command(Command),
    /// Dead letters are to be sent again.
    TakeBack(Box<RedrivePage>),
    /// This event killed the actor that had it in hand, again and again.
    Quarantine(SendItem),
}

/// What is to be done.
#[derive(Clone, Debug)]
pub enum Effect {
    /// Make this request; answered by [`Input::Finished`].
    Send {
        /// The request.
        request: Arc<OutgoingBatch>,
        /// Its events, in the order of its items.
        events: Vec<Event>,
    },
    /// Hand these to the client that waits; none where it shall come again. They are durably its own.
    HandOver {
        /// Which.
        to: ReceiveId,
        /// What it holds from now on.
        events: Vec<(Lease, Event)>,
    },
    /// Tell a client what became of its word, durably.
    ReportResults {
        /// The claim's number.
        to: u64,
        /// In the order of its leases.
        verdicts: Vec<LeaseResult>,
    },
    /// Read the log; answered by [`Input::Read`] or [`Input::Unreadable`].
    ReadLog {
        /// For which lane.
        lane: Lane,
        /// From here.
        from: Seq,
        /// Up to here; [`None`] for as far as it goes.
        end: Option<Seq>,
    },
    /// Find the first event that was appended at `before` or later; answered by [`Input::Position`].
    FindPosition {
        /// Then.
        before: Timestamp,
    },
    /// Read the order of falling due; answered by [`Input::DueRead`].
    ReadDue {
        /// Of this part.
        of: Traffic,
        /// From here.
        from: DueKey,
    },
    /// Fetch events and what is owed of them; answered by [`Input::Fetched`].
    Fetch(Vec<(Lane, Seq)>),
    /// Connect to the endpoint and close at once, without a request; answered by [`Input::Connected`].
    Connect,
    /// Look up what is owed of these, without their events; answered by [`Input::PendingRead`].
    ReadPending(Vec<(Lane, Seq)>),
}

/// What is to be written, all or nothing.
#[derive(Clone, Debug, PartialEq)]
pub struct SubscriptionWrite {
    /// The changes, in order.
    pub changes: Vec<RecordChange>,
    /// The flights whose outcome is durable with them.
    pub landed: Vec<RequestId>,
    /// The flights whose late answer is settled with them.
    pub late: Vec<RequestId>,
    /// What flights carry no longer, because a late answer has settled it.
    pub struck: Vec<(RequestId, (Lane, Seq))>,
    /// Whether it should not wait for company.
    pub urgent: bool,
}

/// What follows from an input.
#[derive(Debug, Default)]
#[must_use]
pub struct CoreStep {
    /// To be written; answered by [`Input::Durable`].
    pub write: Option<SubscriptionWrite>,
    /// To be done, now.
    pub effects: Vec<Effect>,
}
