//! Limits the connections of a listener, in total and per address.
//!
//! A connection beyond a limit receives 503 with `Retry-After` and is closed at once; there is no
//! hidden queue. The limit per address is below the total, so a client that opens connections and
//! sends nothing blocks only itself.
//!
//! Invariant: the table has one entry for each connected address, so the total bounds it.

use std::{collections::HashMap, net::IpAddr, sync::Arc};

use ipnet::IpNet;
use parking_lot::Mutex;

use gridhook_metrics::ListenerCounters;

/// The maximum numbers of open connections.
#[derive(Clone, Debug)]
pub(crate) struct ConnectionLimit {
    pub total: usize,
    pub of_address: usize,
    /// Proxies, which are exempt from the limit per address because many clients are behind them.
    pub proxies: Vec<IpNet>,
}

/// Counts the open connections of a listener.
pub(super) struct ConnectionLimiter {
    limit: ConnectionLimit,
    listener: Arc<ListenerCounters>,
    now: Mutex<ConnectionCounts>,
}

#[derive(Default)]
struct ConnectionCounts {
    total: usize,
    by_address: HashMap<IpAddr, usize>,
}

/// The permit of a counted connection, given back when it is dropped.
pub(super) struct ConnectionPermit {
    connection_limiter: Arc<ConnectionLimiter>,
    address: IpAddr,
}

impl ConnectionLimiter {
    pub(super) fn new(limit: ConnectionLimit, listener: Arc<ListenerCounters>) -> Arc<Self> {
        Arc::new(Self {
            limit,
            listener,
            now: Mutex::default(),
        })
    }

    /// Counts a connection from `address`, or returns [`None`] where a limit is reached.
    pub(super) fn admit_connection(self: &Arc<Self>, address: IpAddr) -> Option<ConnectionPermit> {
        let address = counted_as(address);
        let ConnectionLimit {
            total,
            of_address,
            proxies,
        } = &self.limit;
        let mut now = self.now.lock();
        let open = now.by_address.get(&address).copied().unwrap_or(0);
        let is_proxy = proxies.iter().any(|network| network.contains(&address));
        if now.total >= *total {
            self.listener.refused.add(1);
            return None;
        }
        if open >= *of_address && !is_proxy {
            self.listener.refused_by_address.add(1);
            return None;
        }
        self.listener.open.add(1);
        self.listener.admitted.add(1);
        now.total += 1;
        now.by_address.insert(address, open + 1);
        Some(ConnectionPermit {
            connection_limiter: Arc::clone(self),
            address,
        })
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        let mut now = self.connection_limiter.now.lock();
        now.total -= 1;
        self.connection_limiter.listener.open.sub(1);
        if let Some(open) = now.by_address.get_mut(&self.address) {
            *open -= 1;
            if *open == 0 {
                now.by_address.remove(&self.address);
            }
        }
    }
}

/// An IPv6 network counts as one address, because one client has all of it.
fn counted_as(address: IpAddr) -> IpAddr {
    gridhook_publish::auth::failed_auth::counted_as(address)
}
