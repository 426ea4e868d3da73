//! Repairs: what can be repaired is restored exactly, and nothing else is changed.

use std::collections::{BTreeMap, BTreeSet};

use gridhook::repair::fsck::Repair;
use proptest::prelude::*;

use super::*;

pub(super) type Records = BTreeMap<(Family, Vec<u8>), Vec<u8>>;

pub(super) fn records(store: &MemoryStore) -> Records {
    let mut found = Records::new();
    for family in Family::ALL {
        let range = keys::family_range(family);
        let visit = &mut |key: &[u8], value: &[u8]| {
            found.insert((family, key.to_vec()), value.to_vec());
            ControlFlow::Continue(())
        };
        store
            .scan(family, &range.start, &range.end, visit)
            .expect("memory can be read");
    }
    found
}

fn mend(store: &MemoryStore) -> CheckReport {
    fsck::repair_store(store, record_decoders(), &mut |_| ControlFlow::Continue(()))
        .expect("memory can be read and written")
}

/// The problems that can be repaired.
fn mends(report: &CheckReport) -> BTreeSet<Repair> {
    report
        .findings
        .iter()
        .chain(&report.leftovers)
        .filter_map(|finding| finding.repair)
        .collect()
}

type Row = (Repair, fn(&MemoryStore));

const MENDED: &[Row] = &[
    (Repair::StrayDue, |store| {
        put(store, Family::Due, due(DUE, 4), Vec::new())
    }),
    (Repair::StrayDue, |store| {
        put(store, Family::Due, due(START, 3), Vec::new())
    }),
    (Repair::MissingDue, |store| {
        delete(store, Family::Due, due(DUE, 3))
    }),
    (Repair::NextDue, |store| {
        edit(
            store,
            Family::Cursor,
            keys::cursor(ONE),
            |cursor: &mut Cursor| cursor.next_due = None,
        );
    }),
    (Repair::NextDue, |store| {
        edit(
            store,
            Family::Cursor,
            keys::cursor(ONE),
            |cursor: &mut Cursor| cursor.next_due = Some(FILE_DUE),
        );
    }),
    (Repair::Pending, |store| {
        count(store, |counters| counters.pending += 3)
    }),
    (Repair::DeadLettered, |store| {
        count(store, |counters| counters.dead_lettered -= 1)
    }),
    (Repair::MissingPin, |store| {
        delete(store, Family::Pin, pin(4))
    }),
    (Repair::StrayPin, |store| {
        put(store, Family::Pin, pin(5), Vec::new())
    }),
    (Repair::StrayCarried, |store| {
        put(
            store,
            Family::Carried,
            carried(1),
            value(store, Family::Carried, &carried(3)),
        )
    }),
];

#[test]
fn repairable_records_are_repaired_exactly() {
    let mut mended = BTreeSet::new();
    for (kind, damage) in MENDED {
        let (store, queue) = used();
        queue.stop();
        let sound = records(&store);
        damage(&store);
        let damaged = records(&store);
        let report = look(&store);
        assert!(mends(&report).contains(kind), "{report}");
        assert_eq!(report.is_sound(), *kind == Repair::StrayDue, "{report}");
        assert_eq!(records(&store), damaged, "looking changes nothing");
        let report = mend(&store);
        assert!(
            report.is_sound() && report.leftovers.is_empty() && report.repaired == Some(1),
            "{kind:?}: {report}"
        );
        assert_eq!(records(&store), sound, "{kind:?}");
        mended.insert(*kind);
    }
    println!(
        "mended {} of {} kinds, in {} ways",
        mended.len(),
        Repair::ALL.len(),
        MENDED.len()
    );
    assert_eq!(mended, BTreeSet::from(Repair::ALL));
}

#[test]
fn two_damages_that_hide_each_other_are_both_mended() {
    let (store, queue) = used();
    queue.stop();
    let sound = records(&store);
    // The numbers of pins and dead letters are equal.
    delete(&store, Family::Pin, pin(4));
    put(&store, Family::Pin, pin(5), Vec::new());
    count(&store, |counters| counters.pending += 1);
    let report = mend(&store);
    assert!(report.is_sound(), "{report}");
    assert_eq!(records(&store), sound);
}

/// Damage that cannot be repaired leaves every record as it is.
#[test]
fn records_that_cannot_be_repaired_are_left_as_they_are() {
    let mut kept = 0;
    let mut restored = 0;
    for (name, damage, reported) in COUNTS.iter().chain(OBLIGATIONS).chain(LOGS).chain(RECORDS) {
        let (store, queue) = used();
        queue.stop();
        let sound = records(&store);
        damage(&store);
        let damaged = records(&store);
        let report = mend(&store);
        if report.is_sound() {
            assert!(records(&store) == sound, "{name}: {report}");
            restored += 1;
        } else {
            assert!(
                tells(&report, reported),
                "{name}: it is still reported: {report}"
            );
            assert!(records(&store) == damaged, "{name}: {report}");
            kept += 1;
        }
    }
    println!("{restored} damages mended, {kept} left as they were");
    assert!(restored >= 9 && kept >= 30, "{restored} and {kept}");
}

#[test]
fn a_look_that_is_called_off_ends_and_mends_nothing() {
    let (store, queue) = used();
    queue.stop();
    put(&store, Family::Due, due(DUE, 4), Vec::new());
    let line = value(&store, Family::Ledger, &ledger_line(&store));
    for seq in 0..300 {
        let key = LineKey {
            subscription_key: ONE,
            lane: Lane::LIVE,
            first: Seq(100 + seq),
            at: START,
            attempt: 1,
            what: 3,
        };
        put(&store, Family::Ledger, keys::ledger_key(key), line.clone());
    }
    let before = records(&store);
    let mut asked = Vec::new();
    let mut watch = |progress: fsck::CheckProgress| {
        asked.push((progress.at, progress.records));
        ControlFlow::Break(())
    };
    let looked = fsck::check_store(&store, record_decoders(), &mut watch);
    let mended = fsck::repair_store(&store, record_decoders(), &mut watch);
    assert!(matches!(
        (&looked, &mended),
        (
            Err(fsck::CheckStop::Canceled),
            Err(fsck::CheckStop::Canceled)
        )
    ));
    assert_eq!(asked, [("ledger", 256), ("ledger", 256)]);
    assert_eq!(records(&store), before);
}

/// The state of an event for the first subscription.
#[derive(Clone, Copy, Debug)]
pub(super) enum Became {
    Filtered,
    Delivered,
    Pending,
    Waiting,
    Written,
}

pub(super) fn became() -> impl Strategy<Value = Became> {
    prop_oneof![
        Just(Became::Filtered),
        Just(Became::Delivered),
        Just(Became::Pending),
        Just(Became::Waiting),
        Just(Became::Written)
    ]
}

/// A store with events in these states. The second subscription has read up to `other`.
pub(super) fn store_of(events: &[Became], other: usize) -> MemoryStore {
    let store = MemoryStore::new();
    let queue = ClockedJournal::at(&store);
    let made = vec![
        MetaChange::CreatePartition(PARTITION),
        MetaChange::Subscribe(ONE, None),
        MetaChange::Subscribe(TWO, None),
    ];
    queue.wait(queue.journal.write_meta_changes(made));
    for part in events.chunks(7) {
        queue.publish(part.len());
    }
    let mut changes = Vec::new();
    let mut written = Vec::new();
    let mut counters = Counters::default();
    for (seq, became) in (1..).zip(events) {
        counters.passed += 1;
        match became {
            Became::Filtered => counters.filtered += 1,
            Became::Delivered => counters.delivered += 1,
            Became::Pending => {
                counters.pending += 1;
                changes.push(defer(seq));
            }
            Became::Waiting | Became::Written => {
                counters.dead_lettered += 1;
                changes.extend([dead_letter(seq), note(seq)]);
            }
        }
        if let Became::Written = became {
            written.push(DeadLetterKey {
                due: FILE_DUE,
                seq: Seq(seq),
                lane: Lane::LIVE,
            });
        }
    }
    counters.matched = counters.passed - counters.filtered;
    changes.push(cursor(events.len() as u64 + 1, counters));
    queue.write(ONE, changes);
    let read = other as u64;
    let counters = Counters {
        passed: read,
        matched: read,
        delivered: read,
        ..Counters::default()
    };
    queue.write(TWO, vec![cursor(read + 1, counters)]);
    queue.housekeep();
    let totals = DeadLetterTotals {
        written: written.len() as u64,
        ..DeadLetterTotals::default()
    };
    queue.wait(queue.journal.write_dead_letters(
        ONE,
        DeadLetterWrite {
            totals: Some((DeadLetterTotals::name(ONE), totals.encode().into())),
            done: written,
            notes: Vec::new(),
        },
    ));
    queue.stop();
    store
}

/// Damages one record, which `pick` selects, in a way that can be repaired. Returns false if there
/// is none of the kind.
fn damage(store: &MemoryStore, kind: Repair, pick: prop::sample::Index, events: &[Became]) -> bool {
    let of = |wanted: fn(&Became) -> bool| {
        let seqs: Vec<u64> = (1..)
            .zip(events)
            .filter(|(_, became)| wanted(became))
            .map(|(seq, _)| seq)
            .collect();
        (!seqs.is_empty()).then(|| seqs[pick.index(seqs.len())])
    };
    let pending_event = of(|became| matches!(became, Became::Pending));
    let waiting = of(|became| matches!(became, Became::Waiting));
    let neither = of(|became| !matches!(became, Became::Pending | Became::Waiting));
    match (kind, pending_event, waiting, neither) {
        (Repair::StrayDue, _, _, Some(seq)) => put(store, Family::Due, due(DUE, seq), Vec::new()),
        (Repair::MissingDue, Some(seq), _, _) => delete(store, Family::Due, due(DUE, seq)),
        (Repair::NextDue, Some(_), _, _) => {
            edit(
                store,
                Family::Cursor,
                keys::cursor(ONE),
                |cursor: &mut Cursor| cursor.next_due = None,
            );
        }
        (Repair::Pending, ..) => count(store, |counters| {
            counters.pending += 1 + pick.index(5) as u64
        }),
        (Repair::DeadLettered, ..) => count(store, |counters| {
            counters.dead_lettered += 1 + pick.index(5) as u64
        }),
        (Repair::MissingPin, _, Some(seq), _) => delete(store, Family::Pin, pin(seq)),
        (Repair::StrayPin, _, _, Some(seq)) => put(store, Family::Pin, pin(seq), Vec::new()),
        (Repair::StrayCarried, _, _, Some(seq)) => {
            let event = super::super::chunk(1, 10);
            put(store, Family::Carried, carried(seq), event);
        }
        _ => return false,
    }
    true
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_sound_store_is_itself_again_after_its_repair(
        events in prop::collection::vec(became(), 1..40),
        other in any::<prop::sample::Index>(),
        kind in prop::sample::select(Repair::ALL.to_vec()),
        pick in any::<prop::sample::Index>(),
    ) {
        let store = store_of(&events, other.index(events.len() + 1));
        let report = look(&store);
        prop_assert!(report.is_sound() && report.leftovers.is_empty(), "{}", report);
        let sound = records(&store);
        prop_assume!(damage(&store, kind, pick, &events));
        prop_assert!(mends(&look(&store)).contains(&kind));
        let report = mend(&store);
        prop_assert!(report.is_sound() && report.leftovers.is_empty(), "{}", report);
        prop_assert_eq!(records(&store), sound);
    }
}
