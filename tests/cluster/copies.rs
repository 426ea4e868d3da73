//! The copies of shards: the choice of nodes, and a cluster in virtual time whose changelogs are
//! trimmed while nodes join, are killed, paused, cut off, drained and forgotten, against a naive
//! model of what is on the disks.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::atomic::Ordering,
    time::Duration,
};

use gridhook::cluster::{
    claim::{ClaimSettings, Claims, ReadProblem, ShardRole},
    copies::{HeldCopy, choose_nodes},
    records::{CopyState, NodeRecord, ShardPosition, drained_key, node_key},
};
use proptest::{
    collection::vec, prelude::any, prop_assert, prop_assert_eq, proptest,
    test_runner::TestCaseError,
};

use super::{
    lease::intervals,
    simulated::{make, settings},
};
use crate::support::memory_records::MemoryRecords;

/// The names of nodes with these numbers.
fn names(numbers: impl IntoIterator<Item = usize>) -> Vec<String> {
    numbers
        .into_iter()
        .map(|number| format!("name{number}"))
        .collect()
}

fn chosen_of(shard: usize, copies: usize, names: &[String]) -> BTreeSet<&str> {
    choose_nodes(shard, copies, names.iter().map(String::as_str))
}

#[test]
fn all_releases_choose_the_same_nodes() {
    let all = names(0..5);
    let of = |shard| {
        chosen_of(shard, 2, &all)
            .into_iter()
            .map(|name| name.trim_start_matches("name"))
            .collect::<String>()
    };
    assert_eq!(
        [0, 1, 2, 3, 4, 5, 6, 7].map(of),
        ["02", "02", "14", "02", "04", "01", "03", "13"]
    );
}

#[test]
fn copies_are_shared_about_evenly() {
    let all = names(0..5);
    let shards = 64;
    let mut counts = BTreeMap::new();
    for shard in 0..shards {
        chosen_of(shard, 3, &all)
            .into_iter()
            .for_each(|name| *counts.entry(name).or_insert(0) += 1);
    }
    assert!(
        counts.len() == 5 && counts.values().all(|count| (26..=52).contains(count)),
        "{counts:?}"
    );
}

proptest! {
    #[test]
    fn a_node_that_joins_or_goes_changes_no_more_copies_than_it_must(
        mut numbers in vec(0..40usize, 1..12),
        other in 40..80usize,
        shard in 0..64usize,
        copies in 1..6usize,
    ) {
        numbers.sort_unstable();
        numbers.dedup();
        let before = names(numbers.clone());
        let after = names(numbers.into_iter().chain([other]));
        let few = chosen_of(shard, copies, &before);
        let many = chosen_of(shard, copies, &after);
        prop_assert_eq!(few.len(), copies.min(before.len()));
        prop_assert_eq!(many.len(), copies.min(after.len()));
        let other = format!("name{other}");
        prop_assert!(many.iter().all(|name| few.contains(name) || *name == other), "{few:?} and \
            {many:?}");
    }
}

const SHARDS: usize = 4;
const NODES: usize = 5;
const COPIES: usize = 2;

/// How long a node is away until others take the place of its copies.
const REPLACE_AFTER: Duration = Duration::from_secs(8);

/// The steps that a transfer takes.
const TRANSFER: u32 = 3;

/// Settings of a node.
#[derive(Clone, Copy)]
struct Rules {
    copies: usize,
    replace_after: Duration,
}

const RULES: Rules = Rules {
    copies: COPIES,
    replace_after: REPLACE_AFTER,
};

/// A fault of a node, and the steps before the next one.
type Fault = (usize, u8, u8, u8);

/// What a node has of a shard on its disk.
#[derive(Clone, Copy, Debug, Default)]
struct Disk {
    is_there: bool,
    applied: u64,
    flushed: u64,
}

/// What a process does with a shard.
#[derive(Clone, Copy, Debug, Default)]
struct Serving {
    held: HeldCopy,
    /// The position of a store that arrives, and the steps that it still takes.
    fetches: Option<(u64, u32)>,
    /// The position that its record has.
    flushed: u64,
}

struct Process {
    claims: Claims,
    shards: Vec<Serving>,
}

struct Machine {
    number: usize,
    /// What it counts with.
    rules: Rules,
    starts: usize,
    process: Option<Process>,
    disks: Vec<Disk>,
    records: MemoryRecords,
    /// When it wrote its record last.
    renewed: Duration,
    is_drained: bool,
    /// Since when it is silent or drained.
    away: Option<Duration>,
    paused_until: Duration,
    faulty_until: Duration,
}

/// A changelog.
#[derive(Clone, Copy, Debug)]
struct Stream {
    first: u64,
    last: u64,
}

/// Up to where an owner trims.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Trim {
    AsTheRecordsSay,
    AsFarAsItHasSynced,
}

struct SimulatedCopies {
    machines: Vec<Machine>,
    streams: Vec<Stream>,
    records: MemoryRecords,
    now: Duration,
    trim: Trim,
    trimmed: u64,
    removed: u64,
    fetched: u64,
}

impl Machine {
    fn start(&mut self) {
        let ClaimSettings { me, .. } = settings(self.number, SHARDS);
        self.starts += 1;
        let me = gridhook::cluster::balance::NodeId(format!("{}-{}", me.0, self.starts));
        let Rules {
            copies,
            replace_after,
        } = self.rules;
        let settings = ClaimSettings {
            me,
            copies,
            replace_after,
            ..settings(self.number, SHARDS)
        };
        let of = |disk: &Disk| Serving {
            held: if disk.is_there {
                HeldCopy::Incomplete
            } else {
                HeldCopy::None
            },
            fetches: None,
            flushed: disk.flushed,
        };
        self.process = Some(Process {
            claims: Claims::new(settings),
            shards: self.disks.iter().map(of).collect(),
        });
        self.paused_until = Duration::ZERO;
    }

    /// As a power cut: what was not synced is lost.
    fn kill(&mut self) {
        self.process = None;
        self.disks
            .iter_mut()
            .for_each(|disk| disk.applied = disk.flushed);
    }

    fn name(&self) -> String {
        format!("name{}", self.number)
    }

    /// Renews, reads, decides and writes.
    fn turn(&mut self, now: Duration) {
        let name = self.name();
        let Some(Process { claims, shards }) = &mut self.process else {
            return;
        };
        claims.note_held(shards.iter().map(|serving| serving.held).enumerate());
        if shards.iter().any(|serving| serving.fetches.is_some()) {
            claims.note_copy();
        }
        let position = |(serving, disk): (&Serving, &Disk)| ShardPosition {
            applied: disk.applied,
            flushed: serving.flushed,
            ..ShardPosition::default()
        };
        if !claims.may_renew()
            && let Ok(stored) = self.records.get()
        {
            let read = claims.read(now, &stored);
            assert_ne!(
                read,
                Err(ReadProblem::NameTaken),
                "no other process has the name"
            );
            // Its process has ended.
            if let Some(namesake) = claims.namesake() {
                claims.note_gone(&namesake.node);
            }
        }
        if !claims.is_forgotten() && claims.may_renew() {
            let (record, revision) =
                claims.renewal(now, shards.iter().zip(&self.disks).map(position).collect());
            let value = serde_json::to_vec(&record).expect("a record");
            if let Ok(revision) = self.records.set(&node_key(&name), value.into(), revision) {
                claims.note_renewal(now, revision);
                self.renewed = now;
                for change in claims.shard_renewals() {
                    make(&self.records, claims, change, now);
                }
            }
        }
        let was_forgotten = claims.is_forgotten();
        let read = self.records.get().map(|stored| claims.read(now, &stored));
        assert_ne!(
            read,
            Ok(Err(ReadProblem::NameTaken)),
            "no other process has the name"
        );
        if read == Ok(Ok(())) {
            if claims.is_forgotten() && !was_forgotten {
                for (shard, serving) in shards.iter_mut().enumerate() {
                    if serving.held == HeldCopy::Complete
                        && matches!(claims.role_for(shard), ShardRole::Standby(_))
                    {
                        serving.held = HeldCopy::Incomplete;
                    }
                }
            }
            for change in claims.decide_changes(now) {
                make(&self.records, claims, change, now);
            }
        }
        for shard in 0..SHARDS {
            if let ShardRole::Owner {
                claim,
                draining: true,
            } = claims.role_for(shard)
            {
                claims.give_up(shard, claim, None, now);
            }
        }
    }
}

impl SimulatedCopies {
    fn new(trim: Trim) -> Self {
        let records = MemoryRecords::default();
        let machine = |number| Machine {
            number,
            rules: RULES,
            starts: 0,
            process: None,
            disks: vec![Disk::default(); SHARDS],
            records: records.for_other(),
            renewed: Duration::ZERO,
            is_drained: false,
            away: Some(Duration::ZERO),
            paused_until: Duration::ZERO,
            faulty_until: Duration::ZERO,
        };
        let machines = (0..NODES).map(machine).collect();
        let streams = vec![Stream { first: 1, last: 0 }; SHARDS];
        Self {
            machines,
            streams,
            records,
            now: Duration::ZERO,
            trim,
            trimmed: 0,
            removed: 0,
            fetched: 0,
        }
    }

    fn run(&mut self, steps: u32, appends: u64) -> Result<(), TestCaseError> {
        for step in 0..steps {
            for number in 0..NODES {
                let is_silent = self.is_silent(&self.machines[number]);
                let machine = &mut self.machines[number];
                let since = if machine.is_drained {
                    self.now
                } else {
                    machine.renewed
                };
                let is_away = is_silent || machine.is_drained;
                machine.away = is_away.then(|| machine.away.unwrap_or(since));
                if self.now < machine.paused_until {
                    continue;
                }
                if self.now >= machine.faulty_until {
                    let faults = &machine.records.faults;
                    for fault in [&faults.is_cut, &faults.is_behind, &faults.loses_answers] {
                        fault.store(false, Ordering::Relaxed);
                    }
                }
                machine.turn(self.now);
                for shard in 0..SHARDS {
                    self.serve(number, shard, appends, step)?;
                }
            }
            self.now += intervals().renewal();
        }
        Ok(())
    }

    /// What the server of a node does for a shard after a turn.
    fn serve(
        &mut self,
        number: usize,
        shard: usize,
        appends: u64,
        step: u32,
    ) -> Result<(), TestCaseError> {
        let is_owner = |machine: &Machine| {
            let process = machine
                .process
                .as_ref()
                .filter(|_| self.now >= machine.paused_until);
            process.is_some_and(|process| {
                process
                    .claims
                    .acts_until(shard, self.now)
                    .is_some_and(|end| self.now < end)
            })
        };
        let mine = is_owner(&self.machines[number]);
        let owner = self
            .machines
            .iter()
            .find(|machine| is_owner(machine))
            .map(|owner| owner.disks[shard]);
        let stream = self.streams[shard];
        let Machine {
            process: Some(Process { claims, shards }),
            disks,
            ..
        } = &mut self.machines[number]
        else {
            return Ok(());
        };
        let serving = &mut shards[shard];
        let disk = &mut disks[shard];
        if !claims.keeps_copy(shard) {
            prop_assert!(!mine, "an owner removes its copy");
            if serving.held != HeldCopy::None {
                *serving = Serving::default();
            } else if disk.is_there {
                *disk = Disk::default();
                self.removed += 1;
                return self.check_removal(shard);
            }
            return Ok(());
        }
        if mine {
            prop_assert!(
                disk.is_there && disk.applied + 1 >= stream.first,
                "an owner lacks records"
            );
            // It follows to its fence first.
            (disk.applied, self.streams[shard].last) =
                (stream.last + appends, stream.last + appends);
            (disk.flushed, serving.flushed) = (disk.applied, disk.applied);
            let through = match self.trim {
                Trim::AsTheRecordsSay => claims.trimmable_before(shard),
                Trim::AsFarAsItHasSynced => disk.flushed,
            };
            return if step.is_multiple_of(2) {
                self.trim_through(number, shard, through)
            } else {
                Ok(())
            };
        }
        if serving.held == HeldCopy::None {
            serving.held = HeldCopy::Incomplete;
            disk.is_there = true;
        }
        match (&mut serving.fetches, owner) {
            (None, _) if disk.applied + 1 >= stream.first => {
                disk.applied = stream.last;
                serving.held = HeldCopy::Complete;
                // Once in some steps.
                if (step as usize + number).is_multiple_of(3) {
                    (disk.flushed, serving.flushed) = (disk.applied, disk.applied);
                }
            }
            (None, Some(of)) => {
                serving.held = HeldCopy::Incomplete;
                serving.flushed = of.flushed;
                serving.fetches = Some((of.flushed, TRANSFER));
            }
            (Some((at, _)), _) if *at + 1 < stream.first => serving.fetches = None,
            (Some((at, 0)), _) => {
                (disk.applied, disk.flushed) = (*at, *at);
                serving.fetches = None;
                self.fetched += 1;
            }
            (Some((_, left)), Some(_)) => *left -= 1,
            // The owner has gone.
            (Some(_), None) => serving.fetches = None,
            (None, None) => serving.held = HeldCopy::Incomplete,
        }
        Ok(())
    }

    /// The records of nodes as they are.
    fn node_records(&self) -> BTreeMap<String, NodeRecord> {
        let stored = self
            .records
            .all()
            .into_iter()
            .filter(|stored| stored.key.starts_with("node."));
        let read = |stored: gridhook::cluster::records::StoredRecord| {
            let record: NodeRecord = serde_json::from_slice(&stored.value).ok()?;
            Some((record.name.clone(), record))
        };
        stored.filter_map(read).collect()
    }

    /// Whether a node was silent or drained for so short a time that no other one may have taken
    /// its place.
    fn counts(&self, machine: &Machine) -> bool {
        machine
            .away
            .is_none_or(|since| self.now - since < REPLACE_AFTER)
    }

    fn is_silent(&self, machine: &Machine) -> bool {
        self.now - machine.renewed >= intervals().expiry()
    }

    fn trim_through(
        &mut self,
        owner: usize,
        shard: usize,
        through: u64,
    ) -> Result<(), TestCaseError> {
        let stream = self.streams[shard];
        if through < stream.first {
            return Ok(());
        }
        let read = &self.machines[owner]
            .process
            .as_ref()
            .expect("it runs")
            .claims
            .records()
            .nodes;
        let with_record = |machine: &&Machine| read.contains_key(&machine.name());
        let has_all = |machine: &&Machine| {
            machine.disks[shard].is_there && machine.disks[shard].flushed >= through
        };
        let known = || self.machines.iter().filter(with_record);
        let counted = known().filter(|machine| self.counts(machine)).count();
        let synced = known().filter(has_all).count();
        prop_assert!(
            synced >= COPIES.min(counted),
            "{synced} of {counted} have what is removed of {shard}"
        );
        for machine in known() {
            let of_record = &read[&machine.name()].value;
            // What its record says of an earlier process of it does not bind the owner.
            let is_current = machine
                .process
                .as_ref()
                .is_none_or(|process| process.claims.settings().me == of_record.id);
            let serving = machine
                .process
                .as_ref()
                .map(|process| process.shards[shard]);
            let flushed = machine.disks[shard].flushed;
            if serving.is_none_or(|serving| serving.fetches.is_none()) && flushed + 1 < stream.first
            {
                // It needs the store of the owner in any case.
                continue;
            }
            let has = serving.map_or(flushed, |serving| serving.flushed);
            let is_replaced = !self.counts(machine) && self.is_silent(machine) && synced >= COPIES;
            let needs =
                of_record.copy_state(shard) != CopyState::None && is_current && !is_replaced;
            let is_gone = serving.is_some_and(|serving| serving.held == HeldCopy::None);
            prop_assert!(
                !needs || is_gone || has >= through,
                "{} needs what is removed of {shard}",
                machine.name()
            );
        }
        self.streams[shard].first = through + 1;
        self.trimmed += 1;
        Ok(())
    }

    /// As many others have a complete copy.
    fn check_removal(&self, shard: usize) -> Result<(), TestCaseError> {
        let records = self.node_records();
        let stream = self.streams[shard];
        let is_complete = |machine: &&Machine| {
            let disk = machine.disks[shard];
            disk.is_there
                && disk.flushed + 1 >= stream.first
                && records.contains_key(&machine.name())
        };
        let complete = self.machines.iter().filter(is_complete).count();
        let seen = || {
            let of = |machine: &Machine| {
                let serving = machine
                    .process
                    .as_ref()
                    .map(|process| process.shards[shard]);
                let said = records
                    .get(&machine.name())
                    .map(|record| record.copy_state(shard));
                (machine.disks[shard], serving, said)
            };
            self.machines.iter().map(of).collect::<Vec<_>>()
        };
        prop_assert!(
            complete >= COPIES,
            "{complete} copies of {shard} are left at {:?}: {stream:?}, {:?}",
            self.now,
            seen()
        );
        Ok(())
    }

    /// Whether the disks of enough others have all of each shard.
    fn is_replaced(&self, number: usize) -> bool {
        let others = || {
            self.machines
                .iter()
                .filter(|machine| machine.number != number)
        };
        (0..SHARDS).all(|shard| {
            let disks = others().map(|machine| machine.disks[shard]);
            disks
                .filter(|disk| disk.is_there && disk.flushed + 1 >= self.streams[shard].first)
                .count()
                >= COPIES
        })
    }

    fn set_drained(&mut self, number: usize, drained: bool) {
        self.machines[number].is_drained = drained;
        let key = drained_key(&format!("name{number}"));
        let revision = self
            .records
            .all()
            .into_iter()
            .find(|stored| stored.key == key)
            .map_or(0, |stored| stored.revision);
        self.records
            .set(&key, if drained { "{}" } else { "" }.into(), revision)
            .expect("nobody else writes");
    }

    /// An operator removes the record of a node.
    fn forget(&self, number: usize) {
        let key = node_key(&format!("name{number}"));
        if let Some(stored) = self
            .records
            .all()
            .into_iter()
            .find(|stored| stored.key == key)
        {
            self.records
                .set(&key, "".into(), stored.revision)
                .expect("nobody else writes");
        }
    }

    fn fault(&mut self, number: usize, kind: u8, length: u8) {
        let until = self.now + intervals().renewal() * u32::from(length % 40);
        let is_replaced = self.is_replaced(number);
        let machine = &mut self.machines[number];
        match kind % 8 {
            0 => machine.kill(),
            1 if machine.process.is_none() => machine.start(),
            1 => machine.kill(),
            2 => machine.paused_until = until,
            3 => machine.records.faults.is_cut.store(true, Ordering::Relaxed),
            4 => {
                machine.records.fall_behind();
                machine
                    .records
                    .faults
                    .is_behind
                    .store(true, Ordering::Relaxed);
            }
            5 => machine
                .records
                .faults
                .loses_answers
                .store(true, Ordering::Relaxed),
            6 => self.set_drained(number, length.is_multiple_of(2)),
            _ if machine.process.is_none() && is_replaced => {
                self.forget(number);
                // A machine that is gone for good, in whose place others are.
                self.machines[number].disks = vec![Disk::default(); SHARDS];
            }
            _ => machine.kill(),
        }
        self.machines[number].faulty_until = until;
    }

    /// Three nodes start, and the faults follow.
    fn run_with(&mut self, faults: &[Fault]) -> Result<(), TestCaseError> {
        for number in 0..3 {
            self.machines[number].start();
            self.run(4, 2)?;
        }
        for (number, kind, length, wait) in faults {
            self.fault(number % NODES, *kind, *length);
            self.run(u32::from(wait % 40), 1)?;
        }
        Ok(())
    }

    /// Ends all faults, and checks what the cluster is in the end.
    fn settle(&mut self, running: &[usize]) -> Result<(), TestCaseError> {
        for number in 0..NODES {
            self.set_drained(number, false);
            let machine = &mut self.machines[number];
            (machine.paused_until, machine.faulty_until) = (Duration::ZERO, self.now);
            if running.contains(&number) && machine.process.is_none() {
                machine.start();
            }
        }
        self.run(100, 1)?;
        self.run(20, 0)?;
        let all = names(running.iter().copied());
        for shard in 0..SHARDS {
            let expected = chosen_of(shard, COPIES, &all);
            let with_copy = running
                .iter()
                .filter(|number| self.machines[**number].disks[shard].is_there);
            let with_copy: Vec<String> = with_copy.map(|number| format!("name{number}")).collect();
            prop_assert_eq!(
                with_copy
                    .iter()
                    .map(String::as_str)
                    .collect::<BTreeSet<_>>(),
                expected.clone()
            );
            let Stream { first, last } = self.streams[shard];
            prop_assert_eq!(first, last + 1, "the changelog of {} is not trimmed", shard);
            for name in expected {
                let machine = self
                    .machines
                    .iter()
                    .find(|machine| machine.name() == name)
                    .expect("a machine");
                prop_assert_eq!(machine.disks[shard].flushed, last);
            }
            let owners = running.iter().filter(|number| {
                let process = self.machines[**number].process.as_ref();
                process.is_some_and(|process| {
                    matches!(process.claims.role_for(shard), ShardRole::Owner { .. })
                })
            });
            prop_assert_eq!(owners.count(), 1, "owners of {}", shard);
        }
        Ok(())
    }
}

fn run(faults: &[Fault], trim: Trim) -> Result<SimulatedCopies, TestCaseError> {
    let mut world = SimulatedCopies::new(trim);
    world.run_with(faults)?;
    world.settle(&[0, 1, 2, 3, 4])?;
    Ok(world)
}

proptest! {
    #[test]
    fn no_record_is_removed_that_a_copy_needs_and_no_copy_before_others_have_it(
        faults in vec((0..NODES, any::<u8>(), any::<u8>(), any::<u8>()), 0..16),
    ) {
        run(&faults, Trim::AsTheRecordsSay)?;
    }

    #[test]
    fn nodes_with_different_settings_remove_no_copy_and_no_record_that_is_needed(
        faults in vec((0..NODES, any::<u8>(), any::<u8>(), any::<u8>()), 0..16),
        rules in vec((COPIES..=NODES, 1..4u32), NODES),
    ) {
        let mut world = SimulatedCopies::new(Trim::AsTheRecordsSay);
        for (machine, (copies, times)) in world.machines.iter_mut().zip(rules) {
            machine.rules = Rules { copies, replace_after: REPLACE_AFTER * times };
        }
        world.run_with(&faults)?;
        // An operator gives all the same.
        for machine in &mut world.machines {
            machine.rules = RULES;
            machine.kill();
        }
        world.settle(&[0, 1, 2, 3, 4])?;
    }
}

/// A node joins, one is killed and comes back after others took its place.
const REPLACED: [Fault; 4] = [(3, 1, 0, 39), (1, 0, 0, 39), (4, 1, 0, 39), (1, 1, 0, 39)];

#[test]
fn copies_move_to_the_nodes_that_are_chosen_and_changelogs_are_trimmed_meanwhile() {
    let world = run(&REPLACED, Trim::AsTheRecordsSay).expect("it is as it should be");
    assert!(world.removed > 0 && world.fetched > 0 && world.trimmed > 50);
}

#[test]
fn a_node_that_could_not_read_the_records_removes_no_copy_because_of_what_it_saw_before() {
    // The first two change nothing. Node 1 reads what is old, while node 2 is killed and the others
    // wait for it no longer.
    let unseen = [
        (0, 190, 247, 206),
        (2, 182, 123, 122),
        (1, 28, 34, 12),
        (2, 175, 208, 210),
        (3, 118, 40, 114),
    ];
    run(&unseen, Trim::AsTheRecordsSay)
        .map(drop)
        .expect("two copies are left");
    let cut = [
        (0, 188, 40, 206),
        (0, 2, 80, 122),
        (0, 27, 30, 0),
        (1, 63, 0, 0),
        (1, 10, 0, 113),
    ];
    run(&cut, Trim::AsTheRecordsSay)
        .map(drop)
        .expect("two copies are left");
}

#[test]
fn a_node_that_reads_old_records_while_it_starts_again_renews_its_record() {
    // Node 2 reads what is old, is killed and starts again meanwhile.
    let behind = [(2, 252, 144, 121), (2, 7, 54, 40), (2, 169, 1, 1)];
    run(&behind, Trim::AsTheRecordsSay)
        .map(drop)
        .expect("two copies are left");
}

#[test]
fn an_owner_that_waits_for_no_copy_removes_what_one_needs() {
    let error = run(&REPLACED, Trim::AsFarAsItHasSynced)
        .err()
        .expect("it is found")
        .to_string();
    assert!(error.contains("what is removed"), "{error}");
}

#[test]
fn a_node_that_is_gone_for_good_is_replaced_and_the_changelog_is_not_kept_for_it() {
    let mut world = SimulatedCopies::new(Trim::AsTheRecordsSay);
    (0..4).for_each(|number| world.machines[number].start());
    world.run(40, 1).expect("they share the copies");
    let last = |world: &SimulatedCopies| {
        world
            .streams
            .iter()
            .map(|stream| stream.last + 1 - stream.first)
            .collect::<Vec<_>>()
    };
    world.machines[3].kill();
    world.run(12, 1).expect("it is waited for");
    let kept = last(&world);
    let of_killed = world.machines[3]
        .disks
        .iter()
        .filter(|disk| disk.is_there)
        .count();
    assert!(
        of_killed > 0 && kept.iter().filter(|kept| **kept > 8).count() == of_killed,
        "{kept:?}"
    );
    world.settle(&[0, 1, 2]).expect("others have its copies");
    // With no other node it is waited for, however long.
    world.machines[2].kill();
    world.machines[1].kill();
    world.run(80, 1).expect("one node is left");
    let kept = last(&world);
    assert!(
        kept.iter().all(|kept| *kept == 0 || *kept > 60) && kept.iter().any(|kept| *kept > 60),
        "{kept:?}"
    );
}
