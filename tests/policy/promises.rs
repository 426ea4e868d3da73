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
    let _rows = crate::spec::shows(&[
        "S000-035, S002-019, S003-055: The 12-hour retries of the schedule go on up to 24 hours.",
        "S002-026, S003-062: By default, all events that are not delivered within 24 hours expire.",
    ]);
    for name in EDITIONS {
        // No response comes: so each attempt takes the response timeout, and the thirtieth would
        // come after a day.
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
    let _rows = crate::spec::shows(&[
        "S000-108, S002-044, S003-085: There is a delay of 5 minutes between the last attempt to \
         deliver an event and its delivery to the dead-letter location.",
    ]);
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
    let _rows = crate::spec::shows(&[
        "S000-038, S002-022, S003-058: Event Grid adds a small randomization to all retry steps.",
    ]);
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
    let _rows = crate::spec::shows(&[
        "S000-093, S002-033, S003-069: Delayed delivery lasts, in some cases, up to several hours.",
    ]);
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
        "S000-064, S003-015: Preferred batch size in kilobytes is the target size of a batch, in \
         kilobytes.",
        "S000-065, S003-016: A batch may be smaller than the preferred size if no more events are \
         available at the time of publishing.",
        "S000-066, S003-017: A batch may be larger than the preferred batch size if a single event \
         is larger than the preferred size.",
        "S000-067, S003-018: With a preferred batch size of 4 KB, a 10 KB event is delivered in a \
         batch of its own and is not dropped.",
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
        "S000-055, S003-008: Event Grid can be configured to group events into batches for \
         delivery.",
        "S000-060, S003-010: The configured maximum number of events per batch is never exceeded.",
        "S000-061, S003-012: A batch may hold fewer events than the configured maximum if no other \
         events are available at the time of publishing.",
        "S000-062, S003-013: Event Grid does not delay events to fill a batch when fewer events \
         are available than the setting asks for.",
        "S000-075: At low event rates, the batch size is often smaller than the requested maximum \
         events per batch.",
        "S003-011: The max events per batch setting is never exceeded.",
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
