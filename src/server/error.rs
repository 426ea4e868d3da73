//! The errors that end a server, with the advice to operators.

use std::io;

use gridhook_admin as admin;
use gridhook_dead_letter as dead_letter;
use gridhook_engine::control::registry;
use gridhook_journal as journal;

/// The server failed to start or to stop cleanly.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// An I/O error of the data folder or a socket.
    #[error("{what}: {source}")]
    Io {
        what: String,
        /// The error of the system.
        source: io::Error,
    },
    /// The store cannot be opened.
    #[error(transparent)]
    Store(#[from] gridhook_store::rocks::OpenError),
    /// The journal cannot be recovered.
    #[error("{0}{advice}", advice = remedy_for(.0))]
    Journal(#[from] journal::Error),
    /// The records of the control plane cannot be recovered.
    #[error("{0}{advice}", advice = remedy_of(.0))]
    Registry(#[from] registry::Error),
    /// A dead-letter store cannot be opened.
    #[error("dead_letter.stores.{0}: {1}")]
    Sink(String, dead_letter::sink::SinkError),
    /// The signing keys of the token issuer cannot be read.
    #[error("{0}")]
    Issuer(String),
    /// A rule for what event subscriptions may use cannot be read.
    #[error(transparent)]
    UseRule(#[from] super::use_rules::UseRuleError),
    /// The configuration file of `server.apply` cannot be read.
    #[error("server.apply: {0}")]
    Declared(#[from] gridhook_declared::DeclaredError),
    /// A resource of that file cannot be created.
    #[error("server.apply: {0}")]
    Undone(#[from] admin::ApplyError),
    /// The limit of open files is too low.
    #[error(
        "the limit of open files is {limit}, and the server needs at least {least}; raise the hard \
         limit (ulimit -Hn, or LimitNOFILE= of a systemd unit)"
    )]
    Descriptors { limit: usize, least: usize },
    /// The memory limit of the control group is too low.
    #[error(
        "the memory limit of the control group is {limit}, and these settings need at least \
         {least}; raise the limit (MemoryMax= of a systemd unit, resources.limits.memory of a \
         container), or lower publish.request_bytes and publish.event_bytes"
    )]
    Memory {
        limit: bytesize::ByteSize,
        least: bytesize::ByteSize,
    },
    /// The key of backups cannot be used.
    #[error(transparent)]
    Backup(#[from] gridhook_storage::destination::BackupDestinationError),
    /// The node of a cluster cannot run.
    #[error("cluster: {0}")]
    Cluster(#[from] super::node::ClusterError),
    /// The core of a shard failed.
    #[error("shard {shard}: {error}")]
    Shard {
        shard: usize,
        error: Box<ServerError>,
    },
    /// The data folder has the stores of another number of shards.
    #[error("{0}")]
    Folder(String),
    /// The certificates cannot be loaded.
    #[error(transparent)]
    Trust(#[from] gridhook_deliver::trust::TrustError),
}

/// Advice for the operator of a store that cannot be served.
fn remedy_for(error: &journal::Error) -> &'static str {
    match error {
        journal::Error::Damaged(_) => {
            "; restore a backup, or accept the loss with gridhook restore --accept-loss"
        }
        _ => "",
    }
}

fn remedy_of(error: &registry::Error) -> &'static str {
    match error {
        registry::Error::Journal(error) => remedy_for(error),
        _ => "",
    }
}

pub(super) fn io_error(what: impl Into<String>) -> impl FnOnce(io::Error) -> ServerError {
    let what = what.into();
    |source| ServerError::Io { what, source }
}
