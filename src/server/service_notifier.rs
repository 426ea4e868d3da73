//! Reports the state of the server to the service manager with systemd's notification protocol:
//! datagrams to the socket of `NOTIFY_SOCKET`. Without that variable nothing is sent.
//!
//! `READY=1` follows `/readyz`: the store is recovered and publishers are served. `WATCHDOG=1` is
//! sent while every actor thread responds. A stuck thread would hold its subscriptions for ever; a
//! restart frees them. A full disk and an endpoint that does not respond stop no thread.

use std::{
    collections::BTreeMap,
    env,
    ffi::OsString,
    io,
    os::{
        linux::net::SocketAddrExt,
        unix::{
            ffi::OsStrExt,
            net::{SocketAddr, UnixDatagram},
        },
    },
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use parking_lot::{Mutex, MutexGuard};

use actix::ArbiterHandle;
use tokio::sync::oneshot;

use crate::Launch;

/// The socket of the service manager. Its two environment variables are not settings of gridhook.
pub(super) struct ServiceNotifier {
    to: Option<(UnixDatagram, SocketAddr)>,
    watchdog: Option<Duration>,
}

impl ServiceNotifier {
    /// Reads the environment. Without `NOTIFY_SOCKET` nothing is sent.
    pub(super) fn from_environment() -> Self {
        let to = env::var_os("NOTIFY_SOCKET")
            .filter(|name| !name.is_empty())
            .and_then(|name| {
                let socket = open(&name);
                if let Err(error) = &socket {
                    tracing::warn!(%error, socket = %name.display(), "the socket of the service \
                        manager cannot be opened");
                }
                socket.ok()
            });
        let watchdog = to.as_ref().and_then(|_| watchdog_period());
        Self { to, watchdog }
    }

    pub(super) fn disabled() -> Self {
        Self {
            to: None,
            watchdog: None,
        }
    }

    /// Reports that the server accepts events.
    pub(super) fn notify_ready(&self, url: &str) {
        self.send_state(&format!("READY=1\nSTATUS=accepting events at {url}"));
    }

    /// Reports that the server stops.
    pub(super) fn notify_stopping(&self) {
        self.send_state("STOPPING=1\nSTATUS=stopping: requests in flight finish");
    }

    /// Sends `WATCHDOG=1` twice in each period while all of `threads` respond.
    pub(super) async fn ping_watchdog(self: std::rc::Rc<Self>, threads: ActorThreads) {
        let Some(period) = self.watchdog else { return };
        loop {
            tokio::time::sleep(period / 2).await;
            for (number, thread) in threads.running_threads() {
                let (reply, answer) = oneshot::channel();
                // This waits for ever at a stuck thread, so the watchdog is not served. A thread
                // that was stopped on purpose is removed from `threads`; one that ended otherwise
                // ends the watchdog.
                let is_asked = thread.spawn_fn(move || reply.send(()).unwrap_or_default());
                if (!is_asked || answer.await.is_err()) && threads.has_thread(number) {
                    return;
                }
            }
            self.send_state("WATCHDOG=1");
        }
    }

    fn send_state(&self, what: &str) {
        let Some((socket, to)) = &self.to else { return };
        if let Err(error) = socket.send_to_addr(what.as_bytes(), to) {
            tracing::warn!(%error, what, "the service manager was not notified");
        }
    }
}

/// The threads of actors that run in a process. Clones share them.
#[derive(Clone, Default)]
pub(super) struct ActorThreads(Arc<Mutex<RunningThreads>>);

#[derive(Default)]
struct RunningThreads {
    started: u64,
    running: BTreeMap<u64, ArbiterHandle>,
}

impl ActorThreads {
    pub(super) fn add(&self, thread: ArbiterHandle) -> u64 {
        let mut threads = self.lock();
        threads.started += 1;
        let number = threads.started;
        threads.running.insert(number, thread);
        number
    }

    /// Removes a thread, before the caller stops it.
    pub(super) fn remove(&self, number: u64) {
        self.lock().running.remove(&number);
    }

    fn running_threads(&self) -> Vec<(u64, ArbiterHandle)> {
        self.lock()
            .running
            .iter()
            .map(|(number, thread)| (*number, thread.clone()))
            .collect()
    }

    fn has_thread(&self, number: u64) -> bool {
        self.lock().running.contains_key(&number)
    }

    fn lock(&self) -> MutexGuard<'_, RunningThreads> {
        self.0.lock()
    }
}

/// Opens a path, or a name in the abstract namespace, which begins with `@`.
fn open(name: &OsString) -> io::Result<(UnixDatagram, SocketAddr)> {
    let to = match name.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        _ => SocketAddr::from_pathname(name)?,
    };
    Ok((UnixDatagram::unbound()?, to))
}

/// The period of the watchdog, if this process has one.
fn watchdog_period() -> Option<Duration> {
    let number = |name: &str| env::var(name).ok()?.parse::<u64>().ok();
    let is_ours = env::var_os("WATCHDOG_PID").is_none()
        || number("WATCHDOG_PID") == Some(std::process::id().into());
    let micros = number("WATCHDOG_USEC").filter(|micros| *micros > 0 && is_ours)?;
    Some(Duration::from_micros(micros))
}

/// Reports a standby, or a node whose cores have these threads, to the service manager, and serves
/// its watchdog until the task is aborted.
pub(super) fn notify_standby(url: &str, threads: ActorThreads) -> tokio::task::JoinHandle<()> {
    let notifier = Rc::new(ServiceNotifier::from_environment());
    notifier.notify_ready(url);
    actix_rt::spawn(notifier.ping_watchdog(threads))
}

/// Connects to the service manager and starts its watchdog. The core of a shard leaves that to its
/// process.
pub(super) fn start_service_notifier(launch: &Launch) -> Rc<ServiceNotifier> {
    if launch.core.is_some() {
        return Rc::new(ServiceNotifier::disabled());
    }
    let notifier = Rc::new(ServiceNotifier::from_environment());
    actix_rt::spawn(Rc::clone(&notifier).ping_watchdog(launch.threads.clone()));
    notifier
}
