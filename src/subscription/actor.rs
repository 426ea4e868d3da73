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
    chaos::Suffer,
    clock::Clock,
    deliver::{self, Client},
    event::{Event, Lane, Seq, Timestamp},
    journal::{self, Journal, LogSlice, Opened, Owner, Position, Promise},
    policy::{Effect, Flight, Input, Item, Step, Subscription, Write, due, record::Change, retry::Chance},
    subscription::{
        clients, delivery,
        disturb::Disturbance,
        plan::Plan,
        room::{Ask, Grant, Member, ReadBudget},
        slot::{Handed, Obeyed, Reply, Report, Slot, Taken},
        tail::Tail,
        tap::{Heard, Tap},
        traced::Settling,
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
pub struct World {
    /// Where everything is written.
    pub journal: Journal,
    /// What time it is.
    pub clock: Clock,
    /// How requests are made; each arbiter has a client of its own.
    pub client: deliver::Options,
    /// Told when a dead letter of this slot waits: its file is due then.
    pub put_aside: PutAside,
    /// What is done to answers on purpose.
    pub disturbance: Arc<Disturbance>,
    /// Where attempts are recorded as spans, and what came of them.
    pub tracer: Tracer,
    /// Where it is told what became of events.
    pub tap: Arc<Tap>,
    /// What all subscriptions together may have read and not sent.
    pub read_budget: Arc<ReadBudget>,
}

/// What is to be done when a life has worked off what waited for it.
pub type FirstAct = Box<dyn FnOnce()>;

/// Who hears that a dead letter of a slot waits, and when its file is due.
pub type PutAside = Arc<dyn Fn(&Slot, Timestamp) + Send + Sync>;

/// One life of a subscription.
pub struct SubscriptionActor {
    world: Arc<World>,
    tail: Arc<Tail>,
    slot: Arc<Slot>,
    plan: Arc<Plan>,
    owner: Owner,
    core: Box<Subscription>,
    member: Rc<Member>,
    client: Result<Rc<Client>, clients::Missing>,
    inherited: Vec<Input>,
    first_act: Option<FirstAct>,
    /// The timer that runs, and for when it is set.
    timer: Option<(SpawnHandle, Timestamp)>,
    /// The log's end that the core was told last.
    told: Option<Seq>,
    /// Commands whose write is on its way, and those whose write is yet to come.
    written: Vec<(Reply, Obeyed)>,
    unwritten: Vec<(Reply, Obeyed)>,
    /// Whether it is to be woken when a request may leave again.
    waits_for_room: bool,
}

impl SubscriptionActor {
    /// Opens the records for a new life. To be called on the arbiter that it will live on.
    pub async fn build(
        world: Arc<World>,
        tail: Arc<Tail>,
        slot: Arc<Slot>,
        first_act: FirstAct,
    ) -> Result<Self, journal::Error> {
        let Opened { owner, cursor, end } = world.journal.open(slot.obligor).await?;
        let Handed { plan, flights, next_flight, inputs, is_first } = slot.begin(owner.life, end);
        let settings = plan.settings.clone();
        let now = world.clock.now();
        let mut core = Box::new(Subscription::recover(settings, &cursor, end, flights, next_flight, now));
        if is_first {
            core.start(now);
        }
        slot.set_state(&core.cursor(), core.endpoint(now));
        let reader = Arc::clone(&slot);
        let member = Rc::new(world.read_budget.member(Arc::new(move || reader.let_go())));
        let client = clients::client(&world.client, plan.record.webhook.client_certificate.as_deref());
        Ok(Self {
            world,
            tail,
            slot,
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
            let chance = Chance(fastrand::f64());
            self.core.hold_expiry(self.world.clock.holds_expiry());
            self.core.limit_flights(self.core.in_flight().saturating_add(self.world.client.sockets.free()));
            let Step { write, effects } = self.core.absorb(input, self.world.clock.now(), chance);
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
        let (slot, life) = (Arc::clone(&self.slot), self.owner.life);
        sockets.wait(move || slot.report(life, Report::Room));
    }

    /// Takes what was read: what is kept of it counts before its room is free for others.
    fn absorb_read(&mut self, input: Input, room: Grant) {
        self.absorb(input);
        self.member.keep(self.core.kept_bytes());
        drop(room);
    }

    /// Takes what arrived since the last time.
    fn take(&mut self) -> Result<(), journal::Error> {
        let Taken { end, reports, commands, pages, pulls } = self.slot.take();
        if self.slot.is_closing() {
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
            self.unwritten.push((reply, Obeyed { job }));
            self.absorb(Input::Command(command));
        }
        for (page, reply) in pages {
            if let Some(why) = self.core.refuses_letters(page.lane) {
                // Whoever asked may have gone.
                reply.send(Err(why)).ok();
                continue;
            }
            self.unwritten.push((reply, Obeyed { job: None }));
            self.absorb(Input::TakeBack(page));
        }
        for input in pulls {
            self.absorb(input);
        }
        for report in reports {
            match report {
                Report::Input(input) => self.absorb(input),
                Report::Read(input, room) => self.absorb_read(input, room),
                Report::Slice(lane, from, slice, room) => {
                    let input = self.sift(lane, from, slice);
                    self.absorb_read(input, room);
                }
                Report::Durable => {
                    for (reply, obeyed) in self.written.drain(..) {
                        // Whoever asked may have gone; it is done all the same.
                        reply.send(Ok(obeyed)).ok();
                    }
                    self.absorb(Input::Durable);
                }
                Report::Room => {
                    self.waits_for_room = false;
                    self.absorb(Input::Tick);
                }
                Report::Failed(error) => return Err(error),
            }
        }
        if self.written.is_empty() && self.unwritten.is_empty() {
            self.slot.answered();
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
        tracing::warn!(%subscription, life = self.owner.life.0, %error, "a life of a subscription ends");
        ctx.stop();
    }

    fn write(&mut self, Write { changes, landed, late, struck, urgent }: Write) {
        let mut first_file: Option<Timestamp> = None;
        for change in &changes {
            match change {
                Change::Cursor(cursor) => self.slot.set_state(cursor, self.core.endpoint(self.world.clock.now())),
                Change::PutAside { due, .. } => first_file = Some(first_file.map_or(*due, |first| first.min(*due))),
                Change::JobEnded(job) => self.slot.job_ends(job),
                Change::Owe { .. }
                | Change::Settle { .. }
                | Change::Note { .. }
                | Change::TakeBack(_)
                | Change::Keep { .. } => {}
            }
        }
        self.written.append(&mut self.unwritten);
        let settled = self.slot.writes(&changes);
        let (tracer, name, clock) = (&self.world.tracer, self.plan.record.name.as_str(), self.world.clock.clone());
        let settling = Settling::of(tracer, &self.slot, name, (&landed, &changes), clock.now());
        let (lines, tap, plan) = (self.world.tap.lines(&changes), Arc::clone(&self.world.tap), Arc::clone(&self.plan));
        let (slot, life, tell) = (Arc::clone(&self.slot), self.owner.life, Arc::clone(&self.world.put_aside));
        let done = move |result: Result<(), journal::Error>| match result {
            Ok(()) => {
                slot.landed(life, &landed, &late, &struck, &settled);
                if let Some(settling) = settling {
                    settling.end(clock.now());
                }
                if !lines.is_empty() {
                    tap.tell(|| Heard::Ended(slot.obligor, Arc::clone(&plan.record), lines));
                }
                if let Some(due) = first_file {
                    tell(&slot, due);
                }
            }
            Err(error) => slot.report(life, Report::Failed(error)),
        };
        self.world.journal.append(self.owner, changes, urgent, Box::new(done));
    }

    fn perform(&self, effect: Effect) -> Option<Input> {
        match effect {
            Effect::Send { flight, events } => {
                self.send(flight, events);
                None
            }
            Effect::Hand { to, events } => self.slot.hand(to, events),
            Effect::Tell { to, verdicts } => {
                self.slot.tell(to, verdicts);
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
                    Ok(Report::Input(Input::Connected(reached)))
                });
                None
            }
            Effect::FindPosition { before } => {
                let partition = self.slot.obligor.partition;
                let answer = self.world.journal.reads().position(partition, self.log_end(), before);
                self.await_report(async move {
                    let Position { at, appended } = answer.await?;
                    Ok(Report::Input(Input::Position { before, at, appended }))
                });
                None
            }
            Effect::ReadDue { of, from } => {
                let answer = self.world.journal.reads().due_of(self.slot.obligor, of, from, due::WINDOW);
                self.await_report(async move {
                    answer.await.map(|(keys, all)| Report::Input(Input::DueRead { of, keys, all }))
                });
                None
            }
            Effect::ReadOwed(wanted) => {
                let answer = self.world.journal.reads().owed(self.slot.obligor, wanted);
                self.await_report(async { answer.await.map(|found| Report::Input(Input::OwedRead(found))) });
                None
            }
            Effect::Fetch(wanted) => {
                let (reads, obligor) = (self.world.journal.reads().clone(), self.slot.obligor);
                let read = move |room: Grant| {
                    reads.fetch_within(obligor, wanted.clone(), room.bytes(), move |bytes| room.fit(bytes))
                };
                self.await_room(FETCH_BYTES, read, |(fetched, room)| Report::Read(Input::Fetched(fetched), room));
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
            && let Some(found) = self.tail.read(record.number, record.version, from, end, enough)
        {
            let (upto, total, events) = (found.upto, found.total, found.events);
            return Some(Input::Read { lane, from, upto, total, events });
        }
        let partition = self.slot.obligor.partition;
        let end = end.unwrap_or_else(|| self.log_end());
        let reads = self.world.journal.reads().clone();
        let read =
            move |room: Grant| reads.log_within(partition, (from, end), room.bytes(), move |bytes| room.fit(bytes));
        self.await_room(SLICE_BYTES, read, move |(slice, room)| Report::Slice(lane, from, slice, room));
        None
    }

    /// Where the log ends; its beginning where it has none any more.
    fn log_end(&self) -> Seq {
        self.world.journal.end(self.slot.obligor.partition).map_or(Seq::FIRST, |end| end.next)
    }

    /// Filters a slice of the log, event by event. No more is kept of it than this subscription's share of what all may keep,
    /// or one event; the rest is read again.
    fn sift(&self, lane: Lane, from: Seq, slice: LogSlice) -> Input {
        if slice.is_missing {
            return Input::Unreadable { lane, from, upto: slice.upto };
        }
        let (mut total, mut upto) = (0, slice.upto);
        let (mut matching, mut kept, share) = (Vec::new(), 0, self.member.share());
        // It has been put aside as a match, before the place that is read from: to take it in hand would kill again.
        let killers = self.slot.killers(lane);
        'log: for chunk in slice.chunks {
            let (first, end) = (chunk.first.max(from), chunk.end().min(slice.upto));
            let Ok(events) = chunk.events() else {
                self.world.journal.damage().lose(self.slot.obligor.partition, first, end);
                if first > from {
                    // It is read again, by itself.
                    upto = first;
                    break;
                }
                self.slot.put_down();
                return Input::Unreadable { lane, from, upto: end };
            };
            for event in events.into_iter().filter(|event| from <= event.seq && event.seq < slice.upto) {
                let is_match = killers.contains(&event.seq) || {
                    let (seq, appended) = (event.seq, event.appended);
                    let item = Item { lane, seq, appended, attempts: 0, due: None, since: None };
                    self.slot.take_in_hand(item, &event.id());
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
        self.slot.put_down();
        Input::Read { lane, from, upto, total, events: matching }
    }

    /// Makes the request, in a task of its own.
    fn send(&self, flight: Arc<Flight>, events: Vec<Event>) {
        for (item, event) in flight.items.iter().zip(&events) {
            self.slot.take_in_hand(*item, &event.id());
        }
        self.slot.put_down();
        if !self.slot.depart(self.owner.life, Arc::clone(&flight)) {
            return;
        }
        // Without a certificate it is the same one for good.
        let client = match self.plan.record.webhook.client_certificate.as_deref() {
            Some(name) => clients::client(&self.world.client, Some(name)),
            None => self.client.clone(),
        };
        let plan = Arc::clone(&self.plan);
        let aside = (Arc::clone(&self.world.disturbance), &self.world.tracer);
        delivery::start(&self.slot, plan, client, &flight, events, aside, self.world.clock.now());
    }

    /// Lets an answer lie in the slot when it comes. What nobody waits for any more is dropped there.
    fn await_report(&self, answer: impl Future<Output = Result<Report, journal::Error>> + 'static) {
        let (slot, life) = (Arc::clone(&self.slot), self.owner.life);
        actix_rt::spawn(async move {
            let report = answer.await.unwrap_or_else(Report::Failed);
            slot.report(life, report);
        });
    }

    /// Reads when there is room for it, and lets the answer lie in the slot. What is larger than its room is read again when
    /// there is room for that.
    fn await_room<T: 'static>(
        &self,
        bytes_max: usize,
        read: impl Fn(Grant) -> Promise<Result<T, usize>> + 'static,
        report: impl FnOnce(T) -> Report + 'static,
    ) {
        let (slot, life, member) = (Arc::clone(&self.slot), self.owner.life, Rc::downgrade(&self.member));
        actix_rt::spawn(async move {
            let mut ask = Ask::Share(bytes_max);
            let report = loop {
                // Nobody needs it any more where the actor has ended.
                let Some(asked) = member.upgrade().map(|member| member.ask(ask)) else { return };
                let Some(room) = asked.await else { return };
                match read(room).await {
                    Ok(Ok(found)) => break report(found),
                    Ok(Err(bytes)) => ask = Ask::Exactly(bytes),
                    Err(error) => break Report::Failed(error),
                }
            };
            slot.report(life, report);
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
        self.slot.live(ctx.address());
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

impl Handler<Suffer> for SubscriptionActor {
    type Result = ();

    fn handle(&mut self, suffer: Suffer, ctx: &mut Self::Context) {
        suffer.befall(ctx);
    }
}
