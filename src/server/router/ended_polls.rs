//! Receive requests that a thread calls off at the owner of a shard: one request for all that end
//! while the one before is in flight.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    time::Duration,
};

use tokio::time::{Instant, sleep};

use super::owner;
use crate::forward::Hops;

/// The maximum of polls that one request ends.
const POLLS_MAX: usize = 1_000;

/// The pause before a request is repeated that has failed.
const RETRY_PAUSE: Duration = Duration::from_millis(50);

pub(super) struct EndedPolls {
    shard: Rc<Hops>,
    ids: RefCell<Vec<u64>>,
    is_sending: Cell<bool>,
}

impl EndedPolls {
    pub(super) fn new(shard: Rc<Hops>) -> Rc<Self> {
        Rc::new(Self {
            shard,
            ids: RefCell::default(),
            is_sending: Cell::new(false),
        })
    }

    pub(super) fn call_off(self: &Rc<Self>, id: u64) {
        self.ids.borrow_mut().push(id);
        if !self.is_sending.replace(true) {
            actix_rt::spawn(Rc::clone(self).send_all());
        }
    }

    async fn send_all(self: Rc<Self>) {
        loop {
            let mut ids = self.ids.take();
            if ids.is_empty() {
                break;
            }
            let later = ids.split_off(ids.len().min(POLLS_MAX));
            self.ids.borrow_mut().extend(later);
            self.send(&ids).await;
        }
        self.is_sending.set(false);
    }

    /// Repeats a request that has failed, as long as the owner may have those that it is about.
    async fn send(&self, ids: &[u64]) {
        let until = Instant::now() + owner::ANSWER_MAX;
        while self.shard.forwarder().has_owner() && Instant::now() < until {
            if owner::call_off(&self.shard, ids).await.is_ok() {
                return;
            }
            sleep(RETRY_PAUSE).await;
        }
    }
}
