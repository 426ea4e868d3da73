//! Receive requests that a thread cancels at other nodes: one request for all that end while the one
//! before is in flight.

use std::{cell::RefCell, collections::BTreeMap, rc::Rc, time::Duration};

use tokio::time::{Instant, sleep};

use super::owner;
use crate::forward::Hops;

/// The most polls that one request cancels.
const POLLS_MAX: usize = 1_000;

/// The pause before a request is repeated that has failed.
const RETRY_PAUSE: Duration = Duration::from_millis(50);

pub(super) struct EndedPolls {
    hops: Rc<Hops>,
    /// The numbers of those that no request cancels yet, by the address of their node. A node is
    /// among them while requests are sent to it.
    ids: RefCell<BTreeMap<String, Vec<u64>>>,
}

impl EndedPolls {
    pub(super) fn new(hops: Rc<Hops>) -> Rc<Self> {
        let ids = RefCell::default();
        Rc::new(Self { hops, ids })
    }

    pub(super) fn cancel_poll(self: &Rc<Self>, address: &str, id: u64) {
        let mut ids = self.ids.borrow_mut();
        if let Some(waiting) = ids.get_mut(address) {
            waiting.push(id);
            return;
        }
        ids.insert(address.to_owned(), vec![id]);
        actix_rt::spawn(Rc::clone(self).send_all(address.to_owned()));
    }

    async fn send_all(self: Rc<Self>, address: String) {
        loop {
            let ids = self.take_ids(&address);
            if ids.is_empty() {
                return;
            }
            self.send(&address, &ids).await;
        }
    }

    /// The polls that the next request to a node cancels. Without any, the node is forgotten.
    fn take_ids(&self, address: &str) -> Vec<u64> {
        let mut by_node = self.ids.borrow_mut();
        let Some(ids) = by_node.get_mut(address) else {
            return Vec::new();
        };
        let rest = ids.split_off(ids.len().min(POLLS_MAX));
        let next = std::mem::replace(ids, rest);
        if next.is_empty() {
            by_node.remove(address);
        }
        next
    }

    /// Repeats a request that has failed, as long as the node may have those that it is about.
    async fn send(&self, address: &str, ids: &[u64]) {
        let until = Instant::now() + owner::OWNER_RESPONSE_MAX;
        while Instant::now() < until {
            if owner::cancel_polls(&self.hops, address, ids).await.is_ok() {
                return;
            }
            sleep(RETRY_PAUSE).await;
        }
    }
}
