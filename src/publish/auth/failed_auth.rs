//! Limits failed authentications by address: delays their responses and counts them.
//!
//! A key has 256 bits, so it cannot be guessed; but attempts cost CPU time. After some failures the
//! refusals of an address are delayed, each longer than the one before, up to a maximum.
//!
//! Invariants: a valid key is never delayed, whatever its address sent before. The table is
//! bounded, and a new address replaces the one that has been quiet for longest. At most
//! [`FailedAuthLimits::waiting_max`] refusals are delayed at a time; further ones are sent at once.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv6Addr},
    sync::Arc,
    time::Duration,
};

use actix_web::HttpRequest;
use ipnet::IpNet;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::network::Origin;
use gridhook_event::Timestamp;

/// The first delay; each further failure doubles it.
const FIRST_WAIT: Duration = Duration::from_millis(50);

#[derive(Clone, Copy, Debug)]
pub struct FailedAuthLimits {
    /// The number of failures of an address that are not delayed, for operators who mistype a
    /// key.
    pub free: u32,
    /// The time after which failures are forgotten.
    pub memory: Duration,
    /// The maximum delay of a refusal.
    pub wait_max: Duration,
    /// The maximum number of tracked addresses.
    pub addresses_max: usize,
    /// The maximum number of refusals that are delayed at a time.
    pub waiting_max: usize,
}

impl Default for FailedAuthLimits {
    fn default() -> Self {
        Self {
            free: 10,
            memory: Duration::from_secs(60),
            wait_max: Duration::from_secs(2),
            addresses_max: 4_096,
            waiting_max: 256,
        }
    }
}

#[derive(Debug)]
pub struct FailedAuthLimiter {
    limits: FailedAuthLimits,
    proxies: Vec<IpNet>,
    known: Mutex<HashMap<IpAddr, FailedCaller>>,
    waiting: Arc<Semaphore>,
}

#[derive(Clone, Copy, Debug)]
struct FailedCaller {
    failures: u32,
    last: Timestamp,
}

#[derive(Debug)]
pub struct DelayedRefusal {
    /// The recent failures of the address, this one included.
    pub failures: u32,
    pub wait: Duration,
    _permit: Option<OwnedSemaphorePermit>,
}

impl DelayedRefusal {
    pub async fn wait_out(self) {
        if !self.wait.is_zero() {
            tokio::time::sleep(self.wait).await;
        }
    }
}

impl Default for FailedAuthLimiter {
    fn default() -> Self {
        Self::new(FailedAuthLimits::default(), Vec::new())
    }
}

impl FailedAuthLimiter {
    /// An empty table. The address of a request through one of `proxies` is taken from its headers.
    pub fn new(limits: FailedAuthLimits, proxies: Vec<IpNet>) -> Self {
        Self {
            limits,
            proxies,
            known: Mutex::default(),
            waiting: Arc::new(Semaphore::new(limits.waiting_max)),
        }
    }

    /// The address of a request: the client's, or that of the proxy behind which it cannot be seen.
    pub fn client_address(&self, request: &HttpRequest) -> Option<IpAddr> {
        Origin::from_request(request, &self.proxies).map(|origin| origin.nearest)
    }

    /// Records a failed authentication, and returns when the refusal may be sent.
    pub async fn delay_refusal(&self, request: &HttpRequest, now: Timestamp) {
        let Some(client) = self.client_address(request) else {
            return;
        };
        let refusal = self.record_failure(client, now);
        if refusal.failures == self.limits.free.saturating_add(1) {
            let DelayedRefusal { failures, .. } = refusal;
            tracing::warn!(%client, failures, "repeated failed authentications: refusals to this \
                address are delayed");
        }
        refusal.wait_out().await;
    }

    /// Records a failed authentication from `address`.
    pub fn record_failure(&self, address: IpAddr, now: Timestamp) -> DelayedRefusal {
        let failures = self.count_failure(counted_as(address), now);
        let beyond = failures.saturating_sub(self.limits.free);
        let wait = match beyond {
            0 => Duration::ZERO,
            beyond => FIRST_WAIT
                .saturating_mul(1 << (beyond - 1).min(16))
                .min(self.limits.wait_max),
        };
        let permit = if wait.is_zero() {
            None
        } else {
            Arc::clone(&self.waiting).try_acquire_owned().ok()
        };
        DelayedRefusal {
            failures,
            wait: if permit.is_some() {
                wait
            } else {
                Duration::ZERO
            },
            _permit: permit,
        }
    }

    pub fn tracked_addresses(&self) -> usize {
        self.known.lock().len()
    }

    fn count_failure(&self, address: IpAddr, now: Timestamp) -> u32 {
        let FailedAuthLimits {
            memory,
            addresses_max,
            ..
        } = self.limits;
        let mut callers = self.known.lock();
        if callers.len() >= addresses_max && !callers.contains_key(&address) {
            callers.retain(|_, caller| now.since(caller.last) < memory);
            // The table is still full, so the quietest address is removed. The search is bounded as
            // the table is.
            let quietest = callers
                .iter()
                .min_by_key(|(_, caller)| caller.last)
                .map(|(address, _)| *address);
            if let Some(quietest) = quietest.filter(|_| callers.len() >= addresses_max) {
                callers.remove(&quietest);
            }
        }
        let caller = callers.entry(address).or_insert(FailedCaller {
            failures: 0,
            last: now,
        });
        if now.since(caller.last) >= memory {
            caller.failures = 0;
        }
        caller.failures = caller.failures.saturating_add(1);
        caller.last = now.max(caller.last);
        caller.failures
    }
}

/// The address that is tracked for a client: an IPv6 client by its /64 network, because it has all
/// of its addresses.
pub fn counted_as(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => address.into(),
        IpAddr::V6(address) => {
            Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into()
        }
    }
}
