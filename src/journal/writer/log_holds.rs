//! Holds: they keep a part of a log for a reader that has not stored a position yet.
//!
//! A hold is only in memory: it ends with the process, like its reader.

use std::{
    collections::HashMap,
    sync::{Arc, Weak},
};

use tokio::sync::oneshot;

use super::GroupWriter;
use crate::{
    event::{PartitionId, Seq},
    journal::{Error, LogHold},
};

/// Keeps a range of a log until it is dropped.
pub(in crate::journal) type HoldToken = Arc<Seq>;

/// The holds of all partitions.
#[derive(Debug, Default)]
pub(super) struct LogHolds(HashMap<PartitionId, Vec<Weak<Seq>>>);

impl LogHolds {
    /// The lowest held sequence of a partition.
    pub(super) fn low(&self, id: PartitionId) -> Option<Seq> {
        self.0.get(&id)?.iter().filter_map(Weak::upgrade).map(|held| *held).min()
    }
}

impl GroupWriter {
    /// Keeps a log from `from` on, or from its floor. Only this thread moves the floor, so it cannot move in between.
    pub(super) fn hold(&mut self, id: PartitionId, from: Seq, reply: oneshot::Sender<Result<LogHold, Error>>) {
        let answer = self.partitions.get(&id).ok_or(Error::Unknown).map(|partition| {
            let from = from.max(partition.floor).min(partition.next);
            let held = Arc::new(from);
            let holds = self.holds.0.entry(id).or_default();
            holds.retain(|held| held.strong_count() > 0);
            holds.push(Arc::downgrade(&held));
            LogHold { from, _held: held }
        });
        // If the caller was dropped, the hold is dropped with the answer.
        reply.send(answer).ok();
    }
}
