//! Parts of logs that somebody is about to read, and has written nothing yet that would keep them.
//!
//! A hold lives in memory: a process that dies takes with it whoever was about to read.

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

/// Dropped by whoever has read, or never will.
pub(in crate::journal) type HeldRange = Arc<Seq>;

/// The holds of all partitions.
#[derive(Debug, Default)]
pub(super) struct LogHolds(HashMap<PartitionId, Vec<Weak<Seq>>>);

impl LogHolds {
    /// The lowest place of a partition that is held.
    pub(super) fn low(&self, id: PartitionId) -> Option<Seq> {
        self.0.get(&id)?.iter().filter_map(Weak::upgrade).map(|held| *held).min()
    }
}

impl GroupWriter {
    /// Keeps a log from `from` on, or from its floor. The floor is moved by this thread and no other: nothing comes in between.
    pub(super) fn hold(&mut self, id: PartitionId, from: Seq, reply: oneshot::Sender<Result<LogHold, Error>>) {
        let answer = self.partitions.get(&id).ok_or(Error::Unknown).map(|partition| {
            let from = from.max(partition.floor).min(partition.next);
            let held = Arc::new(from);
            let holds = self.holds.0.entry(id).or_default();
            holds.retain(|held| held.strong_count() > 0);
            holds.push(Arc::downgrade(&held));
            LogHold { from, _held: held }
        });
        // Whoever asked may have gone: then it is dropped with the answer.
        reply.send(answer).ok();
    }
}
