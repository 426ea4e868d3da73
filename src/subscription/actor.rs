//! The actor of one subscription: it connects the pure core of `policy` to the journal, the clock
//! and HTTP.
//!
//! One value of this type is one incarnation. After a panic, supervision builds the next one.
//!
//! Invariants:
//! - Every turn takes what arrived, passes it to the core and performs the effects.
//! - A subscription has at most one append in the journal's queue. The core ensures this.
//! - A request runs in a task of its own, which always reports ([`crate::delivery`]).
//! - A panic of code that reads the content of an event, such as a filter, notes the event, so that
//!   a poison event is identified.
//! - There is one timer, re-armed from the core's `next_due`.

mod reading;
mod requests;
mod sending;

use std::{rc::Rc, sync::Arc, task::Waker, time::Duration};

use actix::{Actor, ActorContext, AsyncContext, Context, Handler};

use crate::{
    event_feed::{EventFeed, FeedEvent},
    plan::DeliveryPlan,
    read_budget::{BudgetMember, ReadBudget, ReadGrant},
    recent_events::RecentEvents,
    shared_state::{ArrivedMessages, Handover, SharedState, SharedStateMessage, WrittenCommands},
    slice::{SliceRead, filter_slice},
    spans::SettleSpans,
    timers::{self, Timer},
    turns::{RunTurns, begin_turns},
};
use gridhook_chaos::{Inject, response_faults::FaultInjection};
use gridhook_clock::Clock;
use gridhook_compute::Compute;
use gridhook_deliver as deliver;
use gridhook_deliver::{Sender, bodies::BodyShare, error::SenderError};
use gridhook_event::{Incarnation, Lane, RequestId, Seq, Timestamp};
use gridhook_journal as journal;
use gridhook_journal::{Journal, OpenedSubscription, SubscriptionOwner};
use gridhook_policy::{
    Blocked, CoreStep, DetachedEvents, Effect, Input, Subscription, SubscriptionWrite,
    outcome::Outcome,
    record::{LedgerLine, RecordChange},
    retry::Jitter,
};
use gridhook_telemetry::trace::Tracer;

/// Longest timer. After a suspend of the machine or a change of the clock, the actor notices within
/// this time.
const TIMER_MAX: Duration = Duration::from_secs(60);

/// The services that a subscription uses.
pub struct SubscriptionContext {
    pub journal: Journal,
    pub clock: Clock,
    /// Settings of the HTTP clients. Each arbiter has clients of its own.
    pub client: deliver::ClientOptions,
    /// Called when a dead letter becomes durable, with the time at which its file is due.
    pub on_dead_letter: DeadLetterDue,
    pub response_faults: Arc<FaultInjection>,
    /// Records attempts and their outcomes as spans.
    pub tracer: Tracer,
    /// The feed of events and outcomes for operators.
    pub feed: Arc<EventFeed>,
    /// Limits the bytes that all subscriptions have read and not sent.
    pub read_budget: Arc<ReadBudget>,
    pub compute: Compute,
}

/// Called once a new incarnation has processed what waited for it.
pub type RecoveryDone = Box<dyn FnOnce()>;

/// Called when a dead letter of a subscription becomes durable, with the time at which its file is
/// due.
pub type DeadLetterDue = Arc<dyn Fn(&SharedState, Timestamp) + Send + Sync>;

/// One incarnation of a subscription's actor.
pub struct SubscriptionActor {
    context: Arc<SubscriptionContext>,
    recent: Arc<RecentEvents>,
    shared: Arc<SharedState>,
    plan: Arc<DeliveryPlan>,
    owner: SubscriptionOwner,
    core: Box<Subscription>,
    member: Rc<BudgetMember>,
    sender: Result<Rc<dyn Sender>, SenderError>,
    on_recovered: Option<RecoveryDone>,
    /// The running timer, and the time for which it is set.
    timer: Option<(Timer, Timestamp)>,
    /// The end of the log that the core knows.
    known_end: Option<Seq>,
    /// Whether this actor is woken when its write is durable.
    awaits_write: bool,
    /// Whether this actor is registered to be woken when a socket becomes free.
    waits_for_socket: bool,
    /// The bodies in flight of this actor.
    bodies: BodyShare,
    /// Whether this actor is registered to be woken when memory for a body becomes free.
    waits_for_memory: bool,
}

impl SubscriptionActor {
    /// Opens the records for a new incarnation. Call it on the arbiter on which the actor will run.
    pub async fn build(
        context: Arc<SubscriptionContext>,
        recent: Arc<RecentEvents>,
        shared: Arc<SharedState>,
        on_recovered: RecoveryDone,
    ) -> Result<Self, journal::Error> {
        let OpenedSubscription { owner, cursor, end } =
            context.journal.open(shared.subscription_key).await?;
        let Handover {
            plan,
            requests,
            next_request,
            inputs,
            is_first,
            is_moved,
        } = shared.begin_incarnation(owner.incarnation, end);
        let settings = Arc::clone(&plan.settings);
        let now = context.clock.now();
        let mut core = Box::new(Subscription::from_records(
            settings,
            &cursor,
            end,
            requests,
            next_request,
            now,
        ));
        core.inherit_results(inputs);
        if is_first {
            core.start(now);
        } else if is_moved {
            core.probe_at_once(now);
        }
        shared.set_state(&core.cursor(), core.view_endpoint(now));
        let reader = Arc::clone(&shared);
        let member = Rc::new(
            context
                .read_budget
                .add_member(Arc::new(move || reader.drop_read_events())),
        );
        let sender = plan.new_sender(&context.client);
        let bodies = context.client.bodies.new_share();
        Ok(Self {
            context,
            recent,
            shared,
            plan,
            owner,
            core,
            member,
            sender,
            on_recovered: Some(on_recovered),
            timer: None,
            known_end: None,
            awaits_write: false,
            waits_for_socket: false,
            bodies,
            waits_for_memory: false,
        })
    }

    fn pass_to_core(&mut self, input: Input, now: Timestamp) {
        self.pass_all_to_core(vec![input], now);
    }

    /// Passes inputs to the core together, and carries out what follows. Results
    /// that are there at once are absorbed next.
    fn pass_all_to_core(&mut self, mut inputs: Vec<Input>, now: Timestamp) {
        if inputs.is_empty() {
            return;
        }
        while !inputs.is_empty() {
            self.core
                .set_expiry_paused(self.context.clock.expiry_is_paused());
            // The permit of a request that has ended is free again.
            let ended_count = inputs
                .iter()
                .filter(|input| matches!(input, Input::Finished { .. }))
                .count();
            let in_flight = self.core.in_flight().saturating_sub(ended_count);
            let free_permits = self.context.client.sockets.free_permits();
            let requests_max = in_flight.saturating_add(free_permits);
            self.core
                .limit_resources(requests_max, self.bodies.free_bytes());
            self.apply_requested_wait(now);
            let jittered_inputs = inputs
                .drain(..)
                .map(|input| (input, Jitter(fastrand::f64())));
            let CoreStep { write, effects } = self.core.process_inputs(jittered_inputs, now);
            if let (Some(wait), Some(until)) =
                (&self.plan.retry_after, self.core.take_requested_wait())
            {
                wait.extend(until);
            }
            if let Some(write) = write {
                self.begin_write(write, now);
            }
            for effect in effects {
                inputs.extend(self.perform_effect(effect, now));
            }
        }
        let reason = self.core.blocked(now);
        self.wait_for_socket(reason);
        self.wait_for_memory(reason);
        if !self.awaits_write && self.core.waits_for_write() {
            self.awaits_write = true;
            self.shared.await_write();
        }
    }

    /// Passes on the wait that the endpoint requested of another subscription.
    fn apply_requested_wait(&mut self, now: Timestamp) {
        self.core.delay_until(self.plan.requested_wait(), now);
    }

    /// Registers for a wake if only file descriptors are missing for the next request. Otherwise
    /// passes a free permit on to the next waiting subscription.
    fn wait_for_socket(&mut self, blocked: Option<Blocked>) {
        let sockets = &self.context.client.sockets;
        if self.waits_for_socket || blocked != Some(Blocked::Descriptors) {
            return sockets.pass_on();
        }
        self.waits_for_socket = true;
        let shared = Arc::clone(&self.shared);
        let incarnation = self.owner.incarnation;
        sockets.wake_when_free(move || {
            shared.report_result(incarnation, SharedStateMessage::SocketFree)
        });
    }

    /// As [`SubscriptionActor::wait_for_socket`], for memory for bodies.
    fn wait_for_memory(&mut self, blocked: Option<Blocked>) {
        if self.waits_for_memory || blocked != Some(Blocked::Memory) {
            return self.bodies.pass_on();
        }
        self.waits_for_memory = true;
        let shared = Arc::clone(&self.shared);
        let incarnation = self.owner.incarnation;
        self.bodies.wake_when_free(move || {
            shared.report_result(incarnation, SharedStateMessage::MemoryFree)
        });
    }

    /// Passes what was read to the core, with the inputs that arrived before. What the core keeps
    /// is counted before the grant is released. [`None`]: it is being transformed.
    fn absorb_read(
        &mut self,
        inputs: &mut Vec<Input>,
        read: Option<(Input, Option<ReadGrant>)>,
        now: Timestamp,
    ) {
        let Some((input, grant)) = read else { return };
        inputs.push(input);
        self.pass_all_to_core(std::mem::take(inputs), now);
        self.member.set_kept_bytes(self.core.read_ahead_bytes());
        drop(grant);
    }

    /// Processes what arrived since the last wake.
    fn process_messages(
        &mut self,
        messages: ArrivedMessages,
        now: Timestamp,
    ) -> Result<(), journal::Error> {
        let ArrivedMessages {
            end,
            is_written,
            is_closing,
            has_requests,
            reports,
            pulls,
        } = messages;
        if is_closing {
            self.core.close();
        }
        if is_written && self.core.waits_for_write() {
            self.pass_to_core(Input::Durable, now);
        } else if is_written {
            self.core.end_write();
        }
        if has_requests {
            self.apply_requested_wait(now);
            self.take_requests(now);
        }
        // The end first: a client receives what was published before its request.
        if !pulls.is_empty() && self.known_end.replace(end) != Some(end) {
            self.pass_to_core(Input::Appended { end }, now);
        }
        for input in pulls {
            self.pass_to_core(input, now);
        }
        let mut inputs = self.process_reports(reports, now)?;
        if self.known_end.replace(end) != Some(end) {
            inputs.push(
                self.read_on(end, &inputs, now)
                    .unwrap_or(Input::Appended { end }),
            );
        }
        self.pass_all_to_core(inputs, now);
        if has_requests {
            // Requests that waited for a command which is carried out now.
            self.take_requests(now);
        }
        if let Some(report_recovery) = self.on_recovered.take() {
            report_recovery();
        }
        Ok(())
    }

    /// Passes what was read to the core, with the inputs before it. Returns the inputs after it,
    /// which are still to be absorbed.
    fn process_reports(
        &mut self,
        reports: Vec<SharedStateMessage>,
        now: Timestamp,
    ) -> Result<Vec<Input>, journal::Error> {
        let mut inputs = Vec::with_capacity(reports.len() + 1);
        for report in reports {
            let input = match report {
                SharedStateMessage::Input(input) => input,
                SharedStateMessage::SocketFree => {
                    self.waits_for_socket = false;
                    Input::Tick
                }
                SharedStateMessage::MemoryFree => {
                    self.waits_for_memory = false;
                    Input::Tick
                }
                SharedStateMessage::Timer => {
                    self.timer = None;
                    Input::Tick
                }
                SharedStateMessage::Read(input, grant) => {
                    let read = self.transform_read(input, Some(grant));
                    self.absorb_read(&mut inputs, read, now);
                    continue;
                }
                SharedStateMessage::Transformed(input, grant) => {
                    self.absorb_read(&mut inputs, Some((input, grant)), now);
                    continue;
                }
                SharedStateMessage::Slice(lane, from, slice, grant) => {
                    let input = filter_slice(
                        &self.shared,
                        &self.plan,
                        self.context.journal.known_damage(),
                        self.member.share_bytes(),
                        SliceRead { lane, from, slice },
                    );
                    let read = self.transform_read(input, Some(grant));
                    self.absorb_read(&mut inputs, read, now);
                    continue;
                }
                SharedStateMessage::Failed(error) => return Err(error),
            };
            inputs.push(input);
        }
        Ok(inputs)
    }

    /// Reads what was appended, if that is all that follows from it, so that it is absorbed
    /// together with `others`.
    fn read_on(&mut self, end: Seq, others: &[Input], now: Timestamp) -> Option<Input> {
        if !others.iter().all(is_successful_response) {
            return None;
        }
        let from = self.core.read_on(end, now)?;
        self.read_log(Lane::LIVE, from, None)
    }

    fn stop_after_failure(&self, error: &journal::Error, ctx: &mut Context<Self>) {
        let subscription = &self.plan.record.name;
        tracing::warn!(
            %subscription,
            incarnation = self.owner.incarnation.0,
            %error,
            "subscription actor stopped after a journal error"
        );
        ctx.stop();
    }

    /// Passes a write to the journal, and notes what it changes for readers of the shared state.
    fn begin_write(&mut self, write: SubscriptionWrite, now: Timestamp) {
        let SubscriptionWrite {
            changes,
            finished,
            late,
            detached,
            moved_by_commands,
            urgency,
        } = write;
        let mut first_file: Option<Timestamp> = None;
        for change in &changes {
            match change {
                RecordChange::Cursor(cursor) => {
                    self.shared.set_state(cursor, self.core.view_endpoint(now))
                }
                RecordChange::DeadLetter { due, .. } => {
                    first_file = Some(first_file.map_or(*due, |first| first.min(*due)))
                }
                RecordChange::JobEnded(job) => self.shared.job_ends(job),
                RecordChange::Defer { .. }
                | RecordChange::Settle { .. }
                | RecordChange::Note { .. }
                | RecordChange::Redrive(_)
                | RecordChange::StoreExcerpt { .. } => {}
            }
        }
        let (commands, settled_suspects) = self.shared.begin_write(&changes, moved_by_commands);
        self.awaits_write = false;
        let settle_spans = SettleSpans::for_outcomes(
            &self.context.tracer,
            &self.shared,
            self.plan.record.name.as_str(),
            &finished,
            &changes,
            now,
        );
        let followup = WriteFollowup {
            context: Arc::clone(&self.context),
            plan: Arc::clone(&self.plan),
            shared: Arc::clone(&self.shared),
            incarnation: self.owner.incarnation,
            finished,
            late,
            detached,
            settled_suspects,
            commands,
            settle_spans,
            lines: self.context.feed.ledger_lines(&changes),
            first_file,
        };
        let on_done = Box::new(move |result| followup.finish_write(result));
        self.context
            .journal
            .write_changes(self.owner, changes, urgency, on_done);
    }

    fn perform_effect(&self, effect: Effect, now: Timestamp) -> Option<Input> {
        match effect {
            Effect::Send { request, events } => self.send_request(request, events, now),
            Effect::HandOver { client, events } => return self.shared.hand_over(client, events),
            Effect::ReportResults { claim, results } => self.shared.report_results(claim, results),
            Effect::ReadLog { lane, from, end } => return self.read_log(lane, from, end),
            Effect::Connect => self.check_reachable(),
            Effect::FindPosition { before } => self.find_position(before),
            Effect::ReadDue { traffic, from } => self.read_due(traffic, from),
            Effect::ReadPending(keys) => self.read_pending(keys),
            Effect::Fetch(keys) => self.fetch_events(keys),
        }
        None
    }

    fn rearm_timer(&mut self, now: Timestamp) {
        self.member.set_kept_bytes(self.core.read_ahead_bytes());
        let Some(due) = self.core.next_due(now) else {
            return;
        };
        // A timer that fires early is re-armed then. That costs less than a new timer for each
        // request.
        if self
            .timer
            .as_ref()
            .is_some_and(|(_, timer_due)| *timer_due <= due)
        {
            return;
        }
        // At least 1 ms: a core that is due now and does nothing must not spin.
        let wait = due.since(now).clamp(Duration::from_millis(1), TIMER_MAX);
        let shared = Arc::clone(&self.shared);
        let incarnation = self.owner.incarnation;
        let timer = timers::call_after(wait, move || {
            shared.report_result(incarnation, SharedStateMessage::Timer)
        });
        self.timer = Some((timer, now.after(wait)));
    }
}

/// What follows once a write is durable.
struct WriteFollowup {
    context: Arc<SubscriptionContext>,
    plan: Arc<DeliveryPlan>,
    shared: Arc<SharedState>,
    incarnation: Incarnation,
    finished: Vec<RequestId>,
    late: Vec<RequestId>,
    detached: Vec<(RequestId, DetachedEvents)>,
    settled_suspects: Vec<(Lane, Seq)>,
    commands: WrittenCommands,
    settle_spans: Option<SettleSpans>,
    /// The lines of the ledger, if somebody follows them.
    lines: Vec<LedgerLine>,
    /// When the first file of the dead letters in the write is due.
    first_file: Option<Timestamp>,
}

impl WriteFollowup {
    /// Runs on the journal's thread.
    fn finish_write(self, result: Result<(), journal::Error>) {
        let Self {
            context,
            shared,
            lines,
            ..
        } = self;
        if let Err(error) = result {
            shared.report_result(self.incarnation, SharedStateMessage::Failed(error));
            return;
        }
        shared.on_durable(
            self.incarnation,
            &self.finished,
            &self.late,
            &self.detached,
            &self.settled_suspects,
        );
        self.commands.send_results();
        if let Some(settle_spans) = self.settle_spans {
            settle_spans.end_spans(context.clock.now());
        }
        if !lines.is_empty() {
            let record = Arc::clone(&self.plan.record);
            context
                .feed
                .publish_item(|| FeedEvent::Ended(shared.subscription_key, record, lines));
        }
        if let Some(due) = self.first_file {
            (context.on_dead_letter)(&shared, due);
        }
    }
}

fn is_successful_response(input: &Input) -> bool {
    match input {
        Input::Finished { result, .. } => result.outcome == Outcome::Delivered,
        _ => false,
    }
}

impl Actor for SubscriptionActor {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        let now = self.context.clock.now();
        self.pass_to_core(Input::Tick, now);
        self.rearm_timer(now);
        self.shared.set_mailbox(ctx.address());
        begin_turns(ctx);
    }
}

impl RunTurns for SubscriptionActor {
    fn run_turn(&mut self, waker: &Waker, ctx: &mut Context<Self>) {
        let Some(messages) = self.shared.take_messages(waker) else {
            return;
        };
        // The clock is read once for all that has arrived.
        let now = self.context.clock.now();
        match self.process_messages(messages, now) {
            Ok(()) => self.rearm_timer(now),
            Err(error) => self.stop_after_failure(&error, ctx),
        }
    }
}

impl Drop for SubscriptionActor {
    fn drop(&mut self) {
        self.shared.on_actor_dropped(self.owner.incarnation);
    }
}

impl Handler<Inject> for SubscriptionActor {
    type Result = ();

    fn handle(&mut self, inject: Inject, ctx: &mut Self::Context) {
        inject.apply_to(ctx);
    }
}
