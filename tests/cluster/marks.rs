//! The acknowledged positions that nodes store, and a bucket that was restored from an older
//! backup.

use std::time::Duration;

use gridhook::{
    cluster::{
        claim::ShardRole,
        records::{OwnershipRecord, ShardPosition, node_key, shard_key},
    },
    journal::changelog::StreamMark,
};

use super::{lease::intervals, node, simulated::Node};
use crate::support::memory_records::MemoryRecords;

/// Instants between two looks of a node.
const ROUNDS: u32 = 20;

fn mark(position: u64, epoch: u64) -> StreamMark {
    StreamMark { position, epoch }
}

#[test]
fn the_highest_mark_outlives_the_node_that_knew_it_and_a_bucket_that_lost_it() {
    let records = MemoryRecords::default();
    let [mut one, mut two] = [0, 1].map(|number| Node::new(number, 1, &records));
    one.look(Duration::ZERO);
    one.act(Duration::ZERO);
    let now = intervals().renewal();
    records.fall_behind();
    one.mark = mark(100, 5);
    one.look(now);
    let stored = records.all();
    let shard = stored
        .iter()
        .find(|stored| stored.key == shard_key(0))
        .expect("a record");
    let shard: OwnershipRecord = serde_json::from_slice(&shard.value).expect("a record");
    assert_eq!(shard.mark, mark(100, 5), "the owner wrote it");
    two.look(now);
    assert_eq!(two.claims.known_marks(0).highest, mark(100, 5));
    // Neither the bucket nor the owner has it any more.
    records.restore();
    let mut third = Node::new(2, 1, &records);
    let mut now = now;
    for _ in 0..ROUNDS {
        now += intervals().renewal();
        two.look(now);
        third.look(now);
    }
    assert_eq!(third.claims.known_marks(0).highest, mark(100, 5));
}

#[test]
fn no_node_owns_a_shard_whose_changelog_was_continued_below_a_record_that_it_acknowledged() {
    let records = MemoryRecords::default();
    let [mut ahead, mut behind] = [0, 1].map(|number| Node::new(number, 1, &records));
    behind.look(Duration::ZERO);
    behind.act(Duration::ZERO);
    let now = intervals().renewal();
    behind.mark = mark(110, 61);
    behind.look(now);
    assert!(behind.acts(0, now));
    // Records of one epoch, and of the next one, are of one changelog.
    ahead.mark = mark(60, 5);
    ahead.look(now);
    behind.look(now);
    assert!(behind.claims.known_marks(0).conflict.is_none());
    ahead.mark = mark(61, 5);
    ahead.look(now);
    behind.look(now);
    assert!(behind.claims.known_marks(0).conflict.is_some());
    assert_eq!(behind.claims.role_for(0), ShardRole::Standby(None));
    let mut now = now;
    for _ in 0..ROUNDS {
        for node in [&mut ahead, &mut behind] {
            node.look(now);
            node.act(now);
        }
        now += intervals().renewal();
    }
    for node in [&ahead, &behind] {
        assert_eq!(node.claims.role_for(0), ShardRole::Standby(None));
    }
}

#[test]
fn a_large_changelog_is_trimmed_to_what_two_living_copies_have() {
    let records = MemoryRecords::default();
    let mut nodes = [0, 1, 2].map(|number| Node::new(number, 1, &records));
    let now = Duration::ZERO;
    for (node, flushed) in nodes.iter_mut().zip([90, 60, 10]) {
        node.look(now);
        let at = ShardPosition {
            flushed,
            ..ShardPosition::default()
        };
        let (record, revision) = node.claims.begin_renewal(now, vec![at]);
        let value = serde_json::to_vec(&record).expect("a record");
        let written = node
            .records
            .set(&node_key(&record.name), value.into(), revision);
        node.claims
            .note_renewal(now, written.expect("nobody else writes"));
    }
    nodes[0].look(now);
    let read = |node: &mut Node| {
        let stored = node.records.get().expect("readable");
        node.claims
            .record_read(now, &stored)
            .expect("a read that counts");
        let claims = &node.claims;
        (claims.trimmable_through(0), claims.trimmable_if_large(0))
    };
    // The last look of the first node wrote its record again, with nothing flushed: 0, 60 and 10.
    // All three have 0, and two of them have 10.
    assert_eq!(read(&mut nodes[1]), (0, 10));
    nodes[1].claims.note_gone(&node(2));
    assert_eq!(
        read(&mut nodes[1]).1,
        0,
        "one living copy has synced something"
    );
}

#[test]
fn nodes_of_a_bucket_that_was_restored_from_an_older_backup_go_on_after_the_expiry() {
    let records = MemoryRecords::default();
    let mut nodes = [0, 1].map(|number| Node::new(number, 1, &records));
    let mut now = Duration::ZERO;
    let mut run = |nodes: &mut [Node; 2], rounds: u32| {
        for _ in 0..rounds {
            for node in nodes.iter_mut() {
                node.look(now);
                node.act(now);
            }
            now += intervals().renewal();
        }
        now - intervals().renewal()
    };
    run(&mut nodes, 4);
    records.fall_behind();
    run(&mut nodes, 40);
    records.restore();
    let now = run(&mut nodes, 4);
    assert!(
        !nodes.iter().any(|node| node.acts(0, now)),
        "less than the expiry"
    );
    let now = run(&mut nodes, 10);
    assert!(nodes[0].acts(0, now));
    let alive = nodes[1].claims.alive_nodes();
    assert_eq!(alive, [node(0), node(1)].into());
}
