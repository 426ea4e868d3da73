//! A lock that a clock set back has made too long.

use std::time::Duration;

use gridhook::{
    event::{Event, FlightId, Lane, Seq, Timestamp},
    journal::chunk::{Chunk, Running},
    policy::{
        Effect, Input, Pull, Settings, Subscription,
        outcome::Outcome,
        record::lease::{Claim, Lease, RELEASED_FOR, Verb, Verdict},
        record::{Change, Counters, Cursor, DueKey, Fetched, LaneCursor, Owed, Traffic},
        retry::Chance,
    },
};

use super::super::{driver::START, plain, sealed};

const KEY: (Lane, Seq) = (Lane::LIVE, Seq(1));

fn event() -> Event {
    let chunk = sealed(&[("yes", 1)]).remove(0);
    let chunk = Chunk::decode(KEY.1, chunk.stamp(START, Running::default())).expect("a sound chunk");
    chunk.events().expect("a sound event").remove(0)
}

/// A machine that owes one event, which a client of an earlier life holds until then.
fn holding(until: Timestamp) -> Subscription {
    let settings = Settings { pull: Some(Pull { lock: Duration::from_secs(60), leases_max: 100 }), ..plain() };
    let lane = LaneCursor { lane: Lane::LIVE, read: Seq(2), end: None, open: Vec::new(), done: Vec::new() };
    let counters = Counters { passed: 1, matched: 1, pending: 1, ..Counters::default() };
    let cursor = Cursor { lanes: vec![lane], counters, next_due: Some(until), ..Cursor::default() };
    Subscription::recover(settings, &cursor, Seq(2), Vec::new(), FlightId(1), START)
}

#[test]
fn what_is_no_longer_too_far_away_when_it_comes_from_the_disk_is_still_with_its_client() {
    let until = START.after(RELEASED_FOR + Duration::from_secs(1));
    let owed =
        Owed { attempts: 1, due: until, last: Outcome::Delivering, status: None, tried: START, received: Some(START) };
    let mut core = holding(until);
    let mut absorb = |input, now| core.absorb(input, now, Chance(0.0));
    let step = absorb(Input::Tick, START);
    assert!(matches!(step.effects[..], [Effect::ReadDue { .. }]), "{:?}", step.effects);
    let keys = vec![DueKey { due: until, lane: KEY.0, seq: KEY.1 }];
    let step = absorb(Input::DueRead { of: Traffic::Own, keys, all: true }, START);
    assert!(matches!(step.effects[..], [Effect::Fetch(_)]), "too far away to be true: {:?}", step.effects);

    // The disk takes two seconds for it.
    let later = START.after(Duration::from_secs(2));
    let fetched = Fetched { lane: KEY.0, seq: KEY.1, owed: Some(owed.clone()), event: Some(event()) };
    let step = absorb(Input::Fetched(vec![fetched]), later);
    assert!(step.write.is_none() && step.effects.is_empty(), "nothing has happened: {step:?}");

    let lease = Lease { lane: KEY.0, seq: KEY.1, attempt: 1, appended: START };
    let step = absorb(Input::Claim(Claim { id: 7, verb: Verb::Acknowledge, leases: vec![lease] }), later);
    assert!(matches!(step.effects[..], [Effect::ReadOwed(_)]), "an earlier life's: {:?}", step.effects);
    let step = absorb(Input::OwedRead(vec![(KEY.0, KEY.1, Some(owed))]), later);
    let changes = step.write.expect("it has ended").changes;
    assert!(changes.iter().any(|change| matches!(change, Change::Settle { was_due, .. } if *was_due == until)));
    let step = absorb(Input::Durable, later);
    let done = matches!(&step.effects[..], [Effect::Tell { to: 7, verdicts }] if verdicts[..] == [Verdict::Done]);
    assert!(done, "{:?}", step.effects);
    assert_eq!(core.next_due(later), None);
}
