//! Everything that is wrong with the set-up of a cluster, in one look: `gridhook cluster check`.
//!
//! It makes a stream and a bucket of its own in NATS, uses them as a node does, and removes them.
//! What the cluster has there is only read.

use std::{collections::BTreeSet, io, time::Duration};

use tokio::{net::TcpStream, time::timeout};

use gridhook_clock::Clock;
use gridhook_cluster::{
    bucket_name,
    nats::NatsRecords,
    records::{ClusterRecords, RecordStore as _, StoredRecord},
};
use gridhook_config::{Cluster, Config, NatsLogin, count_with_control};
use gridhook_event::Timestamp;
use gridhook_journal::changelog::nats::{NatsConnection, NatsError, ServerProblems, SyncReports};

use super::{
    join::{load_connector, load_nats_tls, read_secret, shared_settings},
    nats::{login_reader, stored_shards, stream_names},
};
use crate::{
    front::hop::{HopTarget, OwnerConnector},
    tls::NodeTlsState,
};

/// The longest difference between the clocks of this machine and of the NATS servers.
const CLOCK_DIFFERENCE: Duration = Duration::from_secs(1);

/// How long a connection to another node is tried.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

#[derive(Debug, Default)]
pub struct ClusterFindings {
    /// Facts that are in order.
    pub facts: Vec<String>,
    /// Problems that an operator must solve.
    pub problems: Vec<String>,
}

impl ClusterFindings {
    fn note<T>(&mut self, result: Result<T, impl ToString>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(error) => {
                self.problems.push(error.to_string());
                None
            }
        }
    }
}

/// Looks at the files, the NATS servers and the records of a cluster.
pub(crate) fn examine_cluster(cluster: &Cluster, config: &Config) -> ClusterFindings {
    let mut findings = ClusterFindings::default();
    findings.note(read_secret(&cluster.secret_file));
    check_node_address(cluster, &mut findings);
    let tls = match load_nats_tls(cluster, config, &mut NodeTlsState::default()) {
        Ok(tls) => tls,
        Err(error) => {
            findings.problems.push(format!("TLS to NATS: {error}"));
            return findings;
        }
    };
    let mut connections = Vec::new();
    for url in &cluster.urls {
        match connect(std::slice::from_ref(url), &cluster.login, tls.as_ref()) {
            Ok(connection) => connections.push(connection),
            Err(error) => findings.problems.push(format!("{url}: {error}")),
        }
    }
    let reachable = connections.len();
    let servers = cluster.urls.len();
    if reachable > 0 {
        let fact = format!("{reachable} of {servers} addresses in cluster.urls take the login");
        findings.facts.push(fact);
    }
    if cluster.urls.len() < cluster.replicas {
        findings.problems.push(format!(
            "cluster.urls names {servers} of {replicas} NATS servers (cluster.replicas); name at \
             least {replicas}",
            replicas = cluster.replicas
        ));
    }
    match &cluster.system_login {
        Some(login) => match connect(&cluster.urls, login, tls.as_ref()) {
            Ok(system) => examine_servers(&system, cluster, &mut findings),
            Err(error) => findings
                .problems
                .push(format!("the system account of NATS: {error}")),
        },
        None => findings.problems.push(
            "cluster.durability is \"unchecked\": a power cut of all NATS servers may lose \
             acknowledged events"
                .to_owned(),
        ),
    }
    if let Some(connection) = connections.first() {
        try_streams(connection, cluster, &mut findings);
        examine_streams(connection, cluster, &mut findings);
        examine_records(connection, cluster, config, &mut findings);
    }
    findings
}

fn connect(
    urls: &[String],
    login: &NatsLogin,
    tls: Option<&rustls::ClientConfig>,
) -> Result<NatsConnection, String> {
    let read_login = login_reader(login).map_err(|error| error.to_string())?;
    NatsConnection::connect(urls, &read_login, tls).map_err(|error| error.to_string())
}

/// The address of this node for the others.
fn check_node_address(cluster: &Cluster, findings: &mut ClusterFindings) {
    let address = cluster.listen.ip();
    let is_here = address.is_unspecified() || std::net::UdpSocket::bind((address, 0)).is_ok();
    if !is_here {
        findings.problems.push(format!(
            "cluster.node_listen: this machine does not have the address {address}"
        ));
    }
}

fn examine_servers(system: &NatsConnection, cluster: &Cluster, findings: &mut ClusterFindings) {
    let Some(ServerProblems {
        problems,
        reports: SyncReports { found, servers },
    }) = findings.note(system.examine_servers())
    else {
        return;
    };
    if problems.is_empty() {
        findings.facts.push(format!(
            "{found} of {servers} NATS servers are new enough and sync every write"
        ));
    }
    let problems = problems.iter().map(NatsError::to_string);
    findings.problems.extend(problems);
    if servers < cluster.replicas {
        findings.problems.push(format!(
            "the number of servers in the NATS cluster is {servers}, and cluster.replicas is {}",
            cluster.replicas
        ));
    }
}

/// Does what a node does in NATS.
fn try_streams(connection: &NatsConnection, cluster: &Cluster, findings: &mut ClusterFindings) {
    let clock = Clock::system();
    let name = format!("GH_{}_check", cluster.name);
    if let Some(time) = findings.note(connection.try_stream(&name, cluster.replicas)) {
        findings.facts.push(format!(
            "streams can be made, written and read with cluster.replicas = {}",
            cluster.replicas
        ));
        let now = clock.now();
        let time = Timestamp(time);
        let difference = now.since(time).max(time.since(now));
        if difference > CLOCK_DIFFERENCE {
            findings.problems.push(format!(
                "the clock of this machine differs by {:.1} s from that of the NATS servers; \
                 synchronize both",
                difference.as_secs_f64()
            ));
        }
    }
    let runtime = connection.runtime().clone();
    let bucket = runtime.block_on(NatsRecords::open(connection, &name, cluster.replicas));
    if let Some(records) = findings.note(bucket) {
        let write = records.write("check", "1".into(), 0);
        findings.note(runtime.block_on(write));
        findings.note(runtime.block_on(records.read()));
        findings.note(connection.remove_stream(&format!("KV_{name}")));
    }
}

fn examine_streams(connection: &NatsConnection, cluster: &Cluster, findings: &mut ClusterFindings) {
    let mut streams = 0;
    let mut servers_down = BTreeSet::new();
    let names = stream_names(cluster);
    for name in &names {
        let Some(Some(stream)) = findings.note(connection.find_stream(name)) else {
            continue;
        };
        streams += 1;
        if stream.bytes_max.is_none() {
            findings.problems.push(format!(
                "the stream {name} has no limit of bytes; set one with nats stream edit"
            ));
        }
        servers_down.extend(stream.servers_down);
        if stream.replicas != cluster.replicas {
            findings.problems.push(format!(
                "the number of replicas of the stream {name} is {}, and cluster.replicas is {}",
                stream.replicas, cluster.replicas
            ));
        }
    }
    for server in servers_down {
        findings.problems.push(format!(
            "the NATS server {server} has copies of streams and is down; start it, or if another one \
             takes its place, remove it (nats server cluster peer-remove), so that the other gets \
             the copies"
        ));
    }
    if streams > 0 {
        let fact = format!("{streams} of {} streams are there", names.len());
        findings.facts.push(fact);
    }
}

/// Compares the records of the other nodes with this node's settings.
fn examine_records(
    connection: &NatsConnection,
    cluster: &Cluster,
    config: &Config,
    findings: &mut ClusterFindings,
) {
    let bucket = bucket_name(&cluster.name);
    match findings.note(connection.has_stream(&format!("KV_{bucket}"))) {
        Some(true) => {}
        Some(false) => {
            findings.facts.push("no node has joined yet".to_owned());
            return;
        }
        None => return,
    }
    let records = NatsRecords::open_bucket(connection, &bucket);
    let Some(stored) = findings.note(connection.runtime().block_on(records.read())) else {
        return;
    };
    check_shards(&stored, cluster, findings);
    let records = ClusterRecords::from_stored(&stored, count_with_control(cluster.shards));
    let nodes = &records.nodes;
    examine_owners(connection, &records, cluster, config, findings);
    let settings = shared_settings(cluster, config);
    for (name, node) in nodes.iter().filter(|(name, _)| **name != cluster.node) {
        for (setting, there) in &node.value.settings {
            if let Some(here) = settings.get(setting).filter(|here| *here != there) {
                findings.problems.push(format!(
                    "{setting} is {here} here and {there} on the node {name}: give all nodes the \
                     same"
                ));
            }
        }
    }
    let names: Vec<&str> = nodes.keys().map(String::as_str).collect();
    findings
        .facts
        .push(format!("nodes with a record: {}", names.join(", ")));
}

/// Connects to the owners of shards, as this node does to forward a request. Those that do not run
/// are no problem of the set-up.
fn examine_owners(
    connection: &NatsConnection,
    records: &ClusterRecords,
    cluster: &Cluster,
    config: &Config,
    findings: &mut ClusterFindings,
) {
    // The files are checked before.
    let Ok(connector) = load_connector(cluster, config) else {
        return;
    };
    let mut tried = BTreeSet::new();
    for ownership in &records.shards {
        let owner = ownership.value.owner_id.as_ref();
        let Some(owner) = owner.and_then(|id| records.find_node(id)) else {
            continue;
        };
        if owner.name == cluster.node || !tried.insert(&owner.name) {
            continue;
        }
        let address = &owner.address;
        let trial = try_connection(&connector, address);
        if let Err(error) = connection.runtime().block_on(trial) {
            findings.problems.push(format!(
                "the node {} at {address} and this node do not accept each other: {error}; give all \
                 nodes the same cluster.secret_file, and TLS to all or to none",
                owner.name
            ));
        }
    }
}

/// Fails if the node at `address` runs, and the two do not accept each other.
async fn try_connection(connector: &OwnerConnector, address: &str) -> io::Result<()> {
    let connection = async {
        let Ok(stream) = TcpStream::connect(address).await else {
            return Ok(());
        };
        let hop = connector
            .complete_handshake(stream, address, HopTarget::Watch)
            .await;
        hop.map(drop)
    };
    timeout(CONNECT_TIMEOUT, connection).await.unwrap_or(Ok(()))
}

fn check_shards(stored: &[StoredRecord], cluster: &Cluster, findings: &mut ClusterFindings) {
    if let Some(shards) = stored_shards(stored).filter(|shards| *shards != cluster.shards) {
        findings.problems.push(format!(
            "cluster.shards is {}, and the cluster has {shards}",
            cluster.shards
        ));
    }
}
