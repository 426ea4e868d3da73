//! What each edition of the program does: attempts over time, and what every status means, as
//! tables.

use std::{collections::BTreeMap, fmt::Write, sync::Arc, time::Duration};

use expect_test::{Expect, expect};
use gridhook::{
    config::Editions,
    policy::{
        SubscriptionSettings,
        edition::{Edition, EndpointKind, FileLayout, SettingRange},
        outcome::{Failure, RequestResult},
    },
};

use super::{
    driver::{Driver, answers, status},
    plain,
};

pub(super) fn edition(name: &str) -> Arc<Edition> {
    Editions::load(None, None)
        .expect("the program's own editions are sound")
        .get(name)
        .expect("it has this one")
}

/// All attempts at an event whose endpoint always answers 500, with the edition's own limits.
fn attempts(name: &str, expected: Expect) {
    let edition = edition(name);
    let minutes = u64::from(edition.time_to_live_minutes.default);
    let settings = SubscriptionSettings {
        attempts_max: edition.attempts.default,
        time_to_live: Duration::from_secs(60 * minutes),
        edition,
        ..plain()
    };
    let mut driver = Driver::new(settings, answers(vec![status(500)]));
    driver.publish(&[("yes", 10)]);
    expected.assert_eq(&driver.run());
}

/// When an event is tried again whose endpoint answers so once, and with success from then on.
fn again(settings: SubscriptionSettings, answer: &RequestResult) -> String {
    let mut driver = Driver::new(settings, answers(vec![answer.clone(), status(200)]));
    driver.publish(&[("yes", 10)]);
    driver.run();
    match &driver.lines[..] {
        [first] if first == "0s ok" => "delivered".to_owned(),
        [_, second] if second.ends_with(" ok") => second.trim_end_matches(" ok").to_owned(),
        [_, given_up] if given_up.starts_with("0s ") => "never".to_owned(),
        lines => panic!("{answer:?}: {lines:?}"),
    }
}

/// What each status means, every one from 200 on: where it differs, without and with a place for
/// dead letters.
fn statuses(name: &str, expected: Expect) {
    let [timeout, reset] =
        [Failure::TimedOut, Failure::SocketError].map(RequestResult::from_outcome);
    let mut all: Vec<(String, RequestResult)> =
        vec![("timeout".to_owned(), timeout), ("reset".to_owned(), reset)];
    all.extend((200..=599).map(|code| (code.to_string(), status(code))));
    let row = |destination, dead_letter| {
        let settings = SubscriptionSettings {
            edition: edition(name),
            destination,
            dead_letter,
            ..plain()
        };
        let mut groups: BTreeMap<String, Vec<&str>> = BTreeMap::new();
        for (reported, answer) in &all {
            groups
                .entry(again(settings.clone(), answer))
                .or_default()
                .push(reported);
        }
        // The wait of most statuses is last, under a key that is no status.
        let most = groups
            .iter()
            .max_by_key(|(_, group)| group.len())
            .map(|(again, _)| again.clone());
        let (again, others) = most
            .and_then(|most| groups.remove_entry(&most))
            .expect("there are groups");
        let others = others
            .into_iter()
            .filter(|reported| reported.parse::<u16>().is_err())
            .collect();
        let groups = groups
            .into_iter()
            .chain([(format!("others {again}"), others)]);
        groups
            .map(|(again, group)| format!("{again}: {}", group.join(" ")))
            .collect::<Vec<_>>()
            .join(" · ")
    };
    let mut table = String::new();
    for (reported, kind) in [
        ("webhook", EndpointKind::Webhook),
        ("resource", EndpointKind::Resource),
    ] {
        let [without, with] = [false, true].map(|dead_letter| row(kind, dead_letter));
        if with == without {
            writeln!(table, "{reported}: {with}").expect("a string takes all");
        } else {
            writeln!(
                table,
                "{reported}: {without}\n{reported} with dead letters: {with}"
            )
            .expect("a string takes all");
        }
    }
    expected.assert_eq(&table);
}

#[test]
fn edition_2020_tries_every_hour_at_the_end() {
    let _rows = crate::spec::shows(&[
        "S002-003", "S002-004", "S002-009", "S002-011", "S002-012", "S002-013", "S002-014",
        "S002-015", "S002-016", "S002-017", "S002-018", "S002-019", "S002-063",
    ]);
    attempts(
        "2020",
        expect![
            "0s x · 10s x · 40s x · 1m 40s x · 6m 40s x · 16m 40s x · 46m 40s x · 1h 46m 40s x · \
             2h 46m 40s x · 3h 46m 40s x · 4h 46m 40s x · 5h 46m 40s x · 6h 46m 40s x · 7h 46m 40s \
             x · 8h 46m 40s x · 9h 46m 40s x · 10h 46m 40s x · 11h 46m 40s x · 12h 46m 40s x · 13h \
             46m 40s x · 14h 46m 40s x · 15h 46m 40s x · 16h 46m 40s x · 17h 46m 40s x · 18h 46m \
             40s x · 19h 46m 40s x · 20h 46m 40s x · 21h 46m 40s x · 22h 46m 40s x · 23h 46m 40s x \
             · 23h 46m 40s MaxDeliveryAttemptsExceeded"
        ],
    );
}

#[test]
fn edition_2021_tries_after_three_six_and_twelve_hours_at_the_end() {
    let _rows = crate::spec::shows(&[
        "S003-003", "S003-004", "S003-043", "S003-045", "S003-046", "S003-047", "S003-048",
        "S003-049", "S003-050", "S003-051", "S003-052", "S003-053", "S003-054", "S003-055",
        "S003-149",
    ]);
    attempts(
        "2021",
        expect![
            "0s x · 10s x · 40s x · 1m 40s x · 6m 40s x · 16m 40s x · 46m 40s x · 1h 46m 40s x · \
             4h 46m 40s x · 10h 46m 40s x · 22h 46m 40s x · 1day 10h 46m 40s TimeToLiveExceeded"
        ],
    );
}

#[test]
fn edition_2023_tries_after_three_six_and_twelve_hours_at_the_end() {
    let _rows = crate::spec::shows(&[
        "S000-002", "S000-004", "S000-005", "S000-023", "S000-025", "S000-026", "S000-027",
        "S000-028", "S000-029", "S000-030", "S000-031", "S000-032", "S000-033", "S000-034",
        "S000-035", "S000-207",
    ]);
    attempts(
        "2023",
        expect![
            "0s x · 10s x · 40s x · 1m 40s x · 6m 40s x · 16m 40s x · 46m 40s x · 1h 46m 40s x · \
             4h 46m 40s x · 10h 46m 40s x · 22h 46m 40s x · 1day 10h 46m 40s TimeToLiveExceeded"
        ],
    );
}

#[test]
fn edition_namespace_counts_its_schedule_from_the_first_attempt() {
    attempts(
        "namespace",
        expect![
            "0s x · 10s x · 30s x · 1m x · 5m x · 10m x · 15m x · 20m x · 25m x · 30m x · 30m \
             MaxDeliveryAttemptsExceeded"
        ],
    );
}

#[test]
fn edition_2020_means_this_by_each_status() {
    let _rows = crate::spec::shows(&[
        "S002-008", "S002-055", "S002-062", "S002-063", "S002-065", "S002-067", "S002-068",
        "S002-069", "S002-070", "S002-071", "S002-073", "S002-074",
    ]);
    statuses(
        "2020",
        expect![[r#"
            webhook: 2m: 408 · 30s: 503 · 5m: 400 401 403 404 410 · delivered: 200 201 202 203 204 · others 10s: timeout reset
            webhook with dead letters: 2m: 408 · 30s: 503 · 5m: 401 403 404 410 · delivered: 200 201 202 203 204 · never: 400 413 · others 10s: timeout reset
            resource: 2m: 408 · 30s: 503 · 5m: 400 401 403 404 410 · delivered: 200 201 202 203 204 · others 10s: timeout reset
            resource with dead letters: 2m: 408 · 30s: 503 · 5m: 401 403 404 410 · delivered: 200 201 202 203 204 · never: 400 413 · others 10s: timeout reset
        "#]],
    );
}

#[test]
fn edition_2021_means_this_by_each_status() {
    let _rows = crate::spec::shows(&[
        "S003-026", "S003-035", "S003-036", "S003-037", "S003-040", "S003-042", "S003-080",
        "S003-081", "S003-082", "S003-141", "S003-148", "S003-149", "S003-151", "S003-152",
        "S003-153", "S003-154", "S003-155", "S003-156", "S003-157", "S003-158",
    ]);
    statuses(
        "2021",
        expect![[r#"
            webhook: 2m: 408 · 30s: 503 · 5m: 410 · delivered: 200 201 202 203 204 · never: 400 401 403 404 413 · others 10s: timeout reset
            resource: 2m: 408 · 30s: 503 · 5m: 401 404 410 · delivered: 200 201 202 203 204 · never: 400 403 413 · others 10s: timeout reset
        "#]],
    );
}

#[test]
fn edition_2023_means_this_by_each_status() {
    let _rows = crate::spec::shows(&[
        "S000-009", "S000-014", "S000-015", "S000-016", "S000-020", "S000-022", "S000-103",
        "S000-104", "S000-105", "S000-199", "S000-206", "S000-207", "S000-209", "S000-210",
        "S000-211", "S000-212", "S000-213", "S000-214", "S000-215", "S000-216",
    ]);
    statuses(
        "2023",
        expect![[r#"
            webhook: 2m: 408 · 30s: 503 · delivered: 200 201 202 203 204 · never: 400 401 403 413 · others 10s: timeout reset
            resource: 2m: 408 · 30s: 503 · 5m: 401 404 410 · delivered: 200 201 202 203 204 · never: 400 403 413 · others 10s: timeout reset
        "#]],
    );
}

#[test]
fn edition_current_means_this_by_each_status() {
    statuses(
        "current",
        expect![[r#"
            webhook: 2m: 408 · 30s: 503 · 5m: 404 410 · delivered: 200 201 202 203 204 · never: 400 401 403 413 · others 10s: timeout reset
            resource: 2m: 408 · 30s: 503 · 5m: 401 404 410 · delivered: 200 201 202 203 204 · never: 400 403 413 · others 10s: timeout reset
        "#]],
    );
}

#[test]
fn edition_namespace_means_this_by_each_status() {
    statuses(
        "namespace",
        expect![[r#"
            webhook: 2m: 408 · 30s: 503 · 5m: 410 · delivered: 200 201 202 203 204 · never: 400 401 403 404 413 414 · others 10s: timeout reset
            resource: 2m: 408 · 30s: 503 · 5m: 410 · delivered: 200 201 202 203 204 · never: 400 401 403 404 413 414 · others 10s: timeout reset
        "#]],
    );
}

#[test]
fn every_edition_of_the_program_can_be_followed() {
    let _rows = crate::spec::shows(&[
        "S000-019", "S000-044", "S000-045", "S000-046", "S000-047", "S000-110", "S002-028",
        "S002-029", "S002-046", "S003-064", "S003-065", "S003-087",
    ]);
    let editions = Editions::load(None, None).expect("the program's own editions are sound");
    let names: Vec<&str> = editions.names().collect();
    assert_eq!(names, ["2020", "2021", "2023", "current", "namespace"]);
    for name in names {
        let edition = edition(name);
        assert_eq!(edition.validate(), Ok(()));
        assert_eq!(edition.probation.after_failures, 10, "{name}");
        assert_eq!(
            edition.dead_letter.delay,
            Duration::from_secs(5 * 60),
            "{name}"
        );
        let window = if name == "namespace" { 48 } else { 4 };
        assert_eq!(
            edition.dead_letter.outage_window,
            Duration::from_secs(window * 60 * 60),
            "{name}"
        );
        assert_eq!(
            edition.dead_letter.retry,
            [10, 60, 300].map(Duration::from_secs),
            "{name}"
        );
        let (layout, days) = if name == "namespace" {
            (FileLayout::Namespace, 2)
        } else {
            (FileLayout::Basic, 0)
        };
        assert_eq!(
            (
                edition.dead_letter.layout,
                edition.dead_letter.retry_period_days_max
            ),
            (layout, days),
            "{name}"
        );
        let most = if name == "namespace" { 10 } else { 30 };
        assert_eq!(
            edition.attempts,
            SettingRange {
                min: 1,
                max: most,
                default: most
            },
            "{name}"
        );
        let longest = if name == "namespace" {
            7 * 1_440
        } else {
            1_440
        };
        assert_eq!(
            edition.time_to_live_minutes,
            SettingRange {
                min: 1,
                max: longest,
                default: 1_440
            },
            "{name}"
        );
        let drops = ["2023", "current"].contains(&name);
        assert_eq!(edition.dead_letter.drop_where_not_found, drops, "{name}");
    }
}

#[test]
fn a_store_that_fails_must_be_tried_again() {
    let mut edition = (*edition("current")).clone();
    edition.dead_letter.retry.clear();
    expect!["dead_letter.retry is empty; allowed are one duration or more"].assert_eq(
        &edition
            .validate()
            .expect_err("there is no wait")
            .to_string(),
    );
    edition.dead_letter.retry = vec![Duration::ZERO];
    expect!["dead_letter.retry is 0; allowed is a duration longer than nothing"].assert_eq(
        &edition
            .validate()
            .expect_err("it would be tried in a circle")
            .to_string(),
    );
}

#[test]
fn a_switch_makes_timeouts_final() {
    let mut edition = (*edition("namespace")).clone();
    edition.webhook.never_retried_without_status = vec![Failure::TimedOut];
    assert_eq!(edition.validate(), Ok(()));
    let settings = SubscriptionSettings {
        edition: Arc::new(edition.clone()),
        ..plain()
    };
    let answer = |outcome| again(settings.clone(), &RequestResult::from_outcome(outcome));
    assert_eq!(
        [Failure::TimedOut, Failure::SocketError].map(answer),
        ["never", "10s"]
    );
    edition.webhook.never_retried_without_status = vec![Failure::BadRequest];
    expect![
        "webhook.never_retried_without_status names BadRequest; allowed are TimedOut, \
         SocketError, ResolutionError, GenericError, NotFound, Disabled, Full, \
         SessionQueueNotSupported, InvalidAzureFunctionDestination"
    ]
    .assert_eq(&edition.validate().expect_err("it has a status").to_string());
    edition.webhook.never_retried_without_status.clear();
    edition.webhook.never_retried_with_dead_letter = vec![414];
    expect![
        "webhook has status 414 in both lists of what is never retried; allowed is one of them"
    ]
    .assert_eq(
        &edition
            .validate()
            .expect_err("a status has one meaning")
            .to_string(),
    );
}

/// The core follows edition 2020: with a place for dead letters 400 and 413 end an event at once,
/// without one they do not.
#[test]
fn in_edition_2020_400_and_413_are_final_only_with_a_dead_letter_destination() {
    let _rows = crate::spec::shows(&["S002-041", "S002-042", "S002-043", "S002-066", "S002-072"]);
    let run = |code, dead_letter| {
        let settings = SubscriptionSettings {
            edition: edition("2020"),
            dead_letter,
            ..plain()
        };
        let mut driver = Driver::new(settings, answers(vec![status(code), status(200)]));
        driver.publish(&[("yes", 10)]);
        driver.run()
    };
    expect!["0s x · 0s UndeliverableDueToHttpBadRequest"].assert_eq(&run(400, true));
    expect!["0s x · 5m ok"].assert_eq(&run(400, false));
    expect!["0s x · 0s UndeliverableDueToHttpPayloadTooLarge"].assert_eq(&run(413, true));
    expect!["0s x · 10s ok"].assert_eq(&run(413, false));
}

#[test]
fn exactly_200_to_204_are_successes_in_every_edition() {
    let _rows = crate::spec::shows(&[
        "S000-197", "S000-198", "S000-200", "S000-201", "S000-202", "S000-203", "S000-204",
        "S000-205", "S002-053", "S002-054", "S002-056", "S002-057", "S002-058", "S002-059",
        "S002-060", "S002-061", "S003-139", "S003-140", "S003-142", "S003-143", "S003-144",
        "S003-145", "S003-146", "S003-147",
    ]);
    for name in ["2020", "2021", "2023", "current", "namespace"] {
        let succeeds = |code: &u16| {
            let settings = SubscriptionSettings {
                edition: edition(name),
                attempts_max: 1,
                ..plain()
            };
            let mut driver = Driver::new(settings, answers(vec![status(*code)]));
            driver.publish(&[("yes", 10)]);
            driver.run() == "0s ok"
        };
        let successes: Vec<u16> = (200..=599).filter(succeeds).collect();
        assert_eq!(successes, [200, 201, 202, 203, 204], "{name}");
    }
}

/// The retries would be due after 10 s, and new events at once; both wait for the half minute that
/// the outcome costs, and then for what becomes of one probe.
#[test]
fn ten_failures_delay_retries_and_new_deliveries_in_every_edition() {
    let _rows = crate::spec::shows(&[
        "S000-089", "S000-090", "S000-091", "S000-092", "S000-146", "S000-157", "S002-030",
        "S002-031", "S002-032", "S003-066", "S003-067", "S003-068",
    ]);
    for name in ["2020", "2021", "2023", "current", "namespace"] {
        let edition = edition(name);
        let suspend_after = edition.probation.after_failures;
        let settings = SubscriptionSettings {
            edition,
            suspend_after,
            concurrency_max: 10,
            ..plain()
        };
        let mut driver = Driver::new(
            settings,
            answers(vec![RequestResult::from_outcome(Failure::SocketError)]),
        );
        driver.publish(&[("yes", 10); 10]);
        driver.run_for(Duration::from_secs(1));
        driver.publish(&[("yes", 10); 10]);
        driver.run_for(Duration::from_secs(28));
        assert_eq!(driver.lines, vec!["0s x"; 10], "{name}");
        driver.run_for(Duration::from_secs(30));
        assert_eq!(driver.lines[10..], ["30s x"], "{name}");
        // Nine failures delay nothing new.
        let settings = SubscriptionSettings {
            edition: self::edition(name),
            suspend_after,
            concurrency_max: 10,
            ..plain()
        };
        let mut driver = Driver::new(
            settings,
            answers(vec![RequestResult::from_outcome(Failure::SocketError)]),
        );
        driver.publish(&[("yes", 10); 9]);
        driver.run_for(Duration::from_secs(1));
        driver.publish(&[("yes", 10)]);
        driver.run_for(Duration::from_secs(1));
        assert_eq!(driver.lines[9..], ["1s x"], "{name}");
    }
}

#[test]
fn time_to_live_is_checked_when_an_attempt_is_due_in_every_edition() {
    let _rows = crate::spec::shows(&[
        "S000-106", "S000-107", "S002-024", "S003-060", "S003-083", "S003-084",
    ]);
    for name in ["2020", "2021", "2023", "current", "namespace"] {
        let settings = SubscriptionSettings {
            edition: edition(name),
            time_to_live: Duration::from_secs(15),
            ..plain()
        };
        let mut driver = Driver::new(settings, answers(vec![status(500)]));
        driver.publish(&[("yes", 10)]);
        let third = if name == "namespace" { "30s" } else { "40s" };
        assert_eq!(
            driver.run(),
            format!("0s x · 10s x · {third} TimeToLiveExceeded"),
            "{name}"
        );
    }
}
