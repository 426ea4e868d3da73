//! Bounds the bytes of requests that are being read or wait for the journal, and shares them
//! between publishers.
//!
//! A holder's share depends on what is still free, so each holder leaves room to others. A topic
//! may hold as much as it leaves free: half of all if it is alone, and the next topic half of the
//! rest. The addresses that publish to a topic share the topic's part: each may hold three times
//! what it leaves. So a publisher with the key of one topic takes no room from another topic, and
//! one address leaves room to others. A namespace has keys for all its topics, so it counts as one
//! topic, and its topics share as addresses do.
//!
//! Invariants: the total is never exceeded; a holder may have two requests of the largest size if
//! that much is free; the table has entries only for holders with bytes, so the total bounds it.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
};

use parking_lot::Mutex;

use super::auth::failed_auth::counted_as;
use gridhook_engine::control::registry::TopicHandle;
use gridhook_event::PartitionId;
use gridhook_record::topic::TopicRecord;

/// A namespace, or a topic outside one, may hold this multiple of what it leaves free.
const OUTER_SHARE: usize = 1;

/// A topic of a namespace, and an address of a topic, may hold this multiple of what it leaves
/// free.
const INNER_SHARE: usize = 3;

/// The bytes in flight, and their limit.
#[derive(Debug)]
pub struct InFlightBytes {
    bytes: usize,
    request_bytes: usize,
    state: Mutex<InFlightBytesState>,
}

#[derive(Debug, Default)]
struct InFlightBytesState {
    total: usize,
    by_holder: BTreeMap<BytesHolder, usize>,
}

/// A holder of bytes, at one of the sharing levels.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum BytesHolder {
    Namespace(String),
    Topic(PartitionId),
    Address(PartitionId, IpAddr),
}

/// The holders of a request at every level, the widest first.
#[derive(Clone, Debug)]
pub struct RequestHolders {
    namespace: Option<BytesHolder>,
    inner: [BytesHolder; 2],
}

impl RequestHolders {
    /// Those of a request from this address to a topic, in this namespace or in none.
    pub fn new(namespace: Option<&str>, topic: PartitionId, address: Option<IpAddr>) -> Self {
        let address = address.map_or(Ipv4Addr::UNSPECIFIED.into(), counted_as);
        let namespace = namespace.map(|name| BytesHolder::Namespace(name.to_ascii_lowercase()));
        let inner = [
            BytesHolder::Topic(topic),
            BytesHolder::Address(topic, address),
        ];
        Self { namespace, inner }
    }

    fn iter_holders(&self) -> impl Iterator<Item = &BytesHolder> {
        self.namespace.iter().chain(&self.inner)
    }

    pub(super) fn for_publish(
        topic: &TopicHandle,
        record: &TopicRecord,
        address: Option<IpAddr>,
    ) -> Self {
        Self::new(
            record
                .namespace
                .as_ref()
                .map(|namespace| namespace.name.as_str()),
            topic.partition(),
            address,
        )
    }
}

/// The error of a reservation for which there is no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

impl InFlightBytes {
    /// A limit of `bytes`, for requests of at most `request_bytes` each.
    pub fn new(bytes: usize, request_bytes: usize) -> Arc<Self> {
        Arc::new(Self {
            bytes,
            request_bytes,
            state: Mutex::default(),
        })
    }

    pub fn bytes_in_flight(&self) -> usize {
        self.state.lock().total
    }

    pub fn bytes_max(&self) -> usize {
        self.bytes
    }

    /// Reserves bytes.
    ///
    /// # Errors
    /// If there is no room.
    pub fn reserve_bytes(
        self: &Arc<Self>,
        holders: RequestHolders,
        bytes: usize,
    ) -> Result<Permit, Full> {
        let mut permit = Permit {
            limit: Arc::clone(self),
            holders,
            bytes: 0,
        };
        permit.grow_to(bytes)?;
        Ok(permit)
    }
}

impl InFlightBytesState {
    fn has_room(&self, limit: &InFlightBytes, holders: &RequestHolders, added: usize) -> bool {
        let Some(mut spare) = limit.bytes.saturating_sub(self.total).checked_sub(added) else {
            return false;
        };
        let mut share = OUTER_SHARE;
        for holder in holders.iter_holders() {
            let bytes_held = self.by_holder.get(holder).copied().unwrap_or(0) + added;
            let bytes_max = share * spare;
            if bytes_held > bytes_max.max(2 * limit.request_bytes) {
                return false;
            }
            // The rest of this holder's share, for the next level to divide.
            spare = bytes_max.saturating_sub(bytes_held) / (share + 1);
            share = INNER_SHARE;
        }
        true
    }

    fn change_reservation(&mut self, holders: &RequestHolders, from: usize, to: usize) {
        self.total = self.total - from + to;
        for holder in holders.iter_holders() {
            match self.by_holder.entry(holder.clone()) {
                Entry::Vacant(holder) => {
                    holder.insert(to);
                }
                Entry::Occupied(mut holder) => {
                    let in_flight = *holder.get() - from + to;
                    if in_flight == 0 {
                        holder.remove();
                    } else {
                        holder.insert(in_flight);
                    }
                }
            }
        }
    }
}

/// Reserved bytes, released on drop.
#[derive(Debug)]
pub struct Permit {
    limit: Arc<InFlightBytes>,
    holders: RequestHolders,
    bytes: usize,
}

impl Permit {
    /// Whether the reservation could be extended to `bytes` in all now.
    pub fn could_grow_to(&self, bytes: usize) -> bool {
        self.limit.state.lock().has_room(
            &self.limit,
            &self.holders,
            bytes.saturating_sub(self.bytes),
        )
    }

    /// Extends the reservation to `bytes` in all. On failure it does not change.
    ///
    /// # Errors
    /// If there is no room.
    pub fn grow_to(&mut self, bytes: usize) -> Result<(), Full> {
        let Some(added) = bytes.checked_sub(self.bytes).filter(|added| *added > 0) else {
            return Ok(());
        };
        let mut state = self.limit.state.lock();
        if !state.has_room(&self.limit, &self.holders, added) {
            return Err(Full);
        }
        state.change_reservation(&self.holders, self.bytes, bytes);
        drop(state);
        self.bytes = bytes;
        Ok(())
    }

    /// Reduces the reservation to `bytes`.
    pub fn shrink_to(&mut self, bytes: usize) {
        if bytes < self.bytes {
            self.limit
                .state
                .lock()
                .change_reservation(&self.holders, self.bytes, bytes);
            self.bytes = bytes;
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.shrink_to(0);
    }
}
