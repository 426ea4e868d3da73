//! The connection of a client: whether it is open, and whether its response was written.
//!
//! A waiting client sends nothing. Only the reader of its connection sees it disconnect, and only
//! the writer knows whether the response was written. The listener records both here for the
//! request in progress.
//!
//! Invariants: an undo action runs at most once, and not after the next request has begun. A client
//! that has closed its side counts as disconnected, even if it would still read.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
};

use tokio::sync::Notify;

type Undo = Box<dyn FnOnce()>;

/// A connection. Clones refer to the same one.
#[derive(Clone, Default)]
pub struct Peer(Rc<PeerShared>);

#[derive(Default)]
struct PeerShared {
    gone: Cell<bool>,
    going: Notify,
    undo: RefCell<Option<Undo>>,
    written: Cell<bool>,
}

impl Peer {
    /// Whether the client has closed its side, or the connection failed.
    pub fn is_gone(&self) -> bool {
        self.0.gone.get()
    }

    /// Waits until the client has disconnected.
    pub async fn wait_until_gone(&self) {
        while !self.is_gone() {
            self.0.going.notified().await;
        }
    }

    /// Runs `undo` if the response to the current request does not reach the client.
    pub fn unless_written(&self, undo: impl FnOnce() + 'static) {
        self.0.undo.replace(Some(Box::new(undo)));
    }

    /// Runs the undo action of the current request, if it has not run.
    pub fn run_undo(&self) {
        if let Some(undo) = self.0.undo.take() {
            undo();
        }
    }

    // --- called by the listener ---

    /// The head of a request has arrived, so the client took the response before it.
    pub fn begin_request(&self) {
        self.0.undo.take();
        self.0.written.set(false);
    }

    /// The client has closed its side.
    pub fn mark_closed(&self) {
        self.0.gone.set(true);
        self.0.going.notify_waiters();
    }

    /// The whole response was handed to the system.
    pub fn mark_written(&self) {
        if self.is_gone() {
            self.mark_failed();
        }
        self.0.written.set(true);
    }

    /// The connection failed; written data may never be read.
    pub fn mark_failed(&self) {
        self.mark_closed();
        self.run_undo();
    }

    pub fn end_connection(&self) {
        self.mark_closed();
        if !self.0.written.get() {
            self.mark_failed();
        }
    }
}
