//! Guards: they keep a part of a log for a reader that has not stored a position yet.
//!
//! A guard is only in memory: it ends with the process, like its reader.

use std::{
    collections::HashMap,
    sync::{Arc, Weak},
};

use tokio::sync::oneshot;

use super::GroupWriter;
use crate::{Error, LogGuard};
use gridhook_event::{PartitionId, Seq};

/// Keeps a range of a log until it is dropped.
pub(crate) type GuardToken = Arc<Seq>;

#[derive(Debug, Default)]
pub(super) struct LogGuards(HashMap<PartitionId, Vec<Weak<Seq>>>);

impl LogGuards {
    /// The lowest guarded sequence of a partition.
    pub(super) fn lowest_guarded(&self, id: PartitionId) -> Option<Seq> {
        self.0
            .get(&id)?
            .iter()
            .filter_map(Weak::upgrade)
            .map(|from| *from)
            .min()
    }
}

impl GroupWriter {
    /// Keeps a log from `from` on, or from its floor. Only this thread moves the floor, so it
    /// cannot move in between.
    pub(super) fn guard_log(
        &mut self,
        id: PartitionId,
        from: Seq,
        reply: oneshot::Sender<Result<LogGuard, Error>>,
    ) {
        let answer = self
            .partitions
            .get(&id)
            .ok_or(Error::Unknown)
            .map(|partition| {
                let from = from.max(partition.floor).min(partition.next);
                let token = Arc::new(from);
                let guards = self.guards.0.entry(id).or_default();
                guards.retain(|token| token.strong_count() > 0);
                guards.push(Arc::downgrade(&token));
                LogGuard {
                    from,
                    _token: token,
                }
            });
        // If the caller was dropped, the guard is dropped with the reply.
        reply.send(answer).ok();
    }
}
