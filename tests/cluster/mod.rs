//! Which node owns which shard: leases and the balance, against a naive model and in a simulated cluster.

mod balance;
mod lease;
mod member;
mod simulated;

use gridhook::cluster::balance::NodeId;

fn node(number: usize) -> NodeId {
    NodeId(format!("n{number}"))
}
