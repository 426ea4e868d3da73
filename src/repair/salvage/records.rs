//! Deletes unreadable records, and collects the sequences and numbers that the others mention.

use std::ops::Range;

use bytes::Bytes;

use super::Salvage;
use crate::fsck::CheckStop;
use gridhook_event::{PartitionId, Seq, chunk::Chunk};
use gridhook_policy::record::{Cursor, DeadLetterRecord, Excerpt, PendingDelivery};
use gridhook_store::{
    Family, StoreError,
    id_filter::{self, IdFilter},
    keys::{self, MetaKind},
    records::{FloorRecord, OutcomePage, PublishedId, StoredRecord, ledger_lines},
};

impl Salvage<'_> {
    /// Deletes the position in the changelog of a cluster: a copy from which any change may be
    /// missing, and whose cursors are set back, must not follow it again.
    pub(super) fn changelog_position(&mut self) -> Result<(), CheckStop> {
        let key = keys::meta_key(MetaKind::Applied, b"");
        if self.store.get(Family::Meta, &key)?.is_some() {
            let action = "removed: the position in the changelog of its cluster, which the store \
                follows no more";
            self.loss.add_record(action.to_owned());
            self.delete_record(Family::Meta, key)?;
        }
        Ok(())
    }

    /// Deletes unreadable records and collects the floors.
    pub(super) fn delete_unreadable(&mut self) -> Result<(), CheckStop> {
        self.keep_if(Family::Log, |key, value| {
            keys::parse_log(key).is_some_and(|(_, first)| is_readable_chunk(first, value))
        })?;
        self.keep_if(Family::Carried, |key, value| {
            keys::parse_carried(key).is_some_and(|(_, seq)| is_readable_chunk(seq, value))
        })?;
        self.keep_if(Family::Cursor, |key, value| {
            keys::parse_cursor(key).is_some() && Cursor::decode(value).is_ok()
        })?;
        self.keep_in(Family::Cursor, &keys::outcome_pages(), |key, value| {
            keys::parse_outcome_page(key).is_some() && OutcomePage::decode(value).is_ok()
        })?;
        self.keep_if(Family::Pending, |key, value| {
            keys::parse_pending(key).is_some() && PendingDelivery::decode(value).is_ok()
        })?;
        self.keep_if(Family::Due, |key, _| keys::parse_due(key).is_some())?;
        self.keep_if(Family::Pin, |key, _| keys::parse_pin(key).is_some())?;
        self.keep_if(Family::Dead, |key, value| {
            keys::parse_dead(key).is_some() && DeadLetterRecord::decode(value).is_ok()
        })?;
        self.keep_in(Family::Ledger, &keys::ledgers_range(), |key, value| {
            let line = keys::parse_ledger(key).or_else(|| keys::parse_ledger_by_time(key));
            line.is_some_and(|line| ledger_lines(line, value).is_ok())
        })?;
        self.keep_if(Family::Excerpt, |key, value| {
            keys::parse_excerpt(key).is_some() && Excerpt::decode(value).is_ok()
        })?;
        self.keep_if(Family::PublishedIds, |key, value| {
            keys::parse_published_id(key).is_some() && PublishedId::decode(value).is_ok()
        })?;
        self.visit_range(
            Family::Meta,
            &keys::meta_of(MetaKind::Floor),
            |salvage, key, value| match (keys::parse_floor(key), FloorRecord::decode(value)) {
                (Some(id), Ok(record)) => {
                    salvage.parts.entry(id).or_default().record = Some(record);
                    Ok(())
                }
                (Some(_) | None, _) => salvage.record_lost("floor", key),
            },
        )?;
        let decoders = self.decoders;
        self.visit_range(
            Family::Meta,
            &keys::meta_of(MetaKind::DeadLetters),
            |salvage, key, value| {
                if (decoders.handled)(value).is_some() {
                    Ok(())
                } else {
                    salvage.record_lost("dead-letter totals", key)
                }
            },
        )?;
        Ok(())
    }

    /// Deletes incomplete id filters. A block without a filter is searched in the log.
    pub(super) fn delete_incomplete_ids(&mut self) -> Result<(), CheckStop> {
        self.visit_family(Family::Ids, |salvage, key, value| {
            let is_whole = match (keys::parse_ids(key), IdFilter::decode(value)) {
                (Some((id, block)), Some(found)) => id_filter::find_missed(
                    salvage.store,
                    id,
                    block,
                    &found,
                    salvage.floor_of_partition(id),
                )?
                .is_none(),
                (Some(_) | None, _) => false,
            };
            if is_whole {
                Ok(())
            } else {
                salvage.delete_record(Family::Ids, key.to_vec())
            }
        })?;
        Ok(())
    }

    fn keep_if(
        &mut self,
        family: Family,
        is_whole: impl Fn(&[u8], &[u8]) -> bool,
    ) -> Result<(), StoreError> {
        self.keep_in(family, &keys::family_range(family), is_whole)
    }

    fn keep_in(
        &mut self,
        family: Family,
        range: &Range<Vec<u8>>,
        is_whole: impl Fn(&[u8], &[u8]) -> bool,
    ) -> Result<(), StoreError> {
        self.visit_range(family, range, |salvage, key, value| {
            if is_whole(key, value) {
                return Ok(());
            }
            salvage.loss.add_record(format!(
                "removed: an unreadable record of the family {}: {key:02x?}",
                family.name()
            ));
            salvage.delete_record(family, key.to_vec())
        })
    }

    fn record_lost(&mut self, what: &str, key: &[u8]) -> Result<(), StoreError> {
        self.loss
            .add_record(format!("removed: an unreadable {what} record: {key:02x?}"));
        self.delete_record(Family::Meta, key.to_vec())
    }

    /// Collects the first sequence of each partition above everything that any record mentions.
    pub(super) fn collect_mentioned(&mut self) -> Result<(), CheckStop> {
        self.visit_family(Family::Pending, |salvage, key, _| {
            keys::parse_pending(key).map_or(Ok(()), |(id, seq, of, _)| {
                salvage.record_mention(id, seq.plus(1), of.0)
            })
        })?;
        self.visit_family(Family::Pin, |salvage, key, _| {
            keys::parse_pin(key).map_or(Ok(()), |(id, seq, of, _)| {
                salvage.record_mention(id, seq.plus(1), of.0)
            })
        })?;
        self.visit_family(Family::Due, |salvage, key, _| {
            keys::parse_due(key).map_or(Ok(()), |(of, _, _, seq)| {
                salvage.record_mention(of.partition, seq.plus(1), of.subscription.0)
            })
        })?;
        self.visit_family(Family::Dead, |salvage, key, _| {
            keys::parse_dead(key).map_or(Ok(()), |(of, _, seq, _)| {
                salvage.record_mention(of.partition, seq.plus(1), of.subscription.0)
            })
        })?;
        self.visit_family(Family::Carried, |salvage, key, _| {
            keys::parse_carried(key).map_or(Ok(()), |(id, seq)| {
                salvage.record_mention(id, seq.plus(1), 0)
            })
        })?;
        self.visit_family(Family::PublishedIds, |salvage, key, value| {
            let (Some((id, _)), Ok(known)) =
                (keys::parse_published_id(key), PublishedId::decode(value))
            else {
                return Ok(());
            };
            salvage.record_mention(id, known.seq.plus(1), 0)
        })?;
        self.visit_range(
            Family::Ledger,
            &keys::ledgers_range(),
            |salvage, key, value| {
                let line = keys::parse_ledger(key).or_else(|| keys::parse_ledger_by_time(key));
                let Some(Ok(lines)) = line.map(|line| ledger_lines(line, value)) else {
                    return Ok(());
                };
                let runs = lines.iter().flat_map(|line| &line.entry.runs);
                let end = runs.map(|run| run.end_seq()).max().unwrap_or(Seq::FIRST);
                let of = line.map(|line| line.subscription_key);
                of.map_or(Ok(()), |of| {
                    salvage.record_mention(of.partition, end, of.subscription.0)
                })
            },
        )?;
        self.visit_family(Family::Cursor, |salvage, key, value| {
            let (Some(of), Ok(cursor)) = (keys::parse_cursor(key), Cursor::decode(value)) else {
                return Ok(());
            };
            let ends = cursor.lanes.iter().flat_map(|lane| {
                let open = lane.open.end_seq().max(lane.done.end_seq());
                [Some(lane.read), lane.end, open]
            });
            let end = ends.flatten().max().unwrap_or(Seq::FIRST);
            salvage.cursors.insert(of, cursor);
            salvage.record_mention(of.partition, end, of.subscription.0)
        })?;
        Ok(())
    }

    fn record_mention(
        &mut self,
        id: PartitionId,
        end: Seq,
        subscription: u32,
    ) -> Result<(), StoreError> {
        self.subscriptions = self.subscriptions.max(subscription);
        let above = self.above.entry(id).or_default();
        *above = end.max(*above);
        Ok(())
    }

    pub(super) fn has_partition(&self, id: PartitionId) -> bool {
        let record = self.parts.get(&id).map(|part| part.record);
        record.is_some_and(|record| {
            record.is_none_or(|record| record.floor != FloorRecord::ABANDONED)
        })
    }
}

fn is_readable_chunk(first: Seq, value: &[u8]) -> bool {
    let chunk = Chunk::decode(first, Bytes::copy_from_slice(value));
    chunk.and_then(|chunk| chunk.decode_events()).is_ok()
}
