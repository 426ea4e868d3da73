//! A cluster in virtual time: nodes read and renew records with delays, are paused, cut off from
//! the records, served by a server that fell behind, or lose the responses to what they write. At
//! every instant at most one node acts for a shard.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::atomic::Ordering,
    time::Duration,
};

use gridhook::cluster::{
    claim::{ClaimSettings, Claims, OwnershipChange, ShardRole},
    records::{OwnershipRecord, OwnershipScope, RecordError, ShardPosition, node_key, shard_key},
};
use gridhook::journal::changelog::StreamMark;
use proptest::{
    collection::vec, option, prelude::any, prop_assert, prop_assert_eq, proptest,
    test_runner::TestCaseError,
};
use serde_json::json;

use super::{lease::intervals, node};
use crate::{
    spec::{fact, shows},
    support::memory_records::MemoryRecords,
};

const SHARDS: usize = 16;
const NODES: usize = 3;

/// The virtual time between two instants.
const STEP: Duration = Duration::from_millis(100);

/// How often a change is tried while the owner renews its record, as by a member.
const CHANGE_TRIES: u32 = 4;

/// The mechanism that prevents two nodes from acting for a shard.
#[derive(Clone, Copy)]
struct Rules {
    /// An owner stops before its lease ends.
    self_fence: bool,
    /// An owner by force waits before it acts.
    act_wait: bool,
}

const RULES: Rules = Rules {
    self_fence: true,
    act_wait: true,
};

pub(super) fn settings(number: usize, shards: usize) -> ClaimSettings {
    ClaimSettings {
        me: node(number),
        name: format!("name{number}"),
        address: format!("10.0.0.{number}:7000"),
        is_address_bound: true,
        version: "0.1.0".to_owned(),
        shards,
        control: None,
        intervals: intervals(),
        drain_wait: Duration::from_secs(10),
        scope: OwnershipScope {
            fully_qualified_namespace: "events.example.com".to_owned(),
            event_hub_name: "store".to_owned(),
            consumer_group: "gridhook".to_owned(),
        },
        shared: BTreeMap::new(),
        format: 1,
    }
}

/// Claims of a node with a complete copy of each shard.
fn with_everything(settings: ClaimSettings) -> Claims {
    let shards = settings.shards;
    let mut claims = Claims::new(settings);
    claims.note_complete(vec![true; shards]);
    claims
}

pub(super) struct Node {
    pub(super) claims: Claims,
    pub(super) records: MemoryRecords,
    /// The position that its store has applied.
    pub(super) mark: StreamMark,
    name: String,
    /// How far its clock is ahead of those of the others.
    ahead: Duration,
    looked: Duration,
    /// Whether it never finishes its requests in flight, and therefore never gives up a shard.
    is_stuck: bool,
    rules: Rules,
    is_acting: bool,
    next: Duration,
    paused_until: Duration,
    faulty_until: Duration,
}

impl Node {
    pub(super) fn new(number: usize, shards: usize, records: &MemoryRecords) -> Self {
        let settings = settings(number, shards);
        Self {
            name: settings.name.clone(),
            claims: with_everything(settings),
            records: records.for_other(),
            mark: StreamMark::default(),
            // Hours apart, as no two machines agree.
            ahead: Duration::from_secs(3_600 * 5) * number as u32,
            looked: Duration::ZERO,
            is_stuck: false,
            rules: RULES,
            is_acting: false,
            next: STEP * number as u32,
            paused_until: Duration::ZERO,
            faulty_until: Duration::ZERO,
        }
    }

    /// Whether it acts for the shard at this instant.
    pub(super) fn acts(&self, shard: usize, now: Duration) -> bool {
        let is_owner = matches!(self.claims.role_for(shard), ShardRole::Owner { .. });
        let mine = now + self.ahead;
        let may_act = match self.rules {
            Rules {
                self_fence: false, ..
            } => true,
            Rules {
                act_wait: false, ..
            } => intervals().may_act(self.looked, mine),
            Rules { .. } => self
                .claims
                .acts_until(shard, mine)
                .is_some_and(|until| mine < until),
        };
        is_owner && may_act && now >= self.paused_until
    }

    /// Renews its records and reads all. Returns whether the read counts.
    pub(super) fn look(&mut self, now: Duration) -> bool {
        let mine = now + self.ahead;
        if !self.claims.may_renew() {
            self.read(mine);
        }
        if !self.claims.may_renew() {
            return false;
        }
        let at = ShardPosition {
            mark: self.mark,
            ..ShardPosition::default()
        };
        let (record, revision) = self.claims.begin_renewal(mine, vec![at]);
        let value = serde_json::to_vec(&record).expect("a record");
        if let Ok(revision) = self
            .records
            .set(&node_key(&self.name), value.into(), revision)
        {
            self.claims.note_renewal(mine, revision);
            self.looked = mine;
            for change in self.claims.shard_renewals() {
                make(&self.records, &mut self.claims, change, mine);
            }
        }
        self.read(mine)
    }

    fn read(&mut self, mine: Duration) -> bool {
        self.records
            .get()
            .is_ok_and(|stored| self.claims.record_read(mine, &stored).is_ok())
    }

    /// Acts on what it has read.
    pub(super) fn act(&mut self, now: Duration) {
        let mine = now + self.ahead;
        for change in self.claims.decide_changes(mine) {
            make(&self.records, &mut self.claims, change, mine);
        }
        for shard in 0..SHARDS {
            if let ShardRole::Owner {
                claim,
                draining: true,
            } = self.claims.role_for(shard)
                && !self.is_stuck
            {
                self.claims.give_up(shard, claim, None, mine);
            }
        }
    }

    fn owned(&self) -> usize {
        let is_owner =
            |shard: &usize| matches!(self.claims.role_for(*shard), ShardRole::Owner { .. });
        (0..SHARDS).filter(is_owner).count()
    }
}

/// Makes a change, also if the owner renews its record meanwhile and the change may be made
/// nevertheless.
pub(super) fn make(
    records: &MemoryRecords,
    claims: &mut Claims,
    change: OwnershipChange,
    now: Duration,
) {
    let mut next = Some(change);
    // A server that is behind may show the same record again.
    for _ in 0..CHANGE_TRIES {
        let Some(change) = next.take() else { return };
        let value = serde_json::to_vec(&change.record).expect("a record");
        match records.set(&shard_key(change.shard), value.into(), change.revision) {
            Ok(revision) => claims.note_change(change, revision, now),
            Err(RecordError::Conflict)
                if records
                    .get()
                    .is_ok_and(|stored| claims.record_read(now, &stored).is_ok()) =>
            {
                next = claims.retry_change(change);
            }
            Err(_) => {}
        }
    }
}

/// A fault: the node, its kind and length in instants, and the instants before the next one.
type Fault = (usize, u8, u8, u8);

const PAUSED: u8 = 0;
const CUT: u8 = 1;

struct Outcome {
    /// Instants at which two nodes acted for one shard.
    twice: u64,
    /// How many shards each node has in the end.
    counts: Vec<usize>,
}

fn run(faults: &[Fault], delays: &[u8], stuck: Option<usize>, rules: Rules) -> Outcome {
    let records = MemoryRecords::default();
    let mut nodes: Vec<Node> = (0..NODES)
        .map(|number| Node {
            is_stuck: stuck == Some(number),
            rules,
            ..Node::new(number, SHARDS, &records)
        })
        .collect();
    let mut now = Duration::ZERO;
    let mut twice = 0;
    let mut turn = 0;
    // Lets the nodes act for a number of instants. Returns the time afterwards.
    let mut run_instants = |nodes: &mut [Node], instants: u32| {
        for _ in 0..instants {
            for node in nodes
                .iter_mut()
                .filter(|node| now >= node.next && now >= node.paused_until)
            {
                if now >= node.faulty_until {
                    let faults = &node.records.faults;
                    for fault in [&faults.is_cut, &faults.is_behind, &faults.loses_answers] {
                        fault.store(false, Ordering::Relaxed);
                    }
                }
                if std::mem::take(&mut node.is_acting) {
                    node.act(now);
                    // A turn comes late by chance.
                    turn += 1;
                    let late = delays
                        .get(turn % delays.len().max(1))
                        .map_or(0, |late| late % 3);
                    node.next = now + intervals().renewal() + STEP * u32::from(late);
                } else {
                    node.is_acting = node.look(now);
                    node.next = now + STEP;
                }
            }
            for shard in 0..SHARDS {
                twice += u64::from(nodes.iter().filter(|node| node.acts(shard, now)).count() > 1);
            }
            now += STEP;
        }
        now
    };
    let mut now = run_instants(&mut nodes, 50);
    for (at, kind, length, wait) in faults {
        let until = now + STEP * u32::from(*length);
        let node = &mut nodes[*at % NODES];
        let faults = &node.records.faults;
        match kind % 4 {
            // When it resumes, it continues its work before it looks again.
            PAUSED => (node.paused_until, node.next) = (until, node.next.max(until + STEP)),
            CUT => faults.is_cut.store(true, Ordering::Relaxed),
            2 => {
                node.records.fall_behind();
                faults.is_behind.store(true, Ordering::Relaxed);
            }
            _ => faults.loses_answers.store(true, Ordering::Relaxed),
        }
        node.faulty_until = until;
        now = run_instants(&mut nodes, u32::from(*wait));
    }
    run_instants(&mut nodes, 800);
    Outcome {
        twice,
        counts: nodes.iter().map(Node::owned).collect(),
    }
}

fn check(faults: &[Fault], delays: &[u8], stuck: Option<usize>) -> Result<(), TestCaseError> {
    let Outcome { twice, mut counts } = run(faults, delays, stuck, RULES);
    prop_assert_eq!(twice, 0, "two nodes acted for one shard");
    counts.sort_unstable();
    prop_assert!(counts == [5, 5, 6], "{counts:?}");
    Ok(())
}

proptest! {
    #[test]
    fn whatever_is_paused_cut_off_or_stuck_no_shard_has_two_owners_that_act(
        faults in vec((0..NODES, any::<u8>(), any::<u8>(), any::<u8>()), 0..12),
        delays in vec(any::<u8>(), 0..20),
        stuck in option::of(0..NODES),
    ) {
        check(&faults, &delays, stuck)?;
    }
}

/// A node that is paused for six seconds: the others take its shards, and it takes its share again.
const PAUSE: [Fault; 1] = [(0, PAUSED, 60, 100)];

#[test]
fn a_paused_node_loses_its_shards_and_gets_its_share_again() {
    let _rows = shows(&[
        "S004-021: Requirement recovery: when a consumer fails (for example the virtual machine \
         hosting it stops suddenly), the other consumers take over the partitions it owned and go \
         on.",
        "S004-064: Other instances try to get ownership of the partitions previously owned by the \
         inactive instance.",
        "S004-065: The checkpoint store guarantees that only one of the instances succeeds in \
         claiming ownership of a partition.",
        "S004-066: At any given time at most one processor receives events from a partition.",
    ]);
    check(&PAUSE, &[], None).expect("one owner of each shard");
}

#[test]
fn an_owner_that_never_gives_up_a_shard_loses_it_and_no_other_acts_beside_it() {
    check(&[], &[], Some(0)).expect("one owner of each shard");
    let without = Rules {
        act_wait: false,
        ..RULES
    };
    assert!(
        run(&[], &[], Some(0), without).twice > 0,
        "the former owner acts until it looks"
    );
}

#[test]
fn without_the_self_fence_a_paused_or_cut_off_owner_acts_beside_its_successor() {
    let without = Rules {
        self_fence: false,
        ..RULES
    };
    assert!(run(&[(0, CUT, 60, 100)], &[], None, without).twice > 0);
    assert!(run(&PAUSE, &[], None, without).twice > 0);
}

/// Lets each node look and act in turn for these instants. Returns the time afterwards.
fn settle(nodes: &mut [&mut Node], from: Duration, instants: u32) -> Duration {
    let mut now = from;
    for _ in 0..instants {
        for node in nodes.iter_mut() {
            node.look(now);
            node.act(now);
        }
        now += intervals().renewal();
    }
    now
}

#[test]
fn sixteen_shards_have_records_of_partitions_0_to_15_and_the_nodes_share_them_by_these() {
    let _rows = shows(&[
        "S004-043: The data read from the store is then used to balance the load among the active \
         processors.",
    ]);
    let records = MemoryRecords::default();
    let mut nodes = [0, 1].map(|number| Node::new(number, SHARDS, &records));
    let [one, two] = &mut nodes;
    let now = settle(&mut [one], Duration::ZERO, 3);
    let read = || -> Vec<OwnershipRecord> {
        let shards = records
            .all()
            .into_iter()
            .filter(|stored| stored.key.starts_with("shard."));
        shards
            .map(|stored| serde_json::from_slice(&stored.value).expect("a record"))
            .collect()
    };
    let mut partitions: Vec<u32> = read()
        .iter()
        .map(|record| record.partition_id.parse().expect("a number"))
        .collect();
    partitions.sort_unstable();
    assert!(
        partitions.windows(2).all(|pair| pair[0] + 1 == pair[1]),
        "{partitions:?}"
    );
    let [first, last] =
        [partitions[0], partitions[partitions.len() - 1]].map(|number| number.to_string());
    fact(
        "S004-058",
        &json!({"first": first, "last": last, "count": partitions.len()}),
    );
    fact("S004-015", &json!(partitions.len()));
    // The second node finds all of them taken, and asks for its half.
    settle(&mut [one, two], now, 20);
    for number in 0..2 {
        let owned = read()
            .iter()
            .filter(|record| record.owner_id == Some(node(number)))
            .count();
        assert_eq!(owned, SHARDS / 2, "node {number}");
    }
}

#[test]
fn a_node_of_the_same_name_that_starts_later_is_refused_until_the_earlier_one_is_silent() {
    let records = MemoryRecords::default();
    let mut first = Node::new(0, 1, &records);
    let now = settle(&mut [&mut first], Duration::ZERO, 2);
    let mut second = Node::new(1, 1, &records);
    second.claims = with_everything(ClaimSettings {
        name: first.name.clone(),
        ..settings(1, 1)
    });
    second.name.clone_from(&first.name);
    assert!(!second.look(now), "the first one may run");
    // A record that changes once may be what a server that fell behind had not shown yet.
    let mut now = now;
    let mut look = || {
        now += intervals().renewal();
        first.look(now);
        let read = second.claims.record_read(now, &records.all());
        assert!(!second.claims.may_renew());
        read
    };
    let looks = intervals().expiry().as_millis() / intervals().renewal().as_millis();
    assert!((0..looks).all(|_| look().is_ok()));
    let taken = Err(gridhook::cluster::claim::ReadProblem::NameTaken);
    assert_eq!(look(), taken, "the first one runs");
    assert!(first.acts(0, now));
    // As if another one started then, and the first one did not go on.
    let mut second = Node {
        claims: with_everything(ClaimSettings {
            name: first.name.clone(),
            ..settings(1, 1)
        }),
        ..second
    };
    let silent = settle(&mut [&mut second], now, 4);
    assert!(!second.claims.may_renew(), "less than the expiry");
    let now = settle(&mut [&mut second], silent, 3);
    assert!(
        matches!(second.claims.role_for(0), ShardRole::Owner { claim: 2, .. }),
        "the record of the first is gone"
    );
    assert!(!first.look(now), "it is not the node of this name any more");
    let stored = records.all();
    let problem = first
        .claims
        .record_read(now, &stored)
        .expect_err("another process");
    assert_eq!(problem, gridhook::cluster::claim::ReadProblem::NameTaken);
}

#[test]
fn a_node_whose_process_has_ended_is_dead_until_it_renews_its_record() {
    let _rows = shows(&[
        "S004-045: When an instance goes down because of a failure, its partition ownership is \
         transferred in the normal (graceful) way to other active processors.",
    ]);
    let records = MemoryRecords::default();
    let [mut owner, mut other] = [0, 1].map(|number| Node::new(number, 1, &records));
    let now = settle(&mut [&mut owner, &mut other], Duration::ZERO, 3);
    assert_eq!(owner.owned(), 1);
    // A wrong guess.
    other.claims.note_gone(&node(0));
    assert!(!other.claims.alive_nodes().contains(&node(0)));
    owner.look(now);
    other.look(now);
    assert_eq!(
        other.claims.alive_nodes(),
        BTreeSet::from([node(0), node(1)])
    );
    other.act(now);
    assert_eq!(other.owned(), 0);
    // A right one: no lease is waited for.
    other.claims.note_gone(&node(0));
    other.act(now);
    assert_eq!(other.owned(), 1);
    assert!(other.acts(0, now));
}

#[test]
fn a_node_that_leaves_gives_up_what_it_has_and_its_record_says_so_before() {
    let _rows = shows(&[
        "S004-046: When an instance goes down in order to scale down, its partition ownership is \
         transferred in the normal (graceful) way to other active processors.",
    ]);
    let records = MemoryRecords::default();
    let [mut owner, mut other] = [0, 1].map(|number| Node::new(number, 1, &records));
    let now = settle(&mut [&mut owner, &mut other], Duration::ZERO, 3);
    owner.is_stuck = true;
    owner.claims.stop_claiming();
    let now = settle(&mut [&mut owner, &mut other], now, 40);
    assert!(
        matches!(
            owner.claims.role_for(0),
            ShardRole::Owner { draining: true, .. }
        ),
        "it has not finished"
    );
    assert!(!owner.claims.has_left());
    assert_eq!(other.owned(), 0, "an owner that leaves is alive");
    owner.is_stuck = false;
    settle(&mut [&mut owner, &mut other], now, 2);
    assert!(owner.claims.has_left());
    assert_eq!(other.owned(), 1);
}

#[test]
fn a_running_node_whose_record_was_deleted_writes_it_again() {
    let records = MemoryRecords::default();
    let mut owner = Node::new(0, 1, &records);
    let now = settle(&mut [&mut owner], Duration::ZERO, 3);
    let own = records
        .all()
        .into_iter()
        .find(|stored| stored.key == node_key("name0"))
        .expect("a record");
    records
        .set(&own.key, "".into(), own.revision)
        .expect("nobody else writes");
    let now = settle(&mut [&mut owner], now, 2);
    assert!(owner.acts(0, now));
    assert!(owner.claims.records().nodes.contains_key("name0"));
    let own = records
        .all()
        .into_iter()
        .find(|stored| stored.key == node_key("name0"))
        .expect("a record");
    records
        .set(&own.key, "of a newer release".into(), own.revision)
        .expect("nobody else writes");
    assert!(!owner.look(now), "another process has the name");
}

#[test]
fn an_owner_that_failed_leaves_the_shard_to_others_for_a_while() {
    let records = MemoryRecords::default();
    let mut owner = Node::new(0, 1, &records);
    let now = settle(&mut [&mut owner], Duration::ZERO, 3);
    owner
        .claims
        .give_up(0, 1, Some(Duration::from_secs(5)), now);
    assert_eq!(owner.claims.role_for(0), ShardRole::Standby(None));
    let now = settle(&mut [&mut owner], now, 9);
    assert_eq!(owner.owned(), 0);
    settle(&mut [&mut owner], now, 3);
    assert!(
        matches!(owner.claims.role_for(0), ShardRole::Owner { claim: 2, .. }),
        "nobody else wanted it"
    );
}
