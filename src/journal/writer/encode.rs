//! What an entry of the queue is on disk: its puts and deletes, and its answer once they are written.

use std::{collections::HashSet, ops::ControlFlow};

use super::{Answer, Group, Writer};
use crate::{
    event::{Lane, Life, Obligor, PartitionId, Seq, Timestamp},
    journal::{
        Buried, DeadKey, Entry, Error, MetaChange, Owner, Published,
        chunk::{Chunk, Sealed},
        floor::{self, Low, Partition},
        keys::{self, MetaKind},
        ledger,
        records::{Floor, Record},
        store::{Family, StoreError},
    },
    policy::record::{Change, Cursor, LaneCursor, Line, Returned, TakenBack},
};

impl Writer {
    /// Puts an entry into the batch, and what it is answered behind it.
    pub(super) fn encode(&mut self, group: &mut Group, entry: Entry, now: Timestamp) {
        let answer = match entry {
            Entry::Publish { partition, chunks, reply, _room } => {
                match self.encode_publish(group, partition, chunks, now) {
                    Ok(published) => {
                        Answer::Published(Entry::Publish { partition, chunks: Vec::new(), reply, _room }, published)
                    }
                    Err(error) => {
                        Answer::Refused(Entry::Publish { partition, chunks: Vec::new(), reply, _room }, error)
                    }
                }
            }
            Entry::Open { obligor, reply } => {
                let owner = Owner { obligor, life: self.begin_life(group, obligor) };
                Answer::Opened(Entry::Open { obligor, reply }, owner)
            }
            Entry::Append { owner, changes, urgent, done } => {
                let fenced = self.lives.get(&owner.obligor) != Some(&owner.life);
                if !fenced {
                    encode_changes(group, owner.obligor, &changes);
                }
                let entry = Entry::Append { owner, changes, urgent, done };
                if fenced { Answer::Refused(entry, Error::Fenced) } else { Answer::Done(entry) }
            }
            Entry::Meta { changes, reply } => {
                for change in &changes {
                    self.encode_meta(group, change, now);
                }
                Answer::Done(Entry::Meta { changes, reply })
            }
            Entry::Bury { obligor, buried, reply } => {
                encode_buried(group, obligor, &buried, self.is_there(group, obligor));
                Answer::Done(Entry::Bury { obligor, buried, reply })
            }
            // Answered at once: nothing is written.
            Entry::Hold { partition, from, reply } => return self.hold(partition, from, reply),
            Entry::Close => return,
        };
        group.answers.push(answer);
    }

    /// Fences every life there was. No two lives of whatever subscription have the same number, so that one of which nothing
    /// is kept any more is fenced too.
    fn begin_life(&mut self, group: &mut Group, obligor: Obligor) -> Life {
        self.last_life = Life(self.last_life.0 + 1);
        let before = self.lives.insert(obligor, self.last_life);
        group.lives.entry(obligor).or_insert(before);
        self.last_life
    }

    /// Whether a subscription is there, or will be behind this group.
    fn is_there(&self, group: &Group, obligor: Obligor) -> bool {
        let in_group = group.lows.iter().rev().find(|(of, _)| *of == obligor).map(|(_, low)| low.is_some());
        in_group.unwrap_or_else(|| {
            self.lows.get(&obligor.partition).is_some_and(|lows| lows.contains_key(&obligor.subscription))
        })
    }

    fn encode_publish(
        &mut self,
        group: &mut Group,
        id: PartitionId,
        chunks: Vec<Sealed>,
        now: Timestamp,
    ) -> Result<Published, Error> {
        if self.store.is_short_of_space() {
            return Err(Error::Full);
        }
        self.admit(id)?;
        let Self { partitions, ids, store, .. } = self;
        let partition = partitions.get_mut(&id).ok_or(Error::Unknown)?;
        group.before.entry(id).or_insert(Some(*partition));
        partition.appended = partition.appended.max(now);
        let published = Published { first: partition.next, appended: partition.appended };
        for chunk in chunks {
            let first = partition.next;
            let bytes = chunk.stamp(partition.appended, partition.running);
            let chunk = Chunk::decode(first, bytes.clone()).map_err(|error| Error::Damaged(error.to_string()))?;
            partition.next = chunk.end();
            partition.running = chunk.after();
            group.batch.put(Family::Log, keys::log(id, first), bytes);
            ids.append(&**store, &mut group.batch, id, &chunk);
            group.appended.push((id, chunk));
        }
        Ok(published)
    }

    fn encode_meta(&mut self, group: &mut Group, change: &MetaChange, now: Timestamp) {
        match change {
            MetaChange::Put(kind, name, value) => {
                group.batch.put(Family::Meta, keys::meta(*kind, name.as_bytes()), value.clone());
            }
            MetaChange::Delete(kind, name) => group.batch.delete(Family::Meta, keys::meta(*kind, name.as_bytes())),
            MetaChange::Found(id) => {
                group.before.entry(*id).or_insert_with(|| self.partitions.get(id).copied());
                let partition = self.partitions.entry(*id).or_insert_with(Partition::found);
                partition.appended = partition.appended.max(now);
                group.batch.put(Family::Meta, keys::floor(*id), partition.record().encode());
            }
            MetaChange::Subscribe(obligor, start) => {
                // The floor is moved by this thread: it cannot pass what is said here.
                let read = self.partitions.get(&obligor.partition).map_or(Seq::FIRST, |partition| {
                    start.map_or(partition.next, |start| start.max(partition.floor).min(partition.next))
                });
                let lane = LaneCursor { lane: Lane::LIVE, read, end: None, open: Vec::new(), done: Vec::new() };
                let cursor = Cursor { lanes: vec![lane], began: read, ..Cursor::default() };
                group.batch.put(Family::Cursor, keys::cursor(*obligor), cursor.encode());
                group.lows.push((*obligor, Low::of(&cursor)));
            }
            MetaChange::Unsubscribe(obligor) => {
                // Nobody may write for it any more; what it owed is cleared away bit by bit.
                let before = self.lives.remove(obligor);
                group.lives.entry(*obligor).or_insert(before);
                self.note_sifted(group, *obligor, now);
                group.batch.delete(Family::Cursor, keys::cursor(*obligor));
                group.batch.put(Family::Meta, keys::reap(*obligor), vec![1]);
                group.lows.push((*obligor, None));
            }
            MetaChange::Abandon(id) => {
                let before = self.partitions.remove(id);
                let record = before.as_ref().map_or_else(|| Partition::found().record(), Partition::record);
                group.before.entry(*id).or_insert(before);
                let record = Floor { floor: floor::ABANDONED, ..record };
                group.batch.put(Family::Meta, keys::floor(*id), record.encode());
            }
        }
    }

    /// What the filter of a subscription stopped of late is only in its cursor: it becomes lines where that goes.
    fn note_sifted(&self, group: &mut Group, obligor: Obligor, now: Timestamp) {
        let cursor = self.store.get(Family::Cursor, &keys::cursor(obligor)).ok().flatten();
        // One that cannot be read has nothing to tell, and goes.
        let Some(Ok(cursor)) = cursor.map(|cursor| Cursor::decode(&cursor)) else { return };
        for sifted in cursor.sifted {
            ledger::put(&mut group.batch, obligor, sifted.lane, 0, &sifted.line(now));
        }
    }

    /// Takes events out of `held` whose last obligation ends with this group.
    pub(super) fn free_held(&mut self, group: &mut Group) -> Result<(), StoreError> {
        self.trims.touch(group.asked.keys().map(|(id, seq, _, _)| (*id, *seq)));
        let events = |asked| {
            let last_words = group.asked.iter().filter(move |(_, last_word)| **last_word == asked);
            last_words.map(|((id, seq, _, _), _)| (*id, *seq)).collect::<HashSet<_>>()
        };
        let mut freed = events(false);
        for event in events(true) {
            freed.remove(&event);
        }
        freed.retain(|(id, seq)| {
            seq.is_apart() || self.partitions.get(id).is_none_or(|partition| *seq < partition.floor)
        });
        for (id, seq) in freed {
            let mut wanted = false;
            for (family, range) in
                [(Family::Owed, keys::owed_of_event(id, seq)), (Family::Pin, keys::pins_of_event(id, seq))]
            {
                let scanned = self.store.scan(family, &range.start, &range.end, &mut |key, _| {
                    let parsed = keys::parse_owed(key).or_else(|| keys::parse_pin(key));
                    wanted |= parsed.is_none_or(|obligation| !group.asked.contains_key(&obligation));
                    if wanted { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
                });
                match scanned {
                    // Whether somebody asks for it cannot be told: it stays.
                    Err(StoreError::Damaged(what)) => {
                        self.note_damage(family, &what);
                        wanted = true;
                    }
                    scanned => scanned?,
                }
            }
            if !wanted {
                group.batch.delete(Family::Held, keys::held(id, seq));
            }
        }
        Ok(())
    }
}

/// Turns a subscription's changes into puts and deletes.
fn encode_changes(group: &mut Group, obligor: Obligor, changes: &[Change]) {
    let Obligor { partition, subscription } = obligor;
    for change in changes {
        match change {
            Change::Cursor(cursor) => {
                group.batch.put(Family::Cursor, keys::cursor(obligor), cursor.encode());
                group.lows.push((obligor, Low::of(cursor)));
            }
            Change::Owe { lane, seq, owed, was_due } => {
                group.batch.put(Family::Owed, keys::owed(partition, *seq, subscription, *lane), owed.encode());
                group.asked.insert((partition, *seq, subscription, *lane), true);
                if *was_due != Some(owed.due) {
                    if let Some(was_due) = was_due {
                        group.batch.single_delete(Family::Due, keys::due(obligor, *was_due, *lane, *seq));
                    }
                    group.batch.put(Family::Due, keys::due(obligor, owed.due, *lane, *seq), Vec::new());
                }
            }
            Change::Settle { lane, seq, was_due } => settle(group, obligor, *lane, *seq, *was_due),
            Change::PutAside { lane, seq, due, dead } => {
                group.batch.put(Family::Dead, keys::dead(obligor, *due, *seq, *lane), dead.encode());
                group.batch.put(Family::Pin, keys::pin(partition, *seq, subscription, *lane), Vec::new());
                group.asked.insert((partition, *seq, subscription, *lane), true);
            }
            Change::Note { lane, attempt, entry } => ledger::put(&mut group.batch, obligor, *lane, *attempt, entry),
            Change::Keep { key, excerpt } => {
                group.batch.put(Family::Excerpt, keys::excerpt(obligor, *key), excerpt.encode());
            }
            Change::TakeBack(page) => take_back(group, obligor, page),
            Change::JobEnded(job) => {
                group.batch.put(Family::Meta, keys::ended_job(obligor, job.lane), job.encode());
                group.ended.insert(obligor);
            }
        }
    }
}

/// An obligation ends.
pub(super) fn settle(group: &mut Group, obligor: Obligor, lane: Lane, seq: Seq, was_due: Timestamp) {
    let Obligor { partition, subscription } = obligor;
    group.batch.delete(Family::Owed, keys::owed(partition, seq, subscription, lane));
    group.batch.single_delete(Family::Due, keys::due(obligor, was_due, lane, seq));
    group.asked.insert((partition, seq, subscription, lane), false);
}

/// Dead letters are dead no more. That their events are owed is a change of its own, which comes behind.
fn take_back(group: &mut Group, obligor: Obligor, page: &TakenBack) {
    for Returned { seq, waited, event } in &page.letters {
        if let Some((due, seq, lane)) = *waited {
            bury(group, obligor, DeadKey { due, seq, lane });
        }
        if let Some(event) = event {
            group.batch.put(Family::Held, keys::held(obligor.partition, *seq), event.clone());
        }
    }
    group.batch.put(Family::Meta, keys::redrive(obligor, page.lane), page.progress.clone());
    if let Some((name, account)) = &page.account {
        group.batch.put(Family::Meta, keys::meta(MetaKind::DeadLetters, name.as_bytes()), account.clone());
    }
}

fn encode_buried(group: &mut Group, obligor: Obligor, buried: &Buried, is_there: bool) {
    // The account of a subscription that was deleted goes with it, and must not come back.
    if let Some((name, totals)) = &buried.totals
        && is_there
    {
        group.batch.put(Family::Meta, keys::meta(MetaKind::DeadLetters, name.as_bytes()), totals.clone());
    }
    for dead in &buried.done {
        bury(group, obligor, *dead);
    }
    for Line { lane, attempt, entry } in &buried.notes {
        ledger::put(&mut group.batch, obligor, *lane, *attempt, entry);
    }
}

/// A dead letter is dealt with: nothing asks for its event on its behalf any more.
pub(super) fn bury(group: &mut Group, obligor: Obligor, DeadKey { due, seq, lane }: DeadKey) {
    let Obligor { partition, subscription } = obligor;
    group.batch.delete(Family::Dead, keys::dead(obligor, due, seq, lane));
    group.batch.delete(Family::Pin, keys::pin(partition, seq, subscription, lane));
    group.asked.insert((partition, seq, subscription, lane), false);
}
