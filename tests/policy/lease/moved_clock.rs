//! A lock that a clock set back has made too long, and one that a clock set ahead has ended.

use std::time::Duration;

use gridhook::{
    event::{
        Event, Lane, RequestId, Seq, Timestamp,
        chunk::{Chunk, RunningTotals},
    },
    policy::{
        Effect, Input, PullSettings, Subscription, SubscriptionSettings,
        outcome::LastOutcome,
        record::{
            Counters, Cursor, DueKey, FetchedPending, LaneCursor, PendingDelivery, RecordChange,
            Traffic,
            lease::{Lease, LeaseAction, LeaseClaim, LeaseResult, RELEASED_FOR},
        },
        retry::Jitter,
    },
};

use super::super::{driver::START, plain, sealed};

const KEY: (Lane, Seq) = (Lane::LIVE, Seq(1));

fn event() -> Event {
    let chunk = sealed(&[("yes", 1)]).remove(0);
    let chunk = Chunk::decode(KEY.1, chunk.stamp_record(START, RunningTotals::default()))
        .expect("a sound chunk");
    chunk.decode_events().expect("a sound event").remove(0)
}

const LOCK: Duration = Duration::from_secs(60);

/// A subscription with one pending event, which a client of an earlier incarnation holds until
/// then.
fn holding(until: Timestamp, attempts_max: u32) -> Subscription {
    let settings = SubscriptionSettings {
        pull: Some(PullSettings {
            lock: LOCK,
            leases_max: 100,
        }),
        attempts_max,
        ..plain()
    };
    let lane = LaneCursor::new(Lane::LIVE, Seq(2), None);
    let counters = Counters {
        passed: 1,
        matched: 1,
        pending: 1,
        ..Counters::default()
    };
    let cursor = Cursor {
        lanes: vec![lane],
        counters,
        next_due: Some(until),
        ..Cursor::default()
    };
    Subscription::from_records(settings, &cursor, Seq(2), Vec::new(), RequestId(1), START)
}

/// The first receipt, locked until then.
fn pending(until: Timestamp) -> PendingDelivery {
    PendingDelivery {
        attempts: 1,
        due: until,
        last: LastOutcome::Delivering,
        status: None,
        tried: START,
        received: Some(START),
    }
}

#[test]
fn a_lock_that_is_within_bounds_once_it_is_read_is_kept() {
    let until = START.after(RELEASED_FOR + Duration::from_secs(1));
    let mut core = holding(until, 10);
    let mut absorb = |input, now| core.process_input(input, now, Jitter(0.0));
    let step = absorb(Input::Tick, START);
    assert!(
        matches!(step.effects[..], [Effect::ReadDue { .. }]),
        "{:?}",
        step.effects
    );
    let keys = vec![DueKey {
        due: until,
        lane: KEY.0,
        seq: KEY.1,
    }];
    let step = absorb(
        Input::DueRead {
            traffic: Traffic::Live,
            keys,
            all: true,
        },
        START,
    );
    assert!(
        matches!(step.effects[..], [Effect::Fetch(_)]),
        "too far away to be true: {:?}",
        step.effects
    );

    // The disk takes two seconds for it.
    let later = START.after(Duration::from_secs(2));
    let fetched = FetchedPending {
        lane: KEY.0,
        seq: KEY.1,
        pending: Some(pending(until)),
        event: Some(event()),
    };
    let step = absorb(Input::Fetched(vec![fetched]), later);
    assert!(
        step.write.is_none() && step.effects.is_empty(),
        "nothing has happened: {step:?}"
    );

    let lease = Lease {
        lane: KEY.0,
        seq: KEY.1,
        attempt: 1,
        appended: START,
    };
    let step = absorb(
        Input::Claim(LeaseClaim {
            id: 7,
            action: LeaseAction::Acknowledge,
            leases: vec![lease],
        }),
        later,
    );
    assert!(
        matches!(step.effects[..], [Effect::ReadPending(_)]),
        "of an earlier incarnation: {:?}",
        step.effects
    );
    let step = absorb(
        Input::PendingRead(vec![(KEY.0, KEY.1, Some(pending(until)))]),
        later,
    );
    let changes = step.write.expect("it has ended").changes;
    assert!(
        changes.iter().any(
            |change| matches!(change, RecordChange::Settle { was_due, .. } if *was_due == until)
        )
    );
    let step = absorb(Input::Durable, later);
    let done = matches!(&step.effects[..], [Effect::ReportResults { claim: 7, results }] if results[..] == [LeaseResult::Done]);
    assert!(done, "{:?}", step.effects);
    assert_eq!(core.next_due(later), None);
}

#[test]
fn a_lock_that_a_clock_set_ahead_has_ended_costs_no_event_its_last_attempt() {
    let until = START.after(LOCK);
    let day = Duration::from_secs(24 * 3_600);
    let fetched = |until| {
        let fetched = FetchedPending {
            lane: KEY.0,
            seq: KEY.1,
            pending: Some(pending(until)),
            event: Some(event()),
        };
        Input::Fetched(vec![fetched])
    };
    // Before a hold has ended its lock is ended by the clock, and that is the event's last attempt.
    for is_paused in [true, false] {
        let mut core = holding(until, 1);
        let later = START.after(day / 2);
        core.set_expiry_paused(is_paused);
        let mut absorb = |input| core.process_input(input, later, Jitter(0.0));
        let step = absorb(Input::Tick);
        assert!(
            matches!(step.effects[..], [Effect::ReadDue { .. }]),
            "{step:?}"
        );
        let keys = vec![DueKey {
            due: until,
            lane: KEY.0,
            seq: KEY.1,
        }];
        let step = absorb(Input::DueRead {
            traffic: Traffic::Live,
            keys,
            all: true,
        });
        assert!(matches!(step.effects[..], [Effect::Fetch(_)]), "{step:?}");
        let step = absorb(fetched(until));
        let changes = step.write.expect("it is decided").changes;
        let longer = later.after(LOCK);
        let is_kept = changes.iter().any(
            |change| matches!(change, RecordChange::Defer { pending, .. } if pending.due == longer),
        );
        assert_eq!(
            (is_kept, core.cursor().counters.pending),
            (is_paused, u64::from(is_paused)),
            "{changes:?}"
        );
        if !is_paused {
            continue;
        }
        drop(core.process_input(Input::Durable, later, Jitter(0.0)));
        assert_eq!(core.next_due(later), Some(longer));
        // Its client settles it.
        let lease = Lease {
            lane: KEY.0,
            seq: KEY.1,
            attempt: 1,
            appended: START,
        };
        let claim = LeaseClaim {
            id: 7,
            action: LeaseAction::Acknowledge,
            leases: vec![lease],
        };
        let step = core.process_input(Input::Claim(claim), later, Jitter(0.0));
        assert!(step.write.is_some(), "it has ended");
        let step = core.process_input(Input::Durable, later, Jitter(0.0));
        let done = matches!(&step.effects[..], [Effect::ReportResults { claim: 7, results }] if results[..] == [LeaseResult::Done]);
        assert!(done, "{:?}", step.effects);
        assert_eq!(core.cursor().counters.pending, 0);
    }
}
