//! How many are connected: to a listener, and from one address.
//!
//! Whoever comes when all places are taken is told 503 with `Retry-After` and sent away, at once: nobody waits in a queue
//! that is not seen. No single address can have all places, so that whoever opens connections and says nothing shuts out
//! nobody but himself.
//!
//! Invariant: the table has one entry for each address that is connected, so that it is bounded by the places.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Arc, Mutex, PoisonError},
};

use ipnet::IpNet;

use crate::metrics::ListenerCounters;

/// So many connections may be open.
#[derive(Clone, Debug)]
pub(in crate::server) struct ConnectionLimit {
    /// Of all.
    pub(in crate::server) total: usize,
    /// From one address.
    pub(in crate::server) of_address: usize,
    /// Who is not counted by address: proxies, behind whom many are.
    pub(in crate::server) proxies: Vec<IpNet>,
}

/// Those who are connected to a listener.
pub(super) struct ConnectionLimiter {
    places: ConnectionLimit,
    listener: Arc<ListenerCounters>,
    now: Mutex<ConnectionCounts>,
}

#[derive(Default)]
struct ConnectionCounts {
    total: usize,
    by_address: HashMap<IpAddr, usize>,
}

/// A place in the crowd, until it is dropped.
pub(super) struct ConnectionPermit {
    connection_limiter: Arc<ConnectionLimiter>,
    address: IpAddr,
}

impl ConnectionLimiter {
    pub(super) fn new(places: ConnectionLimit, listener: Arc<ListenerCounters>) -> Arc<Self> {
        Arc::new(Self { places, listener, now: Mutex::default() })
    }

    /// A place for whoever comes from `address`; [`None`] where there is none.
    pub(super) fn enter(self: &Arc<Self>, address: IpAddr) -> Option<ConnectionPermit> {
        let address = counted_as(address);
        let ConnectionLimit { total, of_address, proxies } = &self.places;
        let mut now = self.now.lock().unwrap_or_else(PoisonError::into_inner);
        let his = now.by_address.get(&address).copied().unwrap_or(0);
        let is_proxy = proxies.iter().any(|network| network.contains(&address));
        if now.total >= *total {
            self.listener.refused.add(1);
            return None;
        }
        if his >= *of_address && !is_proxy {
            self.listener.refused_by_address.add(1);
            return None;
        }
        self.listener.open.add(1);
        self.listener.admitted.add(1);
        now.total += 1;
        now.by_address.insert(address, his + 1);
        Some(ConnectionPermit { connection_limiter: Arc::clone(self), address })
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        let mut now = self.connection_limiter.now.lock().unwrap_or_else(PoisonError::into_inner);
        now.total -= 1;
        self.connection_limiter.listener.open.sub(1);
        if let Some(his) = now.by_address.get_mut(&self.address) {
            *his -= 1;
            if *his == 0 {
                now.by_address.remove(&self.address);
            }
        }
    }
}

/// A household has a network of IPv6 addresses: it is counted as one.
fn counted_as(address: IpAddr) -> IpAddr {
    crate::publish::auth::failed_auth::counted_as(address)
}
