//! Encodes entries of the queue as operations of a batch, with the replies to them.

use std::{collections::HashSet, ops::ControlFlow};

use super::{CommitGroup, GroupWriter, PendingReply};
use crate::{
    DeadLetterKey, DeadLetterWrite, DuplicateCheck, Error, MetaChange, PublishReceipt,
    SubscriptionOwner, WriterEntry,
    partition_state::{LowWatermark, PartitionState},
};
use gridhook_event::{
    Incarnation, Lane, PartitionId, Seq, SubscriptionKey, Timestamp, chunk::SealedChunk,
};
use gridhook_policy::record::{
    Cursor, DeadLetterRecord, LaneCursor, PendingDelivery, RecordChange, RedrivePage, RedrivenEvent,
};
use gridhook_store::{
    Family, StoreError,
    keys::{self, MetaKind},
    records::{EncodedLines, FloorRecord, StoredRecord},
};

impl GroupWriter {
    /// Adds an entry to the batch and the reply to it to the group.
    pub(super) fn encode_entry(
        &mut self,
        group: &mut CommitGroup,
        entry: WriterEntry,
        now: Timestamp,
    ) {
        let pending_reply = match entry {
            WriterEntry::Publish {
                partition,
                chunks,
                check,
                reply,
                _permit,
            } => PendingReply::Published(
                reply,
                _permit,
                self.encode_publish(group, partition, chunks, check, now),
            ),
            WriterEntry::Open {
                subscription_key, ..
            } => {
                let incarnation = self.begin_incarnation(group, subscription_key);
                PendingReply::Opened(
                    entry,
                    SubscriptionOwner {
                        subscription_key,
                        incarnation,
                    },
                )
            }
            WriterEntry::Append {
                owner, ref changes, ..
            } => {
                if self.incarnations.get(&owner.subscription_key) == Some(&owner.incarnation) {
                    encode_changes(group, owner.subscription_key, changes);
                    PendingReply::Done(entry)
                } else {
                    PendingReply::Refused(entry, Error::Fenced)
                }
            }
            WriterEntry::Meta { ref changes, .. } => {
                for change in changes {
                    self.encode_meta(group, change, now);
                }
                PendingReply::Done(entry)
            }
            WriterEntry::WriteDeadLetters {
                subscription_key,
                ref dead_letter_writes,
                ..
            } => {
                let is_subscribed = self.is_subscribed(group, subscription_key);
                encode_dead_letter_write(
                    group,
                    subscription_key,
                    dead_letter_writes,
                    is_subscribed,
                );
                PendingReply::Done(entry)
            }
            // It returns at once, because nothing is written.
            WriterEntry::Keep {
                partition,
                from,
                reply,
            } => return self.guard_log(partition, from, reply),
            WriterEntry::DivideBacklog { partition, parts } => {
                self.backlog_parts.insert(partition, parts);
                return;
            }
            WriterEntry::Close => return,
        };
        group.replies.push(pending_reply);
    }

    /// Begins a new incarnation, which fences all earlier ones. Numbers are unique in the writer,
    /// so an incarnation of a deleted subscription is fenced too.
    fn begin_incarnation(
        &mut self,
        group: &mut CommitGroup,
        subscription_key: SubscriptionKey,
    ) -> Incarnation {
        self.last_incarnation = Incarnation(self.last_incarnation.0 + 1);
        let before = self
            .incarnations
            .insert(subscription_key, self.last_incarnation);
        group.incarnations.entry(subscription_key).or_insert(before);
        self.last_incarnation
    }

    /// Whether a subscription exists after this group.
    fn is_subscribed(&self, group: &CommitGroup, subscription_key: SubscriptionKey) -> bool {
        let in_group = group
            .lows
            .iter()
            .rev()
            .find(|(key, _)| *key == subscription_key)
            .map(|(_, low)| low.is_some());
        in_group.unwrap_or_else(|| {
            self.lows
                .get(&subscription_key.partition)
                .is_some_and(|lows| lows.contains_key(&subscription_key.subscription))
        })
    }

    fn encode_publish(
        &mut self,
        group: &mut CommitGroup,
        id: PartitionId,
        chunks: Vec<SealedChunk>,
        check: Option<DuplicateCheck>,
        now: Timestamp,
    ) -> Result<PublishReceipt, Error> {
        if self.store.is_short_of_space() {
            return Err(Error::Full);
        }
        self.check_backlog(id)?;
        let (chunks, duplicates) = match check {
            Some(check) => self.remove_duplicates(group, id, chunks, &check, now)?,
            None => (chunks, 0),
        };
        let Self {
            partitions,
            ids,
            clock,
            ..
        } = self;
        let partition = partitions.get_mut(&id).ok_or(Error::Unknown)?;
        group.before.entry(id).or_insert(Some(*partition));
        let (appended, is_corrected) = partition.begin_append(clock, now);
        if is_corrected {
            group.batch.put(
                Family::Meta,
                keys::floor_key(id),
                partition.floor_record().encode(),
            );
        }
        let receipt = PublishReceipt {
            first: partition.next,
            appended,
            duplicates,
        };
        for chunk in chunks {
            let first = partition.next;
            let chunk = chunk.into_log_chunk(first, appended, partition.running);
            let chunk = chunk.map_err(|error| Error::Damaged(error.to_string()))?;
            partition.next = chunk.end_seq();
            partition.running = chunk.totals_after();
            group
                .batch
                .put(Family::Log, keys::log(id, first), chunk.to_record());
            ids.append_ids(&mut group.batch, id, &chunk);
            group.appended.push((id, chunk));
        }
        Ok(receipt)
    }

    fn encode_meta(&mut self, group: &mut CommitGroup, change: &MetaChange, now: Timestamp) {
        match change {
            MetaChange::Put(kind, name, value) => {
                group.batch.put(
                    Family::Meta,
                    keys::meta_key(*kind, name.as_bytes()),
                    value.clone(),
                );
            }
            MetaChange::Delete(kind, name) => group
                .batch
                .delete(Family::Meta, keys::meta_key(*kind, name.as_bytes())),
            MetaChange::CreatePartition(id) => self.create_partition(group, *id, now),
            MetaChange::Subscribe(subscription_key, start) => {
                self.create_subscription(group, *subscription_key, *start)
            }
            MetaChange::Unsubscribe(subscription_key) => {
                self.delete_subscription(group, *subscription_key, now)
            }
            MetaChange::DeletePartition(id) => self.delete_partition(group, *id),
        }
    }

    fn create_partition(&mut self, group: &mut CommitGroup, id: PartitionId, now: Timestamp) {
        group
            .before
            .entry(id)
            .or_insert_with(|| self.partitions.get(&id).copied());
        let partition = self
            .partitions
            .entry(id)
            .or_insert_with(PartitionState::empty);
        partition.begin_append(&self.clock, now);
        group.batch.put(
            Family::Meta,
            keys::floor_key(id),
            partition.floor_record().encode(),
        );
    }

    /// Deletes a partition. Its log is trimmed later.
    fn delete_partition(&mut self, group: &mut CommitGroup, id: PartitionId) {
        let before = self.partitions.remove(&id);
        let record = before.as_ref().map_or_else(
            || PartitionState::empty().floor_record(),
            PartitionState::floor_record,
        );
        group.before.entry(id).or_insert(before);
        let record = FloorRecord {
            floor: FloorRecord::ABANDONED,
            ..record
        };
        group
            .batch
            .put(Family::Meta, keys::floor_key(id), record.encode());
    }

    fn create_subscription(
        &self,
        group: &mut CommitGroup,
        subscription_key: SubscriptionKey,
        start: Option<Seq>,
    ) {
        // Only this thread moves the floor, so it cannot pass this position.
        let read = match self.partitions.get(&subscription_key.partition) {
            Some(partition) => start.map_or(partition.next, |start| {
                start.max(partition.floor).min(partition.next)
            }),
            None => Seq::FIRST,
        };
        let cursor = Cursor {
            lanes: vec![LaneCursor::new(Lane::LIVE, read, None)],
            began: read,
            ..Cursor::default()
        };
        group.batch.put(
            Family::Cursor,
            keys::cursor(subscription_key),
            cursor.encode(),
        );
        group
            .lows
            .push((subscription_key, LowWatermark::from_cursor(&cursor)));
    }

    /// Deletes a subscription's cursor and fences its writes. Its pending deliveries are removed
    /// in parts, later.
    fn delete_subscription(
        &mut self,
        group: &mut CommitGroup,
        subscription_key: SubscriptionKey,
        now: Timestamp,
    ) {
        let before = self.incarnations.remove(&subscription_key);
        group.incarnations.entry(subscription_key).or_insert(before);
        self.note_filtered_out(group, subscription_key, now);
        group
            .batch
            .delete(Family::Cursor, keys::cursor(subscription_key));
        group
            .batch
            .put(Family::Meta, keys::reap_key(subscription_key), vec![1]);
        group.lows.push((subscription_key, None));
    }

    /// Writes ledger lines for the recently filtered-out events, which only the cursor has, before
    /// the cursor is deleted.
    fn note_filtered_out(
        &self,
        group: &mut CommitGroup,
        subscription_key: SubscriptionKey,
        now: Timestamp,
    ) {
        let cursor = self
            .store
            .get(Family::Cursor, &keys::cursor(subscription_key))
            .ok()
            .flatten();
        // An unreadable cursor is deleted without lines.
        let Some(Ok(cursor)) = cursor.map(|cursor| Cursor::decode(&cursor)) else {
            return;
        };
        let mut lines = EncodedLines::default();
        cursor
            .filtered_out
            .iter()
            .for_each(|range| lines.push_entry(range.lane, 0, &range.to_ledger_entry(now)));
        group.batch.put_outcomes(subscription_key, None, lines);
    }

    /// Deletes carried events whose last pending delivery or pin is deleted by this group.
    pub(super) fn free_carried(&mut self, group: &mut CommitGroup) -> Result<(), StoreError> {
        if group.pin_changes.is_empty() {
            return Ok(());
        }
        self.trims
            .note_changes(group.pin_changes.keys().map(|(id, seq, _, _)| (*id, *seq)));
        let mut pinned_events = HashSet::new();
        let mut unpinned_events = HashSet::new();
        for ((id, seq, _, _), is_pinned) in &group.pin_changes {
            let events = if *is_pinned {
                &mut pinned_events
            } else {
                &mut unpinned_events
            };
            events.insert((*id, *seq));
        }
        unpinned_events.retain(|event| !pinned_events.contains(event));
        unpinned_events.retain(|(id, seq)| self.may_be_carried(*id, *seq));
        for (id, seq) in unpinned_events {
            if !self.is_pinned_elsewhere(group, id, seq)? {
                group.batch.delete(Family::Carried, keys::carried(id, seq));
            }
        }
        Ok(())
    }

    /// Whether an event is below the log, so that only a copy of it can be there.
    fn may_be_carried(&self, id: PartitionId, seq: Seq) -> bool {
        seq.is_apart()
            || self
                .partitions
                .get(&id)
                .is_none_or(|partition| seq < partition.floor)
    }

    /// Whether the store has a pending delivery or a pin of an event that this group does not
    /// change.
    fn is_pinned_elsewhere(
        &self,
        group: &CommitGroup,
        id: PartitionId,
        seq: Seq,
    ) -> Result<bool, StoreError> {
        let mut is_pinned = false;
        for (family, range) in [
            (Family::Pending, keys::pending_of_event(id, seq)),
            (Family::Pin, keys::pins_of_event(id, seq)),
        ] {
            let result = self
                .store
                .scan(family, &range.start, &range.end, &mut |key, _| {
                    let key_parts = keys::parse_pending(key).or_else(|| keys::parse_pin(key));
                    is_pinned |=
                        key_parts.is_none_or(|entry| !group.pin_changes.contains_key(&entry));
                    if is_pinned {
                        ControlFlow::Break(())
                    } else {
                        ControlFlow::Continue(())
                    }
                });
            match result {
                // Whether it is pinned is unknown, so the event is kept.
                Err(StoreError::Damaged(what)) => {
                    self.note_damage(family, &what);
                    is_pinned = true;
                }
                result => result?,
            }
        }
        Ok(is_pinned)
    }
}

fn encode_changes(
    group: &mut CommitGroup,
    subscription_key: SubscriptionKey,
    changes: &[RecordChange],
) {
    let mut new_cursor = None;
    let mut lines = EncodedLines::default();
    for change in changes {
        match change {
            RecordChange::Cursor(cursor) => {
                new_cursor = Some(cursor.encode().into());
                group
                    .lows
                    .push((subscription_key, LowWatermark::from_cursor(cursor)));
            }
            RecordChange::Defer {
                lane,
                seq,
                pending,
                was_due,
            } => put_pending(group, subscription_key, *lane, *seq, pending, *was_due),
            RecordChange::Settle { lane, seq, was_due } => {
                delete_pending(group, subscription_key, *lane, *seq, *was_due)
            }
            RecordChange::DeadLetter {
                lane,
                seq,
                due,
                dead,
            } => {
                let key = DeadLetterKey {
                    due: *due,
                    seq: *seq,
                    lane: *lane,
                };
                put_dead_letter(group, subscription_key, key, dead);
            }
            RecordChange::Note {
                lane,
                attempt,
                entry,
            } => lines.push_entry(*lane, *attempt, entry),
            RecordChange::StoreExcerpt { key, excerpt } => {
                group.batch.put(
                    Family::Excerpt,
                    keys::excerpt(subscription_key, *key),
                    excerpt.encode(),
                );
            }
            RecordChange::Redrive(page) => delete_redriven(group, subscription_key, page),
            RecordChange::JobEnded(job) => {
                group.batch.put(
                    Family::Meta,
                    keys::ended_job(subscription_key, job.lane),
                    job.encode(),
                );
                group.ended.insert(subscription_key);
            }
        }
    }
    group
        .batch
        .put_outcomes(subscription_key, new_cursor, lines);
}

/// Writes a pending delivery, which was due at `was_due` if there was one before.
fn put_pending(
    group: &mut CommitGroup,
    subscription_key: SubscriptionKey,
    lane: Lane,
    seq: Seq,
    pending: &PendingDelivery,
    was_due: Option<Timestamp>,
) {
    let SubscriptionKey {
        partition,
        subscription,
    } = subscription_key;
    group.batch.put(
        Family::Pending,
        keys::pending(partition, seq, subscription, lane),
        pending.encode(),
    );
    group
        .pin_changes
        .insert((partition, seq, subscription, lane), true);
    if was_due == Some(pending.due) {
        return;
    }
    if let Some(was_due) = was_due {
        group
            .batch
            .single_delete(Family::Due, keys::due(subscription_key, was_due, lane, seq));
    }
    group.batch.put(
        Family::Due,
        keys::due(subscription_key, pending.due, lane, seq),
        Vec::new(),
    );
}

/// Writes a dead letter, and a pin that keeps its event.
fn put_dead_letter(
    group: &mut CommitGroup,
    subscription_key: SubscriptionKey,
    DeadLetterKey { due, seq, lane }: DeadLetterKey,
    dead: &DeadLetterRecord,
) {
    let SubscriptionKey {
        partition,
        subscription,
    } = subscription_key;
    group.batch.put(
        Family::Dead,
        keys::dead(subscription_key, due, seq, lane),
        dead.encode(),
    );
    group.batch.put(
        Family::Pin,
        keys::pin(partition, seq, subscription, lane),
        Vec::new(),
    );
    group
        .pin_changes
        .insert((partition, seq, subscription, lane), true);
}

pub(super) fn delete_pending(
    group: &mut CommitGroup,
    subscription_key: SubscriptionKey,
    lane: Lane,
    seq: Seq,
    was_due: Timestamp,
) {
    let SubscriptionKey {
        partition,
        subscription,
    } = subscription_key;
    group.batch.delete(
        Family::Pending,
        keys::pending(partition, seq, subscription, lane),
    );
    group
        .batch
        .single_delete(Family::Due, keys::due(subscription_key, was_due, lane, seq));
    group
        .pin_changes
        .insert((partition, seq, subscription, lane), false);
}

/// Deletes redriven dead letters. Separate, later changes make their events pending.
fn delete_redriven(group: &mut CommitGroup, subscription_key: SubscriptionKey, page: &RedrivePage) {
    for RedrivenEvent { seq, waited, event } in &page.dead_letters {
        if let Some((due, seq, lane)) = *waited {
            remove_dead_letter(group, subscription_key, DeadLetterKey { due, seq, lane });
        }
        if let Some(event) = event {
            group.batch.put(
                Family::Carried,
                keys::carried(subscription_key.partition, *seq),
                event.clone(),
            );
        }
    }
    group.batch.put(
        Family::Meta,
        keys::redrive_key(subscription_key, page.lane),
        page.progress.clone(),
    );
    if let Some((name, totals)) = &page.totals {
        group.batch.put(
            Family::Meta,
            keys::meta_key(MetaKind::DeadLetters, name.as_bytes()),
            totals.clone(),
        );
    }
}

fn encode_dead_letter_write(
    group: &mut CommitGroup,
    subscription_key: SubscriptionKey,
    write: &DeadLetterWrite,
    is_subscribed: bool,
) {
    // The totals of a deleted subscription are deleted and must not be written again.
    if let Some((name, totals)) = &write.totals
        && is_subscribed
    {
        group.batch.put(
            Family::Meta,
            keys::meta_key(MetaKind::DeadLetters, name.as_bytes()),
            totals.clone(),
        );
    }
    for dead in &write.done {
        remove_dead_letter(group, subscription_key, *dead);
    }
    let mut lines = EncodedLines::default();
    write.notes.iter().for_each(|line| lines.push(line));
    group.batch.put_outcomes(subscription_key, None, lines);
}

/// Deletes a dead letter and its pin.
pub(super) fn remove_dead_letter(
    group: &mut CommitGroup,
    subscription_key: SubscriptionKey,
    DeadLetterKey { due, seq, lane }: DeadLetterKey,
) {
    let SubscriptionKey {
        partition,
        subscription,
    } = subscription_key;
    group
        .batch
        .delete(Family::Dead, keys::dead(subscription_key, due, seq, lane));
    group
        .batch
        .delete(Family::Pin, keys::pin(partition, seq, subscription, lane));
    group
        .pin_changes
        .insert((partition, seq, subscription, lane), false);
}
