//! Leases.

use std::{collections::BTreeSet, time::Duration};

use gridhook::cluster::lease::{LeaseIntervals, LiveNodes};

use super::node;
use crate::spec::shows;

fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

pub(super) fn intervals() -> LeaseIntervals {
    LeaseIntervals::with_expiry(ms(2_000))
}

#[test]
fn a_node_renews_its_record_four_times_in_the_expiry_or_twice_a_second() {
    for (expiry, renewal) in [(200, 50), (1_000, 250), (2_000, 500), (20_000, 500)] {
        let intervals = LeaseIntervals::with_expiry(ms(expiry));
        assert_eq!(intervals.renewal(), ms(renewal), "{expiry}");
    }
}

#[test]
fn a_call_may_take_a_quarter_of_the_expiry_and_no_less_than_a_renewal() {
    for (renewal, expiry, limit) in [
        (500, 2_000, 500),
        (500, 1_500, 500),
        (100, 2_000, 500),
        (100, 20_000, 1_000),
        (2_000, 6_000, 2_000),
    ] {
        let intervals = LeaseIntervals::new(ms(renewal), ms(expiry));
        assert_eq!(intervals.call_limit(), ms(limit), "{renewal} and {expiry}");
    }
}

#[test]
fn an_owner_stops_one_renewal_before_its_lease_ends() {
    let _rows = shows(&[
        "S004-066: At any given time at most one processor receives events from a partition.",
    ]);
    for (now, may) in [
        (10_000, true),
        (11_499, true),
        (11_500, false),
        (12_000, false),
        (9_000, true),
    ] {
        assert_eq!(intervals().may_act(ms(10_000), ms(now)), may, "{now}");
    }
}

/// Reads at these times with these revisions of one node, and whether it is alive after each.
fn check(reads: &[(u64, u64, bool)]) {
    let mut nodes = LiveNodes::new(intervals());
    for (index, (at, revision, is_alive)) in reads.iter().enumerate() {
        nodes.record_read(ms(*at), [(node(1), *revision)]);
        let expected = if *is_alive {
            BTreeSet::from([node(1)])
        } else {
            BTreeSet::new()
        };
        assert_eq!(nodes.alive_nodes(), expected, "read {index} of {reads:?}");
    }
}

#[test]
fn a_node_is_dead_when_its_record_has_not_changed_for_the_expiry_and_alive_when_it_changes() {
    let _rows = shows(&[
        "S004-036: Only active instances count in the even distribution of partitions.",
        "S004-063: When a processor fails (its virtual machine shuts down), the other instances \
         detect it by looking at the last modified time.",
    ]);
    check(&[
        (0, 7, true),
        (500, 7, true),
        (1_000, 7, true),
        (1_500, 7, true),
        (2_000, 7, false),
        (2_500, 8, true),
    ]);
    check(&[
        (0, 7, true),
        (1_000, 7, true),
        (1_900, 8, true),
        (2_900, 8, true),
        (3_899, 8, true),
        (3_900, 8, false),
    ]);
}

#[test]
fn time_in_which_nothing_could_be_read_ends_no_connection() {
    // Ten seconds without a read count as one.
    check(&[
        (0, 7, true),
        (10_000, 7, true),
        (10_500, 7, true),
        (10_999, 7, true),
        (11_000, 7, false),
    ]);
    check(&[
        (0, 7, true),
        (10_000, 7, true),
        (10_500, 8, true),
        (60_000, 8, true),
    ]);
}

#[test]
fn a_node_without_a_record_is_not_alive() {
    let mut nodes = LiveNodes::new(intervals());
    nodes.record_read(ms(0), [(node(1), 1), (node(2), 1)]);
    assert_eq!(nodes.alive_nodes(), BTreeSet::from([node(1), node(2)]));
    nodes.record_read(ms(1), [(node(2), 2)]);
    assert_eq!(nodes.alive_nodes(), BTreeSet::from([node(2)]));
}
