//! The rate of requests to an endpoint that returns from probation.

use std::{collections::VecDeque, time::Duration};

use expect_test::expect;
use gridhook::{
    event::Timestamp,
    policy::{
        OutgoingBatch, SubscriptionSettings,
        endpoint::EventAge,
        outcome::{Failure, Outcome},
        record::{Health, Rate},
    },
};

use proptest::{collection::vec, prelude::*};

use super::{
    caller::{Caller, MINUTE, SECOND, busy, most_in_a_second, well},
    driver::{Driver, status},
    plain, without_probation,
};

fn settings() -> SubscriptionSettings {
    SubscriptionSettings {
        suspend_after: 10,
        concurrency_max: 16,
        ..plain()
    }
}

/// An endpoint that accepts a number of requests a second and refuses the others.
fn takes(per_second: usize) -> impl FnMut(Timestamp, usize) -> (Outcome, Duration) {
    let mut taken: VecDeque<Timestamp> = VecDeque::new();
    move |now, _| {
        taken.retain(|at| now.since(*at) < SECOND);
        let outcome = if taken.len() < per_second {
            Outcome::Delivered
        } else {
            Outcome::Failed(Failure::Busy)
        };
        if outcome == Outcome::Delivered {
            taken.push_back(now);
        }
        (outcome, Duration::from_millis(10))
    }
}

#[test]
fn an_endpoint_that_never_failed_has_no_pace() {
    let mut caller = Caller::new(settings());
    caller.call_all(2 * SECOND, &mut well);
    assert_eq!(caller.rate(), None);
    assert!(
        caller.left.len() >= 2 * 16 * 90,
        "{} requests of 10 ms, 16 at once",
        caller.left.len()
    );
}

#[test]
fn the_rate_climbs_from_a_tenth_to_the_healthy_rate_within_three_seconds() {
    let mut caller = Caller::new(settings());
    caller.fall_and_return(50);
    let from = caller.now;
    assert_eq!(caller.rate(), Some(5.0));
    caller.call_all(5 * SECOND, &mut well);
    expect!["[4, 8, 12, 16, 20, 23, 25, 25, 26, 26]"]
        .assert_eq(&format!("{:?}", caller.counts(from, SECOND / 2)));
}

#[test]
fn the_rate_grows_by_a_twentieth_in_a_clean_second_as_far_as_successes_go_along() {
    let mut caller = Caller::new(settings());
    caller.fall_and_return(50);
    let from = caller.now;
    caller.call_all(30 * SECOND, &mut well);
    let counts = caller.counts(from, SECOND);
    for pair in counts[3..].windows(2) {
        assert!(pair[1] as f64 <= pair[0] as f64 * 1.05 + 2.0, "{counts:?}");
    }
    assert!(
        counts[29] > 120,
        "what the endpoint takes is given to it: {counts:?}"
    );
    // Where nothing is there to be sent, nothing is proven, and the rate stays near what was
    // healthy.
    let mut idle = Caller::new(settings());
    idle.fall_and_return(50);
    idle.call(30 * SECOND, 10, &mut well);
    assert_eq!(idle.rate(), Some(55.0));
}

#[test]
fn an_endpoint_that_takes_what_it_took_before_is_never_offered_a_fifth_more() {
    let mut caller = Caller::new(settings());
    caller.fall_and_return(50);
    let mut behavior = takes(50);
    caller.call_all(5 * MINUTE, &mut behavior);
    let most = most_in_a_second(&caller.left);
    assert!(most <= 60, "{most} in a second");
    assert!(
        caller.left.len() > 5 * 60 * 35,
        "it is used: {} requests in five minutes",
        caller.left.len()
    );
    assert!(
        matches!(caller.endpoint.health(), Health::Healthy { .. }),
        "no relapse"
    );
}

#[test]
fn fresh_events_do_not_wait_for_the_climb() {
    let mut caller = Caller::new(settings());
    caller.fall_and_return(50);
    caller.age = EventAge::Fresh;
    let from = caller.now;
    caller.call(5 * SECOND, 50, &mut well);
    assert_eq!(caller.counts(from, SECOND / 2), [25; 10]);
}

#[test]
fn fresh_events_are_never_offered_a_fifth_more_and_climb_after_a_failure() {
    let mut caller = Caller::new(settings());
    caller.fall_and_return(50);
    caller.age = EventAge::Fresh;
    caller.call_all(5 * MINUTE, &mut takes(50));
    let most = most_in_a_second(&caller.left);
    assert!(most <= 60, "{most} in a second");
    assert!(
        matches!(caller.endpoint.health(), Health::Healthy { .. }),
        "no relapse"
    );

    let mut caller = Caller::new(settings());
    caller.fall_and_return(50);
    caller.age = EventAge::Fresh;
    caller.call(SECOND / 10, 10, &mut busy);
    let from = caller.now;
    caller.call_all(5 * SECOND, &mut well);
    assert_eq!(caller.counts(from, SECOND), [5, 5, 10, 15, 20]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// The naive model: old events climb from a tenth of the healthy rate to all of it in three
    /// seconds. All together have a tenth more than it, and a twentieth more in each later second.
    /// A burst of 50 ms is on top.
    #[test]
    fn old_events_climb_and_all_events_have_a_tenth_more_than_the_healthy_rate(
        healthy in 20_u32..200,
        ages in vec(any::<u64>(), 45),
    ) {
        let mut caller = Caller::new(settings());
        caller.fall_and_return(healthy);
        let from = caller.now;
        let mut old = Vec::new();
        for millisecond in 0..64 * ages.len() {
            let is_fresh = ages[millisecond / 64] >> (millisecond % 64) & 1 == 1;
            caller.age = if is_fresh { EventAge::Fresh } else { EventAge::Old };
            let before = caller.left.len();
            caller.call_all(SECOND / 1000, &mut well);
            if !is_fresh {
                old.extend_from_slice(&caller.left[before..]);
            }
        }
        // The rate is measured over a window, and rounded.
        let healthy = f64::from(healthy) * 1.02;
        for (index, left) in caller.left.iter().enumerate() {
            let seconds = left.since(from).as_secs_f64();
            let grown = 1.1 * 1.05_f64.powf(seconds.floor());
            let most = healthy * grown * (seconds + 0.05) + 2.0;
            prop_assert!((index as f64) < most, "{index} events after {seconds} s of {most}");
        }
        for (index, left) in old.iter().enumerate() {
            let seconds = left.since(from).as_secs_f64();
            let climbed = 0.1 * seconds + 0.9 * seconds * seconds / 6.0;
            let most = healthy * (climbed + 0.05) + 2.0;
            prop_assert!((index as f64) < most, "{index} old events after {seconds} s of {most}");
        }
    }
}

#[test]
fn a_failure_reduces_the_rate_to_seven_tenths_of_the_accepted_rate() {
    let mut caller = Caller::new(settings());
    caller.fall_and_return(50);
    caller.call_all(10 * SECOND, &mut well);
    let before = caller.rate().expect("a pace");
    let mut once = Some(Outcome::Failed(Failure::Busy));
    caller.call_all(SECOND / 4, &mut |_, _| {
        (
            once.take().unwrap_or(Outcome::Delivered),
            Duration::from_millis(10),
        )
    });
    let after = caller.rate().expect("a pace");
    assert!(
        (0.6..0.73).contains(&(after / before)),
        "{before} and then {after}"
    );
    // Those that were in flight with it cut no more.
    let mut volley = Caller::new(settings());
    volley.fall_and_return(400);
    volley.call_all(10 * SECOND, &mut well);
    let before = volley.rate().expect("a pace");
    let mut left = 4;
    let mut behavior = |_, _| {
        left -= 1;
        (
            if left >= 0 {
                Outcome::Failed(Failure::Busy)
            } else {
                Outcome::Delivered
            },
            Duration::from_millis(10),
        )
    };
    volley.call_all(SECOND / 4, &mut behavior);
    let after = volley.rate().expect("a pace");
    assert!(after / before > 0.6, "{before} and then {after}");
}

#[test]
fn a_failure_in_twenty_requests_slows_nothing_down_unless_the_endpoint_is_busy() {
    let run = |outcome: Outcome| {
        let mut caller = Caller::new(settings());
        caller.fall_and_return(100);
        caller.call_all(4 * SECOND, &mut well);
        let before = caller.rate().expect("a pace");
        let mut turn = 0;
        let mut behavior = |_, _| {
            turn += 1;
            (
                if turn % 50 == 0 {
                    outcome
                } else {
                    Outcome::Delivered
                },
                Duration::from_millis(5),
            )
        };
        caller.call_all(10 * SECOND, &mut behavior);
        caller.rate().expect("a pace") / before
    };
    assert!(run(Outcome::Failed(Failure::GenericError)) >= 1.0);
    assert!(run(Outcome::Failed(Failure::Busy)) < 0.8);
}

#[test]
fn the_rate_is_never_so_small_that_all_stalls() {
    let mut caller = Caller::new(settings());
    caller.call(2 * MINUTE, 1, &mut well);
    caller.call(MINUTE, 1, &mut busy);
    let Health::Suspended { until, .. } = caller.endpoint.health() else {
        panic!("{:?}", caller.endpoint)
    };
    caller.now = caller.now.max(until);
    caller.call_all(SECOND / 10, &mut well);
    assert_eq!(caller.rate(), Some(1.0));
    let from = caller.now;
    caller.call_all(10 * SECOND, &mut well);
    assert!(caller.counts(from, 10 * SECOND)[0] >= 10);
}

#[test]
fn the_pace_is_forgotten_an_hour_after_the_last_failure() {
    let mut caller = Caller::new(settings());
    caller.fall_and_return(50);
    caller.call(50 * MINUTE, 5, &mut well);
    assert!(caller.rate().is_some());
    caller.call(10 * MINUTE, 5, &mut well);
    assert_eq!(caller.rate(), None);
}

#[test]
fn the_healthy_rate_survives_a_restart() {
    let mut caller = Caller::new(settings());
    caller.fall(50);
    caller.restart(MINUTE);
    assert_eq!(
        caller
            .endpoint
            .view(caller.now)
            .healthy_rate
            .map(Rate::per_second)
            .map(f64::round),
        Some(50.0)
    );
    caller.probe();
    assert_eq!(
        caller.rate(),
        Some(5.0),
        "the probe's success begins the pace"
    );
    caller.call_all(10 * SECOND, &mut well);
    caller.restart(MINUTE);
    assert_eq!(
        caller.rate(),
        Some(5.0),
        "a new incarnation begins at the tenth again"
    );
    let mut unpaced = Caller::new(settings());
    unpaced.call(2 * MINUTE, 50, &mut well);
    unpaced.call(SECOND / 10, 50, &mut busy);
    unpaced.restart(MINUTE);
    assert_eq!(
        unpaced.rate(),
        None,
        "one that was never on probation is not slowed down by a restart"
    );
    caller.restart(60 * MINUTE);
    assert_eq!(caller.rate(), None, "all is forgotten after an hour");
}

#[test]
fn a_relapse_during_the_climb_keeps_the_healthy_rate() {
    let mut caller = Caller::new(settings());
    caller.fall_and_return(50);
    caller.call_all(SECOND, &mut well);
    caller.call_all(MINUTE, &mut busy);
    assert!(matches!(caller.endpoint.health(), Health::Suspended { .. }));
    assert_eq!(
        caller
            .endpoint
            .view(caller.now)
            .healthy_rate
            .map(Rate::per_second)
            .map(f64::round),
        Some(50.0)
    );
}

#[test]
fn a_rate_that_the_endpoint_allows_is_never_exceeded() {
    let mut caller = Caller::new(SubscriptionSettings {
        rate_max: Some(Rate::from_per_second(0.5)),
        ..settings()
    });
    caller.call_all(23 * SECOND, &mut well);
    assert_eq!(
        caller.counts(caller.left[0], 4 * SECOND),
        [2; 5],
        "it never failed, and is slower than the least"
    );
    let mut caller = Caller::new(SubscriptionSettings {
        rate_max: Some(Rate::from_per_second(60.0)),
        ..settings()
    });
    caller.fall_and_return(50);
    caller.call_all(MINUTE, &mut well);
    assert_eq!(
        caller.rate(),
        Some(58.0),
        "a second keeps room for what a pause had saved up"
    );
    assert!(
        (58..=60).contains(&most_in_a_second(&caller.left)),
        "{}",
        most_in_a_second(&caller.left)
    );
}

#[test]
fn no_second_has_more_requests_than_the_limit_also_across_pauses_failures_and_restarts() {
    for limit in [1, 2, 7, 20, 21, 100, 500] {
        for events in [1, 50] {
            let rate_max = Some(Rate::from_per_second(f64::from(limit)));
            let mut caller = Caller::new(SubscriptionSettings {
                rate_max,
                concurrency_max: 1000,
                ..settings()
            });
            caller.events = events;
            caller.call_all(5 * SECOND, &mut well);
            let steady = caller.left.len();
            assert!(
                steady * 100 >= 5 * limit as usize * 75,
                "{steady} requests in 5 s at {limit} a second"
            );
            // A pause, which saves up a burst, and then restarts at every phase of a second.
            caller.now = caller.now.after(10 * SECOND);
            for pause in [0, 1, 130, 370, 999] {
                caller.call_all(2 * SECOND + Duration::from_millis(pause), &mut well);
                caller.restart(Duration::from_millis(pause));
            }
            caller.call(MINUTE, 1000, &mut busy);
            let Health::Suspended { until, .. } = caller.endpoint.health() else {
                panic!("{:?}", caller.endpoint)
            };
            caller.now = caller.now.max(until);
            caller.call_all(5 * SECOND, &mut well);
            let most = most_in_a_second(&caller.left);
            assert!(
                most <= limit as usize,
                "{most} requests in a second, {events} events each; the limit is {limit}"
            );
        }
    }
}

#[test]
fn a_request_that_was_sent_twice_counts_twice() {
    let mut caller = Caller::new(SubscriptionSettings {
        rate_max: Some(Rate::from_per_second(2.0)),
        ..settings()
    });
    caller.call_all(2 * SECOND, &mut well);
    let wait = |caller: &Caller| {
        caller
            .endpoint
            .pace_opens(0, EventAge::Old, caller.now)
            .expect("it is bounded")
            .since(*caller.left.last().expect("a request"))
    };
    let once = wait(&caller);
    caller.endpoint.record_repeated(caller.now);
    assert_eq!(
        wait(&caller).as_millis() - once.as_millis(),
        500,
        "half a second for each of two in a second"
    );
}

// --- the whole machine ---

#[test]
fn a_restart_with_a_hundred_thousand_due_timers_keeps_to_the_pace() {
    let mut turn = 0;
    let endpoint = Box::new(move |request: &OutgoingBatch| {
        turn += 1;
        let failed = turn > 2 * 60 * 50 && request.items[0].attempts == 0;
        Some((Duration::ZERO, status(if failed { 500 } else { 200 })))
    });
    let edition = without_probation();
    let settings = SubscriptionSettings {
        edition,
        concurrency_max: 16,
        ..plain()
    };
    let mut driver = Driver::new(settings.clone(), endpoint);
    driver.is_large();
    for _ in 0..2 * 60 * 50 {
        driver.publish(&[("yes", 10)]);
        driver.run_for(SECOND / 50);
    }
    driver.publish(&[("yes", 10); 100_000]);
    driver.run_for(SECOND);
    assert_eq!(
        driver.disk.pending.len(),
        100_000,
        "all are pending and fall due together"
    );
    driver.run_off(10 * MINUTE);
    let from = driver.left.len();
    driver.restart(settings);
    driver.run_for(10 * MINUTE);
    let left = &driver.left[from..];
    let first = left
        .iter()
        .take_while(|at| at.since(left[0]) < SECOND)
        .count();
    assert!(first <= 25, "{first} in the first second of a rate of 50");
    let pairs: Vec<usize> = (0..60)
        .map(|n| {
            left.iter()
                .filter(|at| at.since(left[0]).as_secs() == n)
                .count()
        })
        .collect();
    assert!(
        pairs[2..]
            .windows(2)
            .all(|pair| pair[1] as f64 <= pair[0] as f64 * 1.3 + 3.0),
        "{pairs:?}"
    );
    assert!(pairs[..4].iter().all(|count| *count <= 60), "{pairs:?}");
    assert_eq!(
        driver.disk.pending.len(),
        100_000 - left.len(),
        "each one is taken once"
    );
}

#[test]
fn an_endpoint_that_was_down_an_hour_is_never_overrun_by_its_backlog() {
    let mut taken: VecDeque<Timestamp> = VecDeque::new();
    let down = std::rc::Rc::new(std::cell::Cell::new(false));
    let is_down = std::rc::Rc::clone(&down);
    let mut now = super::driver::START;
    let endpoint = Box::new(move |request: &OutgoingBatch| {
        now = now.max(request.sent);
        taken.retain(|at| now.since(*at) < SECOND);
        let well = !is_down.get() && taken.len() < 50;
        if well {
            taken.push_back(now);
        }
        Some((
            Duration::from_millis(20),
            status(if well { 200 } else { 503 }),
        ))
    });
    let mut driver = Driver::new(settings(), endpoint);
    driver.is_large();
    for _ in 0..2 * 60 * 45 {
        driver.publish(&[("yes", 10)]);
        driver.run_for(SECOND / 45);
    }
    down.set(true);
    driver.publish(&[("yes", 10); 100_000]);
    driver.run_for(60 * MINUTE);
    assert!(matches!(
        driver.core.cursor().health,
        Health::Suspended { .. }
    ));
    down.set(false);
    let from = driver.left.len();
    while driver.left.len() == from {
        driver.run_for(MINUTE);
    }
    let back = driver.left[from];
    let before = driver.disk.cursor.counters.delivered;
    for minute in 0..20 {
        driver.run_for(MINUTE);
        let health = driver.core.cursor().health;
        assert!(
            matches!(health, Health::Healthy { .. }),
            "a relapse after {minute} minutes: {health:?}"
        );
    }
    let most = most_in_a_second(&driver.left[from..]);
    assert!(most <= 60, "{most} requests in a second after {back}");
    let delivered = driver.disk.cursor.counters.delivered - before;
    assert!(delivered > 20 * 60 * 35, "{delivered} in twenty minutes");
}
