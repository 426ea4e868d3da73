//! The documented schedule over a day, in each edition.

use std::time::Duration;

use gridhook::{
    event::Timestamp,
    policy::{
        SubscriptionSettings,
        batch::BatchLimits,
        outcome::{Failure, RequestResult},
    },
};

use super::{
    driver::{Driver, Endpoint, START, answers, status},
    editions::edition,
    plain,
};

/// The editions that follow a document without namespaces.
const EDITIONS: [&str; 4] = ["2020", "2021", "2023", "current"];

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(60 * 60);

/// As a subscription that asks for nothing has it.
fn by_default(name: &str) -> SubscriptionSettings {
    let edition = edition(name);
    SubscriptionSettings {
        attempts_max: edition.attempts.default,
        time_to_live: edition.time_to_live_minutes.default * MINUTE,
        edition,
        ..plain()
    }
}

/// How long after the start each request left.
fn attempts(driver: &Driver) -> Vec<Duration> {
    let lines = driver
        .lines
        .iter()
        .filter_map(|line| line.strip_suffix(" x").or_else(|| line.strip_suffix(" ok")));
    lines
        .map(|at| humantime::parse_duration(at).expect("a duration"))
        .collect()
}

#[test]
fn by_default_undelivered_events_expire_after_a_day() {
    let _rows = crate::spec::shows(&["S000-035", "S002-019", "S002-026", "S003-055", "S003-062"]);
    for name in EDITIONS {
        // Nobody answers: so each attempt takes the response timeout, and the thirtieth would come
        // after a day.
        let silent: Endpoint = Box::new(|_| {
            Some((
                Duration::from_secs(30),
                RequestResult::from_outcome(Failure::TimedOut),
            ))
        });
        let mut driver = Driver::new(by_default(name), silent);
        driver.publish(&[("yes", 10)]);
        driver.run();
        assert!(
            driver
                .lines
                .last()
                .is_some_and(|line| line.ends_with(" TimeToLiveExceeded")),
            "{name}"
        );
        let attempts = attempts(&driver);
        assert!(
            attempts.iter().all(|at| *at < 24 * HOUR),
            "{name}: {attempts:?}"
        );
        assert!(
            attempts.last().is_some_and(|last| *last > 22 * HOUR),
            "{name}: it is tried to the end of the day"
        );
        assert_eq!(
            (driver.disk.dead.len(), driver.disk.cursor.counters.pending),
            (1, 0),
            "{name}"
        );
    }
}

#[test]
fn a_dead_letter_is_due_five_minutes_after_the_last_attempt() {
    let _rows = crate::spec::shows(&["S000-108", "S002-044", "S003-085"]);
    for name in EDITIONS {
        for (attempts_max, last) in [(1, 0), (2, 10)] {
            let mut driver = Driver::new(
                SubscriptionSettings {
                    attempts_max,
                    ..by_default(name)
                },
                answers(vec![status(500)]),
            );
            driver.publish(&[("yes", 10)]);
            driver.run();
            let expected: Timestamp = START.after(Duration::from_secs(last)).after(5 * MINUTE);
            assert_eq!(driver.aside, [expected], "{name}");
        }
    }
}

#[test]
fn a_little_by_chance_is_added_to_every_step() {
    let _rows = crate::spec::shows(&["S000-038", "S002-022", "S003-058"]);
    for name in EDITIONS {
        let waits = |jitter| {
            let mut driver = Driver::new(by_default(name), answers(vec![status(500)]));
            driver.jitter = jitter;
            driver.publish(&[("yes", 10)]);
            driver.run();
            attempts(&driver)
                .windows(2)
                .map(|pair| pair[1] - pair[0])
                .collect::<Vec<_>>()
        };
        let least = waits(0.0);
        let most = waits(0.999);
        assert!(least.len() >= 10 && most.len() >= 10, "{name}");
        for (least, most) in least.iter().zip(&most) {
            let added = most.saturating_sub(*least);
            let bound = (*least / 10).min(Duration::from_secs(30));
            assert!(
                added > bound / 2 && added <= bound,
                "{name}: {least:?} and {added:?}"
            );
        }
    }
}

#[test]
fn delayed_delivery_lasts_up_to_hours() {
    let _rows = crate::spec::shows(&["S000-093", "S002-033", "S003-069"]);
    for name in EDITIONS {
        let suspend_after = edition(name).probation.after_failures;
        let settings = SubscriptionSettings {
            suspend_after,
            concurrency_max: 10,
            ..by_default(name)
        };
        let mut driver = Driver::new(settings, answers(vec![status(500)]));
        driver.publish(&[("yes", 10); 10]);
        driver.run_for(20 * HOUR);
        let attempts = attempts(&driver);
        let waits: Vec<Duration> = attempts[9..]
            .windows(2)
            .map(|pair| pair[1] - pair[0])
            .collect();
        assert_eq!(
            waits[..3],
            [10, 20, 40].map(Duration::from_secs),
            "{name}: one probe after another"
        );
        assert_eq!(waits.iter().max(), Some(&(3 * HOUR)), "{name}");
    }
}

#[test]
fn where_four_kilobytes_are_preferred_an_event_of_ten_goes_in_a_batch_of_its_own() {
    let _rows = crate::spec::shows(&[
        "S000-064", "S000-065", "S000-066", "S000-067", "S003-015", "S003-016", "S003-017",
        "S003-018",
    ]);
    for name in ["2021", "2023", "current"] {
        let batch = BatchLimits {
            events_max: 100,
            bytes_preferred: 4 * 1024,
            ..plain().batch
        };
        let mut driver = Driver::new(
            SubscriptionSettings {
                batch,
                ..by_default(name)
            },
            answers(vec![status(200)]),
        );
        driver.publish(&[
            ("yes", 1000),
            ("yes", 1000),
            ("yes", 10 * 1024),
            ("yes", 1000),
            ("yes", 1000),
        ]);
        assert_eq!(driver.run(), "0s ok×2 · 0s ok · 0s ok×2", "{name}");
        assert_eq!(
            driver.disk.cursor.counters.delivered, 5,
            "{name}: none is dropped"
        );
    }
}

#[test]
fn a_batch_has_available_events_and_never_more_than_requested() {
    let _rows = crate::spec::shows(&[
        "S000-055", "S000-060", "S000-061", "S000-062", "S000-075", "S003-008", "S003-010",
        "S003-011", "S003-012", "S003-013",
    ]);
    for name in ["2021", "2023", "current"] {
        let batch = BatchLimits {
            events_max: 4,
            bytes_preferred: 64 * 1024,
            ..plain().batch
        };
        let mut driver = Driver::new(
            SubscriptionSettings {
                batch,
                ..by_default(name)
            },
            answers(vec![status(200)]),
        );
        driver.publish(&[("yes", 10); 10]);
        assert_eq!(
            driver.run(),
            "0s ok×4 · 0s ok×4 · 0s ok×2",
            "{name}: the last two wait for nobody"
        );
    }
}
