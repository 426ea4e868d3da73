//! Looks whether a store is what its rules say: record by record, changing nothing.
//!
//! What is looked at: every record can be read; the log begins at its floor, is dense, and its running counts add up;
//! every cursor's equations hold, its lanes read where there is a log and no event twice, and as many events are owed, and as many dead letters
//! accounted for, as it says; an owed event has exactly one place in the order of falling due, and the other way round;
//! a dead letter pins its event; what is owed or pinned can be read; nothing is held that nobody asks for.
//!
//! Invariants:
//! - The store is streamed. Memory holds a line for each partition and each subscription and nothing for each event; the
//!   price is a read or two for each event that is owed, waits or is held.
//! - Damage is told and passed over: one record that cannot be read does not hide what is wrong with the others.
//! - What a deleted subscription left needs no cursor, and its events may be gone, while the job that clears it away
//!   stands; after that it is wrong.
//!
//! Absent on purpose: any repair, and the records of the control plane, all of which the server reads at every start.

mod cursors;
mod report;

use std::{
    collections::BTreeMap,
    ops::{ControlFlow, Range},
};

use bytes::Bytes;

pub use self::report::Report;
use crate::{
    event::{Obligor, PartitionId, Seq},
    journal::{
        End, Error,
        chunk::Chunk,
        floor,
        ids::{self, Ids},
        keys::{self, MetaKind},
        ledger,
        reader::Finder,
        records::{Floor, Record},
        store::{Family, Store, StoreError},
    },
    policy::record::{Counters, Dead, Entry, Excerpt, Owed},
};

/// How to read the accounts that the dead-letter actor keeps in the store: the journal keeps them as bytes.
#[derive(Clone, Copy, Debug)]
pub struct Accounts {
    /// The name of a subscription's account.
    pub name: fn(Obligor) -> String,
    /// How many dead letters it says are dealt with, written or lost; [`None`] where it cannot be read.
    pub dealt_with: fn(&[u8]) -> Option<u64>,
}

/// Looks at everything.
pub fn check(store: &dyn Store, accounts: Accounts) -> Result<Report, Error> {
    let mut check =
        Check { store, accounts, report: Report::default(), logs: BTreeMap::new(), shares: BTreeMap::new() };
    check.floors()?;
    check.log()?;
    check.owed()?;
    check.due()?;
    check.dead()?;
    check.held()?;
    check.cursors()?;
    check.accounts()?;
    check.shares()?;
    check.ledger()?;
    check.ids()?;
    Ok(check.report)
}

/// A partition's log.
struct Log {
    record: Floor,
    /// Where it ends, as far as it was looked at; [`None`] where there is nothing from the floor on.
    end: Option<End>,
}

/// What a subscription has in the store.
#[derive(Default)]
struct Share {
    /// Whether it was deleted, and what it left is being cleared away.
    reaped: bool,
    has_cursor: bool,
    /// [`None`] too where the cursor cannot be read.
    columns: Option<[Counters; 2]>,
    /// Own, and jobs'.
    owed: [u64; 2],
    dead: u64,
    pins: u64,
}

struct Check<'a> {
    store: &'a dyn Store,
    accounts: Accounts,
    report: Report,
    logs: BTreeMap<PartitionId, Log>,
    shares: BTreeMap<Obligor, Share>,
}

/// What is done with each record.
type Visit<'a> = dyn FnMut(&[u8], &[u8]) -> Result<(), StoreError> + 'a;

/// Visits all records of a range.
fn each(store: &dyn Store, family: Family, range: &Range<Vec<u8>>, visit: &mut Visit<'_>) -> Result<(), StoreError> {
    let mut failed = None;
    store.scan(family, &range.start, &range.end, &mut |key, value| match visit(key, value) {
        Ok(()) => ControlFlow::Continue(()),
        Err(error) => {
            failed = Some(error);
            ControlFlow::Break(())
        }
    })?;
    failed.map_or(Ok(()), Err)
}

fn who(Obligor { partition, subscription }: Obligor) -> String {
    format!("subscription {} of partition {}", subscription.0, partition.0)
}

impl Check<'_> {
    fn each(
        &mut self,
        family: Family,
        mut visit: impl FnMut(&mut Self, &[u8], &[u8]) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        each(self.store, family, &keys::all(family), &mut |key, value| visit(self, key, value))
    }

    fn share(&mut self, obligor: Obligor) -> Result<&mut Share, StoreError> {
        if !self.shares.contains_key(&obligor) {
            let reaped = self.store.get(Family::Meta, &keys::reap(obligor))?.is_some();
            self.shares.insert(obligor, Share { reaped, ..Share::default() });
        }
        Ok(self.shares.entry(obligor).or_default())
    }

    fn floors(&mut self) -> Result<(), StoreError> {
        each(self.store, Family::Meta, &keys::meta_of(MetaKind::Floor), &mut |key, value| {
            match (keys::parse_floor(key), Floor::decode(value)) {
                (Some(id), Ok(record)) => {
                    self.report.count("partitions", u64::from(record.floor != floor::ABANDONED));
                    self.logs.insert(id, Log { record, end: None });
                }
                (id, record) => self.report.complain(format!("the floor of {id:?}: {record:?}")),
            }
            Ok(())
        })
    }

    fn log(&mut self) -> Result<(), StoreError> {
        self.each(Family::Log, |check, key, value| {
            check.chunk(key, value);
            Ok(())
        })?;
        for (PartitionId(id), Log { record, end }) in &self.logs {
            let next = end.map_or(record.floor, |end| end.next);
            if record.floor != floor::ABANDONED && next < record.next {
                let was = record.next.0;
                self.report.complain(format!("partition {id}: its log ends at {} and was at {was} before", next.0));
            }
            if let Some(end) = end.filter(|end| end.next == record.next && end.running != record.running) {
                let (found, was) = (end.running, record.running);
                self.report.complain(format!("partition {id}: its log ends with {found:?} and not with {was:?}"));
            }
        }
        Ok(())
    }

    fn chunk(&mut self, key: &[u8], value: &[u8]) {
        let Some((id, first)) = keys::parse_log(key) else {
            return self.report.complain(format!("a key of the log: {key:02x?}"));
        };
        let at = format!("partition {}: the chunk at {}", id.0, first.0);
        let Some(log) = self.logs.get_mut(&id) else {
            return self.report.complain(format!("{at} is of no partition"));
        };
        if log.record.floor == floor::ABANDONED {
            return;
        }
        let chunk = match Chunk::decode(first, Bytes::copy_from_slice(value)) {
            Ok(chunk) => chunk,
            Err(error) => return self.report.complain(format!("{at}: {error}")),
        };
        // What the floor has passed may be there still, in part.
        if chunk.end() <= log.record.floor {
            return;
        }
        let begins = log.end.map_or(log.record.floor, |end| end.next);
        if first > begins {
            self.report.complain(format!("{at} comes behind a gap: {} is next", begins.0));
        }
        if let Some(end) = log.end {
            if first < end.next {
                self.report.complain(format!("{at} begins in the one before, which ends at {}", end.next.0));
            } else if chunk.before != end.running {
                self.report.complain(format!("{at} has {:?} before it and says {:?}", end.running, chunk.before));
            }
        }
        if let Err(error) = chunk.events() {
            self.report.complain(format!("{at}: {error}"));
        }
        log.end = Some(End { next: chunk.end(), running: chunk.after() });
        self.report.count("chunks", 1);
        self.report.count("events", chunk.count.into());
    }

    fn owed(&mut self) -> Result<(), StoreError> {
        self.each(Family::Owed, |check, key, value| {
            let Some((partition, seq, subscription, lane)) = keys::parse_owed(key) else {
                check.report.complain(format!("a key of an owed record: {key:02x?}"));
                return Ok(());
            };
            let obligor = Obligor { partition, subscription };
            check.report.count("owed", 1);
            check.share(obligor)?.owed[usize::from(lane.is_job())] += 1;
            let at = format!("{}: event {} in lane {}", who(obligor), seq.0, lane.0);
            match Owed::decode(value) {
                Ok(Owed { due, .. })
                    if check.store.get(Family::Due, &keys::due(obligor, due, lane, seq))?.is_none() =>
                {
                    check.report.complain(format!("{at} is owed for {due} and does not fall due then"));
                }
                Ok(_) => {}
                Err(error) => check.report.complain(format!("{at}: {error}")),
            }
            check.is_there(obligor, seq, &format!("{at} is owed"))
        })
    }

    fn due(&mut self) -> Result<(), StoreError> {
        self.each(Family::Due, |check, key, _| {
            let Some((obligor, at, lane, seq)) = keys::parse_due(key) else {
                check.report.complain(format!("a key of the order of falling due: {key:02x?}"));
                return Ok(());
            };
            let what = format!("{}: event {} in lane {} falls due at {at}", who(obligor), seq.0, lane.0);
            let owed =
                check.store.get(Family::Owed, &keys::owed(obligor.partition, seq, obligor.subscription, lane))?;
            match owed.map(|owed| Owed::decode(&owed)) {
                // It may be left behind where a kill came before a full disk had healed, and harms nothing then.
                None => check.report.complain(format!("{what} and is not owed")),
                Some(Ok(owed)) if owed.due != at => {
                    check.report.complain(format!("{what} and is owed for {}", owed.due))
                }
                // Damage was told where it was owed.
                Some(Ok(_) | Err(_)) => {}
            }
            Ok(())
        })
    }

    fn dead(&mut self) -> Result<(), StoreError> {
        self.each(Family::Dead, |check, key, value| {
            let Some((obligor, _, seq, lane)) = keys::parse_dead(key) else {
                check.report.complain(format!("a key of a dead letter: {key:02x?}"));
                return Ok(());
            };
            check.report.count("dead letters", 1);
            check.share(obligor)?.dead += 1;
            let at = format!("{}: event {} in lane {}", who(obligor), seq.0, lane.0);
            if let Err(error) = Dead::decode(value) {
                check.report.complain(format!("{at}: {error}"));
            }
            let pin = keys::pin(obligor.partition, seq, obligor.subscription, lane);
            if check.store.get(Family::Pin, &pin)?.is_none() {
                check.report.complain(format!("{at} is a dead letter and not pinned"));
            }
            check.is_there(obligor, seq, &format!("{at} is a dead letter"))
        })?;
        self.each(Family::Pin, |check, key, _| {
            match keys::parse_pin(key) {
                Some((partition, _, subscription, _)) => check.share(Obligor { partition, subscription })?.pins += 1,
                None => check.report.complain(format!("a key of a pin: {key:02x?}")),
            }
            Ok(())
        })
    }

    /// An event that somebody asks for can be read, unless whoever asked was deleted.
    fn is_there(&mut self, obligor: Obligor, seq: Seq, asked: &str) -> Result<(), StoreError> {
        let there = match Finder::new(self.store, obligor.partition).find(seq) {
            Ok(event) => event.is_some(),
            Err(StoreError::Damaged(_)) => false,
            Err(error @ (StoreError::Full | StoreError::Failed(_))) => return Err(error),
        };
        if !there && !self.share(obligor)?.reaped {
            self.report.complain(format!("{asked} and cannot be read"));
        }
        Ok(())
    }

    fn held(&mut self) -> Result<(), StoreError> {
        self.each(Family::Held, |check, key, value| {
            let Some((id, seq)) = keys::parse_held(key) else {
                check.report.complain(format!("a key of a held event: {key:02x?}"));
                return Ok(());
            };
            check.report.count("held", 1);
            let at = format!("partition {}: the event {}", id.0, seq.0);
            let read = Chunk::decode(seq, Bytes::copy_from_slice(value)).and_then(|chunk| chunk.events());
            if let Err(error) = read {
                check.report.complain(format!("{at} is held: {error}"));
            }
            let mut wanted = false;
            for (family, range) in
                [(Family::Owed, keys::owed_of_event(id, seq)), (Family::Pin, keys::pins_of_event(id, seq))]
            {
                wanted |= check.store.last(family, &range.start, &range.end)?.is_some();
            }
            if !wanted {
                check.report.complain(format!("{at} is held and nobody asks for it"));
            }
            Ok(())
        })
    }

    fn accounts(&mut self) -> Result<(), StoreError> {
        each(self.store, Family::Meta, &keys::meta_of(MetaKind::DeadLetters), &mut |key, value| {
            if (self.accounts.dealt_with)(value).is_none() {
                self.report.complain(format!("an account of dead letters is damaged: {key:02x?}"));
            }
            Ok(())
        })
    }

    /// What each subscription says it has is what it has.
    fn shares(&mut self) -> Result<(), StoreError> {
        for (obligor, share) in &self.shares {
            let Share { reaped, has_cursor, columns, owed, dead, pins } = share;
            let [own, jobs] = owed;
            let who = who(*obligor);
            if pins != dead {
                self.report.complain(format!("{who}: {dead} dead letters wait and {pins} events are pinned"));
            }
            match (has_cursor, reaped) {
                (true, true) => self.report.complain(format!("{who} was deleted and has a cursor")),
                (false, false) => {
                    self.report.complain(format!("{who}: {} owed, {dead} dead letters and no cursor", own + jobs))
                }
                (true, false) | (false, true) => {}
            }
            let Some([counters, replayed]) = *columns else { continue };
            if counters.pending != *own {
                self.report.complain(format!("{who}: {} pending and {own} owed records", counters.pending));
            }
            if replayed.pending != *jobs {
                self.report.complain(format!("{who}: {} pending of jobs and {jobs} owed records", replayed.pending));
            }
            let dead_lettered = sum([counters.dead_lettered, replayed.dead_lettered]);
            let name = (self.accounts.name)(*obligor);
            let account = self.store.get(Family::Meta, &keys::meta(MetaKind::DeadLetters, name.as_bytes()))?;
            // One that cannot be read was told of.
            let dealt_with = account.map_or(Some(0), |account| (self.accounts.dealt_with)(&account));
            if let Some(dealt_with) = dealt_with.filter(|dealt_with| sum([*dealt_with, *dead]) != dead_lettered) {
                let put_aside = format!("{dead} waiting and {dealt_with} written or lost");
                self.report
                    .complain(format!("{who}: {} dead-lettered, {put_aside}", dead_lettered.unwrap_or(u64::MAX)));
            }
        }
        Ok(())
    }

    /// A block's filter misses no id of an event that is in the log.
    fn ids(&mut self) -> Result<(), StoreError> {
        self.each(Family::Ids, |check, key, value| {
            check.report.count("blocks of ids", 1);
            let (Some((id, block)), Some(found)) = (keys::parse_ids(key), Ids::decode(value)) else {
                check.report.complain(format!("the ids of a block: {key:02x?}"));
                return Ok(());
            };
            let floor = check.logs.get(&id).map_or(floor::ABANDONED, |log| log.record.floor);
            match ids::missed(check.store, id, block, &found, floor) {
                Ok(Some(seq)) => {
                    check.report.complain(format!("partition {}: the id of event {} is not in its block", id.0, seq.0));
                }
                // Damage of the log was told.
                Ok(None) | Err(StoreError::Damaged(_)) => {}
                Err(error @ (StoreError::Full | StoreError::Failed(_))) => return Err(error),
            }
            Ok(())
        })
    }

    fn ledger(&mut self) -> Result<(), StoreError> {
        each(self.store, Family::Ledger, &keys::ledgers(), &mut |key, value| {
            let (by_event, by_time) = (keys::parse_ledger(key), keys::parse_ledger_by_time(key));
            self.report.count("ledger lines", by_time.is_some().into());
            match (by_event.or(by_time), Entry::decode(value)) {
                (Some(key), Ok(entry)) if ledger::is_at(&entry, key, by_event.is_some()) => {}
                (key, entry) => self.report.complain(format!("a line of the ledger: {key:?} {entry:?}")),
            }
            Ok(())
        })?;
        self.each(Family::Excerpt, |check, key, value| {
            check.report.count("excerpts", 1);
            match (keys::parse_excerpt(key), Excerpt::decode(value)) {
                (Some(_), Ok(_)) => {}
                (key, excerpt) => check.report.complain(format!("what an endpoint said: {key:?} {excerpt:?}")),
            }
            Ok(())
        })
    }
}

/// What is on disk is not ours to assert: a sum may be past all counting.
fn sum<const N: usize>(counts: [u64; N]) -> Option<u64> {
    sum_of(counts.into_iter())
}

fn sum_of(mut counts: impl Iterator<Item = u64>) -> Option<u64> {
    counts.try_fold(0, u64::checked_add)
}
