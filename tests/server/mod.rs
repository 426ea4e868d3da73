//! The whole server, as a process with real sockets, under load.
//!
//! Longer forms run where `GRIDHOOK_SOAK` is set: `make soak`.

mod accept_loss;
mod admin_role;
mod apply;
mod audit;
mod azurerm;
mod backlog;
mod backup;
mod bit_rot;
mod blob_created;
mod change;
mod chaos;
mod chaos_command;
mod clocks;
pub(crate) mod cluster;
mod cycles;
mod data_folder;
mod dead_letter;
mod deployments;
mod descriptors;
mod domains;
mod duplicates;
mod egress_proxy;
mod endpoint_return;
mod event_types;
mod explain;
mod fan_out;
mod faults;
mod fsck;
mod full_disk;
mod full_topic;
mod garbage;
mod handshake;
mod history;
mod identity;
mod idle;
mod kill;
mod laggards;
mod late;
mod memory;
mod namespaces;
mod operator;
mod ordered;
mod otlp;
mod portal;
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
mod request_heads;
mod retry;
mod sabotage;
mod sessions;
mod signing;
mod starting;
mod stop;
mod stores;
mod system_topic;
mod tls;
pub(crate) mod tokens;
mod trace;
mod transform;
mod watch;

use std::{sync::Arc, time::Duration};

use gridhook::{
    clock::Clock,
    control::registry::Registry,
    event::Timestamp,
    journal::{self, Journal},
    store::{
        Store,
        rocks::{RocksOptions, RocksStore},
    },
};

pub(crate) use crate::support::needs::many;
use crate::support::{
    load, publisher,
    server::{self, Server, operator, wait_for},
    sink::{self, Sink},
};

/// How long a test waits for what must come.
const LONG: Duration = Duration::from_secs(60);

/// Changes the store of a server that is down, by this clock.
fn in_store(server: &Server, clock: Clock, change: impl AsyncFnOnce(Arc<Registry>, Journal)) {
    let store = Arc::new(
        RocksStore::open(&server.data_dir(), &RocksOptions::default()).expect("a sound store"),
    );
    let options = journal::JournalOptions {
        outcome_delay: Duration::ZERO,
        group_bytes: 1 << 20,
        shards: journal::Shards::default(),
        limits: journal::BacklogLimits::default(),
    };
    let (journal, writer) = Journal::start(
        Arc::clone(&store) as Arc<dyn Store>,
        clock,
        options,
        Box::new(|_, _| {}),
        Box::new(|error| panic!("{error}")),
    )
    .expect("a sound store");
    // The editions of the tests are the server's business.
    let mut rules = publisher::rules();
    rules.subscriptions_max = 10_000;
    for (name, like) in [("namespaces", "namespace"), ("test", "current")] {
        let edition = Arc::clone(&rules.editions[like]);
        rules.editions.insert(name.to_owned(), edition);
    }
    actix_rt::System::new().block_on(async {
        let (registry, _starts) =
            Registry::load_from_journal(journal.clone(), rules, 1 << 20).expect("a sound store");
        change(Arc::new(registry), journal.clone()).await;
    });
    journal.close();
    drop(journal);
    writer.join_all();
    // The reader releases it when no client waits any more; with the last one the folder is free.
    wait_for("the store to be let go", LONG, || {
        Arc::strong_count(&store) == 1
    });
}

/// Nothing is pending, nothing is on its way and everything was read. An event that failed three
/// times, with probes at the starts of a server among the attempts, waits for more than a minute.
pub(crate) fn wait_until_settled(server: &Server, topic: &str, subscription: &str) {
    wait_for(&format!("{subscription} to be settled"), 3 * LONG, || {
        let status = server.status(topic, subscription);
        status["inFlight"] == 0 && status["backlog"] == 0 && status["counters"]["pending"] == 0
    });
}

/// An operator ends the waits of an endpoint that is back, which are minutes after several
/// failures.
pub(crate) fn end_waits(server: &Server, topic: &str, subscription: &str) {
    server.post_verb_status(topic, subscription, "resume");
    let topic = server::subscription(topic, subscription)
        .replace(&format!("/eventSubscriptions/{subscription}"), "");
    operator(server, &["subscriptions", "retry", &topic, subscription])
        .expect("pending deliveries are sent now");
}

/// Every acknowledged event arrived, as it was published. Returns those that were taken more than
/// once: for each one the time at which it was answered for the last time before.
pub(crate) fn assert_arrived(sink: &Sink, path: &str, acknowledged: &[String]) -> Vec<Timestamp> {
    sink.look(path, |ledger| {
        let missing: Vec<&String> = acknowledged
            .iter()
            .filter(|id| !ledger.contains_key(*id))
            .collect();
        assert!(
            missing.is_empty(),
            "{} of {} are missing: {missing:.10?}",
            missing.len(),
            acknowledged.len()
        );
        let mut repeated = Vec::new();
        for (id, arrivals) in ledger {
            let whole = arrivals
                .iter()
                .all(|arrival| arrival.data == sink::hash(&load::data(id)));
            assert!(whole, "{id} arrived as it was published");
            let mut taken: Vec<Timestamp> = arrivals
                .iter()
                .filter(|arrival| arrival.is_taken())
                .map(|arrival| arrival.answered)
                .collect();
            taken.sort_unstable();
            taken.pop();
            repeated.extend(taken);
        }
        repeated
    })
}
