//! What is owed, on its way from the disk to a request: once for what is published, and once for jobs, so that neither
//! stands in the other's way.

use std::collections::VecDeque;

use super::idle::IdleLanes;
use crate::{
    event::{Lane, Seq, Timestamp},
    policy::{SendItem, batch::ReadyEvent, record::DueKey, retry_window::RetryWindow},
};

/// Owed events are fetched by so many, or by a batch if that is more.
const FETCH: usize = 64;

/// What is being fetched.
#[derive(Debug)]
pub(super) struct WantedEvents {
    pub(super) key: (Lane, Seq),
    /// When it fell due; [`None`] for one that is lost, not owed.
    pub(super) due: Option<Timestamp>,
}

impl WantedEvents {
    fn of_due(DueKey { due, lane, seq }: DueKey) -> Self {
        Self { key: (lane, seq), due: Some(due) }
    }
}

/// The way.
#[derive(Debug)]
pub(super) struct SendQueue {
    pub(super) due: RetryWindow,
    /// Open at recovery, and in no flight: to be fetched and sent again.
    pub(super) lost: VecDeque<(Lane, Seq)>,
    pub(super) fetching: Vec<WantedEvents>,
    pub(super) retries: VecDeque<ReadyEvent>,
    /// Due, and nobody has asked for it.
    pub(super) idle: IdleLanes,
}

impl SendQueue {
    pub(super) fn new(due: RetryWindow, lost: impl Iterator<Item = (Lane, Seq)>) -> Self {
        Self { due, lost: lost.collect(), fetching: Vec::new(), retries: VecDeque::new(), idle: IdleLanes::default() }
    }

    /// What is being fetched or ready, apart from its event.
    pub(super) fn engaged(&self) -> impl Iterator<Item = (Lane, Seq)> {
        let ready = self.retries.iter().map(|ready| ready.item.key());
        self.fetching.iter().map(|wanted| wanted.key).chain(ready).chain(self.idle.keys())
    }

    /// How many bytes of events are ready.
    pub(super) fn ready_bytes(&self) -> usize {
        self.retries.iter().map(|ready| ready.event.wire_len()).sum()
    }

    /// When the first of these falls due, wherever it is by now.
    pub(super) fn first_due(&self) -> Option<Timestamp> {
        let fetching = self.fetching.iter().filter_map(|wanted| wanted.due);
        let ready = self.retries.iter().filter_map(|ready| ready.item.due);
        self.due.first().into_iter().chain(fetching).chain(ready).chain(self.idle.first_due()).min()
    }

    /// What is to be fetched next, of the lanes that may be sent now; nothing while something is on its way.
    pub(super) fn fetch(&mut self, now: Timestamp, batch: usize, may_go: impl Fn(Lane) -> bool) -> Vec<(Lane, Seq)> {
        if !self.fetching.is_empty() {
            return Vec::new();
        }
        let max = FETCH.max(batch);
        let mut left = VecDeque::new();
        for key in self.lost.drain(..) {
            if may_go(key.0) && self.fetching.len() < max {
                self.fetching.push(WantedEvents { key, due: None });
            } else {
                left.push_back(key);
            }
        }
        self.lost = left;
        self.fetching
            .extend(self.due.take(now, max - self.fetching.len(), may_go).into_iter().map(WantedEvents::of_due));
        self.fetching.iter().map(|wanted| wanted.key).collect()
    }

    /// Takes what is ready back, of these lanes: it will be fetched again.
    pub(super) fn forget_ready(&mut self, is_such: impl Fn(Lane) -> bool) {
        let retries = std::mem::take(&mut self.retries);
        let (back, stay): (Vec<ReadyEvent>, Vec<ReadyEvent>) =
            retries.into_iter().partition(|ready| is_such(ready.item.lane));
        self.retries = stay.into();
        self.put_back(back.into_iter().map(|ReadyEvent { item, .. }| WantedEvents { key: item.key(), due: item.due }));
    }

    /// Nothing of a lane is to be sent any more: what is being fetched goes back. Takes those out that are not even owed.
    pub(super) fn withdraw(&mut self, lane: Lane) -> Vec<Seq> {
        let (back, stay): (Vec<WantedEvents>, Vec<WantedEvents>) =
            std::mem::take(&mut self.fetching).into_iter().partition(|wanted| wanted.key.0 == lane);
        self.fetching = stay;
        self.put_back(back);
        let (lost, stay): (VecDeque<_>, VecDeque<_>) =
            std::mem::take(&mut self.lost).into_iter().partition(|(of, _)| *of == lane);
        self.lost = stay;
        lost.into_iter().map(|(_, seq)| seq).collect()
    }

    pub(super) fn put_back(&mut self, wanted: impl IntoIterator<Item = WantedEvents>) {
        for WantedEvents { key: (lane, seq), due } in wanted {
            match due {
                Some(due) => self.due.put_back(DueKey { due, lane, seq }),
                None => self.lost.push_back((lane, seq)),
            }
        }
    }

    /// Takes an obligation out, if it is being fetched or ready.
    pub(super) fn take_out(&mut self, item: SendItem) -> Option<SendItem> {
        let key = item.key();
        if let Some(place) = self.retries.iter().position(|ready| ready.item.key() == key) {
            return self.retries.remove(place).map(|ready| ready.item);
        }
        let place = self.fetching.iter().position(|wanted| wanted.key == key)?;
        Some(SendItem { due: self.fetching.remove(place).due, ..item })
    }

    /// Nothing of it is to be sent from here.
    pub(super) fn drop_key(&mut self, key: (Lane, Seq)) {
        self.lost.retain(|lost| *lost != key);
        self.fetching.retain(|wanted| wanted.key != key);
        self.retries.retain(|ready| ready.item.key() != key);
        self.idle.drop_key(key);
    }
}
