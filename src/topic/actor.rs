//! One life of a topic: it matches what was appended, and keeps its subscriptions' actors alive.
//!
//! Its state is a view: the index is made of the registry's plans, its children are built from the journal. When it dies,
//! they end with it, and the next life begins anew; what it had not matched, they read from the log themselves.

use std::{
    cell::Cell,
    collections::{HashMap, HashSet},
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use actix::{Actor, AsyncContext, Context, Handler, Message};

use crate::{
    chaos::Suffer,
    event::{Seq, SubscriptionId},
    journal::{self, Position, chunk::Chunk},
    topic::{
        index::Index,
        keeper::{self, Hosts},
        registry::{Arrived, Child, Topic},
        supervise::Lifeline,
    },
};

/// Something lies in the topic's inbox. A hint: losing it costs latency, never an event.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Wake;

/// How often subscriptions that nothing matches are told where the log ends, so that they pass it and it can be trimmed.
const NUDGE: Duration = Duration::from_secs(5);

/// One life of a topic.
pub struct TopicActor {
    topic: Arc<Topic>,
    hosts: Hosts,
    index: Index,
    /// The topic's subscriptions as they were last read: an append looks each matching one up.
    known: HashMap<SubscriptionId, Arc<Child>>,
    children: HashMap<SubscriptionId, Lifeline>,
    /// Those that had nothing to do when they were looked at last.
    idle: HashSet<SubscriptionId>,
    /// Whether it is being found out which events go because the backlog is too large.
    relieving: Rc<Cell<bool>>,
}

impl TopicActor {
    /// A fresh life.
    pub fn new(topic: Arc<Topic>, hosts: Hosts) -> Self {
        Self {
            topic,
            hosts,
            index: Index::default(),
            known: HashMap::new(),
            children: HashMap::new(),
            idle: HashSet::new(),
            relieving: Rc::default(),
        }
    }

    /// Takes what arrived since the last time.
    fn take(&mut self) {
        let Arrived { chunks, changed } = self.topic.take();
        if changed {
            self.reread();
        }
        for chunk in chunks {
            match self.fan_out(&chunk) {
                Ok(()) => self.topic.chart().thrive(),
                // The subscriptions read the log for themselves, and say so if it is damaged there too.
                Err(error) => tracing::error!(topic = %self.topic.record().name, %error, "a chunk cannot be matched"),
            }
        }
        self.relieve();
        self.topic.chart().acted(&self.hosts.world.clock);
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
            if let Ok(Position { at, .. }) = journal.reads().last_bytes(partition, end, keep).await {
                for child in topic.children().iter().filter(|child| child.slot.state().own_low < at) {
                    child.slot.overflow(at);
                }
            }
            relieving.set(false);
        });
    }

    fn fan_out(&mut self, chunk: &Chunk) -> Result<(), journal::chunk::Damaged> {
        let found = self.index.matches(chunk.events()?, chunk.bytes_len());
        let Some((matched, unmatched)) = found else { return Ok(()) };
        self.topic.meter().unmatched(unmatched);
        let woken: Vec<SubscriptionId> = matched.matches.keys().copied().collect();
        self.topic.tail().push(matched);
        for subscription in woken {
            // The index and this were made of the same subscriptions.
            if let Some(child) = self.known.get(&subscription).cloned() {
                child.slot.appended(chunk.end());
                self.start(&child);
            }
        }
        Ok(())
    }

    /// The subscriptions were changed: those that are gone or served otherwise end, and all that owe something run.
    fn reread(&mut self) {
        self.topic.tail().clear();
        let children = self.topic.children();
        self.index = Index::new(children.iter().map(|child| child.slot.plan()).collect());
        self.known = children.iter().map(|child| (child.number(), Arc::clone(child))).collect();
        self.children.retain(|number, _| self.known.get(number).is_some_and(|child| !child.is_outdated()));
        self.nudge_all(&children);
    }

    fn nudge(&mut self) {
        let children = self.topic.children();
        let low = children.iter().map(|child| child.slot.state().own_low).min().unwrap_or(Seq(u64::MAX));
        self.topic.tail().pass(low);
        self.retire_idle(&children);
        self.nudge_all(&children);
        self.relieve();
    }

    /// An actor that has had nothing to do for two looks in a row ends: a quiet subscription costs a record on disk. Whoever
    /// gives it something to do tells this actor, which builds it again.
    fn retire_idle(&mut self, children: &[Arc<Child>]) {
        let Some(end) = self.hosts.world.journal.end(self.topic.partition()) else { return };
        let idle = children.iter().filter(|child| child.slot.is_idle(end.next)).map(|child| child.number()).collect();
        let before = std::mem::replace(&mut self.idle, idle);
        self.children.retain(|number, _| !(before.contains(number) && self.idle.contains(number)));
    }

    fn nudge_all(&mut self, children: &[Arc<Child>]) {
        let Some(end) = self.hosts.world.journal.end(self.topic.partition()) else { return };
        for child in children {
            child.slot.appended(end.next);
            if !child.slot.is_idle(end.next) {
                self.start(child);
            }
        }
    }

    /// Lets a subscription's actor run, if it does not.
    fn start(&mut self, child: &Arc<Child>) {
        if self.children.contains_key(&child.number()) {
            return;
        }
        // Whom an earlier life of this actor has taken along.
        if let Some(died) = self.topic.chart().died() {
            child.chart.orphaned(died);
        }
        let lifeline = Lifeline::new();
        keeper::keep_subscription(Arc::clone(child), Arc::clone(&self.topic), &self.hosts, lifeline.held());
        self.children.insert(child.number(), lifeline);
    }
}

impl Actor for TopicActor {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        self.reread();
        self.topic.live(ctx.address());
        ctx.run_interval(NUDGE, |actor, _| actor.nudge());
    }
}

impl Handler<Wake> for TopicActor {
    type Result = ();

    fn handle(&mut self, _: Wake, _: &mut Self::Context) {
        self.take();
    }
}

impl Handler<Suffer> for TopicActor {
    type Result = ();

    fn handle(&mut self, suffer: Suffer, ctx: &mut Self::Context) {
        suffer.befall(ctx);
    }
}
