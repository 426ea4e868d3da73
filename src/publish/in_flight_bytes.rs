//! The room for bodies: how many bytes of requests are being read or wait for the journal, and whose they are.
//!
//! Whoever holds room leaves some to others: what a holder may have depends on what is then still free. A topic may have as
//! much as it leaves free, so half of all where it is alone, and the next one half of the rest. The addresses that publish
//! to a topic share what it may have: each may have three times as much of it as it leaves. So who has the key of one topic
//! takes no room from another, and who publishes from one address leaves room to the others. A namespace has keys for all
//! its topics: it counts as one topic, and its topics share as addresses do.
//!
//! Invariants: no more than the whole is ever taken; a holder may have two requests of the largest size where that many
//! bytes are free; the table has an entry for each holder that has something, so that it is bounded by the room.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv4Addr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use super::auth::failed_auth::counted_as;
use crate::{
    control::{record::topic::TopicRecord, registry::TopicHandle},
    event::PartitionId,
};

/// A namespace, or a topic without one, may have so many times what it leaves free.
const OUTER_SHARE: usize = 1;

/// A topic of a namespace, and an address that publishes to a topic, may have so many times what it leaves to its like.
const INNER_SHARE: usize = 3;

/// All of it.
#[derive(Debug)]
pub struct InFlightBytes {
    bytes: usize,
    request_bytes: usize,
    held: Mutex<InFlightBytesState>,
}

#[derive(Debug, Default)]
struct InFlightBytesState {
    total: usize,
    by: HashMap<BytesHolder, usize>,
}

/// Who holds room, at one of the levels that share it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum BytesHolder {
    Namespace(String),
    Topic(PartitionId),
    Address(PartitionId, IpAddr),
}

/// For whom room is taken, at every level, the widest first.
#[derive(Clone, Debug)]
pub struct Request(Vec<BytesHolder>);

impl Request {
    /// A request to a topic of this namespace, or of none, from this address.
    pub fn new(namespace: Option<&str>, topic: PartitionId, address: Option<IpAddr>) -> Self {
        let address = address.map_or(Ipv4Addr::UNSPECIFIED.into(), counted_as);
        let namespace = namespace.map(|name| BytesHolder::Namespace(name.to_ascii_lowercase()));
        let own = [BytesHolder::Topic(topic), BytesHolder::Address(topic, address)];
        Self(namespace.into_iter().chain(own).collect())
    }

    pub(super) fn to(topic: &TopicHandle, record: &TopicRecord, address: Option<IpAddr>) -> Self {
        Self::new(record.namespace.as_ref().map(|namespace| namespace.name.as_str()), topic.partition(), address)
    }
}

/// There is no room for more of these bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

impl InFlightBytes {
    /// Room for so many bytes, and for requests that have no more than `request_bytes` each.
    pub fn new(bytes: usize, request_bytes: usize) -> Arc<Self> {
        Arc::new(Self { bytes, request_bytes, held: Mutex::default() })
    }

    /// How many bytes are taken.
    pub fn taken(&self) -> usize {
        self.lock().total
    }

    /// How many there are.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether so many bytes would be let in now. Nothing is taken.
    pub fn has(&self, request: &Request, bytes: usize) -> bool {
        self.lock().fits(self, request, bytes)
    }

    /// Takes so many bytes.
    ///
    /// # Errors
    /// Where there is no room for them.
    pub fn enter(self: &Arc<Self>, request: Request, bytes: usize) -> Result<Permit, Full> {
        let mut permit = Permit { room: Arc::clone(self), request, bytes: 0 };
        permit.grow_to(bytes)?;
        Ok(permit)
    }

    fn lock(&self) -> MutexGuard<'_, InFlightBytesState> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl InFlightBytesState {
    fn fits(&self, room: &InFlightBytes, request: &Request, more: usize) -> bool {
        let Some(mut spare) = room.bytes.saturating_sub(self.total).checked_sub(more) else { return false };
        let mut share = OUTER_SHARE;
        for holder in &request.0 {
            let would = self.by.get(holder).copied().unwrap_or(0) + more;
            let most = share * spare;
            if would > most.max(2 * room.request_bytes) {
                return false;
            }
            // What this holder could take beyond that, for those within it to share.
            spare = most.saturating_sub(would) / (share + 1);
            share = INNER_SHARE;
        }
        true
    }

    fn change(&mut self, request: &Request, from: usize, to: usize) {
        self.total = self.total - from + to;
        for holder in &request.0 {
            let held = self.by.entry(holder.clone()).or_default();
            *held = *held - from + to;
            if *held == 0 {
                self.by.remove(holder);
            }
        }
    }
}

/// Bytes of a request, until it is dropped.
#[derive(Debug)]
pub struct Permit {
    room: Arc<InFlightBytes>,
    request: Request,
    bytes: usize,
}

impl Permit {
    /// Takes as many more as make it `bytes` in all. It has as many as before where there is no room.
    ///
    /// # Errors
    /// Where there is no room for them.
    pub fn grow_to(&mut self, bytes: usize) -> Result<(), Full> {
        let Some(more) = bytes.checked_sub(self.bytes).filter(|more| *more > 0) else { return Ok(()) };
        let mut held = self.room.lock();
        if !held.fits(&self.room, &self.request, more) {
            return Err(Full);
        }
        held.change(&self.request, self.bytes, bytes);
        drop(held);
        self.bytes = bytes;
        Ok(())
    }

    /// Gives back what is beyond `bytes`.
    pub fn shrink_to(&mut self, bytes: usize) {
        if bytes < self.bytes {
            self.room.lock().change(&self.request, self.bytes, bytes);
            self.bytes = bytes;
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.shrink_to(0);
    }
}
