//! Tells the service manager how the server is: systemd's protocol of readiness, which is a datagram to a socket whose name
//! is in the environment. Where there is none, nobody is told, and nothing is done.
//!
//! `READY=1` follows `/readyz`: the store is read and publishers are served. `WATCHDOG=1` goes out while every thread with
//! actors answers: one that is stuck would hold its subscriptions for ever, and a restart frees them. A full disk and an
//! endpoint that hangs stop no thread.

use std::{
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
    time::Duration,
};

use actix::ArbiterHandle;
use tokio::sync::oneshot;

/// Whom we tell, if anybody. The two variables are the service manager's words and no settings of ours.
pub(super) struct ServiceNotifier {
    to: Option<(UnixDatagram, SocketAddr)>,
    watchdog: Option<Duration>,
}

impl ServiceNotifier {
    /// Of the process that the service manager started. Without `NOTIFY_SOCKET` it is silent.
    pub(super) fn of_environment() -> Self {
        let to = env::var_os("NOTIFY_SOCKET").filter(|name| !name.is_empty()).and_then(|name| {
            let opened = open(&name);
            if let Err(error) = &opened {
                tracing::warn!(%error, socket = %name.display(), "the service manager cannot be told anything");
            }
            opened.ok()
        });
        let watchdog = to.as_ref().and_then(|_| watchdog());
        Self { to, watchdog }
    }

    /// The server takes events.
    pub(super) fn ready(&self, url: &str) {
        self.notify(&format!("READY=1\nSTATUS=takes events at {url}"));
    }

    /// It finishes what is in flight.
    pub(super) fn stopping(&self) {
        self.notify("STOPPING=1\nSTATUS=stopping: what is in flight is finished");
    }

    /// Tells that all of `threads` are alive, twice in each period, as long as they are.
    pub(super) async fn watch(self: std::rc::Rc<Self>, threads: Vec<ArbiterHandle>) {
        let Some(period) = self.watchdog else { return };
        loop {
            tokio::time::sleep(period / 2).await;
            for thread in &threads {
                let (reply, answer) = oneshot::channel();
                // Who does not answer is waited for, and who has ended drops the question: then nobody is told any more.
                if !thread.spawn_fn(move || reply.send(()).unwrap_or_default()) || answer.await.is_err() {
                    return;
                }
            }
            self.notify("WATCHDOG=1");
        }
    }

    fn notify(&self, what: &str) {
        let Some((socket, to)) = &self.to else { return };
        if let Err(error) = socket.send_to_addr(what.as_bytes(), to) {
            tracing::warn!(%error, what, "the service manager was not told");
        }
    }
}

/// A path, or a name in the kernel's own space of names, which is written with an `@` before it.
fn open(name: &OsString) -> io::Result<(UnixDatagram, SocketAddr)> {
    let to = match name.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        _ => SocketAddr::from_pathname(name)?,
    };
    Ok((UnixDatagram::unbound()?, to))
}

/// How often the service manager wants to hear of this process; [`None`] where it does not.
fn watchdog() -> Option<Duration> {
    let number = |name: &str| env::var(name).ok()?.parse::<u64>().ok();
    let is_ours = env::var_os("WATCHDOG_PID").is_none() || number("WATCHDOG_PID") == Some(std::process::id().into());
    let micros = number("WATCHDOG_USEC").filter(|micros| *micros > 0 && is_ours)?;
    Some(Duration::from_micros(micros))
}
