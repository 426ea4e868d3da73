//! The incarnations of actors, told: how often each was built again, why, and how long that took.

use std::{collections::BTreeMap, time::Duration};

use actix_web::{HttpRequest, HttpResponse, web};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{AdminError, Control, model::InvalidRequest};
use crate::{
    control::registry::QuarantinedEvents,
    supervision::{IncarnationEnds, RecoveryTimes, Supervision},
};

/// So many actors are told where nobody says how many …
const TOP: usize = 100;

/// … and so many at the most.
const TOP_MAX: usize = 1_000;

/// The incarnations of an actor.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = ActorIncarnations)]
pub(super) struct IncarnationsView {
    incarnation: u64,
    restarts: u64,
    ends: EndsView,
    last_cause: Option<String>,
    last_end: Option<String>,
    /// From a death to the end of the next life's first work.
    recovery: RecoveryView,
    /// What was put aside because it killed the actor again and again: told of subscriptions.
    #[serde(skip_serializing_if = "Option::is_none")]
    quarantined: Option<QuarantinedView>,
}

#[derive(Clone, Copy, Debug, Default, Serialize, ToSchema)]
#[schema(as = ActorEnds)]
struct EndsView {
    panicked: u64,
    killed: u64,
    stopped: u64,
    orphaned: u64,
}

/// In milliseconds; the percentiles are those of the newest.
#[derive(Clone, Copy, Debug, Default, Serialize, ToSchema)]
#[schema(as = ActorRecovery)]
struct RecoveryView {
    count: u64,
    last: Option<f64>,
    p50: Option<f64>,
    p99: Option<f64>,
    longest: Option<f64>,
}

#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = ActorQuarantined)]
struct QuarantinedView {
    count: u64,
    /// The newest of them, oldest first.
    newest: Vec<QuarantinedEvent>,
}

#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = QuarantinedEvent)]
struct QuarantinedEvent {
    sequence: u64,
    id: String,
}

/// An actor of the server.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = SupervisedActor)]
struct ActorView {
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    topic: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    subscription: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    store: Option<String>,
    #[serde(flatten)]
    incarnations: IncarnationsView,
}

/// `GET /supervision`.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Supervision)]
pub(super) struct SupervisionReport {
    /// Number of supervised actors
    actors: usize,
    /// Number of actors that ended unexpectedly
    ended: usize,
    ends: EndsView,
    quarantined: u64,
    recovery: RecoveryView,
    /// Those that died most often, most often first.
    most_restarted: Vec<ActorView>,
}

/// What may stand in the query of `GET /supervision`.
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

    fn sum(&self) -> u64 {
        self.panicked + self.killed + self.stopped + self.orphaned
    }

    fn add(&mut self, other: &Self) {
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
        // The smallest that so many hundredths of them do not exceed.
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

/// `GET /supervision`: which actors died, how often, and how soon they were at work again.
pub(super) async fn report(request: HttpRequest, control: web::Data<Control>) -> Result<HttpResponse, AdminError> {
    let wrong = |error: &dyn std::fmt::Display| {
        InvalidRequest::new("the query", format!("cannot be read: {error}; allowed are top and topic"))
    };
    let query = web::Query::<SupervisionQuery>::from_query(request.query_string()).map_err(|error| wrong(&error))?;
    let top =
        match &query.top {
            None => TOP,
            Some(given) => given.parse().ok().filter(|top| (1..=TOP_MAX).contains(top)).ok_or_else(|| {
                InvalidRequest::new("top", format!("is \"{given}\"; allowed are 1 to {TOP_MAX} actors"))
            })?,
        };
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
            let whose = ActorOwner::Subscription(name.clone(), subscription);
            all.add(whose, &supervision, Some(&quarantined));
        }
    }
    for undertaker in control.queue.targets.dead_letters.iter().filter(|_| query.topic.is_none()) {
        let whose = ActorOwner::Store(undertaker.store.clone());
        all.add(whose, &undertaker.history.supervision(), None);
    }
    Ok(HttpResponse::Ok().json(all.report(top)))
}

/// Whose actor.
enum ActorOwner {
    Topic(String),
    Subscription(String, String),
    Store(String),
}

/// What was gathered of all actors.
#[derive(Default)]
struct ActorHistory {
    actors: usize,
    quarantined: u64,
    recoveries: RecoveryTimes,
    /// Those that died, by how often, and by their place, which keeps them apart.
    died: BTreeMap<(u64, usize), ActorView>,
}

impl ActorHistory {
    fn add(&mut self, whose: ActorOwner, supervision: &Supervision, quarantined: Option<&QuarantinedEvents>) {
        self.actors += 1;
        self.quarantined += quarantined.map_or(0, |quarantined| quarantined.count);
        let incarnations = IncarnationsView::new(supervision, quarantined);
        let deaths = incarnations.ends.sum();
        if deaths == 0 {
            return;
        }
        let RecoveryTimes { count, longest, newest } = &supervision.recoveries;
        self.recoveries.count += count;
        self.recoveries.longest = self.recoveries.longest.max(*longest);
        self.recoveries.newest.extend(newest);
        let view = match whose {
            ActorOwner::Topic(topic) => {
                ActorView { kind: "topic", topic: Some(topic), subscription: None, store: None, incarnations }
            }
            ActorOwner::Subscription(topic, name) => ActorView {
                kind: "subscription",
                topic: Some(topic),
                subscription: Some(name),
                store: None,
                incarnations,
            },
            ActorOwner::Store(store) => {
                ActorView { kind: "deadLetter", topic: None, subscription: None, store: Some(store), incarnations }
            }
        };
        self.died.insert((deaths, self.actors), view);
    }

    fn report(self, top: usize) -> SupervisionReport {
        let RecoveryTimes { count, longest, newest } = self.recoveries;
        let mut ends = EndsView::default();
        self.died.values().for_each(|actor| ends.add(&actor.incarnations.ends));
        SupervisionReport {
            actors: self.actors,
            ended: self.died.len(),
            ends,
            quarantined: self.quarantined,
            recovery: RecoveryView::new(count, longest, newest.into_iter()),
            most_restarted: self.died.into_values().rev().take(top).collect(),
        }
    }
}
