//! The queue of the writer's thread.
//!
//! Invariant: an entry wakes the writer only if the writer waits for entries of its kind. To wake a
//! thread costs more than to encode an outcome, and outcomes wait for others anyway.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use parking_lot::{Condvar, Mutex};

use super::{Error, WriteCallback, WriterEntry};
use gridhook_policy::record::WriteUrgency;

/// Calls back exactly once: an entry that the writer did not process gets [`Error::Closed`].
pub(super) struct CallOnce(pub(super) Option<WriteCallback>);

impl CallOnce {
    pub(super) fn call_with(mut self, answer: Result<(), Error>) {
        if let Some(done) = self.0.take() {
            done(answer);
        }
    }
}

impl Drop for CallOnce {
    fn drop(&mut self) {
        if let Some(done) = self.0.take() {
            done(Err(Error::Closed));
        }
    }
}

/// What the writer waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Awaited {
    Nothing,
    /// Entries that are written at once.
    Urgent,
    /// Urgent entries, and outcomes that something waits for.
    Usual,
    Any,
}

struct QueueState {
    entries: VecDeque<WriterEntry>,
    /// How many of the entries are written at once.
    urgent: usize,
    /// How many of the entries are outcomes that something waits for.
    usual: usize,
    awaited: Awaited,
    /// Whether the other end is gone.
    is_closed: bool,
}

impl QueueState {
    fn has_awaited(&self, awaited: Awaited) -> bool {
        self.is_closed
            || match awaited {
                Awaited::Nothing => true,
                Awaited::Urgent => self.urgent > 0,
                Awaited::Usual => self.urgent + self.usual > 0,
                Awaited::Any => !self.entries.is_empty(),
            }
    }
}

struct Queue {
    state: Mutex<QueueState>,
    ready: Condvar,
}

/// The end that adds entries.
pub(super) struct EntrySender(Arc<Queue>);

/// The end of the writer.
pub(super) struct EntryReceiver {
    queue: Arc<Queue>,
    /// Entries that were taken from the queue together.
    taken: VecDeque<WriterEntry>,
}

pub(super) fn new_queue() -> (EntrySender, EntryReceiver) {
    let state = QueueState {
        entries: VecDeque::new(),
        urgent: 0,
        usual: 0,
        awaited: Awaited::Nothing,
        is_closed: false,
    };
    let queue = Arc::new(Queue {
        state: Mutex::new(state),
        ready: Condvar::new(),
    });
    (
        EntrySender(Arc::clone(&queue)),
        EntryReceiver {
            queue,
            taken: VecDeque::new(),
        },
    )
}

impl EntrySender {
    /// Adds an entry. It is dropped if the writer has ended.
    pub(super) fn send_entry(&self, entry: WriterEntry) {
        let urgency = entry.urgency();
        let mut state = self.0.state.lock();
        if state.is_closed {
            drop(state);
            // Its requester is called back, which must not happen under the lock.
            return drop(entry);
        }
        state.entries.push_back(entry);
        state.urgent += usize::from(urgency == WriteUrgency::Now);
        state.usual += usize::from(urgency == WriteUrgency::Usual);
        let is_awaited = state.awaited != Awaited::Nothing && state.has_awaited(state.awaited);
        if is_awaited {
            state.awaited = Awaited::Nothing;
        }
        drop(state);
        if is_awaited {
            self.0.ready.notify_one();
        }
    }
}

impl Drop for EntrySender {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.is_closed = true;
        drop(state);
        self.0.ready.notify_one();
    }
}

impl EntryReceiver {
    /// Waits for entries of this kind, for at most `most`. Returns whether there are any, or the
    /// senders are gone.
    pub(super) fn wait_for_entries(&mut self, awaited: Awaited, most: Duration) -> bool {
        if !self.taken.is_empty() {
            return true;
        }
        let mut state = self.queue.state.lock();
        state.awaited = awaited;
        let is_missing = |state: &mut QueueState| !state.has_awaited(awaited);
        self.queue
            .ready
            .wait_while_for(&mut state, is_missing, most);
        state.awaited = Awaited::Nothing;
        state.has_awaited(awaited)
    }

    pub(super) fn next(&mut self) -> Option<WriterEntry> {
        if self.taken.is_empty() {
            let mut state = self.queue.state.lock();
            std::mem::swap(&mut state.entries, &mut self.taken);
            (state.urgent, state.usual) = (0, 0);
        }
        self.taken.pop_front()
    }

    pub(super) fn is_closed(&self) -> bool {
        let state = self.queue.state.lock();
        state.is_closed && state.entries.is_empty() && self.taken.is_empty()
    }
}

impl Drop for EntryReceiver {
    fn drop(&mut self) {
        let mut state = self.queue.state.lock();
        state.is_closed = true;
        let entries = std::mem::take(&mut state.entries);
        drop(state);
        drop(entries);
    }
}
