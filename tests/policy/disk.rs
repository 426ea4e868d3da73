//! What stands on disk for a subscription, and what holds there at every instant.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::ControlFlow,
};

use gridhook::{
    event::{Lane, Obligor, Seq},
    journal::{
        keys,
        records::Record,
        store::{Family, Store},
    },
    policy::record::{Change, Counters, Cursor, Dead, DueKey, Owed},
};

/// A subscription's records.
#[derive(Clone, Debug, Default)]
pub(super) struct Disk {
    pub(super) cursor: Cursor,
    pub(super) owed: BTreeMap<(Lane, Seq), Owed>,
    pub(super) due: BTreeSet<DueKey>,
    pub(super) dead: BTreeMap<(Lane, Seq), Dead>,
}

impl Disk {
    /// As a store has it.
    pub(super) fn load(store: &dyn Store, obligor: Obligor) -> Self {
        let cursor = store.get(Family::Cursor, &keys::cursor(obligor)).expect("readable").expect("a cursor");
        let mut disk = Self { cursor: Cursor::decode(&cursor).expect("whole"), ..Self::default() };
        scan(store, Family::Owed, |key, value| {
            let (_, seq, _, lane) = keys::parse_owed(key).expect("a key of owed");
            disk.owed.insert((lane, seq), Owed::decode(value).expect("whole"));
        });
        scan(store, Family::Due, |key, _| {
            let (_, due, lane, seq) = keys::parse_due(key).expect("a key of due");
            assert!(disk.due.insert(DueKey { due, lane, seq }));
        });
        scan(store, Family::Dead, |key, value| {
            let (_, _, seq, lane) = keys::parse_dead(key).expect("a key of dead");
            disk.dead.insert((lane, seq), Dead::decode(value).expect("whole"));
        });
        disk
    }

    /// What the journal would do, without a journal.
    pub(super) fn apply(&mut self, change: &Change) {
        match change {
            Change::Cursor(cursor) => self.cursor = (**cursor).clone(),
            Change::Owe { lane, seq, owed, was_due } => {
                if let Some(due) = *was_due {
                    assert!(
                        self.due.remove(&DueKey { due, lane: *lane, seq: *seq }),
                        "no key to take away: {change:?}"
                    );
                }
                assert!(self.due.insert(DueKey { due: owed.due, lane: *lane, seq: *seq }), "put twice: {change:?}");
                self.owed.insert((*lane, *seq), owed.clone());
            }
            Change::Settle { lane, seq, was_due } => {
                let key = DueKey { due: *was_due, lane: *lane, seq: *seq };
                assert!(self.due.remove(&key), "no key to take away: {change:?}");
                assert!(self.owed.remove(&(*lane, *seq)).is_some(), "was not owed: {change:?}");
            }
            Change::PutAside { lane, seq, dead, .. } => {
                assert!(self.dead.insert((*lane, *seq), dead.clone()).is_none(), "put aside twice: {change:?}");
            }
            Change::Note { .. } => {}
        }
    }

    /// Both equations, one key for each record, no event in two states, no due time before the cursor's.
    pub(super) fn check(&self) {
        let Counters { passed, filtered, matched, delivered, pending, dead_lettered, dropped, canceled, .. } =
            self.cursor.counters;
        assert_eq!(passed, filtered + matched, "{:?}", self.cursor);
        assert_eq!(matched, delivered + pending + dead_lettered + dropped + canceled, "{:?}", self.cursor);
        assert_eq!(pending, self.owed.len() as u64, "{:?}", self.cursor);
        let keys: BTreeSet<DueKey> =
            self.owed.iter().map(|((lane, seq), owed)| DueKey { due: owed.due, lane: *lane, seq: *seq }).collect();
        assert_eq!(keys, self.due, "a key for each record");
        assert!(self.owed.keys().all(|key| !self.dead.contains_key(key)), "owed and dead");
        for lane in &self.cursor.lanes {
            for seq in &lane.open {
                let key = (lane.lane, *seq);
                assert!(!self.owed.contains_key(&key) && !self.dead.contains_key(&key), "open and passed: {key:?}");
                assert!(!lane.done.contains(seq), "open and done: {key:?}");
            }
            assert!(lane.done.iter().all(|seq| *seq >= lane.read), "done and passed: {lane:?}");
        }
        if let Some(first) = self.due.first() {
            assert!(self.cursor.next_due.is_some_and(|next| next <= first.due), "{:?} is later", self.cursor);
        }
    }
}

fn scan(store: &dyn Store, family: Family, mut visit: impl FnMut(&[u8], &[u8])) {
    let range = keys::all(family);
    let visit = &mut |key: &[u8], value: &[u8]| {
        visit(key, value);
        ControlFlow::Continue(())
    };
    store.scan(family, &range.start, &range.end, visit).expect("readable");
}

/// How many records a family has.
pub(super) fn count(store: &dyn Store, family: Family) -> usize {
    let mut count = 0;
    scan(store, family, |_, _| count += 1);
    count
}
