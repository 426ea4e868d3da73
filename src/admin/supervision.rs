//! Restarts of actors: how often, why, and how long each recovery took.

use std::{collections::BTreeMap, time::Duration};

use actix_web::{HttpRequest, web};
use serde::Deserialize;

use super::{AdminError, Control, query, topic_filter::find_topic_by_id};
use crate::{AdminResult, metrics::CombineCounts as _, respond_json};
use gridhook_api::supervision::{
    ActorView, EndsView, IncarnationsView, QuarantinedEvent, QuarantinedView, RecoveryView,
    SupervisionReport,
};
use gridhook_engine::supervision::{IncarnationEnds, RecoveryTimes, Supervision};
use gridhook_subscription::QuarantinedEvents;

/// Default number of listed actors.
pub(super) const TOP: usize = 100;

/// Maximum number of listed actors.
const TOP_MAX: usize = 1_000;

/// The query of `GET /supervision`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SupervisionQuery {
    top: Option<String>,
    topic: Option<String>,
}

pub(crate) fn incarnations_view(
    supervision: &Supervision,
    quarantined: Option<&QuarantinedEvents>,
) -> IncarnationsView {
    let Supervision {
        incarnation,
        restarts,
        ends,
        last,
        recoveries,
    } = supervision;
    IncarnationsView {
        incarnation: *incarnation,
        restarts: *restarts,
        ends: ends_view(*ends),
        last_cause: last.map(|(end, _)| end.to_string()),
        last_end: last.map(|(_, at)| at.to_string()),
        recovery: recovery_view(
            recoveries.count,
            recoveries.longest,
            recoveries.newest.iter().copied(),
        ),
        quarantined: quarantined.map(|QuarantinedEvents { count, newest }| QuarantinedView {
            count: *count,
            newest: newest
                .iter()
                .map(|(seq, id)| QuarantinedEvent {
                    sequence: seq.0,
                    id: id.clone(),
                })
                .collect(),
        }),
    }
}

pub(crate) fn ends_view(
    IncarnationEnds {
        panicked,
        killed,
        stopped,
        orphaned,
    }: IncarnationEnds,
) -> EndsView {
    EndsView {
        panicked,
        killed,
        stopped,
        orphaned,
    }
}

pub(crate) fn total_ends(ends: &EndsView) -> u64 {
    ends.panicked + ends.killed + ends.stopped + ends.orphaned
}

pub(crate) fn recovery_view(
    count: u64,
    longest: Duration,
    newest: impl Iterator<Item = Duration>,
) -> RecoveryView {
    let mut recoveries: Vec<Duration> = newest.collect();
    let last = recoveries.last().copied();
    recoveries.sort_unstable();
    // Nearest-rank percentile.
    let rank = |hundredths: usize| (recoveries.len() * hundredths).div_ceil(100);
    let percentile = |hundredths| recoveries.get(rank(hundredths).saturating_sub(1));
    let millis = |time: Duration| (time.as_secs_f64() * 1e6).round() / 1e3;
    RecoveryView {
        count,
        last: last.map(millis),
        p50: percentile(50).copied().map(millis),
        p99: percentile(99).copied().map(millis),
        longest: (count > 0).then(|| millis(longest)),
    }
}

/// `GET /supervision`: restarts and recovery times of actors.
pub(super) async fn get_supervision(
    request: HttpRequest,
    control: web::Data<Control>,
) -> AdminResult {
    let query: SupervisionQuery = query::read(request.query_string(), "top or topic")?;
    let top = query::parse_number("top", query.top.as_deref(), TOP, 1..=TOP_MAX, "actors")?;
    let topics = match &query.topic {
        None => control.registry.list_topics(),
        Some(id) if id.starts_with('/') => vec![find_topic_by_id(&control, id)?.0],
        Some(name) => {
            let topic = control.registry.find_topic(name);
            vec![
                topic
                    .ok_or_else(|| AdminError::NotFound(format!("There is no topic '{name}'.")))?,
            ]
        }
    };
    let mut history = ActorHistory::default();
    for topic in topics {
        let name = topic.record().key();
        history.add_actor(
            ActorOwner::Topic(name.clone()),
            &topic.supervision_history().read_state(),
            None,
        );
        for (subscription, supervision, quarantined) in topic.list_supervised() {
            let owner = ActorOwner::Subscription(name.clone(), subscription);
            history.add_actor(owner, &supervision, Some(&quarantined));
        }
    }
    if query.topic.is_none() {
        for dead_letters in control.fault_injector.targets.dead_letters.iter() {
            let owner = ActorOwner::Store(dead_letters.store.clone());
            history.add_actor(owner, &dead_letters.history.read_state(), None);
        }
    }
    respond_json(&history.into_report(top))
}

enum ActorOwner {
    Topic(String),
    Subscription(String, String),
    Store(String),
}

#[derive(Default)]
struct ActorHistory {
    actors: usize,
    quarantined: u64,
    recoveries: RecoveryTimes,
    ends: IncarnationEnds,
    /// Actors that ended, by number of ends and a unique number.
    ended: BTreeMap<(u64, usize), ActorView>,
}

impl ActorHistory {
    fn add_actor(
        &mut self,
        owner: ActorOwner,
        supervision: &Supervision,
        quarantined: Option<&QuarantinedEvents>,
    ) {
        self.actors += 1;
        self.quarantined += quarantined.map_or(0, |quarantined| quarantined.count);
        let incarnations = incarnations_view(supervision, quarantined);
        let ends = total_ends(&incarnations.ends);
        if ends == 0 {
            return;
        }
        let RecoveryTimes {
            count,
            longest,
            newest,
        } = &supervision.recoveries;
        self.recoveries.count += count;
        self.recoveries.longest = self.recoveries.longest.max(*longest);
        self.recoveries.newest.extend(newest);
        self.ends
            .combine_with(&supervision.ends, u64::saturating_add);
        let (kind, topic, subscription, store) = match owner {
            ActorOwner::Topic(topic) => ("topic", Some(topic), None, None),
            ActorOwner::Subscription(topic, name) => {
                ("subscription", Some(topic), Some(name), None)
            }
            ActorOwner::Store(store) => ("deadLetter", None, None, Some(store)),
        };
        let view = ActorView {
            kind: kind.to_owned(),
            topic,
            subscription,
            store,
            incarnations,
        };
        self.ended.insert((ends, self.actors), view);
    }

    fn into_report(self, top: usize) -> SupervisionReport {
        let RecoveryTimes {
            count,
            longest,
            newest,
        } = self.recoveries;
        SupervisionReport {
            actors: self.actors,
            ended: self.ended.len(),
            ends: ends_view(self.ends),
            quarantined: self.quarantined,
            recovery: recovery_view(count, longest, newest.into_iter()),
            most_restarted: self.ended.into_values().rev().take(top).collect(),
        }
    }
}
