//! Restarts of actors: how often, why, and how long each recovery took.

use std::{collections::BTreeMap, time::Duration};

use actix_web::{HttpRequest, HttpResponse, web};
use serde::Deserialize;

use super::{AdminError, Control, query};
use crate::{
    api::supervision::{
        ActorView, EndsView, IncarnationsView, QuarantinedEvent, QuarantinedView, RecoveryView, SupervisionReport,
    },
    subscription::QuarantinedEvents,
    supervision::{IncarnationEnds, RecoveryTimes, Supervision},
};

/// Default number of listed actors …
pub(super) const TOP: usize = 100;

/// … and the maximum.
const TOP_MAX: usize = 1_000;

/// The query of `GET /supervision`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SupervisionQuery {
    top: Option<String>,
    topic: Option<String>,
}

impl IncarnationsView {
    pub(super) fn new(supervision: &Supervision, quarantined: Option<&QuarantinedEvents>) -> Self {
        let Supervision { incarnation, restarts, ends, last, recoveries } = supervision;
        Self {
            incarnation: *incarnation,
            restarts: *restarts,
            ends: EndsView::new(*ends),
            last_cause: last.map(|(end, _)| end.to_string()),
            last_end: last.map(|(_, at)| at.to_string()),
            recovery: RecoveryView::new(recoveries.count, recoveries.longest, recoveries.newest.iter().copied()),
            quarantined: quarantined.map(|QuarantinedEvents { count, newest }| QuarantinedView {
                count: *count,
                newest: newest.iter().map(|(seq, id)| QuarantinedEvent { sequence: seq.0, id: id.clone() }).collect(),
            }),
        }
    }
}

impl EndsView {
    fn new(IncarnationEnds { panicked, killed, stopped, orphaned }: IncarnationEnds) -> Self {
        Self { panicked, killed, stopped, orphaned }
    }

    pub(super) fn sum(&self) -> u64 {
        self.panicked + self.killed + self.stopped + self.orphaned
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.panicked += other.panicked;
        self.killed += other.killed;
        self.stopped += other.stopped;
        self.orphaned += other.orphaned;
    }
}

impl RecoveryView {
    fn new(count: u64, longest: Duration, newest: impl Iterator<Item = Duration>) -> Self {
        let mut sorted: Vec<Duration> = newest.collect();
        let last = sorted.last().copied();
        sorted.sort_unstable();
        // Nearest-rank percentile.
        let percentile = |hundredths: usize| sorted.get((sorted.len() * hundredths).div_ceil(100).saturating_sub(1));
        let millis = |time: Duration| (time.as_secs_f64() * 1e6).round() / 1e3;
        Self {
            count,
            last: last.map(millis),
            p50: percentile(50).copied().map(millis),
            p99: percentile(99).copied().map(millis),
            longest: (count > 0).then(|| millis(longest)),
        }
    }
}

/// `GET /supervision`: restarts and recovery times of actors.
pub(super) async fn report(request: HttpRequest, control: web::Data<Control>) -> Result<HttpResponse, AdminError> {
    let query: SupervisionQuery = query::read(request.query_string(), "top and topic")?;
    let top = query::number("top", query.top.as_deref(), TOP, 1..=TOP_MAX, "actors")?;
    let topics = match &query.topic {
        None => control.registry.topics(),
        Some(name) => {
            let topic = control.registry.topic(name);
            vec![topic.ok_or_else(|| AdminError::NotFound(format!("There is no topic '{name}'.")))?]
        }
    };
    let mut all = ActorHistory::default();
    for topic in topics {
        let name = topic.record().key();
        all.add(ActorOwner::Topic(name.clone()), &topic.history().supervision(), None);
        for (subscription, supervision, quarantined) in topic.supervised() {
            let owner = ActorOwner::Subscription(name.clone(), subscription);
            all.add(owner, &supervision, Some(&quarantined));
        }
    }
    for dead_letters in control.fault_injector.targets.dead_letters.iter().filter(|_| query.topic.is_none()) {
        let owner = ActorOwner::Store(dead_letters.store.clone());
        all.add(owner, &dead_letters.history.supervision(), None);
    }
    Ok(HttpResponse::Ok().json(all.report(top)))
}

/// Owner of an actor.
enum ActorOwner {
    Topic(String),
    Subscription(String, String),
    Store(String),
}

/// Totals of all actors.
#[derive(Default)]
struct ActorHistory {
    actors: usize,
    quarantined: u64,
    recoveries: RecoveryTimes,
    /// Actors that ended, by number of ends and a unique number.
    ended: BTreeMap<(u64, usize), ActorView>,
}

impl ActorHistory {
    fn add(&mut self, owner: ActorOwner, supervision: &Supervision, quarantined: Option<&QuarantinedEvents>) {
        self.actors += 1;
        self.quarantined += quarantined.map_or(0, |quarantined| quarantined.count);
        let incarnations = IncarnationsView::new(supervision, quarantined);
        let ends = incarnations.ends.sum();
        if ends == 0 {
            return;
        }
        let RecoveryTimes { count, longest, newest } = &supervision.recoveries;
        self.recoveries.count += count;
        self.recoveries.longest = self.recoveries.longest.max(*longest);
        self.recoveries.newest.extend(newest);
        let view = match owner {
            ActorOwner::Topic(topic) => ActorView {
                kind: "topic".to_owned(),
                topic: Some(topic),
                subscription: None,
                store: None,
                incarnations,
            },
            ActorOwner::Subscription(topic, name) => ActorView {
                kind: "subscription".to_owned(),
                topic: Some(topic),
                subscription: Some(name),
                store: None,
                incarnations,
            },
            ActorOwner::Store(store) => ActorView {
                kind: "deadLetter".to_owned(),
                topic: None,
                subscription: None,
                store: Some(store),
                incarnations,
            },
        };
        self.ended.insert((ends, self.actors), view);
    }

    fn report(self, top: usize) -> SupervisionReport {
        let RecoveryTimes { count, longest, newest } = self.recoveries;
        let mut ends = EndsView::default();
        self.ended.values().for_each(|actor| ends.add(&actor.incarnations.ends));
        SupervisionReport {
            actors: self.actors,
            ended: self.ended.len(),
            ends,
            quarantined: self.quarantined,
            recovery: RecoveryView::new(count, longest, newest.into_iter()),
            most_restarted: self.ended.into_values().rev().take(top).collect(),
        }
    }
}
