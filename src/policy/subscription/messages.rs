//! The interface of the state machine: its settings, inputs, effects and writes.
//!
//! Invariants:
//! - Each effect names the input that returns its result. That of a write is [`Input::Durable`].
//! - A repeated or outdated result does no harm: a result names its request.
//! - All messages are plain values without handles, addresses or channels. A recorded sequence of
//!   inputs can be replayed.

use std::{collections::HashMap, sync::Arc, time::Duration};

use crate::{
    batch::BatchLimits,
    edition::{Edition, EndpointKind},
    filter::key::FilterKey,
    order::{OrderHash, OrderSettings},
    outcome::RequestResult,
    record::{
        Command, DueKey, EndpointId, FetchedPending, PendingDelivery, Rate, RecordChange,
        RedrivePage, RetryRequest, Traffic, WriteUrgency,
        lease::{Lease, LeaseClaim, LeaseResult, ReceiveId},
    },
    transform::Program,
};
use gridhook_event::{Event, Lane, RequestId, Seq, Timestamp};

/// The settings of a subscription as far as delivery needs them.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "the fields are named after their types")]
pub struct SubscriptionSettings {
    /// The version of the subscription; recorded with events that its filter rejects.
    pub version: u32,
    /// The edition of Event Grid's delivery rules.
    pub edition: Arc<Edition>,
    /// The kind of the destination, which selects rules of the edition.
    pub destination: EndpointKind,
    /// Another endpoint does not inherit the wait that this one requested.
    pub endpoint: EndpointId,
    /// Maximum delivery attempts, including the first.
    pub attempts_max: u32,
    /// How long after its append an event is tried.
    pub time_to_live: Duration,
    /// Events appended before this time count as appended at this time, so that a subscription that
    /// starts in the past does not find all of them expired.
    pub since: Timestamp,
    pub batch: BatchLimits,
    /// Keys whose values all events of a request share.
    pub grouping: Arc<[FilterKey]>,
    /// The order of events; [`None`] if there is none.
    pub order: Option<Arc<OrderSettings>>,
    /// The adaptive limit stays at or below this number of requests in flight.
    pub concurrency_max: u32,
    /// The maximum rate of requests: the smaller of what the endpoint granted and what the
    /// subscription sets.
    pub rate_max: Option<Rate>,
    /// Minimum unread events that form a backlog when an endpoint recovers. Fewer stay in the live
    /// lane.
    pub backlog_min: u32,
    /// Consecutive failed requests that suspend the endpoint.
    pub suspend_after: u32,
    /// Minimum time between bare connections to an unreachable endpoint; zero disables them.
    pub reconnect_interval: Duration,
    /// When a request without an outcome counts as lost: longer than any request can take.
    pub request_timeout: Duration,
    /// Whether a dead-letter destination is configured.
    pub dead_letter: bool,
    /// Whether events due during probation after a client error are dead-lettered at once.
    pub dead_letter_in_probation: bool,
    /// Whether a 410 response holds the subscription.
    pub hold_when_gone: bool,
    /// How long all requests fail before the subscription is held; [`None`]: it never is.
    pub hold_after_failing: Option<Duration>,
    /// What is sent instead of an event.
    pub transform: Option<Arc<Program>>,
    /// Settings of pull delivery; [`None`] for push.
    pub pull: Option<PullSettings>,
}

impl SubscriptionSettings {
    /// When an event appended at this time expires, unless a job sends it again.
    pub fn expiry_of(&self, appended: Timestamp) -> Timestamp {
        appended.max(self.since).after(self.time_to_live)
    }

    pub(super) fn is_pulled(&self) -> bool {
        self.pull.is_some()
    }

    /// The events with what is delivered instead of them. Their size decides which of them are in a
    /// request.
    pub(super) fn transform_events(&self, events: Vec<Event>) -> Vec<Event> {
        if self.transform.is_none() {
            return events;
        }
        events
            .into_iter()
            .map(|event| self.transform_event(event))
            .collect()
    }

    pub(super) fn transform_event(&self, event: Event) -> Event {
        match &self.transform {
            Some(program) => program.transform(event, self.batch.schema),
            None => event,
        }
    }
}

/// How long a client holds an event, and how many events clients may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PullSettings {
    /// How long a client holds the lock of a received event.
    pub lock: Duration,
    /// Maximum events that are received and neither settled nor given up. At the limit no new
    /// events are handed out.
    pub leases_max: u32,
}

/// One pending delivery on its way to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are named after their types")]
pub struct SendItem {
    pub lane: Lane,
    pub seq: Seq,
    /// When the journal appended the event.
    pub appended: Timestamp,
    /// Attempts made before this one.
    pub attempts: u32,
    /// When it was due; [`None`] for a first attempt.
    pub due: Option<Timestamp>,
    /// Start of the time to live, if it is not the append. For pull delivery it is the first
    /// receive; for an edition that counts retries from the first attempt it is that attempt.
    pub since: Option<Timestamp>,
}

impl SendItem {
    /// Its key within the subscription.
    pub fn key(&self) -> (Lane, Seq) {
        (self.lane, self.seq)
    }
}

/// Events that a late success settled, with their order keys.
pub type DetachedEvents = HashMap<(Lane, Seq), Option<OrderHash>>;

/// A request that was sent, as the next incarnation needs it: it is in the shared state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutgoingBatch {
    /// Identifies it in the subscription; each incarnation continues the count.
    pub id: RequestId,
    /// The endpoint that it was sent to.
    pub endpoint: EndpointId,
    /// Its events, all with the same number of attempts, without those that a late success settled
    /// since.
    pub items: Vec<SendItem>,
    /// Ordered events that it carried and that a late success settled. The later events of their
    /// keys wait until it ends, because the endpoint may still process them.
    pub detached_keys: Vec<(Seq, OrderHash)>,
    /// The number of events when it was sent.
    pub events: usize,
    /// When its sending began.
    pub sent: Timestamp,
    /// When it counts as lost.
    pub deadline: Timestamp,
}

impl OutgoingBatch {
    /// Removes events that a late success settled. The keys of ordered ones stay, and wait for its
    /// end.
    pub fn detach_events(&mut self, events: &DetachedEvents) {
        let detached_items = self
            .items
            .extract_if(.., |item| events.contains_key(&item.key()));
        let detached_keys =
            detached_items.filter_map(|item| Some((item.seq, events[&item.key()]?)));
        self.detached_keys.extend(detached_keys);
    }
}

/// What happened outside of the state machine.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "the fields are named after their types")]
pub enum Input {
    /// The log now ends at `end`.
    Appended {
        /// The position of the next event.
        end: Seq,
    },
    /// A slice of the log was read for a lane.
    Read {
        lane: Lane,
        /// The first position of the slice.
        from: Seq,
        /// End of the slice, exclusive.
        upto: Seq,
        /// Number of events in the slice, matching or not.
        total: u64,
        /// Those that match the filter, in the order of the log.
        events: Vec<Event>,
    },
    /// A slice of the log cannot be read because the store is damaged there.
    Unreadable {
        lane: Lane,
        /// The first position of the slice.
        from: Seq,
        /// End of the slice, exclusive.
        upto: Seq,
    },
    /// What [`Effect::FindPosition`] found.
    Position {
        /// The time of the request.
        before: Timestamp,
        /// The first event appended at that time or later, or the log's end.
        at: Seq,
        /// When that event was appended, if there is one.
        appended: Option<Timestamp>,
    },
    /// The topic's backlog exceeds its limit, and the operator chose to drop the oldest events.
    Overflow {
        /// Unread events below this position are dropped.
        below: Seq,
    },
    /// Memory is short: events that are read ahead and not sent are dropped and read again later.
    ReleaseMemory,
    /// The next keys in the order of their due times.
    DueRead {
        traffic: Traffic,
        /// In the order of their due times.
        keys: Vec<DueKey>,
        /// Whether there are no more keys.
        all: bool,
    },
    /// The events that were requested, or the first part of them.
    Fetched(Vec<FetchedPending>),
    /// A request has an outcome.
    Finished {
        request: RequestId,
        result: RequestResult,
    },
    /// A success arrived after the response timeout, and after the [`Input::Finished`] of its
    /// request. It is repeated until its settlement is durable ([`SubscriptionWrite::late`]).
    Late {
        /// The request as it was sent.
        request: Arc<OutgoingBatch>,
    },
    /// The pending records that were requested, in the same order; [`None`] where nothing is
    /// pending.
    PendingRead(Vec<(Lane, Seq, Option<PendingDelivery>)>),
    /// Whether a connection to the endpoint succeeded.
    Connected(bool),
    /// A client waits for at most this number of events.
    Receive(ReceiveId, u32),
    /// A client no longer waits.
    Withdraw(ReceiveId),
    /// A client settles or renews its locks; the result is [`Effect::ReportResults`].
    Claim(LeaseClaim),
    /// Nothing but time has passed.
    Tick,
    /// The write in progress is durable.
    Durable,
    /// A command of an operator.
    Command(Command),
    /// Pending deliveries to retry now instead of when they are due.
    Retry(RetryRequest),
    /// A page of dead letters to send again.
    Redrive(Box<RedrivePage>),
    /// A poison event: the actor panicked repeatedly while it was the current event.
    Quarantine(SendItem),
}

impl Input {
    /// Whether it is the result of a request.
    pub(super) fn is_result(&self) -> bool {
        matches!(self, Self::Finished { .. } | Self::Late { .. })
    }
}

/// What the actor has to carry out.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "the fields are named after their types")]
pub enum Effect {
    /// Send this request; the result is [`Input::Finished`].
    Send {
        request: Arc<OutgoingBatch>,
        /// Its events, in the order of its items.
        events: Vec<Event>,
    },
    /// Hand events to a waiting client; empty if the client should repeat its request. Their locks are
    /// durable.
    HandOver {
        /// The client that waits for events.
        client: ReceiveId,
        /// Its locks and their events.
        events: Vec<(Lease, Event)>,
    },
    /// Report the durable results of a [`Input::Claim`].
    ReportResults {
        /// The number of the claim.
        claim: u64,
        /// In the order of the claim's locks.
        results: Vec<LeaseResult>,
    },
    /// Read the log; the result is [`Input::Read`] or [`Input::Unreadable`].
    ReadLog {
        lane: Lane,
        /// The first position to read.
        from: Seq,
        /// End of the slice, exclusive; [`None`] for no limit.
        end: Option<Seq>,
    },
    /// Find the first event appended at `before` or later; the result is [`Input::Position`].
    FindPosition {
        /// Events appended before this time precede the position.
        before: Timestamp,
    },
    /// Read keys in the order of their due times; the result is [`Input::DueRead`].
    ReadDue {
        traffic: Traffic,
        /// The first key to read.
        from: DueKey,
    },
    /// Fetch events and their pending records; the result is [`Input::Fetched`].
    Fetch(Vec<(Lane, Seq)>),
    /// Connect to the endpoint and close without a request; the result is [`Input::Connected`].
    Connect,
    /// Read pending records without their events; the result is [`Input::PendingRead`].
    ReadPending(Vec<(Lane, Seq)>),
}

/// Changes that become durable together, and what waits for that.
#[derive(Clone, Debug, PartialEq)]
pub struct SubscriptionWrite {
    /// Applied in this order.
    pub changes: Vec<RecordChange>,
    /// Requests whose outcome is durable with this write.
    pub finished: Vec<RequestId>,
    /// Requests whose late success is durable with this write.
    pub late: Vec<RequestId>,
    /// Events that requests in flight no longer carry because a late success settled them.
    pub detached: Vec<(RequestId, DetachedEvents)>,
    /// If all commands absorbed so far are in this write or in earlier ones: the number of
    /// deliveries that they moved.
    pub moved_by_commands: Option<u64>,
    /// How soon the write must be durable.
    pub urgency: WriteUrgency,
}

/// What follows from an input.
#[derive(Debug, Default)]
#[must_use]
pub struct CoreStep {
    /// The write, if any; the result is [`Input::Durable`].
    pub write: Option<SubscriptionWrite>,
    /// What to carry out now.
    pub effects: Vec<Effect>,
}
