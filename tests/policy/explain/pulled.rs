//! Why a client does not receive an event, and when the event ends without a response of a client.

use std::time::Duration;

use expect_test::{Expect, expect};
use gridhook::{
    event::{Lane, Seq},
    policy::{
        PullSettings, SubscriptionSettings,
        explain::{ExplainInput, StoredEvent, explain_event},
        outcome::{LastOutcome, Outcome},
        record::{Counters, Cursor, EndpointView, HeldBy, LaneCursor, PendingDelivery},
    },
};

use super::{super::plain, START, line, seconds};

/// Clients that wait, whether the subscription is held, what is received and has not ended.
const QUIET: (usize, bool, u64) = (1, false, 1);

/// The output of `explain` at second `now` for an event that was published at the beginning with a
/// time to live of ten minutes; of two receipts at most. The last one was in second 5, the first in
/// second 3.
fn check(
    pending: Option<(u32, u64, LastOutcome)>,
    now: u64,
    (clients, held, received): (usize, bool, u64),
    expected: Expect,
) {
    let settings = SubscriptionSettings {
        attempts_max: 2,
        time_to_live: Duration::from_secs(600),
        pull: Some(PullSettings {
            lock: Duration::from_secs(60),
            leases_max: 3,
        }),
        ..plain()
    };
    let pending = pending.map(|(attempts, due, last)| PendingDelivery {
        attempts,
        due: seconds(due),
        last,
        status: None,
        tried: seconds(5),
        received: Some(seconds(3)),
    });
    let read = Seq(if pending.is_some() { 5 } else { 4 });
    let cursor = Cursor {
        lanes: vec![LaneCursor::new(Lane::LIVE, read, None)],
        held: held.then_some(HeldBy::ByOperator),
        counters: Counters {
            passed: received,
            matched: received,
            pending: received,
            ..Counters::default()
        },
        ..Cursor::default()
    };
    let explanation = explain_event(ExplainInput {
        settings: &settings,
        cursor: &cursor,
        endpoint: &EndpointView::default(),
        requests: &[],
        end: Seq(9),
        seq: Seq(4),
        event: Some(StoredEvent {
            appended: START,
            matches: true,
        }),
        pending: pending.as_ref().map(|pending| (Lane::LIVE, pending)),
        dead: None,
        clients,
        now: seconds(now),
    });
    expected.assert_eq(&line(&explanation));
}

#[test]
fn a_locked_event_is_explained_with_its_lock_and_its_end() {
    check(
        Some((1, 65, LastOutcome::Delivering)),
        20,
        QUIET,
        expect![
            "1 received at 5s until 1m 5s, renewed until 1h 3s · TimedOut · 10m TimeToLiveExceeded"
        ],
    );
    check(
        Some((1, 640, LastOutcome::Delivering)),
        20,
        (0, false, 1),
        expect![
            "1 received at 5s until 10m 40s, renewed until 1h 3s · TimedOut · 10m 40s \
             TimeToLiveExceeded"
        ],
    );
    check(
        Some((2, 65, LastOutcome::Delivering)),
        20,
        QUIET,
        expect![
            "2 received at 5s until 1m 5s, renewed until 1h 3s · TimedOut · 1m 5s \
             MaxDeliveryAttemptsExceeded"
        ],
    );
}

#[test]
fn a_released_event_waits_for_its_delay_and_then_for_a_client() {
    check(
        Some((1, 60, Outcome::Aborted.into())),
        20,
        QUIET,
        expect!["released until 1m after 1, Aborted at 5s · TimedOut · 10m TimeToLiveExceeded"],
    );
    check(
        Some((1, 60, Outcome::Aborted.into())),
        60,
        (0, false, 1),
        expect![
            "available since 1m after 1, Aborted at 5s · nobody waits · TimedOut · 10m \
             TimeToLiveExceeded"
        ],
    );
    // Its lock has just expired, which is not on disk yet.
    check(
        Some((1, 65, LastOutcome::Delivering)),
        65,
        (0, true, 1),
        expect![
            "available since 1m 5s after 1, TimedOut at 5s · held by operator · nobody waits · \
             TimedOut · 10m TimeToLiveExceeded"
        ],
    );
}

#[test]
fn an_unreceived_event_waits_for_a_client_or_for_others_to_end() {
    check(
        None,
        20,
        (0, false, 0),
        expect!["behind 0 · nobody waits · TimedOut · 10m TimeToLiveExceeded"],
    );
    check(
        None,
        20,
        (1, false, 2),
        expect!["behind 0 · TimedOut · 10m TimeToLiveExceeded"],
    );
    check(
        None,
        20,
        (1, false, 3),
        expect!["behind 0 · 3 of 3 received · TimedOut · 10m TimeToLiveExceeded"],
    );
}
