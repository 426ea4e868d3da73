//! One simulated subscription: the real state machine with a simulated disk, clock and endpoint.
//!
//! Reads return at once, from memory. Writes are durable after the journal's waits. Requests
//! end when the endpoint model replies.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use fastrand::Rng;

use crate::{
    disk::SimulatedStore,
    endpoint::{SimulatedEndpoint, SimulatedReply},
    log::SimulatedLog,
    queue::{EventQueue, ScheduledEvent, SubscriberEvent},
    recovery::RecoveryWatch,
};
use gridhook_event::{Lane, RequestId, Seq, Timestamp};
use gridhook_policy::{
    Effect, Input, OutgoingBatch, Subscription, SubscriptionSettings, SubscriptionWrite,
    outcome::{Outcome, Reason},
    record::{
        Cursor, DueKey, FetchedPending, LaneCursor, LedgerEntry, LedgerEvent, RecordChange, Traffic,
    },
    retry::Jitter,
    retry_window::WINDOW,
};

/// A sync of an ordinary disk.
const SYNC: Duration = Duration::from_millis(3);

/// The resolution of the server's timers.
const TIMER_MIN: Duration = Duration::from_millis(1);

#[derive(Debug)]
pub(super) struct Subscriber {
    number: usize,
    core: Subscription,
    pub(super) disk: SimulatedStore,
    writing: Option<SubscriptionWrite>,
    endpoint: SimulatedEndpoint,
    jitter: Rng,
    /// The time of the expected tick; ticks at other times are stale.
    armed: Option<Timestamp>,
    pub(super) watch: RecoveryWatch,
    pub(super) counts: SubscriberCounts,
}

/// Counts beyond the subscription's counters.
#[derive(Debug, Default)]
pub(super) struct SubscriberCounts {
    pub(super) requests: u64,
    /// Number of attempts; each event of a request is one.
    pub(super) attempts: u64,
    /// Number of attempts with a durable outcome.
    pub(super) answered: u64,
    pub(super) failed: u64,
    /// Number of attempts made while the endpoint was down.
    pub(super) while_down: u64,
    /// The longest time from the append of an event to its delivery.
    pub(super) longest_wait: Duration,
    pub(super) given_up: BTreeMap<Reason, u64>,
}

/// The log, queue and delays of a simulation, which all subscriptions share.
pub(super) struct SubscriberContext<'a> {
    pub(super) log: &'a SimulatedLog,
    pub(super) queue: &'a mut EventQueue,
    /// How long the journal collects outcomes before a write.
    pub(super) outcome_delay: Duration,
}

impl Subscriber {
    pub(super) fn new(
        number: usize,
        settings: SubscriptionSettings,
        endpoint: SimulatedEndpoint,
        jitter: Rng,
        now: Timestamp,
    ) -> Self {
        let lane = LaneCursor::new(Lane::LIVE, Seq::FIRST, None);
        let cursor = Cursor {
            lanes: vec![lane],
            ..Cursor::default()
        };
        Self {
            number,
            core: Subscription::from_records(
                settings,
                &cursor,
                Seq::FIRST,
                Vec::new(),
                RequestId(1),
                now,
            ),
            disk: SimulatedStore {
                cursor,
                ..SimulatedStore::default()
            },
            writing: None,
            watch: RecoveryWatch::new(endpoint.availability_at(now)),
            endpoint,
            jitter,
            armed: None,
            counts: SubscriberCounts::default(),
        }
    }

    /// Notes that an event was published.
    pub(super) fn record_published(&mut self, now: Timestamp, context: &mut SubscriberContext<'_>) {
        self.process_input(
            Input::Appended {
                end: context.log.end_seq(),
            },
            now,
            context,
        );
    }

    /// Processes a scheduled event of this subscription.
    pub(super) fn process_event(
        &mut self,
        event: SubscriberEvent,
        now: Timestamp,
        context: &mut SubscriberContext<'_>,
    ) {
        match event {
            SubscriberEvent::Answered(request, reply) => {
                self.record_reply(&request, reply, now, context)
            }
            SubscriberEvent::Durable => self.finish_write(now, context),
            SubscriberEvent::Tick => self.tick_if_due(now, context),
        }
    }

    /// Checks the counters at the end of the simulation.
    ///
    /// # Panics
    /// The counters do not add up: the policy or the simulation has a bug.
    pub(super) fn check_counters(&mut self, now: Timestamp, log: &SimulatedLog) {
        self.observe_recovery(now, log);
        self.disk.check_counters();
        let counters = self.disk.cursor.counters;
        assert_eq!(
            counters.passed + self.backlog(log.end_seq()),
            log.event_count(),
            "{:?}",
            self.disk.cursor
        );
        let given_up = self.counts.given_up.values().sum::<u64>();
        assert_eq!(
            counters.dead_lettered + counters.dropped,
            given_up,
            "{:?}",
            self.counts
        );
    }

    /// Passes the outcome of a request to the state machine.
    fn record_reply(
        &mut self,
        request: &OutgoingBatch,
        reply: SimulatedReply,
        now: Timestamp,
        context: &mut SubscriberContext<'_>,
    ) {
        self.observe_recovery(now, context.log);
        if reply.outcome == Outcome::Delivered {
            self.watch.record_delivered(request.items.len() as u64, now);
            let first = request
                .items
                .iter()
                .map(|item| item.appended)
                .min()
                .unwrap_or(now);
            self.counts.longest_wait = self.counts.longest_wait.max(now.since(first));
        }
        self.process_input(
            Input::Finished {
                request: request.id,
                result: reply.to_result(),
            },
            now,
            context,
        );
    }

    /// Applies the write in progress and reports it as durable.
    fn finish_write(&mut self, now: Timestamp, context: &mut SubscriberContext<'_>) {
        self.observe_recovery(now, context.log);
        let write = self.writing.take().expect("a write was on its way");
        for change in &write.changes {
            self.disk.apply_change(change);
            if let RecordChange::Note { entry, .. } = change {
                self.counts.count_attempts(entry);
            }
        }
        // The dead-letter actor takes them from here.
        self.disk.dead.clear();
        let disk = &self.disk;
        let end = context.log.end_seq();
        self.watch
            .record_written(now, || disk.first_unended().unwrap_or(end));
        self.process_input(Input::Durable, now, context);
    }

    /// Ticks the state machine, unless its deadline has changed.
    fn tick_if_due(&mut self, now: Timestamp, context: &mut SubscriberContext<'_>) {
        if self.armed != Some(now) {
            return;
        }
        self.armed = None;
        if self.core.next_due(now).is_some_and(|due| due <= now) {
            self.process_input(Input::Tick, now, context);
        } else {
            self.schedule_tick(now, context.queue);
        }
    }

    /// Number of events in the log that it has not passed.
    pub(super) fn backlog(&self, end: Seq) -> u64 {
        let unread = self.disk.cursor.lanes.iter().map(|lane| {
            let unread = lane.end.unwrap_or(end).0.saturating_sub(lane.read.0);
            unread + lane.open.event_count() - lane.done.event_count()
        });
        unread.sum()
    }

    fn observe_recovery(&mut self, now: Timestamp, log: &SimulatedLog) {
        let disk = &self.disk;
        self.watch.observe(now, &self.endpoint, log, || {
            disk.first_unended().unwrap_or(log.end_seq())
        });
    }

    fn process_input(&mut self, input: Input, now: Timestamp, context: &mut SubscriberContext<'_>) {
        let mut inputs = VecDeque::from([input]);
        while let Some(input) = inputs.pop_front() {
            let step = self
                .core
                .process_input(input, now, Jitter(self.jitter.f64()));
            if let Some(write) = step.write {
                let wait = SYNC + write.urgency.delay_max(context.outcome_delay);
                context.queue.schedule(
                    now.after(wait),
                    ScheduledEvent::Of(self.number, SubscriberEvent::Durable),
                );
                assert!(
                    self.writing.replace(write).is_none(),
                    "one write is on its way at a time"
                );
            }
            for effect in step.effects {
                inputs.extend(self.perform_effect(effect, now, context));
            }
        }
        self.schedule_tick(now, context.queue);
    }

    /// Carries out an effect. Returns the response if it is available at once.
    fn perform_effect(
        &mut self,
        effect: Effect,
        now: Timestamp,
        context: &mut SubscriberContext<'_>,
    ) -> Option<Input> {
        match effect {
            Effect::Send { request, events: _ } => {
                self.send_request(request, now, context);
                None
            }
            Effect::Connect => Some(Input::Connected(self.endpoint.availability_at(now).up)),
            // Simulated subscriptions are pushed.
            Effect::HandOver { .. } | Effect::ReportResults { .. } => None,
            Effect::FindPosition { before } => {
                let at = context.log.seq_at(before);
                Some(Input::Position {
                    before,
                    at,
                    appended: context.log.find_event(at).map(|event| event.appended),
                })
            }
            Effect::ReadLog { lane, from, end } => {
                let mut events = context.log.read(from);
                events.retain(|event| end.is_none_or(|end| event.seq < end));
                let total = events.len() as u64;
                Some(Input::Read {
                    lane,
                    from,
                    upto: from.plus(total),
                    total,
                    events,
                })
            }
            Effect::ReadDue { of, from } => {
                let keys = self
                    .disk
                    .due
                    .range(from..)
                    .filter(|key| Traffic::from_lane(key.lane) == of);
                let keys: Vec<DueKey> = keys.take(WINDOW).copied().collect();
                let all = keys.len() < WINDOW;
                Some(Input::DueRead { of, keys, all })
            }
            Effect::ReadPending(keys) => {
                let read_pending =
                    |(lane, seq)| (lane, seq, self.disk.pending.get(&(lane, seq)).cloned());
                Some(Input::PendingRead(
                    keys.into_iter().map(read_pending).collect(),
                ))
            }
            Effect::Fetch(keys) => {
                let fetch = |(lane, seq)| FetchedPending {
                    lane,
                    seq,
                    pending: self.disk.pending.get(&(lane, seq)).cloned(),
                    event: context.log.find_event(seq),
                };
                Some(Input::Fetched(keys.into_iter().map(fetch).collect()))
            }
        }
    }

    fn send_request(
        &mut self,
        request: Arc<OutgoingBatch>,
        now: Timestamp,
        context: &mut SubscriberContext<'_>,
    ) {
        self.observe_recovery(now, context.log);
        let events = request.items.len();
        let up = self.watch.record_sent(events as u64, now);
        let reply = self
            .endpoint
            .reply_to(&request.items, now, &mut self.jitter);
        self.counts.requests += 1;
        self.counts.attempts += events as u64;
        self.counts.while_down += if up { 0 } else { events as u64 };
        context.queue.schedule(
            now.after(reply.latency),
            ScheduledEvent::Of(self.number, SubscriberEvent::Answered(request, reply)),
        );
    }

    /// A tick that is early only asks for the next deadline, so there is seldom more than one in
    /// the queue.
    fn schedule_tick(&mut self, now: Timestamp, queue: &mut EventQueue) {
        let Some(due) = self
            .core
            .next_due(now)
            .map(|due| due.max(now.after(TIMER_MIN)))
        else {
            return;
        };
        if self.armed.is_none_or(|armed| due < armed) {
            self.armed = Some(due);
            queue.schedule(due, ScheduledEvent::Of(self.number, SubscriberEvent::Tick));
        }
    }
}

impl SubscriberCounts {
    fn count_attempts(&mut self, entry: &LedgerEntry) {
        let events = entry.event_count();
        match entry.what {
            LedgerEvent::Attempted { outcome, .. } => {
                self.answered += events;
                self.failed += if outcome == Outcome::Delivered {
                    0
                } else {
                    events
                };
            }
            LedgerEvent::GivenUp { reason, .. } => {
                *self.given_up.entry(reason).or_default() += events
            }
            LedgerEvent::Filtered { .. }
            | LedgerEvent::Late { .. }
            | LedgerEvent::Canceled
            | LedgerEvent::Filed { .. }
            | LedgerEvent::Lost { .. }
            | LedgerEvent::Lease(_)
            | LedgerEvent::Redriven { .. } => {}
        }
    }
}
