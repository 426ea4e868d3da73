//! Who showed what was no good, by address: slowed down, and counted.
//!
//! A key has 256 bits, so that nobody guesses it; but whoever tries costs time, and should not set the pace of it. After
//! some failures an address has its refusals held back, each for longer, up to a bound.
//!
//! Invariants: a right key is never slowed, whatever came from its address before, because it is asked first; the table has
//! a bound, and the address that has been quiet for longest is forgotten for a new one; no more refusals are held back at
//! a time than [`FailedAuthLimits::waiting_max`] says, further ones go at once.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv6Addr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use actix_web::HttpRequest;
use ipnet::IpNet;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::network;
use crate::event::Timestamp;

/// The first wait; each further failure doubles it.
const FIRST_WAIT: Duration = Duration::from_millis(50);

/// How refusals are held back.
#[derive(Clone, Copy, Debug)]
pub struct FailedAuthLimits {
    /// So many failures of an address are answered at once: an operator who mistypes is not a thief.
    pub free: u32,
    /// A failure is forgotten after so long.
    pub memory: Duration,
    /// No refusal is held back for longer.
    pub wait_max: Duration,
    /// So many addresses are known.
    pub addresses_max: usize,
    /// So many refusals are held back at a time.
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

/// Those who showed what was no good.
#[derive(Debug)]
pub struct FailedAuthLimiter {
    patience: FailedAuthLimits,
    proxies: Vec<IpNet>,
    known: Mutex<HashMap<IpAddr, FailedCaller>>,
    waiting: Arc<Semaphore>,
}

#[derive(Clone, Copy, Debug)]
struct FailedCaller {
    failures: u32,
    last: Timestamp,
}

/// What becomes of a refusal.
#[derive(Debug)]
pub struct DelayedRefusal {
    /// How often its address has failed lately, this time included.
    pub failures: u32,
    /// How long the answer waits.
    pub wait: Duration,
    _permit: Option<OwnedSemaphorePermit>,
}

impl DelayedRefusal {
    /// Waits.
    pub async fn wait(self) {
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
    /// Nobody is known yet. Whoever comes through one of the `proxies` is where that says.
    pub fn new(patience: FailedAuthLimits, proxies: Vec<IpNet>) -> Self {
        Self { patience, proxies, known: Mutex::default(), waiting: Arc::new(Semaphore::new(patience.waiting_max)) }
    }

    /// Notes that a request showed what is no good, and returns when that may be said.
    pub async fn refuse(&self, request: &HttpRequest, now: Timestamp) {
        let Some(client) = network::client(request, &self.proxies) else { return };
        let held = self.failed(client, now);
        if held.failures == self.patience.free.saturating_add(1) {
            let DelayedRefusal { failures, .. } = held;
            tracing::warn!(%client, failures, "keys or tokens that are no good come from an address: its refusals wait");
        }
        held.wait().await;
    }

    /// Notes that whoever came from `address` showed what is no good.
    pub fn failed(&self, address: IpAddr, now: Timestamp) -> DelayedRefusal {
        let failures = self.count(counted_as(address), now);
        let beyond = failures.saturating_sub(self.patience.free);
        let wait = match beyond {
            0 => Duration::ZERO,
            beyond => FIRST_WAIT.saturating_mul(1 << (beyond - 1).min(16)).min(self.patience.wait_max),
        };
        let permit = if wait.is_zero() { None } else { Arc::clone(&self.waiting).try_acquire_owned().ok() };
        DelayedRefusal { failures, wait: if permit.is_some() { wait } else { Duration::ZERO }, _permit: permit }
    }

    /// How many addresses are known.
    pub fn tracked_addresses(&self) -> usize {
        self.lock().len()
    }

    fn count(&self, address: IpAddr, now: Timestamp) -> u32 {
        let FailedAuthLimits { memory, addresses_max, .. } = self.patience;
        let mut known = self.lock();
        if known.len() >= addresses_max && !known.contains_key(&address) {
            known.retain(|_, stranger| now.since(stranger.last) < memory);
            // Still full: the quietest goes. It is looked for once a newcomer, in a table that has a bound.
            let quietest = known.iter().min_by_key(|(_, stranger)| stranger.last).map(|(address, _)| *address);
            if let Some(quietest) = quietest.filter(|_| known.len() >= addresses_max) {
                known.remove(&quietest);
            }
        }
        let stranger = known.entry(address).or_insert(FailedCaller { failures: 0, last: now });
        if now.since(stranger.last) >= memory {
            stranger.failures = 0;
        }
        stranger.failures = stranger.failures.saturating_add(1);
        stranger.last = now.max(stranger.last);
        stranger.failures
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<IpAddr, FailedCaller>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// By which address somebody is counted: of IPv6 by its network of 64 bits, because whoever has one address there has all
/// of them.
pub fn counted_as(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => address.into(),
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into(),
    }
}
