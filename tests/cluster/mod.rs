//! Which node owns which shard: leases and the balance, against a naive model and in a simulated
//! cluster.

mod balance;
mod copies;
mod lease;
mod marks;
mod member;
mod simulated;

use gridhook::cluster::{balance::NodeId, shard_of};

fn node(number: usize) -> NodeId {
    NodeId(format!("n{number}"))
}

/// The nodes of all releases look for a name in the same shard.
#[test]
fn a_name_has_the_same_shard_for_ever() {
    let names = [
        "orders",
        "billing",
        "a",
        "Contoso-Domain",
        "shop.eu",
        "telemetry",
    ];
    let shards = |count| names.map(|name| shard_of(name, count));
    assert_eq!(shards(1), [0; 6]);
    assert_eq!(shards(16), [4, 12, 3, 15, 7, 14]);
    assert_eq!(shards(64), [52, 28, 19, 47, 39, 14]);
    assert_eq!(shard_of("ORDERS", 16), shard_of("orders", 16));
    let mut counts = [0; 16];
    (0..16_000).for_each(|number| counts[shard_of(&format!("topic-{number}"), 16)] += 1);
    assert!(
        counts.iter().all(|count| (800..1200).contains(count)),
        "{counts:?}"
    );
}
