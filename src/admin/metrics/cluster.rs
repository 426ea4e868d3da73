//! The metric families of a node of a cluster. Every node has them, the owner and standbys.

use std::collections::BTreeSet;

use super::server::{counter, gauge, push_sample};
use crate::cluster::ClusterContext;
use gridhook_cluster::{
    membership::ClusterSnapshot,
    records::{CopyProgress, NodeRecord},
};
use gridhook_metrics::text::{MetricFamily, MetricsText, SampleValue};

/// A gauge of the copy that a node fetches: its name, its help and what it shows.
type CopyGauge = (&'static str, &'static str, fn(CopyProgress) -> u64);

const COPIES: [CopyGauge; 2] = [
    (
        "gridhook_cluster_shard_copy_bytes",
        "Size of the copy of the owner's store that this node fetches; 0 if it fetches none.",
        |copy| copy.bytes,
    ),
    (
        "gridhook_cluster_shard_copy_received_bytes",
        "Bytes of this copy that have arrived.",
        |copy| copy.received,
    ),
];

pub(super) fn write_cluster(text: &mut MetricsText, cluster_context: &ClusterContext) {
    let snapshot = cluster_context.snapshot();
    write_nodes(text, &snapshot);
    write_owners(text, &snapshot);
    write_streams(text, &snapshot, &cluster_context.stream_bytes_max);
    write_copies(text, &snapshot);
    write_fetched_copies(text, &snapshot, cluster_context.copies.get());
    write_forwarded_requests(text, cluster_context);
}

/// The nodes as this one sees them, and how it reads their records.
fn write_nodes(text: &mut MetricsText, snapshot: &ClusterSnapshot) {
    push_sample(
        text,
        gauge(
            "gridhook_cluster_nodes_alive",
            "Nodes that renew their records, as this node sees them.",
        ),
        snapshot.alive.len() as u64,
    );
    push_sample(
        text,
        gauge(
            "gridhook_cluster_nodes",
            "Nodes that have a record, also those that are down.",
        ),
        snapshot.records.nodes.len() as u64,
    );
    push_sample(
        text,
        gauge(
            "gridhook_cluster_records_readable",
            "Whether the last read of the records of the cluster succeeded.",
        ),
        snapshot.problem.is_none(),
    );
    if let Some(last_read) = snapshot.read {
        push_sample(
            text,
            gauge(
                "gridhook_cluster_records_age_seconds",
                "Seconds since this node last read the records of the cluster.",
            ),
            last_read.elapsed().as_secs_f64(),
        );
    }
    push_sample(
        text,
        counter(
            "gridhook_cluster_takeovers_total",
            "Times that this node became the owner of a shard, since the process started.",
        ),
        snapshot.takeovers,
    );
    push_sample(
        text,
        gauge(
            "gridhook_cluster_nodes_with_other_settings",
            "Living nodes with other values of settings that all nodes share than this node has.",
        ),
        count_different_nodes(snapshot),
    );
}

/// The number of living nodes with a setting that should be the same as this node's, and is not.
fn count_different_nodes(snapshot: &ClusterSnapshot) -> u64 {
    let Some(me) = &snapshot.me else {
        return 0;
    };
    let differences = snapshot.records.setting_differences(me, &snapshot.alive);
    let nodes: BTreeSet<&String> = differences
        .iter()
        .map(|difference| &difference.node)
        .collect();
    nodes.len() as u64
}

/// Which shards have an owner, which this node owns, and which it cannot serve.
fn write_owners(text: &mut MetricsText, snapshot: &ClusterSnapshot) {
    push_shard_samples(
        text,
        gauge(
            "gridhook_cluster_shard_owned",
            "Whether this node owns the shard, and its lease has not ended.",
        ),
        snapshot,
        |shard| snapshot.leased.contains(&shard),
    );
    push_shard_samples(
        text,
        gauge(
            "gridhook_cluster_shard_has_owner",
            "Whether a living node owns the shard, as this node sees it.",
        ),
        snapshot,
        |shard| {
            let owner = snapshot.records.shards[shard].value.owner_id.as_ref();
            owner.is_some_and(|owner| snapshot.alive.contains(owner))
        },
    );
    let own_record = find_own_record(snapshot);
    push_shard_samples(
        text,
        gauge(
            "gridhook_cluster_shard_failed",
            "Whether this node cannot serve the shard before an operator has acted.",
        ),
        snapshot,
        |shard| own_record.is_some_and(|own| own.failures.contains_key(&shard)),
    );
}

/// The sizes of the streams, their limits and the servers that they lack.
fn write_streams(
    text: &mut MetricsText,
    snapshot: &ClusterSnapshot,
    stream_limits: &[Option<u64>],
) {
    let own_record = find_own_record(snapshot);
    let find_owned = |shard| {
        own_record
            .filter(|_| snapshot.leased.contains(&shard))
            .and_then(|own| own.positions.get(shard))
    };
    push_shard_samples(
        text,
        gauge(
            "gridhook_cluster_stream_bytes",
            "Size of the stream of a shard that this node owns, as of the last trim; 0 of the \
             others.",
        ),
        snapshot,
        |shard| find_owned(shard).map_or(0, |position| position.stream_bytes),
    );
    push_shard_samples(
        text,
        gauge(
            "gridhook_cluster_stream_missing_replicas",
            "NATS servers that should have the stream of a shard that this node owns and are down \
             or behind, as of the last trim; 0 of the others.",
        ),
        snapshot,
        |shard| find_owned(shard).map_or(0, |position| position.missing_replicas),
    );
    text.start_family(gauge(
        "gridhook_cluster_stream_bytes_max",
        "Size at which the stream of a shard takes no more; 0 for the limit of the NATS servers.",
    ));
    for (shard, limit) in stream_limits.iter().enumerate() {
        text.add_sample(&[("shard", &shard.to_string())], limit.unwrap_or_default());
    }
}

/// How far this node's copy of each shard is, and how many nodes have a complete one.
fn write_copies(text: &mut MetricsText, snapshot: &ClusterSnapshot) {
    let own_record = find_own_record(snapshot);
    text.start_family(gauge(
        "gridhook_cluster_shard_lag_records",
        "Records of the changelog that the most advanced node has applied and this node has not.",
    ));
    for shard in 0..snapshot.records.shards.len() {
        if let Some(lag) = find_lag(snapshot, own_record, shard) {
            text.add_sample(&[("shard", &shard.to_string())], lag);
        }
    }
    push_shard_samples(
        text,
        gauge(
            "gridhook_cluster_shard_copy_complete",
            "Whether this node has a complete copy of the shard.",
        ),
        snapshot,
        |shard| own_record.is_some_and(|own| own.is_complete(shard)),
    );
    push_shard_samples(
        text,
        gauge(
            "gridhook_cluster_shard_copies",
            "Living nodes that have a complete copy of the shard, as this node sees them.",
        ),
        snapshot,
        |shard| count_complete_copies(snapshot, shard),
    );
}

/// Copies of an owner's store that this node fetches, or fetched.
fn write_fetched_copies(text: &mut MetricsText, snapshot: &ClusterSnapshot, copies_total: u64) {
    let own_record = find_own_record(snapshot);
    for (name, help, measure) in COPIES {
        push_shard_samples(text, gauge(name, help), snapshot, |shard| {
            let copy = own_record.and_then(|own| own.positions.get(shard)?.copy);
            copy.map_or(0, measure)
        });
    }
    push_sample(
        text,
        counter(
            "gridhook_cluster_copies_total",
            "Copies of the store of an owner that took the place of this node's, since the \
             process started.",
        ),
        copies_total,
    );
}

fn write_forwarded_requests(text: &mut MetricsText, cluster_context: &ClusterContext) {
    let requests = &cluster_context.forwarded;
    text.start_family(counter(
        "gridhook_cluster_forwarded_requests_total",
        "Requests that this node forwarded to the owner of a shard, by result, since the process \
         started.",
    ));
    text.add_sample(&[("result", "answered")], requests.answered.get());
    text.add_sample(&[("result", "failed")], requests.failed.get());
    push_sample(
        text,
        counter(
            "gridhook_cluster_requests_to_owners_total",
            "Requests that this node sent to owners of shards, also to itself, for clients and \
             for what shards do together, since the process started.",
        ),
        requests.sent.get(),
    );
}

/// Adds a family with a sample for each shard.
fn push_shard_samples<V: Into<SampleValue>>(
    text: &mut MetricsText,
    family: MetricFamily,
    snapshot: &ClusterSnapshot,
    measure: impl Fn(usize) -> V,
) {
    text.start_family(family);
    for shard in 0..snapshot.records.shards.len() {
        text.add_sample(&[("shard", &shard.to_string())], measure(shard));
    }
}

/// The record that this node wrote last, as far as it has read it.
fn find_own_record(snapshot: &ClusterSnapshot) -> Option<&NodeRecord> {
    snapshot.records.find_node(snapshot.me.as_ref()?)
}

/// How many records of a shard's changelog this node is behind the most advanced one.
fn find_lag(
    snapshot: &ClusterSnapshot,
    own_record: Option<&NodeRecord>,
    shard: usize,
) -> Option<u64> {
    let own_applied = own_record?.positions.get(shard)?.applied;
    let nodes = snapshot.records.nodes.values();
    let most_applied = nodes
        .filter_map(|node| Some(node.value.positions.get(shard)?.applied))
        .max()?;
    Some(most_applied.saturating_sub(own_applied))
}

fn count_complete_copies(snapshot: &ClusterSnapshot, shard: usize) -> u64 {
    let nodes = snapshot.records.nodes.values().map(|node| &node.value);
    nodes
        .filter(|node| snapshot.alive.contains(&node.id) && node.is_complete(shard))
        .count() as u64
}
