//! Salvage: whatever is missing from a store, the result is sound, and everything that is left is
//! kept.

use gridhook::{
    cli::control_records::control_records,
    repair::salvage::{self, LossReport},
};
use proptest::prelude::*;

use super::{
    repair::{Became, became, records, store_of},
    *,
};

fn accept(store: &MemoryStore) -> (LossReport, CheckReport) {
    let looked = &mut |_| ControlFlow::Continue(());
    salvage::salvage_store(store, record_decoders(), control_records(), START, looked)
        .expect("memory can be read and written")
}

/// Writes the control plane's records of the two subscriptions.
fn known(store: &MemoryStore) {
    let json = |value: &str| value.as_bytes().to_vec();
    put(
        store,
        Family::Meta,
        keys::meta_key(MetaKind::Topic, b"orders"),
        json(r#"{"partitions":[1]}"#),
    );
    put(
        store,
        Family::Meta,
        keys::meta_key(MetaKind::Subscription, b"orders/one"),
        json(r#"{"number":1}"#),
    );
    put(
        store,
        Family::Meta,
        keys::meta_key(MetaKind::Subscription, b"orders/two"),
        json(r#"{"number":2}"#),
    );
    let numbers = json(r#"{"partitions":1,"subscriptions":2}"#);
    put(
        store,
        Family::Meta,
        keys::meta_key(MetaKind::Numbers, b"numbers"),
        numbers,
    );
}

#[test]
fn a_sound_store_loses_nothing() {
    let (store, queue) = used();
    queue.stop();
    known(&store);
    let before = records(&store);
    let (loss, report) = accept(&store);
    assert!(report.is_sound(), "{report}");
    assert_eq!(loss, LossReport::default());
    let mut after = records(&store);
    // The floor record now has the sequence of the next event.
    after.insert(
        (Family::Meta, keys::floor_key(PARTITION)),
        before[&(Family::Meta, keys::floor_key(PARTITION))].clone(),
    );
    assert!(after == before);
}

#[test]
fn a_salvaged_copy_of_a_changelog_is_one_no_more() {
    let (store, queue) = used();
    queue.stop();
    known(&store);
    let key = keys::meta_key(MetaKind::Applied, b"");
    let position = AppliedPosition {
        sequence: 7,
        ..AppliedPosition::default()
    };
    put(&store, Family::Meta, key.clone(), position.encode());
    let (loss, report) = accept(&store);
    assert!(report.is_sound(), "{report}");
    assert!(
        Store::get(&store, Family::Meta, &key)
            .expect("memory can be read")
            .is_none()
    );
    let expected =
        "removed: the position in the changelog of its cluster, which the store follows no more";
    assert_eq!(loss.records, [expected]);
}

#[test]
fn each_missing_event_is_reported() {
    let (store, queue) = used();
    queue.stop();
    known(&store);
    delete(&store, Family::Log, log(13));
    delete(&store, Family::Carried, carried(3));
    delete(&store, Family::Carried, carried(4));
    delete(
        &store,
        Family::Meta,
        keys::meta_key(MetaKind::Subscription, b"orders/two"),
    );
    let (loss, report) = accept(&store);
    assert!(report.is_sound(), "{report}");
    expect![[r#"
        the last acknowledged change was recovered; earlier ones may be missing
        missing: 2 events, 13 to 14 of partition 1
        missing: event 3 of partition 1, pending for subscription 1
        missing: event 4 of partition 1, a dead letter for subscription 1
        removed: the cursor of the unknown subscription 2 of partition 1
    "#]]
    .assert_eq(
        &LossReport {
            acknowledged: Some(0),
            ..loss
        }
        .to_string(),
    );
    let cursor = Cursor::decode(&value(&store, Family::Cursor, &keys::cursor(ONE))).expect("whole");
    let Counters {
        passed,
        delivered,
        pending,
        dead_lettered,
        dropped,
        ..
    } = cursor.counters;
    assert_eq!(
        (passed, delivered, pending, dead_lettered, dropped),
        (8, 2, 1, 2, 1)
    );
    let totals =
        DeadLetterTotals::decode(&value(&store, Family::Meta, &totals_key())).expect("whole");
    assert_eq!((totals.written, totals.lost), (1, 1));
    let (loss, report) = accept(&store);
    assert!(
        report.is_sound() && loss == LossReport::default(),
        "a loss is accepted once: {loss:?}"
    );
}

#[test]
fn a_subscription_that_lost_its_cursor_reads_the_log_again_except_for_finished_events() {
    let store = store_of(
        &[
            Became::Waiting,
            Became::Pending,
            Became::Written,
            Became::Pending,
            Became::Delivered,
        ],
        0,
    );
    known(&store);
    delete(&store, Family::Pending, pending(2));
    let (loss, report) = accept(&store);
    assert!(report.is_sound(), "{report}");
    let expected = "missing: pending deliveries (1) of subscription 1 of partition 1, whose events \
        are unknown; it reads the log again from event 1, except events that have ended";
    assert_eq!(loss.records, [expected]);
    let cursor = Cursor::decode(&value(&store, Family::Cursor, &keys::cursor(ONE))).expect("whole");
    assert_eq!(
        (cursor.lanes[0].read, &cursor.lanes[0].done),
        (Seq(1), &[Seq(1), Seq(3), Seq(4)].into_iter().collect())
    );
    let Counters {
        passed,
        delivered,
        pending,
        dead_lettered,
        dropped,
        ..
    } = cursor.counters;
    assert_eq!(
        (passed, delivered, pending, dead_lettered, dropped),
        (4, 1, 1, 2, 0),
        "event 2 is counted when it is passed"
    );
}

#[test]
fn the_next_event_gets_a_place_above_everything_that_is_mentioned() {
    let (store, queue) = used();
    queue.stop();
    known(&store);
    for first in [7, 13, 15] {
        delete(&store, Family::Log, log(first));
    }
    read(&store, 40);
    let (loss, report) = accept(&store);
    assert!(report.is_sound(), "{report}");
    assert_eq!(
        (loss.events[0].first, loss.events[0].count),
        (9, 31),
        "from where one still reads to where the other has"
    );
    let queue = ClockedJournal::at(&store);
    let published = queue.wait(queue.journal.append_events(
        PARTITION,
        sealed(&[("yes", 10)]),
        None,
    ));
    assert_eq!(published.first, Seq(40));
    assert_sound(&store, "events follow the gap");
    queue.housekeep();
    assert_sound(&store, "and the floor moves");
    queue.stop();
}

/// Whether the first subscription needs an event: it is pending, a dead letter, or unread.
fn is_asked_for(store: &MemoryStore, seq: u64) -> bool {
    let has = |family, key: Vec<u8>| store.get(family, &key).expect("readable").is_some();
    let cursor = store
        .get(Family::Cursor, &keys::cursor(ONE))
        .expect("readable");
    let unread = cursor
        .and_then(|cursor| Cursor::decode(&cursor).ok())
        .is_none_or(|cursor| cursor.lanes.iter().any(|lane| lane.read <= Seq(seq)));
    let unread = unread && floor(store) <= Seq(seq);
    has(Family::Pending, pending(seq)) || has(Family::Dead, dead(seq)) || unread
}

/// The floor of the log.
fn floor(store: &MemoryStore) -> Seq {
    FloorRecord::decode(&value(store, Family::Meta, &keys::floor_key(PARTITION)))
        .expect("whole")
        .floor
}

/// Whether an event can be read, from its chunk or from the carried events.
fn is_there(store: &MemoryStore, seq: u64) -> bool {
    let range = keys::log_of(PARTITION).start..log(seq + 1);
    let chunk = store
        .last(Family::Log, &range.start, &range.end)
        .expect("readable")
        .and_then(|(key, value)| {
            let (_, first) = keys::parse_log(&key)?;
            gridhook::event::chunk::Chunk::decode(first, value).ok()
        });
    chunk.is_some_and(|chunk| chunk.end_seq() > Seq(seq))
        || store
            .get(Family::Carried, &carried(seq))
            .expect("readable")
            .is_some()
}

/// The first sequence above all that any record mentions.
fn above(store: &MemoryStore) -> Seq {
    let place = |(family, key): (Family, Vec<u8>), value: Vec<u8>| match family {
        Family::Log => {
            let (_, first) = keys::parse_log(&key)?;
            Some(
                gridhook::event::chunk::Chunk::decode(first, value.into())
                    .ok()?
                    .end_seq(),
            )
        }
        Family::Cursor => Cursor::decode(&value)
            .ok()?
            .lanes
            .iter()
            .map(|lane| lane.read)
            .max(),
        Family::Pending => keys::parse_pending(&key).map(|(_, seq, ..)| seq.plus(1)),
        Family::Due => keys::parse_due(&key).map(|(.., seq)| seq.plus(1)),
        Family::Carried => keys::parse_carried(&key).map(|(_, seq)| seq.plus(1)),
        Family::Pin => keys::parse_pin(&key).map(|(_, seq, ..)| seq.plus(1)),
        Family::Dead => keys::parse_dead(&key).map(|(_, _, seq, _)| seq.plus(1)),
        Family::Meta | Family::Ledger | Family::Excerpt | Family::Ids | Family::PublishedIds => {
            None
        }
    };
    records(store)
        .into_iter()
        .filter_map(|(key, value)| place(key, value))
        .max()
        .unwrap_or_default()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    /// Deletes random records, as skipped writes would, and makes a cursor an older version.
    #[test]
    fn whatever_is_missing_the_rest_is_sound_and_nothing_of_it_is_forgotten(
        events in prop::collection::vec(became(), 1..40),
        other in any::<prop::sample::Index>(),
        missing in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
        older in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let store = store_of(&events, other.index(events.len() + 1));
        known(&store);
        if let Some(older) = older {
            let read = older.index(events.len() + 1) as u64 + 1;
            edit(&store, Family::Cursor, keys::cursor(ONE), |cursor: &mut Cursor| cursor.lanes[0].read = Seq(read));
        }
        for one in missing {
            // Other tests cover lost records of the control plane.
            let all: Vec<_> = records(&store).into_keys().filter(|(family, _)| *family != Family::Meta).collect();
            if !all.is_empty() {
                let (family, key) = all[one.index(all.len())].clone();
                delete(&store, family, key);
            }
        }
        let seqs = 1..=events.len() as u64;
        let asked: Vec<u64> = seqs.filter(|seq| is_there(&store, *seq) && is_asked_for(&store, *seq)).collect();
        let above = above(&store);
        let (loss, report) = accept(&store);
        prop_assert!(report.is_sound() && report.leftovers.is_empty(), "{} {}", loss, report);
        for seq in asked {
            prop_assert!(is_there(&store, seq) && is_asked_for(&store, seq), "event {}: {}", seq, loss);
        }
        for (seq, became) in (1..).zip(&events) {
            // Its pending delivery may be the missing record.
            let was_pending = matches!(became, Became::Pending) && floor(&store) <= Seq(seq) && is_there(&store, seq);
            prop_assert!(!was_pending || is_asked_for(&store, seq), "event {} was pending: {}", seq, loss);
        }
        let (again, _) = accept(&store);
        prop_assert_eq!(again, LossReport::default());
        let queue = ClockedJournal::at(&store);
        let published = queue.wait(queue.journal.append_events(PARTITION, sealed(&[("yes", 10)]), None));
        prop_assert!(published.first >= above, "{:?} of {:?}: {}", published.first, above, loss);
        queue.housekeep();
        queue.stop();
        let report = look(&store);
        prop_assert!(report.is_sound(), "{}", report);
    }
}
