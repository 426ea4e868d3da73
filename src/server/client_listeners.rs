//! The addresses and counters of the listeners for clients, also where another part of the process
//! serves them.

use std::{net::SocketAddr, sync::Arc};

use super::tls::ReloadableCertificate;
use gridhook_metrics::ListenerCounters;

/// The addresses of the listeners for clients. The core of a shard has those of its process.
#[derive(Clone)]
pub(super) struct ClientListeners {
    /// The bound addresses. No endpoint may have one of them.
    pub(super) bound: Vec<SocketAddr>,
    /// The URL that the server gives to others.
    pub(super) public_url: String,
    /// The URL of the publishers' listener.
    pub(super) own_url: String,
    /// The certificate in use, without TLS [`None`].
    pub(super) shown: Option<Arc<ReloadableCertificate>>,
    pub(super) counters: Vec<Arc<ListenerCounters>>,
}
