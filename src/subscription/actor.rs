//! One life of a subscription: the bridge between the core, which decides, and the world, which does.
//!
//! Invariants:
//! - Every handler is the same three lines: take what arrived, absorb it, do what follows.
//! - At most one append of a subscription is in the journal's queue; the core sees to it.
//! - A request runs in a task of its own, which always reports ([`delivery`]).
//! - What may touch an event's content here (a filter, the making of a request) is done with the event in hand, so that
//!   an event that kills is known.
//! - One timer, re-armed from the core's `next_due`.

use std::{collections::VecDeque, rc::Rc, sync::Arc, time::Duration};

use actix::{Actor, ActorContext, AsyncContext, Context, Handler, Message, SpawnHandle};

use crate::{
    chaos::{Inject, response_faults::FaultInjection},
    clock::Clock,
    deliver::{self, WebhookClient},
    event::{Event, Lane, Seq, Timestamp},
    fanout::recent_events::RecentEvents,
    insight::event_feed::{EventFeed, FeedEvent},
    journal::{self, Journal, LogPosition, LogSlice, OpenedSubscription, PendingResult, SubscriptionOwner},
    policy::{
        CoreStep, Effect, Input, OutgoingBatch, SendItem, Subscription, SubscriptionWrite, record::RecordChange,
        retry::Jitter, retry_window,
    },
    subscription::{
        clients, delivery,
        plan::DeliveryPlan,
        read_budget::{BudgetMember, GrantRequest, ReadBudget, ReadGrant},
        shared_state::{CommandReply, CommandResult, HandedOver, SharedState, SharedStateMessage, TakenMessages},
        spans::SettleSpans,
    },
    telemetry::trace::Tracer,
};

/// Something lies in the slot. A hint: losing it costs latency, never an event.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Wake;

/// A timer is never longer: a machine that slept, or a clock that was set, is noticed after so long.
const TIMER_MAX: Duration = Duration::from_secs(60);

/// A slice of the log is about so large at most: two make a batch of the largest preferred size.
const SLICE_BYTES: usize = 512 * 1024;

/// Owed events are fetched by about so many bytes at most.
const FETCH_BYTES: usize = 1024 * 1024;

/// From the tail so many events are taken, or a batch if that is more.
const TAIL_EVENTS: usize = 256;

/// What a subscription needs of the world.
pub struct SubscriptionContext {
    /// Where everything is written.
    pub journal: Journal,
    /// What time it is.
    pub clock: Clock,
    /// How requests are made; each arbiter has a client of its own.
    pub client: deliver::ClientOptions,
    /// Told when a dead letter of this slot waits: its file is due then.
    pub put_aside: PoisonEvents,
    /// What is done to answers on purpose.
    pub response_faults: Arc<FaultInjection>,
    /// Where attempts are recorded as spans, and what came of them.
    pub tracer: Tracer,
    /// Where it is told what became of events.
    pub feed: Arc<EventFeed>,
    /// What all subscriptions together may have read and not sent.
    pub read_budget: Arc<ReadBudget>,
}

/// What is to be done when a life has worked off what waited for it.
pub type RecoveryDone = Box<dyn FnOnce()>;

/// Who hears that a dead letter of a slot waits, and when its file is due.
pub type PoisonEvents = Arc<dyn Fn(&SharedState, Timestamp) + Send + Sync>;

/// One life of a subscription.
pub struct SubscriptionActor {
    world: Arc<SubscriptionContext>,
    recent: Arc<RecentEvents>,
    shared: Arc<SharedState>,
    plan: Arc<DeliveryPlan>,
    owner: SubscriptionOwner,
    core: Box<Subscription>,
    member: Rc<BudgetMember>,
    client: Result<Rc<WebhookClient>, clients::MissingCertificate>,
    inherited: Vec<Input>,
    first_act: Option<RecoveryDone>,
    /// The timer that runs, and for when it is set.
    timer: Option<(SpawnHandle, Timestamp)>,
    /// The log's end that the core was told last.
    told: Option<Seq>,
    /// Commands whose write is on its way, and those whose write is yet to come.
    written: Vec<(CommandReply, CommandResult)>,
    unwritten: Vec<(CommandReply, CommandResult)>,
    /// Whether it is to be woken when a request may leave again.
    waits_for_room: bool,
}

impl SubscriptionActor {
    /// Opens the records for a new life. To be called on the arbiter that it will live on.
    pub async fn build(
        world: Arc<SubscriptionContext>,
        tail: Arc<RecentEvents>,
        shared: Arc<SharedState>,
        first_act: RecoveryDone,
    ) -> Result<Self, journal::Error> {
        let OpenedSubscription { owner, cursor, end } = world.journal.open(shared.subscription_key).await?;
        let HandedOver { plan, requests, next_request: next_flight, inputs, is_first } =
            shared.begin(owner.incarnation, end);
        let settings = plan.settings.clone();
        let now = world.clock.now();
        let mut core = Box::new(Subscription::recover(settings, &cursor, end, requests, next_flight, now));
        if is_first {
            core.start(now);
        }
        shared.set_state(&core.cursor(), core.endpoint(now));
        let reader = Arc::clone(&shared);
        let member = Rc::new(world.read_budget.member(Arc::new(move || reader.let_go())));
        let client = clients::client(&world.client, plan.record.webhook.client_certificate.as_deref());
        Ok(Self {
            world,
            recent: tail,
            shared,
            plan,
            owner,
            core,
            member,
            client,
            inherited: inputs,
            first_act: Some(first_act),
            timer: None,
            told: None,
            written: Vec::new(),
            unwritten: Vec::new(),
            waits_for_room: false,
        })
    }

    fn absorb(&mut self, input: Input) {
        let mut inputs = VecDeque::from([input]);
        while let Some(input) = inputs.pop_front() {
            let jitter = Jitter(fastrand::f64());
            self.core.hold_expiry(self.world.clock.holds_expiry());
            self.core.limit_requests(self.core.in_flight().saturating_add(self.world.client.sockets.free()));
            let CoreStep { write, effects } = self.core.absorb(input, self.world.clock.now(), jitter);
            if let Some(write) = write {
                self.write(write);
            }
            for effect in effects {
                inputs.extend(self.perform(effect));
            }
        }
        self.wait_for_room();
    }

    /// Asks to be woken where only descriptors are wanting for the next request; else somebody else may have the place.
    fn wait_for_room(&mut self) {
        let sockets = &self.world.client.sockets;
        if self.waits_for_room || !self.core.waits_for_room(self.world.clock.now()) {
            return sockets.pass_on();
        }
        self.waits_for_room = true;
        let (shared, life) = (Arc::clone(&self.shared), self.owner.incarnation);
        sockets.wait(move || shared.report(life, SharedStateMessage::Room));
    }

    /// Takes what was read: what is kept of it counts before its room is free for others.
    fn absorb_read(&mut self, input: Input, room: ReadGrant) {
        self.absorb(input);
        self.member.keep(self.core.kept_bytes());
        drop(room);
    }

    /// Takes what arrived since the last time.
    fn take(&mut self) -> Result<(), journal::Error> {
        let TakenMessages { end, reports, commands, pages, pulls } = self.shared.take();
        if self.shared.is_closing() {
            self.core.close();
        }
        for (command, reply) in commands {
            if let Some(why) = self.core.refuses(command) {
                // Whoever asked may have gone.
                reply.send(Err(why)).ok();
                continue;
            }
            // The core begins a job before it says what is to be written.
            let job = self.core.next_job(command);
            self.unwritten.push((reply, CommandResult { job }));
            self.absorb(Input::Command(command));
        }
        for (page, reply) in pages {
            if let Some(why) = self.core.refuses_dead_letters(page.lane) {
                // Whoever asked may have gone.
                reply.send(Err(why)).ok();
                continue;
            }
            self.unwritten.push((reply, CommandResult { job: None }));
            self.absorb(Input::TakeBack(page));
        }
        for input in pulls {
            self.absorb(input);
        }
        for report in reports {
            match report {
                SharedStateMessage::Input(input) => self.absorb(input),
                SharedStateMessage::Read(input, room) => self.absorb_read(input, room),
                SharedStateMessage::Slice(lane, from, slice, room) => {
                    let input = self.filter_slice(lane, from, slice);
                    self.absorb_read(input, room);
                }
                SharedStateMessage::Durable => {
                    for (reply, obeyed) in self.written.drain(..) {
                        // Whoever asked may have gone; it is done all the same.
                        reply.send(Ok(obeyed)).ok();
                    }
                    self.absorb(Input::Durable);
                }
                SharedStateMessage::Room => {
                    self.waits_for_room = false;
                    self.absorb(Input::Tick);
                }
                SharedStateMessage::Failed(error) => return Err(error),
            }
        }
        if self.written.is_empty() && self.unwritten.is_empty() {
            self.shared.answered();
        }
        if self.told.replace(end) != Some(end) {
            self.absorb(Input::Appended { end });
        }
        if let Some(act) = self.first_act.take() {
            act();
        }
        Ok(())
    }

    fn fail(&self, error: &journal::Error, ctx: &mut Context<Self>) {
        let subscription = &self.plan.record.name;
        tracing::warn!(%subscription, life = self.owner.incarnation.0, %error, "a life of a subscription ends");
        ctx.stop();
    }

    fn write(&mut self, SubscriptionWrite { changes, landed, late, struck, urgent }: SubscriptionWrite) {
        let mut first_file: Option<Timestamp> = None;
        for change in &changes {
            match change {
                RecordChange::Cursor(cursor) => {
                    self.shared.set_state(cursor, self.core.endpoint(self.world.clock.now()))
                }
                RecordChange::PutAside { due, .. } => {
                    first_file = Some(first_file.map_or(*due, |first| first.min(*due)))
                }
                RecordChange::JobEnded(job) => self.shared.job_ends(job),
                RecordChange::Defer { .. }
                | RecordChange::Settle { .. }
                | RecordChange::Note { .. }
                | RecordChange::TakeBack(_)
                | RecordChange::Keep { .. } => {}
            }
        }
        self.written.append(&mut self.unwritten);
        let settled = self.shared.writes(&changes);
        let (tracer, name, clock) = (&self.world.tracer, self.plan.record.name.as_str(), self.world.clock.clone());
        let settling = SettleSpans::of(tracer, &self.shared, name, (&landed, &changes), clock.now());
        let (lines, feed, plan) =
            (self.world.feed.lines(&changes), Arc::clone(&self.world.feed), Arc::clone(&self.plan));
        let (shared, life, tell) =
            (Arc::clone(&self.shared), self.owner.incarnation, Arc::clone(&self.world.put_aside));
        let done = move |result: Result<(), journal::Error>| match result {
            Ok(()) => {
                shared.landed(life, &landed, &late, &struck, &settled);
                if let Some(settling) = settling {
                    settling.end(clock.now());
                }
                if !lines.is_empty() {
                    feed.publish(|| FeedEvent::Ended(shared.subscription_key, Arc::clone(&plan.record), lines));
                }
                if let Some(due) = first_file {
                    tell(&shared, due);
                }
            }
            Err(error) => shared.report(life, SharedStateMessage::Failed(error)),
        };
        self.world.journal.append(self.owner, changes, urgent, Box::new(done));
    }

    fn perform(&self, effect: Effect) -> Option<Input> {
        match effect {
            Effect::Send { request, events } => {
                self.send(request, events);
                None
            }
            Effect::HandOver { to, events } => self.shared.hand_over(to, events),
            Effect::ReportResults { to, verdicts } => {
                self.shared.report_results(to, verdicts);
                None
            }
            Effect::ReadLog { lane, from, end } => self.read_log(lane, from, end),
            Effect::Connect => {
                let (client, plan) = (self.client.clone(), Arc::clone(&self.plan));
                self.await_report(async move {
                    let reached = match (&plan.destination, client) {
                        (Some(destination), Ok(client)) => client.reach(destination).await,
                        (None, _) | (_, Err(_)) => false,
                    };
                    Ok(SharedStateMessage::Input(Input::Connected(reached)))
                });
                None
            }
            Effect::FindPosition { before } => {
                let partition = self.shared.subscription_key.partition;
                let answer = self.world.journal.reads().position(partition, self.log_end(), before);
                self.await_report(async move {
                    let LogPosition { at, appended } = answer.await?;
                    Ok(SharedStateMessage::Input(Input::Position { before, at, appended }))
                });
                None
            }
            Effect::ReadDue { of, from } => {
                let answer =
                    self.world.journal.reads().due_of(self.shared.subscription_key, of, from, retry_window::WINDOW);
                self.await_report(async move {
                    answer.await.map(|(keys, all)| SharedStateMessage::Input(Input::DueRead { of, keys, all }))
                });
                None
            }
            Effect::ReadPending(wanted) => {
                let answer = self.world.journal.reads().pending(self.shared.subscription_key, wanted);
                self.await_report(async {
                    answer.await.map(|found| SharedStateMessage::Input(Input::PendingRead(found)))
                });
                None
            }
            Effect::Fetch(wanted) => {
                let (reads, subscription_key) = (self.world.journal.reads().clone(), self.shared.subscription_key);
                let read = move |room: ReadGrant| {
                    reads.fetch_within(subscription_key, wanted.clone(), room.bytes(), move |bytes| room.fit(bytes))
                };
                self.await_room(FETCH_BYTES, read, |(fetched, room)| {
                    SharedStateMessage::Read(Input::Fetched(fetched), room)
                });
                None
            }
        }
    }

    /// From the tail at once, or else from the log, later.
    fn read_log(&self, lane: Lane, from: Seq, end: Option<Seq>) -> Option<Input> {
        let record = &self.plan.record;
        let events_max = TAIL_EVENTS.max(self.plan.settings.batch.events_max as usize);
        let enough = (events_max, SLICE_BYTES);
        // Those that lag may have all the room: then it waits for its turn like them.
        if self.member.has_room()
            && let Some(found) = self.recent.read(record.number, record.version, from, end, enough)
        {
            let (upto, total, events) = (found.upto, found.total, found.events);
            return Some(Input::Read { lane, from, upto, total, events });
        }
        let partition = self.shared.subscription_key.partition;
        let end = end.unwrap_or_else(|| self.log_end());
        let reads = self.world.journal.reads().clone();
        let read =
            move |room: ReadGrant| reads.log_within(partition, (from, end), room.bytes(), move |bytes| room.fit(bytes));
        self.await_room(SLICE_BYTES, read, move |(slice, room)| SharedStateMessage::Slice(lane, from, slice, room));
        None
    }

    /// Where the log ends; its beginning where it has none any more.
    fn log_end(&self) -> Seq {
        self.world.journal.end(self.shared.subscription_key.partition).map_or(Seq::FIRST, |end| end.next)
    }

    /// Filters a slice of the log, event by event. No more is kept of it than this subscription's share of what all may keep,
    /// or one event; the rest is read again.
    fn filter_slice(&self, lane: Lane, from: Seq, slice: LogSlice) -> Input {
        if slice.is_missing {
            return Input::Unreadable { lane, from, upto: slice.upto };
        }
        let (mut total, mut upto) = (0, slice.upto);
        let (mut matching, mut kept, share) = (Vec::new(), 0, self.member.share());
        // It has been put aside as a match, before the place that is read from: to take it in hand would kill again.
        let killers = self.shared.killers(lane);
        'log: for chunk in slice.chunks {
            let (first, end) = (chunk.first.max(from), chunk.end().min(slice.upto));
            let Ok(events) = chunk.events() else {
                self.world.journal.damage().lose(self.shared.subscription_key.partition, first, end);
                if first > from {
                    // It is read again, by itself.
                    upto = first;
                    break;
                }
                self.shared.put_down();
                return Input::Unreadable { lane, from, upto: end };
            };
            for event in events.into_iter().filter(|event| from <= event.seq && event.seq < slice.upto) {
                let is_match = killers.contains(&event.seq) || {
                    let (seq, appended) = (event.seq, event.appended);
                    let item = SendItem { lane, seq, appended, attempts: 0, due: None, since: None };
                    self.shared.set_current_event(item, &event.id());
                    self.plan.filter().matches(&event)
                };
                if is_match {
                    if kept > 0 && kept + event.wire_len() > share {
                        upto = event.seq;
                        break 'log;
                    }
                    kept += event.wire_len();
                    // One small event must not keep a chunk in memory.
                    matching.push(event.detached());
                }
                total += 1;
            }
        }
        self.shared.put_down();
        Input::Read { lane, from, upto, total, events: matching }
    }

    /// Makes the request, in a task of its own.
    fn send(&self, request: Arc<OutgoingBatch>, events: Vec<Event>) {
        for (item, event) in request.items.iter().zip(&events) {
            self.shared.set_current_event(*item, &event.id());
        }
        self.shared.put_down();
        if !self.shared.depart(self.owner.incarnation, Arc::clone(&request)) {
            return;
        }
        // Without a certificate it is the same one for good.
        let client = match self.plan.record.webhook.client_certificate.as_deref() {
            Some(name) => clients::client(&self.world.client, Some(name)),
            None => self.client.clone(),
        };
        let plan = Arc::clone(&self.plan);
        let aside = (Arc::clone(&self.world.response_faults), &self.world.tracer);
        delivery::start(&self.shared, plan, client, &request, events, aside, self.world.clock.now());
    }

    /// Lets an answer lie in the slot when it comes. What nobody waits for any more is dropped there.
    fn await_report(&self, answer: impl Future<Output = Result<SharedStateMessage, journal::Error>> + 'static) {
        let (shared, life) = (Arc::clone(&self.shared), self.owner.incarnation);
        actix_rt::spawn(async move {
            let report = answer.await.unwrap_or_else(SharedStateMessage::Failed);
            shared.report(life, report);
        });
    }

    /// Reads when there is room for it, and lets the answer lie in the slot. What is larger than its room is read again when
    /// there is room for that.
    fn await_room<T: 'static>(
        &self,
        bytes_max: usize,
        read: impl Fn(ReadGrant) -> PendingResult<Result<T, usize>> + 'static,
        report: impl FnOnce(T) -> SharedStateMessage + 'static,
    ) {
        let (shared, life, member) = (Arc::clone(&self.shared), self.owner.incarnation, Rc::downgrade(&self.member));
        actix_rt::spawn(async move {
            let mut ask = GrantRequest::Share(bytes_max);
            let report = loop {
                // Nobody needs it any more where the actor has ended.
                let Some(asked) = member.upgrade().map(|member| member.request(ask)) else { return };
                let Some(room) = asked.await else { return };
                match read(room).await {
                    Ok(Ok(found)) => break report(found),
                    Ok(Err(bytes)) => ask = GrantRequest::Exactly(bytes),
                    Err(error) => break SharedStateMessage::Failed(error),
                }
            };
            shared.report(life, report);
        });
    }

    fn rearm(&mut self, ctx: &mut Context<Self>) {
        self.member.keep(self.core.kept_bytes());
        let now = self.world.clock.now();
        let Some(due) = self.core.next_due(now) else { return };
        // One that goes off too early looks again then: that is dearer than a timer set anew for each request.
        if self.timer.as_ref().is_some_and(|(_, set)| *set <= due) {
            return;
        }
        if let Some((later, _)) = self.timer.take() {
            ctx.cancel_future(later);
        }
        // A millisecond at least: a core that is due now and does nothing must not spin.
        let wait = due.since(now).clamp(Duration::from_millis(1), TIMER_MAX);
        let timer = ctx.run_later(wait, |actor, ctx| {
            actor.timer = None;
            actor.absorb(Input::Tick);
            actor.rearm(ctx);
        });
        self.timer = Some((timer, now.after(wait)));
    }
}

impl Actor for SubscriptionActor {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        for input in std::mem::take(&mut self.inherited) {
            self.absorb(input);
        }
        self.rearm(ctx);
        self.shared.live(ctx.address());
    }
}

impl Handler<Wake> for SubscriptionActor {
    type Result = ();

    fn handle(&mut self, _: Wake, ctx: &mut Self::Context) {
        match self.take() {
            Ok(()) => self.rearm(ctx),
            Err(error) => self.fail(&error, ctx),
        }
    }
}

impl Handler<Inject> for SubscriptionActor {
    type Result = ();

    fn handle(&mut self, suffer: Inject, ctx: &mut Self::Context) {
        suffer.befall(ctx);
    }
}
