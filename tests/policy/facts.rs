//! Facts of the documents about retries, probation and endings: each is driven with the edition of
//! its document, and what was found is compared with the row.

use std::{collections::BTreeSet, time::Duration};

use gridhook::policy::{
    SubscriptionSettings,
    edition::EndpointKind,
    outcome::{Failure, Reason, RequestResult},
    record::Health,
};
use serde_json::json;

use super::{
    driver::{Driver, answers, status},
    editions::edition,
    plain,
};
use crate::spec::{fact, shows};

/// The outcome that suspends an endpoint with this result, and for how many seconds.
fn probation(name: &str, response: RequestResult) -> (Failure, u64) {
    let edition = edition(name);
    let suspend_after = edition.probation.after_failures;
    let settings = SubscriptionSettings {
        edition,
        suspend_after,
        concurrency_max: 12,
        ..plain()
    };
    let mut driver = Driver::new(settings, answers(vec![response]));
    driver.publish(&[("yes", 10); 12]);
    driver.run_for(Duration::from_secs(1));
    match driver.core.cursor().health {
        Health::Suspended {
            cause,
            since,
            until,
            ..
        } => (cause, until.since(since).as_secs()),
        health => panic!("it is not suspended: {health:?}"),
    }
}

/// What happens to an event whose attempts always have this result: attempts, and whether it was a
/// dead letter or dropped, why.
fn end(
    settings: SubscriptionSettings,
    response: RequestResult,
) -> (u64, &'static str, Option<Reason>) {
    let mut driver = Driver::new(settings, answers(vec![response]));
    driver.publish(&[("yes", 10)]);
    driver.run();
    let counters = driver.disk.cursor.counters;
    let then = match (counters.dead_lettered, counters.dropped) {
        (1, 0) => "dead-letter",
        (0, 1) => "drop",
        ends => panic!("an event ends once: {ends:?}"),
    };
    (
        counters.requests,
        then,
        driver.disk.dead.values().next().map(|dead| dead.reason),
    )
}

/// Whether an event is attempted again after this status.
fn is_retried(name: &str, destination: EndpointKind, code: u16) -> bool {
    let settings = SubscriptionSettings {
        edition: edition(name),
        destination,
        attempts_max: 2,
        ..plain()
    };
    end(settings, status(code)).0 > 1
}

#[test]
fn the_probation_of_each_outcome_lasts_as_its_row_says() {
    let _rows = shows(&[
        "S000-158: The length of probation differs for different errors returned by the \
         destination endpoint.",
    ]);
    let rows = [
        ("S000-160", status(503)),
        ("S000-161", status(404)),
        (
            "S000-162",
            RequestResult::from_outcome(Failure::SocketError),
        ),
        (
            "S000-163",
            RequestResult::from_outcome(Failure::ResolutionError),
        ),
        ("S000-164", RequestResult::from_outcome(Failure::Disabled)),
        ("S000-165", RequestResult::from_outcome(Failure::Full)),
        ("S000-166", RequestResult::from_outcome(Failure::TimedOut)),
        ("S000-167", status(401)),
        ("S000-168", status(403)),
        (
            "S000-169",
            RequestResult::from_outcome(Failure::InvalidAzureFunctionDestination),
        ),
    ];
    let mut different = BTreeSet::new();
    for (id, response) in rows {
        let (outcome, seconds) = probation("2023", response);
        fact(
            id,
            &json!({"outcome": outcome.to_string(), "seconds": seconds}),
        );
        different.insert(seconds);
    }
    assert!(
        different.len() > 2,
        "the length differs by the error: {different:?}"
    );
}

#[test]
fn final_failures_are_dead_lettered_or_dropped_after_one_attempt() {
    // The endpoint refuses access: only its owner can change that.
    for (id, dead_letter) in [("S000-010", true), ("S000-011", false)] {
        for code in [401, 403] {
            let settings = SubscriptionSettings {
                edition: edition("2023"),
                dead_letter,
                ..plain()
            };
            let (attempts, then, _) = end(settings, status(code));
            fact(id, &json!({"retry": attempts > 1, "then": then}));
        }
    }
}

#[test]
fn final_failures_depend_on_the_edition_and_the_kind_of_endpoint() {
    let kinds = [
        ("AzureResource", "azure-resource", EndpointKind::Resource),
        ("WebHook", "webhook", EndpointKind::Webhook),
    ];
    let rows_of_2021 = [
        ("S003-030", 0, 400),
        ("S003-031", 0, 413),
        ("S003-032", 0, 403),
        ("S003-033", 1, 400),
        ("S003-034", 1, 413),
    ];
    for (id, kind, code) in rows_of_2021 {
        let (endpoint, _, kind) = kinds[kind];
        let retry = is_retried("2021", kind, code);
        fact(
            id,
            &json!({"endpointType": endpoint, "status": code, "retry": retry}),
        );
    }
    for (id, kind, code) in [("S000-012", 0, 400), ("S000-013", 0, 413)] {
        let (_, endpoint, kind) = kinds[kind];
        let retry = is_retried("2023", kind, code);
        fact(
            id,
            &json!({"endpoint": endpoint, "status": code, "retry": retry}),
        );
    }
    // Another edition has another result.
    assert!(
        is_retried("2020", EndpointKind::Webhook, 403)
            && !is_retried("2021", EndpointKind::Webhook, 403)
    );
}

#[test]
fn a_pushed_event_of_a_namespace_whose_retention_is_over_is_a_dead_letter() {
    let settings = SubscriptionSettings {
        edition: edition("namespace"),
        time_to_live: Duration::from_secs(15),
        ..plain()
    };
    let (attempts, then, reason) = end(settings, status(500));
    assert!(attempts > 1 && then == "dead-letter");
    let cause = match reason {
        Some(Reason::TimeToLiveExceeded) => "retention expired",
        other => panic!("{other:?}"),
    };
    fact("S001-008", &json!({"cause": cause, "mode": "push"}));
}

#[test]
fn in_a_probation_for_a_clients_error_events_end_without_an_attempt_where_the_subscription_says_so()
{
    let _rows = shows(&[
        "S000-159: While an event subscription is in probation, events may be dead-lettered or \
         dropped without a delivery attempt, depending on the error code that caused the \
         probation.",
    ]);
    for (response, ends) in [(status(404), true), (status(503), false)] {
        let edition = edition("2023");
        let suspend_after = edition.probation.after_failures;
        let settings = SubscriptionSettings {
            edition,
            suspend_after,
            dead_letter_in_probation: true,
            ..plain()
        };
        let mut driver = Driver::new(settings, answers(vec![response]));
        driver.publish(&[("yes", 10); 30]);
        driver.run_for(Duration::from_secs(60));
        let untried = driver.disk.dead.values().filter(|dead| dead.attempts == 0);
        let causes: BTreeSet<String> = untried.map(|dead| dead.reason.to_string()).collect();
        assert_eq!(!causes.is_empty(), ends, "{causes:?}");
    }
}
