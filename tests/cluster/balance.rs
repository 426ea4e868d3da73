//! The balance: a table of single decisions, and rounds of all nodes against a naive model.

use std::{collections::BTreeSet, time::Duration};

use gridhook::cluster::balance::{BalanceStep, ClusterView, NodeId, ShardRecord, next_steps};
use proptest::{prop_assert, prop_assert_eq, prop_oneof, proptest, strategy::Strategy as _};

use super::node;
use crate::spec::{shows, stated};

const DRAIN_WAIT: Duration = Duration::from_secs(10);

/// Every node that is alive and does not leave is eligible for each shard, but this one for those
/// that it avoids.
fn all_eligible(
    me: &NodeId,
    shards: usize,
    alive: &BTreeSet<NodeId>,
    leaving: &BTreeSet<NodeId>,
    avoided: &[usize],
) -> Vec<BTreeSet<NodeId>> {
    let of = |shard: usize| {
        let mut eligible: BTreeSet<NodeId> = alive.difference(leaving).cloned().collect();
        eligible.retain(|node| node != me || !avoided.contains(&shard));
        eligible
    };
    (0..shards).map(of).collect()
}

/// The steps of a node. It stops if it is leaving.
fn decided(
    me: &NodeId,
    alive: &BTreeSet<NodeId>,
    leaving: &BTreeSet<NodeId>,
    shards: &[ShardRecord],
    avoided: &[usize],
) -> Vec<BalanceStep> {
    let eligible = &all_eligible(me, shards.len(), alive, leaving, avoided)[..];
    let is_stopping = true;
    let drain_wait = DRAIN_WAIT;
    let view = ClusterView {
        me,
        alive,
        leaving,
        shards,
        eligible,
        is_stopping,
        drain_wait,
    };
    next_steps(&view)
}

/// Shards, each a word: its owner, and the node that requests it. `0` is `n0`, `.` is nobody, and
/// `01` is a shard of `n0` that `n1` requests.
fn shards(text: &str) -> Vec<ShardRecord> {
    let of = |text: &str| {
        let digit = |at: usize| {
            text[at..]
                .chars()
                .next()
                .and_then(|digit| digit.to_digit(10))
        };
        let by = |at: usize| {
            text.get(at..)
                .and_then(|_| digit(at))
                .map(|digit| node(digit as usize))
        };
        ShardRecord {
            owner: by(0),
            request: by(1).map(|by| (by, Duration::ZERO)),
        }
    };
    text.split(' ').map(of).collect()
}

/// The nodes with these numbers.
fn nodes(numbers: &[usize]) -> BTreeSet<NodeId> {
    numbers.iter().map(|number| node(*number)).collect()
}

fn steps(text: &str, alive: &[usize]) -> Vec<BalanceStep> {
    let mut steps = decided(&node(0), &nodes(alive), &nodes(&[]), &shards(text), &[]);
    steps.sort();
    steps
}

/// How many of each step `n0` makes: claims, steals, drains.
fn counts(text: &str, alive: &[usize]) -> [usize; 3] {
    let steps = steps(text, alive);
    let count = |is: fn(&BalanceStep) -> bool| steps.iter().filter(|step| is(step)).count();
    [
        count(|step| matches!(step, BalanceStep::Claim(_))),
        count(|step| matches!(step, BalanceStep::Steal(_))),
        count(|step| matches!(step, BalanceStep::Drain(_))),
    ]
}

#[test]
fn the_next_step_of_a_node_follows_from_the_records() {
    let _rows = shows(&[
        "S004-017: Requirement scale: there are several consumers, and each owns the reading of \
         some of the partitions.",
    ]);
    // Shards (see `shards`), the nodes that live, and the claims, steals and drains of `n0`.
    for (text, alive, expected) in [
        // No node owns a shard.
        (". . . . . .", &[0][..], [6, 0, 0]),
        (". . . . . .", &[0, 1], [3, 0, 0]),
        (". . . . .", &[0, 1], [3, 0, 0]),
        (". .", &[0, 1, 2], [1, 0, 0]),
        // The owner is dead.
        ("0 0 1 1", &[0], [2, 0, 0]),
        // Balanced.
        ("0 0 1 1", &[0, 1], [0, 0, 0]),
        ("0 1 1", &[0, 1], [0, 0, 0]),
        ("0 0 0 0 0 1 1 1 1 1 2 2 2 2 2 2", &[0, 1, 2], [0, 0, 0]),
        // Others have too many.
        ("1 1 1 1", &[0, 1], [0, 2, 0]),
        ("1 1 1 1 1", &[0, 1], [0, 2, 0]),
        ("0 1 1 1", &[0, 1], [0, 1, 0]),
        ("0 1 1 2 2 2", &[0, 1, 2], [0, 1, 0]),
        ("0 1 2 2 2", &[0, 1, 2], [0, 1, 0]),
        // While a shard is free no node takes one from another.
        ("1 1 1 1 .", &[0, 1], [1, 0, 0]),
        // A shard that was requested counts already.
        ("10 10 1 1", &[0, 1], [0, 0, 0]),
        ("10 1 1 1", &[0, 1], [0, 1, 0]),
        ("12 1 1 2", &[0, 1, 2], [0, 1, 0]),
        // A shard that an owner gave up is for the node that asked.
        (".0 0 1 1", &[0, 1], [1, 0, 0]),
        (".1 0 0 1", &[0, 1], [0, 0, 0]),
        (".2 0 1 1", &[0, 1], [1, 0, 0]),
        // The node with the fewest takes first.
        ("0 1 1 1", &[0, 1, 2], [0, 0, 0]),
        // Mine are wanted, by a living node and by a dead one.
        ("01 0 0 0", &[0, 1], [0, 0, 1]),
        ("02 0 1 1", &[0, 1], [0, 0, 0]),
        // I am not alive.
        (". . 1", &[1], [0, 0, 0]),
    ] {
        assert_eq!(counts(text, alive), expected, "{text} with {alive:?}");
    }
}

#[test]
fn an_owner_that_does_not_give_up_a_shard_loses_it() {
    let me = node(0);
    let alive = &nodes(&[0, 1]);
    let leaving = &nodes(&[]);
    let mut shards = shards("10 10 1 1");
    let steps = |shards: &[ShardRecord]| decided(&me, alive, leaving, shards, &[]);
    shards[1].request = Some((me.clone(), DRAIN_WAIT - Duration::from_millis(1)));
    assert_eq!(steps(&shards), []);
    shards[1].request = Some((me.clone(), DRAIN_WAIT));
    assert_eq!(steps(&shards), [BalanceStep::Force(1)]);
}

#[test]
fn a_shard_that_was_given_up_for_a_node_that_does_not_take_it_is_free_again() {
    let mut shards = shards(".1 0 1 2");
    let steps = |shards: &[ShardRecord]| {
        let me = &node(2);
        let alive = &nodes(&[0, 1, 2]);
        let leaving = &nodes(&[]);
        decided(me, alive, leaving, shards, &[])
    };
    shards[0].request = Some((node(1), DRAIN_WAIT - Duration::from_millis(1)));
    assert_eq!(steps(&shards), []);
    shards[0].request = Some((node(1), DRAIN_WAIT));
    assert_eq!(steps(&shards), [BalanceStep::Claim(0)]);
}

#[test]
fn a_node_that_leaves_gives_everything_up_and_takes_nothing() {
    let _rows = shows(&[
        "S004-046: When an instance goes down in order to scale down, its partition ownership is \
         transferred in the normal (graceful) way to other active processors.",
    ]);
    let me = &node(0);
    let alive = &nodes(&[0, 1]);
    let leaving = &nodes(&[0]);
    let shards = &shards("0 1 . 01");
    let steps = decided(me, alive, leaving, shards, &[]);
    assert_eq!(steps, [BalanceStep::Drain(0), BalanceStep::Drain(3)]);
}

#[test]
fn a_leaving_node_keeps_what_it_has_not_given_up_and_gets_nothing_else() {
    for (text, expected) in [
        // It counts for no share, and no other node owns what it has not given up.
        ("0 1 1 .", vec![BalanceStep::Claim(3)]),
        ("0 1 1 1", vec![]),
        ("1 1 1 1", vec![]),
        // It is no heir.
        (".1 0 2 2", vec![BalanceStep::Claim(0)]),
        ("01 0 0 0", vec![]),
        // No shard moves while some are about to be free.
        ("2 2 2 1", vec![]),
    ] {
        let me = &node(0);
        let alive = &nodes(&[0, 1, 2]);
        let leaving = &nodes(&[1]);
        let shards = &shards(text);
        assert_eq!(decided(me, alive, leaving, shards, &[]), expected, "{text}");
    }
}

/// A cluster in which every step succeeds at once, and the nodes decide one after the other.
#[derive(Clone, Debug)]
struct Cluster {
    shards: Vec<ShardRecord>,
    alive: BTreeSet<NodeId>,
    leaving: BTreeSet<NodeId>,
}

impl Cluster {
    fn new(shards: usize, nodes: usize) -> Self {
        let alive = (0..nodes).map(node).collect();
        let shards = vec![ShardRecord::default(); shards];
        Self {
            shards,
            alive,
            leaving: BTreeSet::new(),
        }
    }

    /// The nodes that are alive and do not leave.
    fn staying(&self) -> impl Iterator<Item = &NodeId> {
        self.alive.difference(&self.leaving)
    }

    /// Every node decides from the records as they were before this round, and the first write of a
    /// record wins. Returns the number of steps.
    fn round(&mut self) -> usize {
        let before = self.shards.clone();
        let eligible = vec![self.staying().cloned().collect(); before.len()];
        let mut steps = 0;
        for me in &self.alive {
            let alive = &self.alive;
            let leaving = &self.leaving;
            let shards = &before;
            let eligible = &eligible;
            let is_stopping = true;
            let drain_wait = DRAIN_WAIT;
            let view = ClusterView {
                me,
                alive,
                leaving,
                shards,
                eligible,
                is_stopping,
                drain_wait,
            };
            for step in next_steps(&view) {
                let (BalanceStep::Claim(at)
                | BalanceStep::Force(at)
                | BalanceStep::Steal(at)
                | BalanceStep::Drain(at)) = step;
                steps += 1;
                if self.shards[at] != before[at] {
                    continue;
                }
                let shard = &mut self.shards[at];
                match step {
                    BalanceStep::Claim(_) => {
                        let owner = shard
                            .owner
                            .as_ref()
                            .filter(|owner| self.alive.contains(*owner));
                        assert_eq!(owner, None, "{me:?} claims from a living owner");
                        *shard = ShardRecord {
                            owner: Some(me.clone()),
                            request: None,
                        };
                    }
                    BalanceStep::Force(_) => {
                        panic!("{me:?} uses force, and every owner gives up its shards")
                    }
                    BalanceStep::Steal(_) => shard.request = Some((me.clone(), Duration::ZERO)),
                    BalanceStep::Drain(_) => shard.owner = None,
                }
            }
        }
        steps
    }

    /// Runs rounds until no node does anything. Returns their number.
    fn settle(&mut self) -> usize {
        // A balanced node takes one shard a round, and each one may be asked for and handed over.
        let most = 4 * self.shards.len() + 8;
        (0..=most)
            .find(|_| self.round() == 0)
            .unwrap_or_else(|| panic!("{most} rounds do not end: {self:?}"))
    }

    /// How many shards each node has.
    fn counts(&self) -> Vec<usize> {
        let owned = |node| {
            self.shards
                .iter()
                .filter(|shard| shard.owner.as_ref() == Some(node))
                .count()
        };
        let mut counts: Vec<usize> = self.staying().map(owned).collect();
        counts.sort_by(|one, other| other.cmp(one));
        counts
    }
}

/// The naive model: shards are dealt like cards.
fn dealt(shards: usize, nodes: usize) -> Vec<usize> {
    let mut counts = vec![0; nodes];
    (0..shards).for_each(|shard| counts[shard % nodes] += 1);
    counts
}

#[test]
fn sixteen_shards_over_three_nodes_are_six_five_and_five_through_joins_and_departures() {
    let _rows = shows(&[
        "S004-007: An event processor balances load with the other consumers that use the same \
         event hub and the same consumer group.",
        "S004-008: Scaling rests on partitioned consumers, which differ from competing consumers.",
        "S004-009: The partitioned consumer pattern reaches high scale by removing the contention \
         bottleneck.",
        "S004-019: In the example the number of consumer instances is raised by a human operator \
         when a new sensor type raises the number of events.",
        "S004-031: Processor clients work cooperatively within the context of one consumer group \
         for one event hub.",
        "S004-018: Requirement load balance: the number of consumers can be raised or lowered \
         dynamically.",
        "S004-020: When consumers are added, the pool rebalances the number of partitions each one \
         owns so that the load is shared with the newly added consumers.",
        "S004-035: Partition ownership is evenly distributed among all active event processor \
         instances associated with one combination of event hub and consumer group.",
        "S004-036: Only active instances count in the even distribution of partitions.",
        "S004-045: When an instance goes down because of a failure, its partition ownership is \
         transferred in the normal (graceful) way to other active processors.",
    ]);
    let shards = stated("S004-015").as_u64().expect("a number") as usize;
    let mut cluster = Cluster::new(shards, 3);
    cluster.settle();
    assert_eq!(cluster.counts(), [6, 5, 5]);
    let before = cluster.shards.clone();
    assert_eq!(cluster.settle(), 0, "a balanced cluster does nothing");
    assert_eq!(cluster.shards, before);
    cluster.alive.insert(node(7));
    cluster.settle();
    assert_eq!(cluster.counts(), [4, 4, 4, 4]);
    let moved = cluster
        .shards
        .iter()
        .zip(&before)
        .filter(|(now, before)| now.owner != before.owner)
        .count();
    assert_eq!(moved, 4, "no more shards move than must");
    cluster.leaving.insert(node(7));
    cluster.settle();
    let mut counts = cluster.counts();
    counts.sort_unstable();
    assert_eq!(counts, [5, 5, 6]);
    cluster
        .alive
        .retain(|name| *name != node(0) && *name != node(7));
    cluster.settle();
    assert_eq!(cluster.counts(), [8, 8]);
    cluster.alive.retain(|name| *name != node(1));
    cluster.settle();
    assert_eq!(cluster.counts(), [16]);
}

#[derive(Clone, Debug)]
enum Change {
    Join(usize),
    Leave(usize),
    Die(usize),
    Rounds(usize),
}

fn change() -> impl proptest::strategy::Strategy<Value = Change> {
    prop_oneof![
        (0..7usize).prop_map(Change::Join),
        (0..7usize).prop_map(Change::Leave),
        (0..7usize).prop_map(Change::Die),
        (0..5usize).prop_map(Change::Rounds),
    ]
}

impl Cluster {
    fn change(&mut self, change: &Change) {
        match *change {
            Change::Join(number) => {
                self.alive.insert(node(number));
                self.leaving.remove(&node(number));
            }
            Change::Leave(number) | Change::Die(number)
                if self.staying().all(|name| *name == node(number)) => {}
            Change::Leave(number) => drop(self.leaving.insert(node(number))),
            Change::Die(number) => {
                self.alive.remove(&node(number));
                self.leaving.remove(&node(number));
            }
            Change::Rounds(rounds) => {
                for _ in 0..rounds {
                    self.round();
                }
            }
        }
    }
}

proptest! {
    #[test]
    fn nodes_that_join_leave_and_flap_end_with_equal_shares(
        shards in 1..40usize,
        changes in proptest::collection::vec(change(), 0..20),
    ) {
        let mut cluster = Cluster::new(shards, 1);
        changes.iter().for_each(|change| cluster.change(change));
        cluster.settle();
        prop_assert_eq!(cluster.counts(), dealt(shards, cluster.staying().count()));
        let stays = |node: &NodeId| cluster.staying().any(|name| name == node);
        prop_assert!(cluster.shards.iter().all(|shard| shard.owner.as_ref().is_some_and(stays)));
    }
}

#[test]
fn a_shard_that_a_node_cannot_serve_keeps_it_from_nothing_else() {
    let me = &node(0);
    let alive = &nodes(&[0, 1]);
    let leaving = &nodes(&[]);
    let steps = |text: &str, avoided: &[usize]| decided(me, alive, leaving, &shards(text), avoided);
    assert_eq!(steps(". 1", &[]), [BalanceStep::Claim(0)]);
    assert_eq!(steps(". 1", &[0]), []);
    assert_eq!(steps(". . 1 1", &[0]), [BalanceStep::Claim(1)]);
    // Without the free shard this node would ask for one.
    assert_eq!(steps(". 1 1 1", &[0]).len(), 1);
    assert!(matches!(
        steps(". 1 1 1", &[0])[..],
        [BalanceStep::Steal(1..=3)]
    ));
    assert_eq!(steps(". 1 1 1", &[]), [BalanceStep::Claim(0)]);
}

/// The actions of `n0` for shards of which these nodes have complete copies.
fn with_copies(
    text: &str,
    eligible: &[&[usize]],
    leaving: &[usize],
    is_stopping: bool,
) -> Vec<BalanceStep> {
    let me = &node(0);
    let alive = &nodes(&[0, 1, 2]);
    let leaving = &nodes(leaving);
    let shards = &shards(text);
    let eligible: Vec<_> = eligible.iter().map(|numbers| nodes(numbers)).collect();
    let eligible = &eligible[..];
    let drain_wait = DRAIN_WAIT;
    let view = ClusterView {
        me,
        alive,
        leaving,
        shards,
        eligible,
        is_stopping,
        drain_wait,
    };
    let mut steps = next_steps(&view);
    steps.sort();
    steps
}

#[test]
fn only_nodes_with_a_copy_take_a_shard() {
    let decided = |text: &str, eligible: &[&[usize]]| with_copies(text, eligible, &[], false);
    use BalanceStep::{Claim, Drain, Steal};
    // It takes what it has a copy of, and more than its share of that if the others with a copy
    // have as many.
    assert_eq!(decided(". . .", &[&[0], &[1], &[0, 2]]), [Claim(0)]);
    assert_eq!(decided(". 0 0 .", &[&[0, 1], &[0], &[0], &[1]]), []);
    assert_eq!(decided(". 0 1", &[&[0, 1], &[0], &[1]]), [Claim(0)]);
    assert_eq!(decided("0 0 .", &[&[0], &[0], &[1, 2]]), []);
    // A shard that it has no copy of, and one that nobody can take, do not keep it from asking.
    assert_eq!(decided(". 1 1 1", &[&[2], &[0, 1], &[1], &[1]]), [Steal(1)]);
    assert_eq!(decided(". 1 1 1", &[&[], &[0, 1], &[1], &[1]]), [Steal(1)]);
    // Another node with a copy and fewer shards asks.
    assert_eq!(
        decided("0 1 1 1", &[&[0], &[0, 1, 2], &[1, 2], &[1, 2]]),
        []
    );
    // A request of a node without a copy counts for nothing.
    assert_eq!(decided("01 0 2", &[&[0, 2], &[0, 1], &[2]]), []);
    assert_eq!(decided("01 0 2", &[&[0, 1], &[0, 1], &[2]]), [Drain(0)]);
    assert_eq!(decided(".1 0 2", &[&[0, 2], &[0, 1], &[2]]), [Claim(0)]);
}

#[test]
fn a_drained_node_serves_on_what_no_other_one_can_take() {
    let decided = |leaving: &[usize], is_stopping| {
        with_copies("0 0 1", &[&[], &[1], &[1]], leaving, is_stopping)
    };
    assert_eq!(decided(&[0], false), [BalanceStep::Drain(1)]);
    assert_eq!(
        decided(&[0], true),
        [BalanceStep::Drain(0), BalanceStep::Drain(1)],
        "it stops"
    );
    let all = with_copies("0 0 1", &[&[], &[], &[]], &[0, 1, 2], false);
    assert_eq!(
        all,
        [BalanceStep::Drain(0), BalanceStep::Drain(1)],
        "an operator wants no owner"
    );
}
