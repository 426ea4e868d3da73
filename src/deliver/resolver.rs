//! Name resolution with a cache, instead of the C library's.
//!
//! `getaddrinfo` blocks a thread per lookup until the name servers respond or it times out, and has
//! no cache. Here a lookup is a task. `/etc/hosts`, `localhost` and `/etc/resolv.conf` (name
//! servers, search domains, `ndots`) are used as there, and read again when they change.
//!
//! Invariants:
//! - At most one lookup of a name is in progress; all requests for the name share it.
//! - Names without a response do not delay others. A lookup has one of [`PROMPT_LOOKUPS`] for
//!   [`PROMPT_TIMEOUT`]; without a response by then, it continues in one of [`SLOW_LOOKUPS`],
//!   and the next lookups of the name start there for [`SILENT_FOR`].
//! - A response is valid for its time to live, at most [`KEPT_FOR`]. If the name servers do not
//!   answer, the last response is used for up to [`STALE_FOR`] longer (RFC 8767). If they answer
//!   that the name does not exist, it is not.
//!
//! Which addresses may be called is decided by [`address`](super::address), in which order by
//! [`dial`](super::dial).

use std::{
    collections::HashMap,
    fs, io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::Arc,
    time::{Duration, SystemTime},
};

use futures_util::{
    FutureExt as _,
    future::{BoxFuture, LocalBoxFuture, Shared, WeakShared, select},
};
use hickory_resolver::{
    Hosts, TokioResolver,
    config::{ConnectionConfig, NameServerConfig, ResolveHosts, ResolverConfig, ResolverOpts},
    lookup::Lookup,
    net::{NetError, runtime::TokioRuntimeProvider},
    proto::{
        op::Query,
        rr::{Name, RecordType},
    },
    system_conf::read_system_conf,
};
use parking_lot::Mutex;
use tokio::{
    sync::Semaphore,
    time::{Instant, timeout},
};

/// Maximum lookups in the first phase.
pub const PROMPT_LOOKUPS: usize = 64;

/// Length of the first phase: nearby name servers respond within a tenth of that.
pub const PROMPT_TIMEOUT: Duration = Duration::from_millis(300);

/// Maximum lookups in the second phase. Each holds some sockets.
pub const SLOW_LOOKUPS: usize = 32;

/// Time limit of a lookup.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(5);

/// Time limit of a lookup if the last one of the name had no response.
const SILENT_TIMEOUT: Duration = Duration::from_secs(2);

/// How long a name counts as unanswered after a lookup without a response.
pub const SILENT_FOR: Duration = Duration::from_secs(60);

/// Maximum time to live in the cache.
pub const KEPT_FOR: Duration = Duration::from_secs(3_600);

/// How long after its time to live a response is used while name servers do not respond.
pub const STALE_FOR: Duration = Duration::from_secs(3_600);

/// The pause before the next query to name servers that did not respond.
const STALE_PAUSE: Duration = Duration::from_secs(30);

/// How long addresses of one family wait for those of the other (RFC 8305, section 3).
const RESOLUTION_DELAY: Duration = Duration::from_millis(50);

const NAMES_MAX: usize = 8_192;

/// Minimum pause between checks of the system's files.
const FILES_PAUSE: Duration = Duration::from_secs(1);

const FILES: [&str; 2] = ["/etc/resolv.conf", "/etc/hosts"];

pub trait NameResolver: Send + Sync {
    /// The addresses of `host`, with `port`. Empty if the name does not exist or has no address.
    fn look_up(
        &self,
        host: &str,
        port: u16,
    ) -> LocalBoxFuture<'static, io::Result<Vec<SocketAddr>>>;
}

#[derive(Clone, Debug, thiserror::Error)]
enum Failure {
    #[error("the name servers do not respond")]
    Silent,
    #[error("{0}")]
    Failed(String),
}

type Found = Result<Arc<[IpAddr]>, Failure>;

/// The resolver of names. There is one for the whole server, so that all threads share the cache.
#[derive(Clone)]
pub struct Resolver(Arc<ResolverShared>);

struct ResolverShared {
    servers: Vec<SocketAddr>,
    system: Mutex<Option<System>>,
    known: Mutex<ResolverState>,
    prompt: Semaphore,
    slow: Semaphore,
}

/// The configuration in the system's files.
#[derive(Clone)]
struct System {
    resolver: TokioResolver,
    hosts: Arc<Hosts>,
    changed: [Option<SystemTime>; 2],
    looked: Instant,
}

#[derive(Default)]
struct ResolverState {
    answers: HashMap<String, Answer>,
    lookup: HashMap<String, WeakShared<BoxFuture<'static, Found>>>,
    silent: HashMap<String, Instant>,
}

struct Answer {
    found: Arc<[IpAddr]>,
    until: Instant,
    stale_until: Instant,
}

impl Default for Resolver {
    fn default() -> Self {
        Self::new(Vec::new())
    }
}

impl Resolver {
    /// Makes a resolver with these name servers, or with the system's if there are none.
    pub fn new(servers: Vec<SocketAddr>) -> Self {
        Self(Arc::new(ResolverShared {
            servers,
            system: Mutex::default(),
            known: Mutex::default(),
            prompt: Semaphore::new(PROMPT_LOOKUPS),
            slow: Semaphore::new(SLOW_LOOKUPS),
        }))
    }
}

impl NameResolver for Resolver {
    fn look_up(
        &self,
        host: &str,
        port: u16,
    ) -> LocalBoxFuture<'static, io::Result<Vec<SocketAddr>>> {
        let inner = Arc::clone(&self.0);
        let host = host.to_ascii_lowercase();
        Box::pin(async move {
            let addresses = inner
                .find_addresses(&host)
                .await
                .map_err(io::Error::other)?;
            Ok(addresses
                .iter()
                .map(|address| SocketAddr::new(*address, port))
                .collect())
        })
    }
}

impl ResolverShared {
    async fn find_addresses(self: Arc<Self>, host: &str) -> Found {
        let system = self.system_config()?;
        let name = Name::from_utf8(host).map_err(|error| Failure::Failed(error.to_string()))?;
        if let Some(found) = local_addresses(&system.hosts, &name) {
            return Ok(found);
        }
        self.start_lookup(system.resolver, host, name)?.await
    }

    /// The cached response, or the lookup in progress.
    fn start_lookup(
        self: &Arc<Self>,
        resolver: TokioResolver,
        host: &str,
        name: Name,
    ) -> Result<Shared<BoxFuture<'static, Found>>, Failure> {
        let mut cache = self.known.lock();
        if let Some(answer) = cache
            .answers
            .get(host)
            .filter(|answer| Instant::now() < answer.until)
        {
            return Ok(std::future::ready(Ok(Arc::clone(&answer.found)))
                .boxed()
                .shared());
        }
        if let Some(lookup) = cache.lookup.get(host).and_then(WeakShared::upgrade) {
            return Ok(lookup);
        }
        cache.lookup.retain(|_, lookup| lookup.upgrade().is_some());
        let lookup = Arc::clone(self)
            .resolve_name(resolver, host.to_owned(), name)
            .boxed()
            .shared();
        cache
            .lookup
            .extend(lookup.downgrade().map(|lookup| (host.to_owned(), lookup)));
        Ok(lookup)
    }

    async fn resolve_name(
        self: Arc<Self>,
        resolver: TokioResolver,
        host: String,
        name: Name,
    ) -> Found {
        let result = self.lookup_in_phases(&resolver, &host, &name).await;
        let now = Instant::now();
        let mut cache = self.known.lock();
        match result {
            Ok((found, until)) => {
                cache.silent.remove(&host);
                let address_list: Arc<[IpAddr]> = found.into();
                if address_list.is_empty() {
                    cache.answers.remove(&host);
                } else {
                    let answer = Answer {
                        found: Arc::clone(&address_list),
                        until,
                        stale_until: until + STALE_FOR,
                    };
                    make_room(&mut cache.answers, |answer| now < answer.stale_until);
                    cache.answers.insert(host, answer);
                }
                Ok(address_list)
            }
            Err(failure) => {
                if matches!(failure, Failure::Silent) {
                    make_room(&mut cache.silent, |until| now < *until);
                    cache.silent.insert(host.clone(), now + SILENT_FOR);
                }
                match cache
                    .answers
                    .get_mut(&host)
                    .filter(|answer| now < answer.stale_until)
                {
                    Some(answer) => {
                        answer.until = now + STALE_PAUSE;
                        tracing::debug!(%host, %failure, "name servers do not respond; using stale \
                            addresses");
                        Ok(Arc::clone(&answer.found))
                    }
                    None => Err(failure),
                }
            }
        }
    }

    /// Looks up in the first phase, or in the second if the last lookup of the name had no
    /// response.
    async fn lookup_in_phases(
        &self,
        resolver: &TokioResolver,
        host: &str,
        name: &Name,
    ) -> Result<(Vec<IpAddr>, Instant), Failure> {
        let is_silent = self
            .known
            .lock()
            .silent
            .get(host)
            .is_some_and(|until| Instant::now() < *until);
        let mut lookup = None;
        if !is_silent {
            let _permit = self.prompt.acquire().await.map_err(|_| Failure::Silent)?;
            let mut prompt = Box::pin(look_up_families(resolver, name));
            match timeout(PROMPT_TIMEOUT, &mut prompt).await {
                Ok(answer) => return answer,
                Err(_) => lookup = Some(prompt),
            }
        }
        let _permit = match self.slow.try_acquire() {
            Ok(permit) => permit,
            Err(_) => {
                // Releases its sockets while it waits.
                lookup = None;
                self.slow.acquire().await.map_err(|_| Failure::Silent)?
            }
        };
        let lookup = lookup.unwrap_or_else(|| Box::pin(look_up_families(resolver, name)));
        let wait = if is_silent {
            SILENT_TIMEOUT
        } else {
            LOOKUP_TIMEOUT
        };
        timeout(wait, lookup).await.unwrap_or(Err(Failure::Silent))
    }

    /// The system's configuration, read again if a file has changed.
    fn system_config(&self) -> Result<System, Failure> {
        let mut system = self.system.lock();
        let now = Instant::now();
        if let Some(system) = &mut *system {
            if now.duration_since(system.looked) < FILES_PAUSE {
                return Ok(system.clone());
            }
            system.looked = now;
            if system.changed == modification_times() {
                return Ok(system.clone());
            }
        }
        let read = System {
            // Before the files are read, so that a change in between is read again.
            changed: modification_times(),
            resolver: new_resolver(&self.servers)
                .map_err(|error| Failure::Failed(error.to_string()))?,
            hosts: Arc::new(Hosts::from_system().unwrap_or_default()),
            looked: now,
        };
        self.known.lock().answers.clear();
        Ok(system.insert(read).clone())
    }
}

fn modification_times() -> [Option<SystemTime>; 2] {
    FILES.map(|path| fs::metadata(path).and_then(|file| file.modified()).ok())
}

/// Removes entries that are no longer needed if the map is full, or else any entry.
fn make_room<T>(map: &mut HashMap<String, T>, is_of_use: impl Fn(&T) -> bool) {
    if map.len() < NAMES_MAX {
        return;
    }
    map.retain(|_, value| is_of_use(value));
    if map.len() >= NAMES_MAX
        && let Some(victim) = map.keys().next().cloned()
    {
        map.remove(&victim);
    }
}

fn new_resolver(servers: &[SocketAddr]) -> Result<TokioResolver, NetError> {
    let (config, mut options) = if servers.is_empty() {
        // The C library's default if the system names no server.
        read_system_conf().unwrap_or_else(|_| {
            (
                lookup_config(&[SocketAddr::from((Ipv4Addr::LOCALHOST, 53))]),
                ResolverOpts::default(),
            )
        })
    } else {
        (lookup_config(servers), ResolverOpts::default())
    };
    // The cache is here, and `/etc/hosts` comes first for both families.
    options.cache_size = 0;
    options.use_hosts_file = ResolveHosts::Never;
    options.timeout = LOOKUP_TIMEOUT;
    options.attempts = 1;
    options.max_active_requests = PROMPT_LOOKUPS + SLOW_LOOKUPS;
    TokioResolver::builder_with_config(config, TokioRuntimeProvider::default())
        .with_options(options)
        .build()
}

fn lookup_config(servers: &[SocketAddr]) -> ResolverConfig {
    let mut name_servers = Vec::with_capacity(servers.len());
    for server in servers {
        let mut connections = vec![ConnectionConfig::udp(), ConnectionConfig::tcp()];
        for connection in &mut connections {
            connection.port = server.port();
        }
        name_servers.push(NameServerConfig::new(server.ip(), true, connections));
    }
    ResolverConfig::from_parts(None, Vec::new(), name_servers)
}

/// Names that need no name server: those in `/etc/hosts`, and `localhost` and its subdomains (RFC
/// 6761, section 6.3).
fn local_addresses(hosts: &Hosts, name: &Name) -> Option<Arc<[IpAddr]>> {
    let of = |kind| hosts.lookup_static_host(&Query::query(name.clone(), kind));
    let addresses: Vec<IpAddr> = [RecordType::AAAA, RecordType::A]
        .into_iter()
        .filter_map(of)
        .flat_map(|lookup| listed_addresses(&lookup))
        .collect();
    if !addresses.is_empty() {
        return Some(addresses.into());
    }
    name.is_localhost().then(|| {
        [
            IpAddr::from(Ipv6Addr::LOCALHOST),
            IpAddr::from(Ipv4Addr::LOCALHOST),
        ]
        .into()
    })
}

fn listed_addresses(lookup: &Lookup) -> Vec<IpAddr> {
    lookup
        .answers()
        .iter()
        .filter_map(|record| record.data.ip_addr())
        .collect()
}

/// Looks up both families at once. When one has addresses, the other gets a short delay.
async fn look_up_families(
    resolver: &TokioResolver,
    name: &Name,
) -> Result<(Vec<IpAddr>, Instant), Failure> {
    let [v4, v6] =
        [RecordType::A, RecordType::AAAA].map(|kind| Box::pin(resolver.lookup(name.clone(), kind)));
    let (first, second) = select(v4, v6).await.factor_first();
    let mut addresses = CollectedAddresses::new();
    addresses.add_response(first);
    if addresses.found.is_empty() {
        addresses.add_response(second.await);
    } else if let Ok(second) = timeout(RESOLUTION_DELAY, second).await {
        addresses.add_response(second);
    }
    match addresses.failure {
        Some(failure) if addresses.found.is_empty() => Err(failure),
        Some(_) | None => Ok((addresses.found, addresses.until)),
    }
}

struct CollectedAddresses {
    found: Vec<IpAddr>,
    now: Instant,
    until: Instant,
    failure: Option<Failure>,
}

impl CollectedAddresses {
    fn new() -> Self {
        let now = Instant::now();
        Self {
            found: Vec::new(),
            now,
            until: now + KEPT_FOR,
            failure: None,
        }
    }

    fn add_response(&mut self, answer: Result<Lookup, NetError>) {
        match answer {
            Ok(lookup) => {
                self.found.extend(listed_addresses(&lookup));
                let ttls = lookup
                    .answers()
                    .iter()
                    .map(|record| Duration::from_secs(record.ttl.into()));
                self.until = ttls
                    .map(|ttl| self.now + ttl)
                    .fold(self.until, Instant::min);
            }
            Err(error) if error.is_nx_domain() || error.is_no_records_found() => {}
            Err(NetError::Timeout) => self.failure = Some(Failure::Silent),
            Err(error) => self.failure = Some(Failure::Failed(error.to_string())),
        }
    }
}
