//! The simulation: its counts add up, endpoint models behave as described, and a seed is
//! reproducible.

mod command;

use std::{sync::Arc, time::Duration};

use gridhook::{
    config::Editions,
    event::Timestamp,
    policy::{edition::Edition, endpoint::suspension_duration, outcome::Failure},
    simulate::{Distribution, EndpointModel, ReportRow, SimulationPlan, SimulationReport, run},
};

const HOUR: Duration = Duration::from_secs(3600);

fn edition(name: &str) -> Arc<Edition> {
    Editions::load(None, None)
        .expect("the program's own editions are sound")
        .get(name)
        .expect("it has this one")
}

/// Two days with 20 subscriptions per endpoint model.
fn plan(models: &[EndpointModel]) -> SimulationPlan {
    SimulationPlan {
        edition: edition("current"),
        shares: models.iter().map(|model| (*model, 1)).collect(),
        subscriptions: 20 * models.len() as u32,
        span: 48 * HOUR,
        rate: 0.01,
        seed: 7,
        batch: 1,
        concurrency: 16,
        response_timeout: Duration::from_secs(30),
        outcome_delay: Duration::from_millis(10),
        dead_letter: true,
    }
}

fn all() -> Vec<EndpointModel> {
    EndpointModel::practical_mix(0.01)
        .map(|(model, _)| model)
        .to_vec()
}

fn tell(plan: &SimulationPlan) -> SimulationReport {
    run(plan, |_| {})
}

/// The only row.
fn row(plan: &SimulationPlan) -> ReportRow {
    let mut rows = tell(plan).models;
    assert_eq!(rows.len(), 1);
    rows.remove(0)
}

fn bytes(plan: &SimulationPlan) -> String {
    serde_json::to_string(&tell(plan)).expect("JSON")
}

#[test]
fn the_same_seed_gives_the_same_bytes_and_another_gives_others() {
    let plan = SimulationPlan {
        span: 6 * HOUR,
        ..plan(&all())
    };
    let reported = bytes(&plan);
    assert_eq!(reported, bytes(&plan));
    assert_ne!(reported, bytes(&SimulationPlan { seed: 8, ..plan }));
}

/// Each run asserts at its end that the counters of each subscription add up.
#[test]
fn every_published_event_is_delivered_pending_given_up_or_unread() {
    let check = |name: &str| {
        for (batch, dead_letter) in [(1, true), (50, false)] {
            let plan = SimulationPlan {
                edition: edition(name),
                batch,
                dead_letter,
                rate: 0.02,
                ..plan(&all())
            };
            let report = tell(&plan);
            assert!(report.events > 3000, "{report:?}");
            for row in report.models {
                let ReportRow {
                    events,
                    delivered,
                    pending,
                    dead_lettered,
                    dropped,
                    backlog,
                    ..
                } = row;
                assert_eq!(events, report.events * 20, "{name}: {row:?}");
                assert_eq!(
                    events,
                    delivered + pending + dead_lettered + dropped + backlog,
                    "{name}: {row:?}"
                );
                assert_eq!(
                    row.given_up.values().sum::<u64>(),
                    dead_lettered + dropped,
                    "{name}: {row:?}"
                );
                assert_eq!(
                    if dead_letter { dropped } else { dead_lettered },
                    0,
                    "{name}: {row:?}"
                );
                assert_eq!(
                    row.attempts - row.attempts_open - row.attempts_failed,
                    delivered,
                    "{name}: {row:?}"
                );
            }
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| ["2020", "2021"].into_iter().for_each(check));
        ["2023", "current", "namespace"].into_iter().for_each(check);
    });
}

#[test]
fn a_healthy_endpoint_gets_every_event_once() {
    let row = row(&plan(&[EndpointModel::Healthy]));
    assert!(row.delivered > 30_000, "{row:?}");
    assert_eq!(
        (row.attempts_failed, row.attempts_while_down, row.returns),
        (0, 0, 0),
        "{row:?}"
    );
    assert_eq!(row.attempts, row.delivered + row.attempts_open, "{row:?}");
    assert!(row.longest_wait_seconds < 1.0, "{row:?}");
}

/// Maximum requests to an endpoint that never responds within `span`: those in flight when it is
/// suspended, and then the probes.
fn most_attempts(plan: &SimulationPlan, span: Duration) -> u64 {
    let probation = &plan.edition.probation;
    let first = u64::from(probation.after_failures + plan.concurrency - 1);
    let mut passed = plan.response_timeout;
    for suspensions in 1.. {
        passed += suspension_duration(probation, Failure::TimedOut, suspensions);
        if passed >= span {
            return first + u64::from(suspensions) - 1;
        }
        passed += plan.response_timeout;
    }
    first
}

#[test]
fn a_black_hole_gets_no_more_than_probation_allows() {
    let plan = SimulationPlan {
        span: 24 * HOUR,
        ..plan(&[EndpointModel::BlackHole])
    };
    let row = row(&plan);
    let most = most_attempts(&plan, plan.span);
    assert!((20..60).contains(&most), "{most}");
    assert!(row.attempts <= row.subscriptions * most, "{most}: {row:?}");
    assert!(
        row.attempts >= row.subscriptions * u64::from(plan.edition.probation.after_failures),
        "{row:?}"
    );
    assert_eq!(
        (row.delivered, row.attempts_while_down),
        (0, row.attempts),
        "{row:?}"
    );
}

#[test]
fn an_endpoint_that_was_away_for_five_hours_gets_everything_when_it_is_back() {
    let plan = plan(&[EndpointModel::Outage(5 * HOUR)]);
    let row = row(&plan);
    assert_eq!((row.pending, row.dead_lettered), (0, 0), "{row:?}");
    assert_eq!(
        (row.delivered, row.backlog),
        (
            row.attempts - row.attempts_failed - row.attempts_open,
            row.attempts_open
        )
    );
    // Exactly the attempts made during the outage failed.
    assert_eq!(row.attempts_failed, row.attempts_while_down, "{row:?}");
    assert!(
        row.attempts_failed <= row.subscriptions * most_attempts(&plan, 5 * HOUR),
        "{row:?}"
    );
    // It is probed after the longest suspension at the latest, and the backlog is gone within
    // minutes.
    assert_eq!(
        (row.returns, row.backlog_gone_seconds.count),
        (20, 20),
        "{row:?}"
    );
    let latest = (plan.edition.probation.longest + HOUR / 6).as_secs_f64();
    let gone = row.backlog_gone_seconds.max.expect("values");
    assert!((1.0..latest).contains(&gone), "{row:?}");
    assert!(
        (5.0 * 3600.0..5.0 * 3600.0 + latest).contains(&row.longest_wait_seconds),
        "{row:?}"
    );
    assert_eq!(row.rate_back_seconds.count, 20, "{row:?}");
    assert!(
        row.rate_back_seconds.max.expect("values") <= gone,
        "{row:?}"
    );
    assert!(row.peak.p50.is_some_and(|peak| peak > 1.0), "{row:?}");
}

#[test]
fn a_return_that_the_end_cuts_short_is_a_return_without_a_recovery() {
    // It is up for the last minute, which no request has noticed.
    let lasts = 4 * HOUR / 4 * 3 - Duration::from_secs(60);
    let row = row(&SimulationPlan {
        span: 4 * HOUR,
        ..plan(&[EndpointModel::Outage(lasts)])
    });
    assert_eq!(
        (row.returns, row.backlog_gone_seconds.count),
        (20, 0),
        "{row:?}"
    );
    assert!(row.backlog > 0, "{row:?}");
}

#[test]
fn endpoint_models_fail_as_often_as_configured() {
    let check = |model, least: f64, most: f64| {
        let row = row(&plan(&[model]));
        let share = row.attempts_failed as f64 / row.attempts as f64;
        assert!((least..=most).contains(&share), "{share}: {row:?}");
    };
    check(EndpointModel::Faulty(0.0), 0.0, 0.0);
    check(EndpointModel::Faulty(0.3), 0.28, 0.32);
    check(EndpointModel::Faulty(1.0), 1.0, 1.0);
    check(EndpointModel::Slow(0.8), 0.0, 0.0);
    // The spread is from 0.85 to 1.15 of the latency.
    check(EndpointModel::Slow(1.0), 0.45, 0.55);
    check(EndpointModel::Overloaded(100.0), 0.0, 0.0);
    check(EndpointModel::Overloaded(0.001), 0.5, 1.0);
}

#[test]
fn an_endpoint_takes_no_more_requests_than_it_has_room_for() {
    let plan = plan(&[EndpointModel::Overloaded(0.002)]);
    let row = row(&plan);
    let room = 1.0 + 0.002 * plan.span.as_secs_f64();
    assert!(
        row.delivered as f64 <= row.subscriptions as f64 * room,
        "{row:?}"
    );
    assert!(
        row.delivered as f64 >= row.subscriptions as f64 * room / 2.0,
        "{row:?}"
    );
}

#[test]
fn batches_become_as_small_as_the_endpoint_wants_them() {
    let plan = SimulationPlan {
        batch: 100,
        span: HOUR / 6,
        rate: 200.0,
        concurrency: 1,
        subscriptions: 2,
        ..plan(&[])
    };
    let row = row(&SimulationPlan {
        shares: vec![(EndpointModel::SmallBatches(3), 1)],
        ..plan
    });
    assert!(
        row.attempts_failed > 0,
        "it was offered larger ones: {row:?}"
    );
    let taken = row.delivered as f64 / (row.requests as f64);
    assert!((1.5..=3.0).contains(&taken), "{taken}: {row:?}");
    assert_eq!(row.dead_lettered, 0, "{row:?}");
}

/// Rejected events are given up at once, and delay other events by at most one request.
#[test]
fn events_that_an_endpoint_refuses_hold_no_others_up() {
    for name in ["2020", "2021", "2023", "current", "namespace"] {
        for share in [0.1, 0.5] {
            let plan = SimulationPlan {
                edition: edition(name),
                rate: 0.1,
                subscriptions: 3,
                span: 24 * HOUR,
                ..plan(&[EndpointModel::BadEvents(share)])
            };
            let row = row(&plan);
            let refused = row.dead_lettered as f64 / row.events as f64;
            assert!(
                (share * 0.8..share * 1.2).contains(&refused),
                "{name}: {refused}: {row:?}"
            );
            assert_eq!(
                row.given_up.keys().collect::<Vec<_>>(),
                ["UndeliverableDueToHttpBadRequest"],
                "{name}: {row:?}"
            );
            assert!(row.longest_wait_seconds < 1.0, "{name}: {row:?}");
            assert_eq!(
                (row.pending, row.attempts - row.attempts_open),
                (0, row.delivered + row.dead_lettered),
                "{name}: {row:?}"
            );
        }
    }
}

#[test]
fn spells_alternate_without_a_gap() {
    let start = Timestamp(1_000_000_000_000);
    let span = 48 * HOUR;
    for model in all() {
        for phase in [Duration::ZERO, HOUR / 5, HOUR / 3] {
            let mut spell = model.availability_at(start, start, span, phase);
            assert_eq!(spell.from, start, "{model}");
            while spell.until < start.after(span) {
                let last = Timestamp(spell.until.0 - 1);
                assert_eq!(
                    model.availability_at(last, start, span, phase),
                    spell,
                    "{model}"
                );
                let next = model.availability_at(spell.until, start, span, phase);
                assert_eq!((next.from, next.up), (spell.until, !spell.up), "{model}");
                spell = next;
            }
        }
    }
}

#[test]
fn an_endpoint_model_is_parsed_as_it_is_written() {
    for model in all().into_iter().chain([
        EndpointModel::Slow(0.25),
        EndpointModel::Overloaded(2.5),
        EndpointModel::Outage(30 * HOUR),
    ]) {
        assert_eq!(EndpointModel::parse(&model.to_string(), 0.01), Ok(model));
    }
    assert_eq!(
        EndpointModel::parse("overloaded", 10.0),
        Ok(EndpointModel::Overloaded(8.0))
    );
}

#[test]
fn a_spread_is_of_values_that_were_there() {
    let spread = Distribution::from_values((1..=200).rev().map(f64::from));
    assert_eq!(
        spread,
        Distribution {
            count: 200,
            p50: Some(100.0),
            p99: Some(198.0),
            max: Some(200.0)
        }
    );
    assert_eq!(
        Distribution::from_values([3.0]),
        Distribution {
            count: 1,
            p50: Some(3.0),
            p99: Some(3.0),
            max: Some(3.0)
        }
    );
    assert_eq!(Distribution::from_values([]), Distribution::default());
}
