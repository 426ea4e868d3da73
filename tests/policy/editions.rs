//! The editions of the program as tables: attempts over time, and the meaning of every status.

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

/// All attempts at an event whose endpoint always returns 500, with the edition's own limits.
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

/// When the second attempt at an event is due after this result. Later attempts succeed.
fn again(settings: SubscriptionSettings, response: &RequestResult) -> String {
    let mut driver = Driver::new(settings, answers(vec![response.clone(), status(200)]));
    driver.publish(&[("yes", 10)]);
    driver.run();
    match &driver.lines[..] {
        [first] if first == "0s ok" => "delivered".to_owned(),
        [_, second] if second.ends_with(" ok") => second.trim_end_matches(" ok").to_owned(),
        [_, given_up] if given_up.starts_with("0s ") => "never".to_owned(),
        lines => panic!("{response:?}: {lines:?}"),
    }
}

/// The meaning of every status from 200 on: where it differs, without and with a place for dead
/// letters.
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
        for (reported, response) in &all {
            groups
                .entry(again(settings.clone(), response))
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
        "S002-003: Events are sent immediately to the registered endpoint of each subscription.",
        "S002-004: If an endpoint does not acknowledge receipt of an event, delivery of the event \
         is retried.",
        "S002-009: Event delivery uses an exponential backoff retry policy.",
        "S002-011: Step 1 of the retry schedule is 10 seconds.",
        "S002-012: Step 2 of the retry schedule is 30 seconds.",
        "S002-013: Step 3 of the retry schedule is 1 minute.",
        "S002-014: Step 4 of the retry schedule is 5 minutes.",
        "S002-015: Step 5 of the retry schedule is 10 minutes.",
        "S002-016: Step 6 of the retry schedule is 30 minutes.",
        "S002-017: Step 7 of the retry schedule is 1 hour.",
        "S002-018: After step 7 of the retry schedule, retries repeat hourly.",
        "S002-019: The hourly retries at the end of the schedule go on for up to 24 hours.",
        "S002-063: Failure codes without a specific retry policy follow the standard exponential \
         back-off model.",
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
        "S003-003: Events are sent immediately to the registered endpoint of each subscription.",
        "S003-004: If an endpoint does not acknowledge receipt of an event, delivery of the event \
         is retried.",
        "S003-043: Event delivery uses an exponential backoff retry policy.",
        "S003-045: Step 1 of the retry schedule is 10 seconds.",
        "S003-046: Step 2 of the retry schedule is 30 seconds.",
        "S003-047: Step 3 of the retry schedule is 1 minute.",
        "S003-048: Step 4 of the retry schedule is 5 minutes.",
        "S003-049: Step 5 of the retry schedule is 10 minutes.",
        "S003-050: Step 6 of the retry schedule is 30 minutes.",
        "S003-051: Step 7 of the retry schedule is 1 hour.",
        "S003-052: Step 8 of the retry schedule is 3 hours.",
        "S003-053: Step 9 of the retry schedule is 6 hours.",
        "S003-054: After step 9 of the retry schedule, retries repeat every 12 hours.",
        "S003-055: The 12-hourly retries at the end of the schedule go on up to 24 hours.",
        "S003-149: Failure codes without a specific retry policy follow the standard exponential \
         back-off model.",
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
        "S000-002: Event Grid makes the first delivery attempt for each message immediately, \
         without waiting.",
        "S000-004: If a subscriber's endpoint does not acknowledge receipt of an event, Event Grid \
         retries the delivery on the predefined retry schedule and under the retry policy.",
        "S000-005: If an error occurs during delivery, Event Grid retries the delivery on the \
         predefined retry schedule and under the retry policy.",
        "S000-023: Event Grid uses an exponential backoff retry policy for event delivery.",
        "S000-025: Step 1 of the retry schedule is 10 seconds.",
        "S000-026: Step 2 of the retry schedule is 30 seconds.",
        "S000-027: Step 3 of the retry schedule is 1 minute.",
        "S000-028: Step 4 of the retry schedule is 5 minutes.",
        "S000-029: Step 5 of the retry schedule is 10 minutes.",
        "S000-030: Step 6 of the retry schedule is 30 minutes.",
        "S000-031: Step 7 of the retry schedule is 1 hour.",
        "S000-032: Step 8 of the retry schedule is 3 hours.",
        "S000-033: Step 9 of the retry schedule is 6 hours.",
        "S000-034: After the 6-hour step, the retry schedule repeats every 12 hours.",
        "S000-035: The 12-hour retries of the schedule go on up to 24 hours.",
        "S000-207: Some failure codes have specific retry policies, and all other failure codes \
         follow the standard exponential backoff model.",
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
        "S002-008: If the endpoint has not responded after 30 seconds, the message is queued for \
         retry.",
        "S002-055: All status codes other than 200 to 204 are considered failed deliveries and are \
         retried or dead-lettered as appropriate.",
        "S002-062: All codes outside the set 200-204 are considered failures and are retried.",
        "S002-063: Failure codes without a specific retry policy follow the standard exponential \
         back-off model.",
        "S002-065: After status 400 (Bad Request), delivery is retried after 5 minutes or more.",
        "S002-067: After status 401 (Unauthorized), delivery is retried after 5 minutes or more.",
        "S002-068: After status 403 (Forbidden), delivery is retried after 5 minutes or more.",
        "S002-069: After status 404 (Not Found), delivery is retried after 5 minutes or more.",
        "S002-070: After status 408 (Request Timeout), delivery is retried after 2 minutes or \
         more.",
        "S002-071: After status 413 (Request Entity Too Large), delivery is retried after 10 \
         seconds or more.",
        "S002-073: After status 503 (Service Unavailable), delivery is retried after 30 seconds or \
         more.",
        "S002-074: After any other failure status, delivery is retried after 10 seconds or more.",
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
        "S003-026: When a delivery attempt gets an error, the type of the error decides whether \
         the delivery is retried or the event is dead-lettered or dropped.",
        "S003-035: For webhook endpoints, error code 403 (Forbidden) is never retried.",
        "S003-036: For webhook endpoints, error code 404 (Not Found) is never retried.",
        "S003-037: For webhook endpoints, error code 401 (Unauthorized) is never retried.",
        "S003-040: An error that is not in the never-retried list of its endpoint type is retried \
         under the retry policy.",
        "S003-042: If the endpoint has not responded after 30 seconds, the message is queued for \
         retry.",
        "S003-080: On a 400 (Bad Request) response, the event is immediately scheduled for \
         dead-lettering.",
        "S003-081: On a 413 (Request Entity Too Large) response, the event is immediately \
         scheduled for dead-lettering.",
        "S003-082: Response codes 400 and 413 indicate that delivery of the event will never \
         succeed.",
        "S003-141: All status codes other than 200 to 204 are considered failed deliveries and are \
         retried or dead-lettered as appropriate.",
        "S003-148: All codes outside the set 200-204 are considered failures and are retried if \
         needed.",
        "S003-149: Failure codes without a specific retry policy follow the standard exponential \
         back-off model.",
        "S003-151: After status 400 (Bad Request), delivery is not retried.",
        "S003-152: After status 401 (Unauthorized), delivery to Azure resource endpoints is \
         retried after 5 minutes or more.",
        "S003-153: After status 403 (Forbidden), delivery is not retried.",
        "S003-154: After status 404 (Not Found), delivery to Azure resource endpoints is retried \
         after 5 minutes or more.",
        "S003-155: After status 408 (Request Timeout), delivery is retried after 2 minutes or \
         more.",
        "S003-156: After status 413 (Request Entity Too Large), delivery is not retried.",
        "S003-157: After status 503 (Service Unavailable), delivery is retried after 30 seconds or \
         more.",
        "S003-158: After any other failure status, delivery is retried after 10 seconds or more.",
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
        "S000-009: When a delivery attempt returns an error, Event Grid decides from the type of \
         the error whether to retry the delivery, dead-letter the event or drop the event.",
        "S000-014: For an endpoint of type webhook, status 400 (Bad Request) is not retried.",
        "S000-015: For an endpoint of type webhook, status 413 (Request Entity Too Large) is not \
         retried.",
        "S000-016: For an endpoint of type webhook, status 401 (Unauthorized) is not retried.",
        "S000-020: If the endpoint's error is not in the list of non-retried errors, Event Grid \
         retries the delivery under the retry policy.",
        "S000-022: If the endpoint has not responded after 30 seconds, the message is queued for \
         retry.",
        "S000-103: If Event Grid receives status 400 (Bad Request), it immediately schedules the \
         event for dead-lettering.",
        "S000-104: If Event Grid receives status 413 (Request Entity Too Large), it immediately \
         schedules the event for dead-lettering.",
        "S000-105: Status 400 and status 413 indicate that delivery of the event will never \
         succeed.",
        "S000-199: Every status code other than 200 to 204 counts as a failed delivery, and the \
         event is retried or dead-lettered.",
        "S000-206: All codes outside the set 200 to 204 are failures and are retried where \
         appropriate.",
        "S000-207: Some failure codes have specific retry policies, and all other failure codes \
         follow the standard exponential backoff model.",
        "S000-209: Status 400 (Bad Request) is not retried.",
        "S000-210: Status 401 (Unauthorized) is retried after 5 minutes or more for Azure resource \
         endpoints.",
        "S000-211: Status 403 (Forbidden) is not retried.",
        "S000-212: Status 404 (Not Found) is retried after 5 minutes or more for Azure resource \
         endpoints.",
        "S000-213: Status 408 (Request Timeout) is retried after 2 minutes or more.",
        "S000-214: Status 413 (Request Entity Too Large) is not retried.",
        "S000-215: Status 503 (Service Unavailable) is retried after 30 seconds or more.",
        "S000-216: All other failure status codes are retried after 10 seconds or more.",
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
        "S000-019: A dead-lettered event is dropped when its dead-letter destination is not found.",
        "S000-044: The maximum number of delivery attempts must be an integer from 1 to 30.",
        "S000-045, S002-028, S003-064: The default maximum number of delivery attempts is 30.",
        "S000-046: The event time-to-live (TTL) must be an integer from 1 to 1440.",
        "S000-047, S002-029, S003-065: The default event time-to-live (TTL) is 1440 minutes.",
        "S000-110, S002-046, S003-087: If the dead-letter location is unavailable for 4 hours, the \
         event is dropped.",
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
    expect!["dead_letter.retry is empty; expected one duration or more"].assert_eq(
        &edition
            .validate()
            .expect_err("there is no wait")
            .to_string(),
    );
    edition.dead_letter.retry = vec![Duration::ZERO];
    expect!["dead_letter.retry is 0; expected a duration longer than nothing"].assert_eq(
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
    let response = |outcome| again(settings.clone(), &RequestResult::from_outcome(outcome));
    assert_eq!(
        [Failure::TimedOut, Failure::SocketError].map(response),
        ["never", "10s"]
    );
    edition.webhook.never_retried_without_status = vec![Failure::BadRequest];
    expect![
        "webhook.never_retried_without_status names BadRequest; expected one of TimedOut, \
         SocketError, ResolutionError, GenericError, NotFound, Disabled, Full, \
         SessionQueueNotSupported, InvalidAzureFunctionDestination"
    ]
    .assert_eq(&edition.validate().expect_err("it has a status").to_string());
    edition.webhook.never_retried_without_status.clear();
    edition.webhook.never_retried_with_dead_letter = vec![414];
    expect!["webhook has status 414 in both lists of what is never retried; expected one of them"]
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
    let _rows = crate::spec::shows(&[
        "S002-041: On a 400 (Bad Request) response, the event is sent to the dead-letter endpoint \
         immediately.",
        "S002-042: On a 413 (Request Entity Too Large) response, the event is sent to the \
         dead-letter endpoint immediately.",
        "S002-043: Response codes 400 and 413 indicate that delivery of the event will never \
         succeed.",
        "S002-066: After status 400 (Bad Request), the event is dead-lettered immediately if \
         dead-lettering is set up.",
        "S002-072: After status 413 (Request Entity Too Large), the event is dead-lettered \
         immediately if dead-lettering is set up.",
    ]);
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
        "S000-197, S002-053, S003-139: Event Grid uses HTTP response codes as the acknowledgement \
         of receipt of events.",
        "S000-198, S002-054, S003-140: Only the status codes 200, 201, 202, 203 and 204 count as \
         successful delivery.",
        "S000-200, S002-056, S003-142: When Event Grid receives a successful status code, it \
         considers the delivery complete.",
        "S000-201, S002-057, S003-143: Status 200 (OK) is a successful delivery.",
        "S000-202, S002-058, S003-144: Status 201 (Created) is a successful delivery.",
        "S000-203, S002-059, S003-145: Status 202 (Accepted) is a successful delivery.",
        "S000-204, S002-060, S003-146: Status 203 (Non-Authoritative Information) is a successful \
         delivery.",
        "S000-205, S002-061, S003-147: Status 204 (No Content) is a successful delivery.",
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
        "S000-089, S002-030, S003-066: As an endpoint experiences delivery failures, Event Grid \
         begins to delay the delivery and the retries of events to that endpoint.",
        "S000-090, S002-031, S003-067: If the first 10 events published to an endpoint fail, Event \
         Grid assumes that the endpoint is experiencing problems.",
        "S000-091, S002-032, S003-068: Once Event Grid assumes that an endpoint is experiencing \
         problems, it delays all subsequent retries to that endpoint for some time.",
        "S000-092: Once Event Grid assumes that an endpoint is experiencing problems, it also \
         delays new deliveries to that endpoint for some time.",
        "S000-146: No delivery is attempted during probation.",
        "S000-157: Event Grid puts an event subscription into probation for a certain time when \
         deliveries to its destination start to fail.",
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
        "S000-106, S003-083: Expiry of the time-to-live is checked only at the next scheduled \
         delivery attempt.",
        "S000-107, S003-084: If the time-to-live runs out before the next scheduled delivery \
         attempt, the event is dead-lettered only at the time of that attempt.",
        "S002-024, S003-060: For deterministic behaviour, the event time-to-live is set in the \
         subscription's retry policy.",
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
