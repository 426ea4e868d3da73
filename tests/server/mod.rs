//! The whole server, as a process with real sockets, under load.
//!
//! Longer forms run where `GRIDHOOK_SOAK` is set: `make soak`.

mod accept_loss;
mod admin_role;
mod apply;
mod audit;
mod backlog;
mod backup;
mod bit_rot;
mod blob_created;
mod change;
mod chaos;
mod chaos_command;
mod clocks;
mod cycles;
mod data_folder;
mod dead_letter;
mod descriptors;
mod domains;
mod duplicates;
mod egress_proxy;
mod endpoint_return;
mod explain;
mod fan_out;
mod faults;
mod fsck;
mod full_disk;
mod full_topic;
mod garbage;
mod handshake;
mod identity;
mod kill;
mod laggards;
mod late;
mod memory;
mod namespaces;
mod operator;
mod ordered;
mod otlp;
mod power;
mod precondition;
mod promises;
mod properties;
mod publish;
pub(crate) mod pull;
mod recovery;
mod redrive;
mod reload;
mod replay;
mod replay_beside;
mod retry;
mod sabotage;
mod signing;
mod starting;
mod stop;
mod stores;
mod system_topic;
mod tls;
mod tokens;
mod trace;
mod transform;
mod watch;

use std::time::Duration;

use gridhook::event::Timestamp;

use crate::support::{
    load,
    server::{Server, wait_for},
    sink::{self, Sink},
};

/// How long a test waits for what must come.
const LONG: Duration = Duration::from_secs(60);

/// `usual`, or `soak` where there is time.
pub(crate) fn many(usual: usize, soak: usize) -> usize {
    if std::env::var_os("GRIDHOOK_SOAK").is_some() { soak } else { usual }
}

/// Nothing is pending, nothing is on its way and everything was read. An event that failed three times, with probes at the
/// starts of a server among the attempts, waits for more than a minute.
pub(crate) fn wait_until_settled(server: &Server, topic: &str, subscription: &str) {
    wait_for(&format!("{subscription} to be settled"), 3 * LONG, || {
        let status = server.status(topic, subscription);
        status["inFlight"] == 0 && status["backlog"] == 0 && status["counters"]["pending"] == 0
    });
}

/// Every acknowledged event arrived, as it was published. Returns those that were taken more than once: for each one the
/// time at which it was answered for the last time before.
pub(crate) fn assert_arrived(sink: &Sink, path: &str, acknowledged: &[String]) -> Vec<Timestamp> {
    sink.look(path, |ledger| {
        let missing: Vec<&String> = acknowledged.iter().filter(|id| !ledger.contains_key(*id)).collect();
        assert!(missing.is_empty(), "{} of {} are missing: {missing:.10?}", missing.len(), acknowledged.len());
        let mut repeated = Vec::new();
        for (id, arrivals) in ledger {
            let whole = arrivals.iter().all(|arrival| arrival.data == sink::hash(&load::data(id)));
            assert!(whole, "{id} arrived as it was published");
            let mut taken: Vec<Timestamp> =
                arrivals.iter().filter(|arrival| arrival.is_taken()).map(|arrival| arrival.answered).collect();
            taken.sort_unstable();
            taken.pop();
            repeated.extend(taken);
        }
        repeated
    })
}
