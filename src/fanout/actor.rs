//! One life of a topic: it matches what was appended, and keeps its subscriptions' actors alive.
//!
//! Its state is a view: the index is made of the registry's plans, its children are built from the journal. When it dies,
//! they end with it, and the next life begins anew; what it had not matched, they read from the log themselves.
//!
//! Topics share threads, so an actor works in turns of about [`TURN`] bytes and lets all others on its thread have theirs in
//! between, however much has arrived for it and however dear its filters are.

use std::{
    cell::Cell,
    collections::{HashMap, HashSet, VecDeque},
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use actix::{Actor, ActorContext, ActorFutureExt, AsyncContext, Context, Handler, Message, fut::wrap_future};

use crate::{
    chaos::Inject,
    control::registry::{ArrivedEvents, SubscriptionHandle, TopicHandle},
    event::{Seq, SubscriptionId},
    fanout::index::{Matching, TopicIndex},
    journal::LogPosition,
    store::chunk::Chunk,
    supervision::{
        Lifeline,
        actor_factory::{self, ActorHosts},
    },
};

/// Something lies in the topic's inbox. A hint: losing it costs latency, never an event.
#[derive(Message)]
#[rtype(result = "()")]
pub struct InboxWake;

/// How often subscriptions that nothing matches are told where the log ends, so that they pass it and it can be trimmed.
/// Actors that were idle twice in a row retire.
pub const LOOK: Duration = Duration::from_secs(5);

/// A subscription lags where it has not read what was there before so many looks: nothing is kept in memory for it.
const LAG_LOOKS: usize = 2;

/// So many bytes of events are matched in a turn, and one event at least: about a millisecond. What candidates cost is counted
/// in bytes too.
const TURN: usize = 256 * 1024;

/// One life of a topic.
pub struct TopicActor {
    topic: Arc<TopicHandle>,
    hosts: ActorHosts,
    index: TopicIndex,
    /// The topic's subscriptions as they were last read: an append looks each matching one up.
    known: HashMap<SubscriptionId, Arc<SubscriptionHandle>>,
    children: HashMap<SubscriptionId, Lifeline>,
    /// Those that had nothing to do when they were looked at last.
    idle: HashSet<SubscriptionId>,
    /// Whether it had nothing to do itself.
    is_idle: bool,
    /// The chunk that is being matched.
    matching: Option<(Chunk, Matching)>,
    /// Whether the next turn is waited for.
    is_waiting: bool,
    /// Where the log ended at the last looks, the newest last.
    ends: VecDeque<Seq>,
    /// Whether it is being found out which events go because the backlog is too large.
    relieving: Rc<Cell<bool>>,
    retired: Arc<AtomicBool>,
}

impl TopicActor {
    /// A fresh life. It sets `retired` and stops where it has nothing to do for long.
    pub fn new(topic: Arc<TopicHandle>, hosts: ActorHosts, retired: Arc<AtomicBool>) -> Self {
        retired.store(false, Ordering::Release);
        Self {
            topic,
            hosts,
            index: TopicIndex::default(),
            known: HashMap::new(),
            children: HashMap::new(),
            idle: HashSet::new(),
            is_idle: false,
            matching: None,
            is_waiting: false,
            ends: VecDeque::new(),
            relieving: Rc::default(),
            retired,
        }
    }

    /// Works on what arrived for a turn, and comes back to the rest when all others on this thread have had theirs.
    fn turn(&mut self, ctx: &mut Context<Self>) {
        let mut left = TURN;
        while left > 0 {
            if let Some((_, matching)) = &mut self.matching {
                match self.index.advance(matching) {
                    Some(cost) => left = left.saturating_sub(cost),
                    None => self.finish(),
                }
                continue;
            }
            match self.topic.take() {
                Some(ArrivedEvents::Changed) => self.reread(),
                Some(ArrivedEvents::Chunk(chunk)) => self.begin(chunk),
                None => {
                    self.relieve();
                    self.topic.history().acted(&self.hosts.world.clock);
                    return;
                }
            }
        }
        self.relieve();
        self.is_waiting = true;
        ctx.spawn(wrap_future(tokio::task::yield_now()).map(|(), actor: &mut Self, ctx| {
            actor.is_waiting = false;
            actor.turn(ctx);
        }));
    }

    fn begin(&mut self, chunk: Chunk) {
        match chunk.events() {
            Ok(events) => {
                let matching = self.index.begin(events, chunk.bytes_len());
                self.matching = matching.map(|matching| (chunk, matching));
            }
            // The subscriptions read the log for themselves, and say so if it is damaged there too.
            Err(error) => tracing::error!(topic = %self.topic.record().name, %error, "a chunk cannot be matched"),
        }
    }

    /// A chunk is matched: it is kept for those that it goes to, and they are woken.
    fn finish(&mut self) {
        let Some((chunk, matching)) = self.matching.take() else { return };
        let (matched, readers, unmatched) = self.index.end(matching);
        self.topic.meter().unmatched(unmatched);
        self.topic.tail().push(matched);
        for subscription in readers {
            // The index and this were made of the same subscriptions.
            if let Some(child) = self.known.get(&subscription).cloned() {
                child.shared.appended(chunk.end());
                self.start(&child);
            }
        }
        self.topic.history().thrive();
    }

    /// Where the backlog is too large and the operator lets the oldest events go, those who lag are told up to where.
    fn relieve(&mut self) {
        let (journal, partition) = (self.hosts.world.journal.clone(), self.topic.partition());
        let keep = journal.crowd(partition).and_then(|crowd| crowd.keep);
        let (Some(keep), Some(end)) = (keep, journal.end(partition)) else { return };
        if self.relieving.replace(true) {
            return;
        }
        let (topic, relieving) = (Arc::clone(&self.topic), Rc::clone(&self.relieving));
        actix_rt::spawn(async move {
            // Where it cannot be found out now, the next append asks again.
            if let Ok(LogPosition { at, .. }) = journal.reads().last_bytes(partition, end, keep).await {
                for child in topic.children().iter().filter(|child| child.shared.state().own_low < at) {
                    child.shared.overflow(at);
                }
            }
            relieving.set(false);
        });
    }

    /// The subscriptions were changed: those that are gone or served otherwise end, and all that owe something run.
    fn reread(&mut self) {
        self.topic.tail().clear();
        let children = self.topic.children();
        self.index = self.index.renewed(children.iter().map(|child| child.shared.plan()).collect());
        self.known = children.iter().map(|child| (child.number(), Arc::clone(child))).collect();
        self.children.retain(|number, _| self.known.get(number).is_some_and(|child| !child.is_outdated()));
        self.nudge_all(&children);
    }

    /// Looks after the subscriptions, and ends what has nothing to do.
    fn look(&mut self, ctx: &mut Context<Self>) {
        let children = self.topic.children();
        let low = children.iter().map(|child| child.shared.state().own_low).min().unwrap_or(Seq(u64::MAX));
        self.topic.tail().pass(low);
        self.forget_laggards(&children);
        self.retire_idle(&children);
        self.nudge_all(&children);
        self.relieve();
        self.retire(ctx);
    }

    /// Nothing is kept in memory for subscriptions that have not read for long.
    fn forget_laggards(&mut self, children: &[Arc<SubscriptionHandle>]) {
        let Some(end) = self.hosts.world.journal.end(self.topic.partition()) else { return };
        self.ends.push_back(end.next);
        if self.ends.len() <= LAG_LOOKS {
            return;
        }
        let Some(before) = self.ends.pop_front() else { return };
        let laggards = children.iter().filter(|child| child.shared.live_read().is_some_and(|read| read < before));
        self.topic.tail().lag(laggards.map(|child| child.number()).collect(), before);
    }

    /// Ends where there was nothing to do for two looks in a row, and no subscription has: an idle topic costs a record in
    /// memory. Whoever brings something has it built again.
    fn retire(&mut self, ctx: &mut Context<Self>) {
        let is_idle = self.children.is_empty() && self.matching.is_none() && !self.relieving.get();
        if std::mem::replace(&mut self.is_idle, is_idle) && is_idle && self.topic.retire() {
            self.topic.tail().clear();
            self.retired.store(true, Ordering::Release);
            ctx.stop();
        }
    }

    /// An actor that has had nothing to do for two looks in a row ends: a quiet subscription costs a record on disk. Whoever
    /// gives it something to do tells this actor, which builds it again.
    fn retire_idle(&mut self, children: &[Arc<SubscriptionHandle>]) {
        let Some(end) = self.hosts.world.journal.end(self.topic.partition()) else { return };
        let idle = children.iter().filter(|child| child.shared.is_idle(end.next)).map(|child| child.number()).collect();
        let before = std::mem::replace(&mut self.idle, idle);
        self.children.retain(|number, _| !(before.contains(number) && self.idle.contains(number)));
    }

    fn nudge_all(&mut self, children: &[Arc<SubscriptionHandle>]) {
        let Some(end) = self.hosts.world.journal.end(self.topic.partition()) else { return };
        for child in children {
            child.shared.appended(end.next);
            if !child.shared.is_idle(end.next) {
                self.start(child);
            }
        }
    }

    /// Lets a subscription's actor run, if it does not.
    fn start(&mut self, child: &Arc<SubscriptionHandle>) {
        if self.children.contains_key(&child.number()) {
            return;
        }
        // Whom an earlier life of this actor has taken along.
        if let Some(died) = self.topic.history().died() {
            child.history.orphaned(died);
        }
        let lifeline = Lifeline::new();
        actor_factory::keep_subscription(Arc::clone(child), Arc::clone(&self.topic), &self.hosts, lifeline.held());
        self.children.insert(child.number(), lifeline);
    }
}

impl Actor for TopicActor {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        self.reread();
        self.topic.live(ctx.address());
        ctx.run_interval(self.hosts.look, Self::look);
    }
}

impl Handler<InboxWake> for TopicActor {
    type Result = ();

    fn handle(&mut self, _: InboxWake, ctx: &mut Self::Context) {
        if !self.is_waiting {
            self.turn(ctx);
        }
    }
}

impl Handler<Inject> for TopicActor {
    type Result = ();

    fn handle(&mut self, suffer: Inject, ctx: &mut Self::Context) {
        suffer.befall(ctx);
    }
}
