//! The metric families of a node of a cluster. Every node has them, the owner and standbys.

use std::collections::BTreeSet;

use super::server::{counter, gauge, push_sample};
use crate::cluster::ClusterContext;
use gridhook_cluster::{
    membership::ClusterSnapshot,
    records::{CopyProgress, NodeRecord},
};
use gridhook_metrics::text::MetricsText;

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
    let ClusterSnapshot {
        me,
        records,
        alive,
        takeovers,
        read,
        problem,
        leased,
        ..
    } = cluster_context.snapshot();
    push_sample(
        text,
        gauge(
            "gridhook_cluster_nodes_alive",
            "Nodes that renew their records, as this node sees them.",
        ),
        alive.len() as u64,
    );
    let nodes = "Nodes that have a record, also those that are down.";
    push_sample(
        text,
        gauge("gridhook_cluster_nodes", nodes),
        records.nodes.len() as u64,
    );
    push_sample(
        text,
        gauge(
            "gridhook_cluster_records_readable",
            "Whether the last read of the records of the cluster succeeded.",
        ),
        problem.is_none(),
    );
    if let Some(read) = read {
        let help = "Seconds since this node last read the records of the cluster.";
        push_sample(
            text,
            gauge("gridhook_cluster_records_age_seconds", help),
            read.elapsed().as_secs_f64(),
        );
    }
    push_sample(
        text,
        counter(
            "gridhook_cluster_takeovers_total",
            "Times that this node became the owner of a shard, since the process started.",
        ),
        takeovers,
    );
    let differences = me
        .as_ref()
        .map(|me| records.setting_differences(me, &alive))
        .unwrap_or_default();
    let different_settings: BTreeSet<&String> = differences
        .iter()
        .map(|difference| &difference.node)
        .collect();
    let help =
        "Living nodes with other values of settings that all nodes share than this node has.";
    push_sample(
        text,
        gauge("gridhook_cluster_nodes_with_other_settings", help),
        different_settings.len() as u64,
    );
    let numbers = (0..).map(|number: usize| number.to_string());
    let shards = || {
        numbers
            .clone()
            .zip(records.shards.iter().map(|shard| &shard.value))
    };
    text.start_family(gauge(
        "gridhook_cluster_shard_owned",
        "Whether this node owns the shard, and its lease has not ended.",
    ));
    for number in 0..records.shards.len() {
        text.add_sample(&[("shard", &number.to_string())], leased.contains(&number));
    }
    text.start_family(gauge(
        "gridhook_cluster_shard_has_owner",
        "Whether a living node owns the shard, as this node sees it.",
    ));
    for (shard, record) in shards() {
        text.add_sample(
            &[("shard", &shard)],
            record
                .owner_id
                .as_ref()
                .is_some_and(|owner| alive.contains(owner)),
        );
    }
    text.start_family(gauge(
        "gridhook_cluster_shard_failed",
        "Whether this node cannot serve the shard before an operator has acted.",
    ));
    let own = me.as_ref().and_then(|me| records.find_node(me));
    for number in 0..records.shards.len() {
        text.add_sample(
            &[("shard", &number.to_string())],
            own.is_some_and(|own| own.failures.contains_key(&number)),
        );
    }
    text.start_family(gauge(
        "gridhook_cluster_stream_bytes",
        "Size of the stream of a shard that this node owns, as of the last trim; 0 of the others.",
    ));
    for number in 0..records.shards.len() {
        let at = own.and_then(|own| own.positions.get(number));
        let at = at.filter(|_| leased.contains(&number));
        text.add_sample(
            &[("shard", &number.to_string())],
            at.map_or(0, |at| at.stream_bytes),
        );
    }
    text.start_family(gauge(
        "gridhook_cluster_stream_bytes_max",
        "Size at which the stream of a shard takes no more; 0 for the limit of the NATS servers.",
    ));
    for (number, bytes_max) in cluster_context.stream_bytes_max.iter().enumerate() {
        text.add_sample(
            &[("shard", &number.to_string())],
            bytes_max.unwrap_or_default(),
        );
    }
    let applied_sequence = |number: usize| {
        let of = |node: &NodeRecord| Some(node.positions.get(number)?.applied);
        let mine = own.and_then(of);
        let all = records.nodes.values().filter_map(|node| of(&node.value));
        Some(all.max()?.saturating_sub(mine?))
    };
    text.start_family(gauge(
        "gridhook_cluster_shard_lag_records",
        "Records of the changelog that the most advanced node has applied and this node has not.",
    ));
    for number in 0..records.shards.len() {
        if let Some(lag) = applied_sequence(number) {
            text.add_sample(&[("shard", &number.to_string())], lag);
        }
    }
    text.start_family(gauge(
        "gridhook_cluster_shard_copy_complete",
        "Whether this node has a complete copy of the shard.",
    ));
    for number in 0..records.shards.len() {
        text.add_sample(
            &[("shard", &number.to_string())],
            own.is_some_and(|own| own.is_complete(number)),
        );
    }
    text.start_family(gauge(
        "gridhook_cluster_shard_copies",
        "Living nodes that have a complete copy of the shard, as this node sees them.",
    ));
    for number in 0..records.shards.len() {
        let living = records
            .nodes
            .values()
            .map(|node| &node.value)
            .filter(|node| alive.contains(&node.id));
        let complete = living.filter(|node| node.is_complete(number)).count();
        text.add_sample(&[("shard", &number.to_string())], complete as u64);
    }
    let copy = |number: usize| records.find_node(me.as_ref()?)?.positions.get(number)?.copy;
    for (name, help, of) in COPIES {
        text.start_family(gauge(name, help));
        for number in 0..records.shards.len() {
            text.add_sample(
                &[("shard", &number.to_string())],
                copy(number).map_or(0, of),
            );
        }
    }
    let copies = "Copies of the store of an owner that took the place of this node's, since the \
        process started.";
    push_sample(
        text,
        counter("gridhook_cluster_copies_total", copies),
        cluster_context.copies.get(),
    );
    text.start_family(counter(
        "gridhook_cluster_forwarded_requests_total",
        "Requests that this node forwarded to the owner of a shard, by result, since the process \
         started.",
    ));
    text.add_sample(
        &[("result", "answered")],
        cluster_context.forwarded.answered.get(),
    );
    text.add_sample(
        &[("result", "failed")],
        cluster_context.forwarded.failed.get(),
    );
    let sent = "Requests that this node sent to owners of shards, also to itself, for clients and \
        for what shards do together, since the process started.";
    push_sample(
        text,
        counter("gridhook_cluster_requests_to_owners_total", sent),
        cluster_context.forwarded.sent.get(),
    );
}
