//! The addresses of names: a resolver with a cache, in place of the C library's.
//!
//! `getaddrinfo` holds a thread for each look-up until the name servers answer or the C library gives up, and it remembers
//! nothing. Here a look-up is a task. `/etc/hosts`, `localhost` and `/etc/resolv.conf` (name servers, search domains,
//! `ndots`) count as they do there, and are read again when they change.
//!
//! Invariants:
//! - One look-up of a name is in progress at a time; everybody who needs the name waits for that one.
//! - Names that nobody answers for do not hold up others. A look-up has one of [`PROMPT_PLACES`] for [`PROMPT_WAIT`];
//!   what is not answered by then goes on in one of [`SLOW_PLACES`], and the name begins there for [`SILENT_FOR`].
//! - An answer is good for its time to live, at most [`KEPT_FOR`]. Where the name servers are silent, the last answer is
//!   used for up to [`STALE_FOR`] longer (RFC 8767); where they say that there is no such name, it is not.
//!
//! Absent on purpose: which of the addresses may be called ([`address`](super::address)), and in which order
//! ([`dial`](super::dial)).

use std::{
    collections::HashMap,
    fs, io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
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
use tokio::{
    sync::Semaphore,
    time::{Instant, timeout},
};

/// So many look-ups that may be answered promptly are in progress at once …
pub const PROMPT_PLACES: usize = 64;

/// … each for so long: name servers nearby answer within a tenth of that.
pub const PROMPT_WAIT: Duration = Duration::from_millis(300);

/// So many look-ups that were not are in progress at once: each holds some sockets.
pub const SLOW_PLACES: usize = 32;

/// How long a look-up goes on altogether …
const LOOKUP_WAIT: Duration = Duration::from_secs(5);

/// … and how long where the last one of that name was not answered.
const SILENT_WAIT: Duration = Duration::from_secs(2);

/// For so long a name counts as silent after a look-up that was not answered.
pub const SILENT_FOR: Duration = Duration::from_secs(60);

/// An answer is not used for longer than this, whatever its time to live says.
pub const KEPT_FOR: Duration = Duration::from_secs(3_600);

/// For so long after its time to live the last answer stands in for name servers that are silent …
pub const STALE_FOR: Duration = Duration::from_secs(3_600);

/// … which are asked again after this.
const STALE_PAUSE: Duration = Duration::from_secs(30);

/// Addresses of one family are used without the other's after so long (RFC 8305, 3).
const RESOLUTION_DELAY: Duration = Duration::from_millis(50);

/// The names that are remembered.
const NAMES_MAX: usize = 8_192;

/// The files of the system are looked at no more often than this.
const FILES_PAUSE: Duration = Duration::from_secs(1);

const FILES: [&str; 2] = ["/etc/resolv.conf", "/etc/hosts"];

/// Who looks up names.
pub trait NameResolver: Send + Sync {
    /// The addresses of `host`, with `port`; none where there is no such name, or it has no address.
    fn lookup(&self, host: &str, port: u16) -> LocalBoxFuture<'static, io::Result<Vec<SocketAddr>>>;
}

/// Why a name was not looked up.
#[derive(Clone, Debug, thiserror::Error)]
enum Failure {
    #[error("the name servers do not answer")]
    Silent,
    #[error("{0}")]
    Failed(String),
}

type Found = Result<Arc<[IpAddr]>, Failure>;

/// The resolver. One for the whole server: its threads share what was found.
#[derive(Clone)]
pub struct Resolver(Arc<ResolverShared>);

struct ResolverShared {
    servers: Vec<SocketAddr>,
    system: Mutex<Option<System>>,
    known: Mutex<ResolverState>,
    prompt: Semaphore,
    slow: Semaphore,
}

/// What the system's files say.
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
    asking: HashMap<String, WeakShared<BoxFuture<'static, Found>>>,
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
    /// A resolver that asks these name servers; the system's where there are none.
    pub fn new(servers: Vec<SocketAddr>) -> Self {
        Self(Arc::new(ResolverShared {
            servers,
            system: Mutex::default(),
            known: Mutex::default(),
            prompt: Semaphore::new(PROMPT_PLACES),
            slow: Semaphore::new(SLOW_PLACES),
        }))
    }
}

impl NameResolver for Resolver {
    fn lookup(&self, host: &str, port: u16) -> LocalBoxFuture<'static, io::Result<Vec<SocketAddr>>> {
        let (inner, host) = (Arc::clone(&self.0), host.to_ascii_lowercase());
        Box::pin(async move {
            let found = inner.find(&host).await.map_err(io::Error::other)?;
            Ok(found.iter().map(|address| SocketAddr::new(*address, port)).collect())
        })
    }
}

impl ResolverShared {
    async fn find(self: Arc<Self>, host: &str) -> Found {
        let system = self.system()?;
        let name = Name::from_utf8(host).map_err(|error| Failure::Failed(error.to_string()))?;
        if let Some(found) = local(&system.hosts, &name) {
            return Ok(found);
        }
        self.asking(system.resolver, host, name)?.await
    }

    /// What is known, or the look-up that will tell.
    fn asking(
        self: &Arc<Self>,
        resolver: TokioResolver,
        host: &str,
        name: Name,
    ) -> Result<Shared<BoxFuture<'static, Found>>, Failure> {
        let mut known = lock(&self.known);
        if let Some(answer) = known.answers.get(host).filter(|answer| Instant::now() < answer.until) {
            return Ok(std::future::ready(Ok(Arc::clone(&answer.found))).boxed().shared());
        }
        if let Some(asking) = known.asking.get(host).and_then(WeakShared::upgrade) {
            return Ok(asking);
        }
        known.asking.retain(|_, asking| asking.upgrade().is_some());
        let asking = Arc::clone(self).resolve(resolver, host.to_owned(), name).boxed().shared();
        known.asking.extend(asking.downgrade().map(|asking| (host.to_owned(), asking)));
        Ok(asking)
    }

    async fn resolve(self: Arc<Self>, resolver: TokioResolver, host: String, name: Name) -> Found {
        let asked = self.ask_in_turn(&resolver, &host, &name).await;
        let now = Instant::now();
        let mut known = lock(&self.known);
        match asked {
            Ok((found, until)) => {
                known.silent.remove(&host);
                let found: Arc<[IpAddr]> = found.into();
                if found.is_empty() {
                    known.answers.remove(&host);
                } else {
                    let answer = Answer { found: Arc::clone(&found), until, stale_until: until + STALE_FOR };
                    make_room(&mut known.answers, |answer| now < answer.stale_until);
                    known.answers.insert(host, answer);
                }
                Ok(found)
            }
            Err(failure) => {
                if matches!(failure, Failure::Silent) {
                    make_room(&mut known.silent, |until| now < *until);
                    known.silent.insert(host.clone(), now + SILENT_FOR);
                }
                match known.answers.get_mut(&host).filter(|answer| now < answer.stale_until) {
                    Some(answer) => {
                        answer.until = now + STALE_PAUSE;
                        tracing::debug!(%host, %failure, "a name is not answered for; its last addresses are used");
                        Ok(Arc::clone(&answer.found))
                    }
                    None => Err(failure),
                }
            }
        }
    }

    /// Asks in the place that the name is entitled to.
    async fn ask_in_turn(
        &self,
        resolver: &TokioResolver,
        host: &str,
        name: &Name,
    ) -> Result<(Vec<IpAddr>, Instant), Failure> {
        let silent = lock(&self.known).silent.get(host).is_some_and(|until| Instant::now() < *until);
        let mut asking = None;
        if !silent {
            let _place = self.prompt.acquire().await.map_err(|_| Failure::Silent)?;
            let mut prompt = Box::pin(both(resolver, name));
            match timeout(PROMPT_WAIT, &mut prompt).await {
                Ok(answer) => return answer,
                Err(_) => asking = Some(prompt),
            }
        }
        let _place = match self.slow.try_acquire() {
            Ok(place) => place,
            Err(_) => {
                // Its sockets are let go while it waits.
                asking = None;
                self.slow.acquire().await.map_err(|_| Failure::Silent)?
            }
        };
        let asking = asking.unwrap_or_else(|| Box::pin(both(resolver, name)));
        let wait = if silent { SILENT_WAIT } else { LOOKUP_WAIT };
        timeout(wait, asking).await.unwrap_or(Err(Failure::Silent))
    }

    /// What the system's files say, read again where they have changed.
    fn system(&self) -> Result<System, Failure> {
        let mut system = lock(&self.system);
        let now = Instant::now();
        if let Some(system) = &mut *system {
            if now.duration_since(system.looked) < FILES_PAUSE {
                return Ok(system.clone());
            }
            system.looked = now;
            if system.changed == changed() {
                return Ok(system.clone());
            }
        }
        let read = System {
            // Before the files are read: what is written meanwhile is read again.
            changed: changed(),
            resolver: resolver(&self.servers).map_err(|error| Failure::Failed(error.to_string()))?,
            hosts: Arc::new(Hosts::from_system().unwrap_or_default()),
            looked: now,
        };
        lock(&self.known).answers.clear();
        Ok(system.insert(read).clone())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn changed() -> [Option<SystemTime>; 2] {
    FILES.map(|path| fs::metadata(path).and_then(|file| file.modified()).ok())
}

/// Forgets what is of no use where there is no room, and whatever it finds first where that is not enough.
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

fn resolver(servers: &[SocketAddr]) -> Result<TokioResolver, NetError> {
    let (config, mut options) = if servers.is_empty() {
        // Where the system names no server, the C library asks this one.
        read_system_conf()
            .unwrap_or_else(|_| (asking(&[SocketAddr::from((Ipv4Addr::LOCALHOST, 53))]), ResolverOpts::default()))
    } else {
        (asking(servers), ResolverOpts::default())
    };
    // What was found is remembered here, and `/etc/hosts` comes first for both families.
    options.cache_size = 0;
    options.use_hosts_file = ResolveHosts::Never;
    options.timeout = LOOKUP_WAIT;
    options.attempts = 1;
    options.max_active_requests = PROMPT_PLACES + SLOW_PLACES;
    TokioResolver::builder_with_config(config, TokioRuntimeProvider::default()).with_options(options).build()
}

fn asking(servers: &[SocketAddr]) -> ResolverConfig {
    let server = |server: &SocketAddr| {
        let connections = [ConnectionConfig::udp(), ConnectionConfig::tcp()].map(|mut connection| {
            connection.port = server.port();
            connection
        });
        NameServerConfig::new(server.ip(), true, connections.to_vec())
    };
    ResolverConfig::from_parts(None, Vec::new(), servers.iter().map(server).collect())
}

/// What needs no name server: `/etc/hosts`, and `localhost` with the names below it (RFC 6761, 6.3).
fn local(hosts: &Hosts, name: &Name) -> Option<Arc<[IpAddr]>> {
    let of = |kind| hosts.lookup_static_host(&Query::query(name.clone(), kind));
    let listed: Vec<IpAddr> =
        [RecordType::AAAA, RecordType::A].into_iter().filter_map(of).flat_map(|lookup| addresses(&lookup)).collect();
    if !listed.is_empty() {
        return Some(listed.into());
    }
    name.is_localhost().then(|| [IpAddr::from(Ipv6Addr::LOCALHOST), IpAddr::from(Ipv4Addr::LOCALHOST)].into())
}

fn addresses(lookup: &Lookup) -> Vec<IpAddr> {
    lookup.answers().iter().filter_map(|record| record.data.ip_addr()).collect()
}

/// Both families at once. Where one has addresses, the other has a moment left.
async fn both(resolver: &TokioResolver, name: &Name) -> Result<(Vec<IpAddr>, Instant), Failure> {
    let [v4, v6] = [RecordType::A, RecordType::AAAA].map(|kind| Box::pin(resolver.lookup(name.clone(), kind)));
    let (first, second) = select(v4, v6).await.factor_first();
    let mut collected = CollectedAddresses::new();
    collected.take(first);
    if collected.found.is_empty() {
        collected.take(second.await);
    } else if let Ok(second) = timeout(RESOLUTION_DELAY, second).await {
        collected.take(second);
    }
    match collected.failure {
        Some(failure) if collected.found.is_empty() => Err(failure),
        Some(_) | None => Ok((collected.found, collected.until)),
    }
}

/// What the answers have brought so far.
struct CollectedAddresses {
    found: Vec<IpAddr>,
    now: Instant,
    until: Instant,
    failure: Option<Failure>,
}

impl CollectedAddresses {
    fn new() -> Self {
        let now = Instant::now();
        Self { found: Vec::new(), now, until: now + KEPT_FOR, failure: None }
    }

    fn take(&mut self, answer: Result<Lookup, NetError>) {
        match answer {
            Ok(lookup) => {
                self.found.extend(addresses(&lookup));
                let lives = lookup.answers().iter().map(|record| Duration::from_secs(record.ttl.into()));
                self.until = lives.map(|live| self.now + live).fold(self.until, Instant::min);
            }
            Err(error) if error.is_nx_domain() || error.is_no_records_found() => {}
            Err(NetError::Timeout) => self.failure = Some(Failure::Silent),
            Err(error) => self.failure = Some(Failure::Failed(error.to_string())),
        }
    }
}
