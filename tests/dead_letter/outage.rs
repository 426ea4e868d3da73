//! A store that is unreachable for the whole outage window of an edition, on a virtual clock.

use std::time::Duration;

use gridhook::{
    config::Editions,
    dead_letter::{
        DeadLetterTarget, WaitingDeadLetters,
        staging::{Staging, StagingRules, TurnReport},
        totals::Outage,
    },
    event::Timestamp,
    record::subscription::StorageBlobDestination,
};
use serde_json::json;

use super::{subscription_key, target};
use crate::spec::fact;

const START: Timestamp = Timestamp(1_597_341_600_000_000);

/// When files are tried, in seconds from the first try, until the dead letters are lost.
fn tries(edition: &str, days: Option<u32>) -> Vec<u64> {
    let edition = Editions::load(None, None)
        .expect("editions")
        .get(edition)
        .expect("an edition");
    let destination = StorageBlobDestination {
        resource_id: "/r".to_owned(),
        container: "letters".to_owned(),
        retry_period_days: days,
    };
    let target = DeadLetterTarget {
        retry: edition.dead_letter.retry.clone(),
        outage_window: destination
            .retry_period()
            .unwrap_or(edition.dead_letter.outage_window),
        ..target("letters")
    };
    let mut staging = Staging::new(StagingRules::default());
    staging.enqueue_waiting(WaitingDeadLetters {
        subscription_key: subscription_key(1),
        target,
        due: START,
    });
    let outage = Outage {
        since: START,
        destination: "letters".to_owned(),
    };
    let mut tries = Vec::new();
    for _ in 0..1_000 {
        let now = staging.next_due().expect("it is tried again");
        assert_eq!(
            staging.take_turns(now.before(Duration::from_micros(1))),
            [],
            "never early"
        );
        let job = staging.take_turns(now).pop().expect("a turn");
        tries.push(now.since(START).as_secs());
        if outage
            .lost_by(job.target.outage_window, now)
            .is_some_and(|by| START <= by)
        {
            return tries;
        }
        staging.finish_turn(subscription_key(1), TurnReport::Unreachable, now);
    }
    panic!("it is never lost: {tries:?}");
}

fn assert_schedule(tries: &[u64], window: u64) {
    assert_eq!(
        tries[..6],
        [0, 10, 70, 370, 670, 970],
        "10 s, 1 m, 5 m, then every 5 m"
    );
    assert!(
        tries[3..].windows(2).all(|pair| pair[1] - pair[0] == 300),
        "{tries:?}"
    );
    let last = tries.last().copied().expect("there are some");
    assert!((window..window + 300).contains(&last), "lost at {last}");
}

#[test]
fn in_the_basic_tier_a_store_is_tried_for_four_hours() {
    for edition in ["2020", "2021", "2023", "current"] {
        assert_schedule(&tries(edition, None), 4 * 3600);
    }
}

#[test]
fn in_namespaces_a_store_is_tried_for_two_days_or_for_as_many_as_the_subscription_says() {
    let _rows = crate::spec::shows(&[
        "S001-099: Dead-letter writes are retried so that dead-lettered events become reachable \
         soon after an outage of the dead-letter storage ends.",
        "S001-101: The first wait in the dead-letter retry schedule is 10 seconds.",
        "S001-102: The second wait in the dead-letter retry schedule is 1 minute.",
        "S001-103: The third wait in the dead-letter retry schedule is 5 minutes.",
        "S001-104: The dead-letter retry schedule is, in order, 10 seconds, 1 minute, 5 minutes.",
        "S001-105: After the first 5-minute retry the service retries the dead-letter write every \
         5 minutes until the maximum retry period is reached.",
        "S001-107: The dead-letter retry period can be configured on the event subscription with \
         the property deliveryRetryPeriodInDays.",
        "S001-108: Dead-letter retries end at whichever is reached first: the maximum of 2 days or \
         the period configured in deliveryRetryPeriodInDays.",
    ]);
    assert_schedule(&tries("namespace", None), 2 * 24 * 3600);
    assert_schedule(&tries("namespace", Some(2)), 2 * 24 * 3600);
    assert_schedule(&tries("namespace", Some(1)), 24 * 3600);
    let last = *tries("namespace", None).last().expect("there are some");
    fact("S001-106", &json!(format!("P{}D", last / 86_400)));
}
