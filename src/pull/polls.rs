//! Receive requests of other nodes of a cluster, each for a part of a spread topic.
//!
//! A node asks all parts at once, and calls the others off when one has events. It reads every
//! response to its end all the same: the events of a request may have been locked before it was
//! called off.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::sync::Notify;

/// How a node receives from a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeReceive {
    Look,
    /// Waits for events until it is called off.
    Wait {
        /// The number that the node gave the request.
        id: u64,
        longest: Duration,
    },
}

impl NodeReceive {
    /// As text in a header.
    pub fn to_header(self) -> String {
        match self {
            Self::Look => "look".to_owned(),
            Self::Wait { id, longest } => format!("{id} {}", longest.as_millis()),
        }
    }

    pub fn read(text: &str) -> Option<Self> {
        if text == "look" {
            return Some(Self::Look);
        }
        let (id, longest) = text.split_once(' ')?;
        Some(Self::Wait {
            id: id.parse().ok()?,
            longest: Duration::from_millis(longest.parse().ok()?),
        })
    }
}

/// The requests that wait, by number.
#[derive(Debug, Default)]
pub struct NodePolls(Mutex<HashMap<u64, Arc<Notify>>>);

/// A request that waits, until this is dropped.
pub(super) struct OpenPoll<'a> {
    polls: &'a NodePolls,
    waiting: Option<(u64, Arc<Notify>)>,
}

impl NodePolls {
    pub(super) fn begin_poll(&self, receive: Option<NodeReceive>) -> OpenPoll<'_> {
        let waiting = match receive {
            Some(NodeReceive::Wait { id, .. }) => {
                let called_off = Arc::new(Notify::new());
                self.0
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .insert(id, Arc::clone(&called_off));
                Some((id, called_off))
            }
            Some(NodeReceive::Look) | None => None,
        };
        OpenPoll {
            polls: self,
            waiting,
        }
    }

    /// Cancels a request: its response is sent at once. One that is not known may still arrive.
    pub fn call_off(&self, id: u64) {
        if let Some(poll) = self
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(&id)
        {
            poll.notify_one();
        }
    }
}

impl OpenPoll<'_> {
    /// Returns once the request is called off.
    pub(super) async fn called_off(&self) {
        match &self.waiting {
            Some((_, called_off)) => called_off.notified().await,
            None => std::future::pending().await,
        }
    }
}

impl Drop for OpenPoll<'_> {
    fn drop(&mut self) {
        if let Some((id, _)) = &self.waiting {
            self.polls
                .0
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .remove(id);
        }
    }
}
