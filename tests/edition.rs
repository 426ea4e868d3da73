//! The editions of the delivery policy: their values are those of the documentation, and an invalid
//! edition is rejected.

use std::time::Duration;

use expect_test::{Expect, expect, expect_file};
use gridhook::{
    config::Editions,
    policy::{
        edition::{Edition, SettingRange, StepOrigin},
        outcome::Failure,
    },
};

const CURRENT: &str = include_str!("../config/editions/current.toml");

fn current() -> Edition {
    toml::from_str(CURRENT).expect("the edition file can be read")
}

fn seconds(of: impl IntoIterator<Item = Duration>) -> Vec<u64> {
    of.into_iter().map(|duration| duration.as_secs()).collect()
}

#[test]
fn each_edition_of_the_program_has_its_known_values() {
    let editions = Editions::load(None, None).expect("the editions of the program");
    let show = |name: &str| {
        let edition = editions.get(name).expect("an edition");
        let Edition {
            retry,
            attempts,
            time_to_live_minutes,
            webhook,
            resource,
            probation,
            pace,
            dead_letter,
        } = &*edition;
        format!(
            "{name}\n{retry:?}\nattempts {attempts:?}\ntime_to_live_minutes \
             {time_to_live_minutes:?}\nwebhook {webhook:?}\n\
             resource {resource:?}\n{probation:?}\n{pace:?}\n{dead_letter:?}\n"
        )
    };
    let all: Vec<String> = editions.names().map(show).collect();
    expect_file!["data/editions.txt"].assert_eq(&all.join("\n"));
}

#[test]
fn the_current_edition_is_that_of_the_specification() {
    let edition = current();
    assert_eq!(edition.validate(), Ok(()));
    assert_eq!(edition.retry.steps, StepOrigin::Delays);
    let schedule = [10, 30, 60, 300, 600, 1_800, 3_600, 10_800, 21_600, 43_200];
    assert_eq!(seconds(edition.retry.schedule), schedule);
    assert_eq!(edition.retry.repeat, Duration::from_secs(43_200));
    assert_eq!(
        edition.attempts,
        SettingRange {
            min: 1,
            max: 30,
            default: 30
        }
    );
    assert_eq!(
        edition.time_to_live_minutes,
        SettingRange {
            min: 1,
            max: 1_440,
            default: 1_440
        }
    );
    assert_eq!(edition.webhook.never_retried, [400, 401, 403, 413]);
    assert_eq!(
        seconds(edition.webhook.waits.into_values()),
        [300, 120, 300, 30]
    );
    assert_eq!(edition.resource.never_retried, [400, 403, 413]);
    assert_eq!(edition.probation.after_failures, 10);
    assert_eq!(
        (
            edition.probation.failure_share,
            edition.probation.requests_min
        ),
        (0.5, 20)
    );
    assert_eq!(edition.probation.window, Duration::from_secs(60));
    assert_eq!(
        edition.probation.durations[&Failure::InvalidAzureFunctionDestination],
        Duration::from_secs(600)
    );
    assert_eq!(edition.probation.durations.len(), 11);
}

fn refuses(change: impl FnOnce(&mut Edition), expected: Expect) {
    let mut edition = current();
    change(&mut edition);
    expected.assert_eq(
        &edition
            .validate()
            .expect_err("an edition that cannot be followed")
            .to_string(),
    );
}

#[test]
fn an_invalid_edition_is_refused() {
    refuses(
        |edition| edition.retry.schedule.clear(),
        expect!["retry.schedule is empty; expected one step or more"],
    );
    refuses(
        |edition| edition.retry.schedule[3] = Duration::ZERO,
        expect!["retry.schedule is 0; expected a duration longer than nothing"],
    );
    refuses(
        |edition| {
            edition.retry.steps = StepOrigin::Offsets;
            edition.retry.schedule.reverse();
        },
        expect![
            "retry.schedule does not ascend; expected ascending offsets from the first attempt"
        ],
    );
    refuses(
        |edition| edition.retry.jitter_share = f64::NAN,
        expect!["retry.jitter_share is NaN; expected a number from 0 to 1"],
    );
    refuses(
        |edition| edition.attempts.default = 31,
        expect!["attempts has min 1, default 31, max 30; expected 1 <= min <= default <= max"],
    );
    refuses(
        |edition| edition.webhook.never_retried.push(204),
        expect!["webhook names status 204; expected 100 to 599 without 200 to 204"],
    );
    refuses(
        |edition| edition.resource.never_retried.push(503),
        expect!["resource has a wait for status 503 and never retries it; expected one of the two"],
    );
    refuses(
        |edition| edition.probation.longest = Duration::from_secs(60),
        expect!["probation.longest is 1m; expected 10m, the longest duration, or more"],
    );
    refuses(
        |edition| edition.probation.requests_min = 0,
        expect!["probation.requests_min is 0; expected 1 or more"],
    );
    refuses(
        |edition| edition.probation.failure_share = 0.0,
        expect!["probation.failure_share is 0; expected a number above 0, 1 at most"],
    );
    refuses(
        |edition| edition.probation.window = Duration::from_millis(999),
        expect!["probation.window is 999ms; expected 1s or more"],
    );
    refuses(
        |edition| edition.pace.start_share = 1.5,
        expect!["pace.start_share is 1.5; expected a number above 0, 1 at most"],
    );
    refuses(
        |edition| edition.pace.climb = Duration::ZERO,
        expect!["pace.climb is 0; expected a duration longer than nothing"],
    );
    refuses(
        |edition| edition.pace.over_share = 0.9,
        expect!["pace.over_share is 0.9; expected a number from 1 to 10"],
    );
    refuses(
        |edition| edition.pace.after_failure_share = f64::NAN,
        expect!["pace.after_failure_share is NaN; expected a number above 0, 1 at most"],
    );
    refuses(
        |edition| edition.pace.tolerated_share = -0.1,
        expect!["pace.tolerated_share is -0.1; expected a number from 0 to 1"],
    );
    refuses(
        |edition| edition.pace.least = 0.0,
        expect!["pace.least is 0; expected a number from 0.001 to 1000, requests in a second"],
    );
    refuses(
        |edition| edition.pace.forgotten_after = Duration::ZERO,
        expect!["pace.forgotten_after is 0; expected a duration longer than nothing"],
    );
    refuses(
        |edition| edition.probation.after_failures = 0,
        expect!["probation.after_failures is 0; expected 1 or more"],
    );
}

#[test]
fn an_edition_may_have_milliseconds() {
    let quick = CURRENT.replace("[\"10s\", \"30s\"", "[\"20ms\", \"40ms\"");
    let edition: Edition = toml::from_str(&quick).expect("milliseconds can be read");
    assert_eq!(
        edition.retry.schedule[..2],
        [20, 40].map(Duration::from_millis)
    );
    assert_eq!(edition.validate(), Ok(()));
}
