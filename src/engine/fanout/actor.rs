//! The actor of a topic: it matches appended events, and starts the actors of its subscriptions.
//!
//! Its state is derived: the index comes from the registry's plans, its children recover from the
//! journal. When it ends, its children end too, and the next incarnation starts from nothing.
//! Subscriptions read what it had not matched from the log.
//!
//! Topics share threads. An actor works in turns of about [`TURN`] bytes and yields in between,
//! however much has arrived and however expensive the filters are.

use std::{
    cell::Cell,
    collections::{HashSet, VecDeque},
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::Waker,
    time::Duration,
};

use actix::{Actor, ActorContext, AsyncContext, Context, Handler};

use crate::{
    control::registry::{SubscriptionHandle, TopicHandle, TopicMessage},
    fanout::index::{Matching, TopicIndex},
    supervision::{
        Lifeline,
        actor_factory::{self, ActorHosts},
    },
};
use gridhook_chaos::Inject;
use gridhook_event::{IdMap, Seq, SubscriptionId, chunk::Chunk};
use gridhook_journal::LogPosition;
use gridhook_subscription::{
    timers::{self, Timer},
    turns::{RunTurns, begin_turns},
};

/// How often subscriptions without a match learn the end of the log, so that they pass it and the
/// log can be trimmed. An actor that is idle at two checks in a row is stopped, unless its topic
/// had an event in between.
pub const CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// A subscription lags if it has not read what was there this many checks ago. The cache keeps
/// nothing for it.
const LAG_CHECKS: usize = 2;

/// Bytes of events per turn, but at least one event: about 1 ms. Filter candidates are counted in
/// bytes too.
const TURN: usize = 256 * 1024;

/// One incarnation of a topic's actor.
pub struct TopicActor {
    topic: Arc<TopicHandle>,
    hosts: ActorHosts,
    index: TopicIndex,
    /// The topic's subscriptions, for a lookup at each match.
    known: IdMap<SubscriptionId, Arc<SubscriptionHandle>>,
    children: IdMap<SubscriptionId, Lifeline>,
    /// Subscriptions that had nothing to do at the last check.
    idle: HashSet<SubscriptionId>,
    /// Whether this actor had nothing to do at the last check.
    is_idle: bool,
    /// The chunk that is being matched.
    matching: Option<(Seq, Matching)>,
    /// The ends of the log at the last checks, newest last.
    ends: VecDeque<Seq>,
    /// Whether a task is finding out which events the backlog limit drops.
    is_enforcing: Rc<Cell<bool>>,
    next_check: Option<Timer>,
    retired: Arc<AtomicBool>,
}

impl TopicActor {
    /// Makes a new incarnation. It sets `retired` and stops once it is idle.
    pub fn new(topic: Arc<TopicHandle>, hosts: ActorHosts, retired: Arc<AtomicBool>) -> Self {
        retired.store(false, Ordering::Release);
        Self {
            topic,
            hosts,
            index: TopicIndex::default(),
            known: IdMap::default(),
            children: IdMap::default(),
            idle: HashSet::new(),
            is_idle: false,
            matching: None,
            ends: VecDeque::new(),
            is_enforcing: Rc::default(),
            next_check: None,
            retired,
        }
    }

    /// Processes the inbox for one turn, and continues after all others on this thread had a turn.
    fn run_turn(&mut self, waker: &Waker, ctx: &mut Context<Self>) {
        let mut left = TURN;
        while left > 0 {
            if let Some((_, matching)) = &mut self.matching {
                match self.index.match_next(matching) {
                    Some(cost) => left = left.saturating_sub(cost),
                    None => self.finish_chunk(),
                }
                continue;
            }
            match self.topic.take_message(waker) {
                Some(TopicMessage::Changed) => self.reload_subscriptions(),
                Some(TopicMessage::CheckDue) => {
                    if self.run_check() {
                        return ctx.stop();
                    }
                    self.schedule_check();
                }
                Some(TopicMessage::Chunk(chunk)) => self.begin_chunk(chunk),
                None => {
                    self.enforce_backlog();
                    self.topic
                        .supervision_history()
                        .note_recovered(&self.hosts.context.clock);
                    return;
                }
            }
        }
        self.enforce_backlog();
        waker.wake_by_ref();
    }

    fn begin_chunk(&mut self, chunk: Chunk) {
        let end = chunk.end_seq();
        let bytes = chunk.record_memory();
        match chunk.into_events() {
            Ok(events) => {
                self.matching = self
                    .index
                    .begin_matching(events, bytes)
                    .map(|matching| (end, matching))
            }
            // Subscriptions read the log themselves and report damage there too.
            Err(error) => {
                tracing::error!(topic = %self.topic.record().name, %error, "cannot read a chunk to \
                    match")
            }
        }
    }

    /// Adds the matched chunk to the cache and wakes the subscriptions that match.
    fn finish_chunk(&mut self) {
        let Some((end, matching)) = self.matching.take() else {
            return;
        };
        let (matched, readers, unmatched) = self.index.finish_matching(matching);
        self.topic.meter().count_unmatched(unmatched);
        self.topic.recent_events().push(matched);
        for subscription in readers {
            // The index and `known` come from the same subscriptions.
            if let Some(child) = self.known.get(&subscription).cloned() {
                child.shared.set_log_end(end);
                self.start(&child);
            }
        }
        self.topic.supervision_history().note_progress();
    }

    /// If the backlog is too large and the oldest events may be dropped, passes the limit to the
    /// subscriptions that lag.
    fn enforce_backlog(&mut self) {
        let journal = &self.hosts.context.journal;
        let partition = self.topic.partition();
        let Some(keep) = journal
            .crowded_partition(partition)
            .and_then(|crowded| crowded.keep)
        else {
            return;
        };
        let Some(end) = journal.log_end(partition) else {
            return;
        };
        if self.is_enforcing.replace(true) {
            return;
        }
        let journal = journal.clone();
        let topic = Arc::clone(&self.topic);
        let is_enforcing = Rc::clone(&self.is_enforcing);
        actix_rt::spawn(async move {
            // If it cannot be found out now, the next append tries again.
            if let Ok(LogPosition { at, .. }) =
                journal.reader_pool().last_bytes(partition, end, keep).await
            {
                for child in topic
                    .list_children()
                    .iter()
                    .filter(|child| child.shared.own_low() < at)
                {
                    child.shared.drop_unread(at);
                }
            }
            is_enforcing.set(false);
        });
    }

    /// The subscriptions changed: stops actors whose subscription is gone or has another plan, and
    /// starts those with work.
    fn reload_subscriptions(&mut self) {
        self.topic.recent_events().clear();
        let children = self.topic.list_children();
        self.index = self
            .index
            .rebuild(children.iter().map(|child| child.shared.plan()).collect());
        self.known = children
            .iter()
            .map(|child| (child.number(), Arc::clone(child)))
            .collect();
        self.children.retain(|number, _| {
            self.known
                .get(number)
                .is_some_and(|child| !child.is_outdated())
        });
        self.start_pending(&children);
    }

    fn schedule_check(&mut self) {
        let topic = Arc::clone(&self.topic);
        self.next_check = Some(timers::call_after(self.hosts.check_interval, move || {
            topic.note_check_due()
        }));
    }

    /// The periodic check: drops cached events that all have read, forgets subscriptions that lag,
    /// stops idle actors and starts those with work, and enforces the limit of the backlog. Returns
    /// whether this actor is to stop.
    fn run_check(&mut self) -> bool {
        let children = self.topic.list_children();
        let low = children
            .iter()
            .map(|child| child.shared.own_low())
            .min()
            .unwrap_or(Seq(u64::MAX));
        self.topic.recent_events().drop_passed(low);
        self.forget_laggards(&children);
        self.retire_idle(&children);
        self.start_pending(&children);
        self.enforce_backlog();
        self.should_retire()
    }

    /// The cache keeps nothing for subscriptions that lag.
    fn forget_laggards(&mut self, children: &[Arc<SubscriptionHandle>]) {
        let Some(end) = self.hosts.context.journal.log_end(self.topic.partition()) else {
            return;
        };
        self.ends.push_back(end.next);
        if self.ends.len() <= LAG_CHECKS {
            return;
        }
        let Some(before) = self.ends.pop_front() else {
            return;
        };
        let laggards = children
            .iter()
            .filter(|child| child.shared.live_read().is_some_and(|read| read < before));
        self.topic
            .recent_events()
            .set_laggards(laggards.map(|child| child.number()).collect(), before);
    }

    /// Whether this actor is to stop, because it and all its subscriptions were idle at two checks
    /// in a row: an idle topic costs one record in memory. New work starts it again.
    fn should_retire(&mut self) -> bool {
        let is_idle =
            self.children.is_empty() && self.matching.is_none() && !self.is_enforcing.get();
        let retires =
            std::mem::replace(&mut self.is_idle, is_idle) && is_idle && self.topic.try_retire();
        if retires {
            self.topic.recent_events().clear();
            self.retired.store(true, Ordering::Release);
        }
        retires
    }

    /// Stops the actors of subscriptions that were idle at two checks in a row, with no event in
    /// between: an idle subscription costs one record on disk. New work wakes this actor, which
    /// starts them again. To start an actor costs as much as many events, so those of a topic with
    /// an event now and then stay.
    fn retire_idle(&mut self, children: &[Arc<SubscriptionHandle>]) {
        let Some(end) = self.hosts.context.journal.log_end(self.topic.partition()) else {
            return;
        };
        let idle = children
            .iter()
            .filter(|child| child.shared.is_idle(end.next))
            .map(|child| child.number())
            .collect();
        let before = std::mem::replace(&mut self.idle, idle);
        if self.ends.iter().any(|checked| *checked != end.next) {
            return;
        }
        self.children
            .retain(|number, _| !(before.contains(number) && self.idle.contains(number)));
    }

    fn start_pending(&mut self, children: &[Arc<SubscriptionHandle>]) {
        let Some(end) = self.hosts.context.journal.log_end(self.topic.partition()) else {
            return;
        };
        for child in children {
            child.shared.set_log_end(end.next);
            if !child.shared.is_idle(end.next) {
                self.start(child);
            }
        }
    }

    /// Starts a subscription's actor if it does not run.
    fn start(&mut self, child: &Arc<SubscriptionHandle>) {
        if self.children.contains_key(&child.number()) {
            return;
        }
        // The previous incarnation of this actor took the child with it.
        if let Some(ended_at) = self.topic.supervision_history().down_since() {
            child.history.note_orphaned(ended_at);
        }
        let lifeline = Lifeline::new();
        actor_factory::supervise_subscription(
            Arc::clone(child),
            Arc::clone(&self.topic),
            &self.hosts,
            lifeline.new_watch(),
        );
        self.children.insert(child.number(), lifeline);
    }
}

impl Actor for TopicActor {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        self.reload_subscriptions();
        self.topic.set_mailbox(ctx.address());
        begin_turns(ctx);
        self.schedule_check();
    }
}

impl RunTurns for TopicActor {
    fn run_turn(&mut self, waker: &Waker, ctx: &mut Context<Self>) {
        self.run_turn(waker, ctx);
    }
}

impl Handler<Inject> for TopicActor {
    type Result = ();

    fn handle(&mut self, inject: Inject, ctx: &mut Self::Context) {
        inject.apply_to(ctx);
    }
}
