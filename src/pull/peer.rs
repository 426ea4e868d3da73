//! The connection that a client asked by: whether the client is still there, and whether it was given its answer.
//!
//! A client that waits says nothing, so that its going away is seen only by whoever reads its connection, and whether its
//! answer was written only by whoever writes it. Both are told here by the listener, and heard by the request in progress.
//!
//! Invariants: what a request left to be undone is undone at most once, and not once the next request has come. A client that
//! has closed its side counts as gone, whether it would read on or not.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
};

use tokio::sync::Notify;

type Undo = Box<dyn FnOnce()>;

/// A connection. Clones are of the same one.
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
    /// Whether the client has closed its side, or the connection broke.
    pub fn is_gone(&self) -> bool {
        self.0.gone.get()
    }

    /// Waits until it has.
    pub async fn gone(&self) {
        while !self.is_gone() {
            self.0.going.notified().await;
        }
    }

    /// Has `undo` done where the answer to the present request does not reach the client.
    pub fn unless_written(&self, undo: impl FnOnce() + 'static) {
        self.0.undo.replace(Some(Box::new(undo)));
    }

    // --- what the listener tells ---

    /// The head of a request has come: the answer before it was taken.
    pub fn begin(&self) {
        self.0.undo.take();
        self.0.written.set(false);
    }

    /// The client has closed its side.
    pub fn leave(&self) {
        self.0.gone.set(true);
        self.0.going.notify_waiters();
    }

    /// The answer was handed to the system as a whole.
    pub fn written(&self) {
        if self.is_gone() {
            self.fail();
        }
        self.0.written.set(true);
    }

    /// The connection broke: what was written may lie where nobody reads it.
    pub fn fail(&self) {
        self.leave();
        if let Some(undo) = self.0.undo.take() {
            undo();
        }
    }

    /// The connection is over.
    pub fn end(&self) {
        self.leave();
        if !self.0.written.get() {
            self.fail();
        }
    }
}
