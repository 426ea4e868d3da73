//! The copies of shards: a cluster in virtual time whose changelogs are trimmed while nodes join,
//! are killed, paused, cut off, drained and forgotten, against a naive model of what is on the
//! disks.

use std::{sync::atomic::Ordering, time::Duration};

use gridhook::cluster::{
    claim::{ClaimSettings, Claims, ReadProblem, ShardRole},
    records::{ShardPosition, drained_key, node_key},
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

const SHARDS: usize = 4;
const NODES: usize = 5;

/// The steps that a transfer takes.
const TRANSFER: u32 = 3;

/// A fault of a node, and the steps before the next one.
type Fault = (usize, u8, u8, u8);

/// The copy of a shard on the disk of a node.
#[derive(Clone, Copy, Debug, Default)]
struct Disk {
    is_there: bool,
    applied: u64,
    flushed: u64,
}

/// The role of a process for a shard.
#[derive(Clone, Copy, Debug, Default)]
struct Serving {
    is_complete: bool,
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
    starts: usize,
    process: Option<Process>,
    disks: Vec<Disk>,
    records: MemoryRecords,
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
    fetched: u64,
}

impl Machine {
    fn start(&mut self) {
        let ClaimSettings { me, .. } = settings(self.number, SHARDS);
        self.starts += 1;
        let me = gridhook::cluster::balance::NodeId(format!("{}-{}", me.0, self.starts));
        let settings = ClaimSettings {
            me,
            ..settings(self.number, SHARDS)
        };
        let of = |disk: &Disk| Serving {
            is_complete: false,
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
        claims.note_complete(shards.iter().map(|serving| serving.is_complete));
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
            let read = claims.record_read(now, &stored);
            assert_ne!(
                read,
                Err(ReadProblem::NameTaken),
                "no other process has the name"
            );
            // Its process has ended.
            if let Some(namesake) = claims.namesake() {
                claims.note_gone(&namesake.id);
            }
        }
        if !claims.is_forgotten() && claims.may_renew() {
            let (record, revision) =
                claims.begin_renewal(now, shards.iter().zip(&self.disks).map(position).collect());
            let value = serde_json::to_vec(&record).expect("a record");
            if let Ok(revision) = self.records.set(&node_key(&name), value.into(), revision) {
                claims.note_renewal(now, revision);
                for change in claims.shard_renewals() {
                    make(&self.records, claims, change, now);
                }
            }
        }
        let was_forgotten = claims.is_forgotten();
        let read = self
            .records
            .get()
            .map(|stored| claims.record_read(now, &stored));
        assert_ne!(
            read,
            Ok(Err(ReadProblem::NameTaken)),
            "no other process has the name"
        );
        if read == Ok(Ok(())) {
            if claims.is_forgotten() && !was_forgotten {
                for (shard, serving) in shards.iter_mut().enumerate() {
                    if matches!(claims.role_for(shard), ShardRole::Standby(_)) {
                        serving.is_complete = false;
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
            starts: 0,
            process: None,
            disks: vec![Disk::default(); SHARDS],
            records: records.for_other(),
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
            fetched: 0,
        }
    }

    fn run(&mut self, steps: u32, appends: u64) -> Result<(), TestCaseError> {
        for step in 0..steps {
            for number in 0..NODES {
                let machine = &mut self.machines[number];
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

    /// Acts as the server of a node for a shard after a turn.
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
                Trim::AsTheRecordsSay => claims.trimmable_through(shard),
                Trim::AsFarAsItHasSynced => disk.flushed,
            };
            return if step.is_multiple_of(2) {
                self.trim_through(number, shard, through)
            } else {
                Ok(())
            };
        }
        disk.is_there = true;
        match (&mut serving.fetches, owner) {
            (None, _) if disk.applied + 1 >= stream.first => {
                disk.applied = stream.last;
                serving.is_complete = true;
                // Once in some steps.
                if (step as usize + number).is_multiple_of(3) {
                    (disk.flushed, serving.flushed) = (disk.applied, disk.applied);
                }
            }
            (None, Some(of)) => {
                serving.is_complete = false;
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
            (None, None) => serving.is_complete = false,
        }
        Ok(())
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
        for machine in self.machines.iter().filter(with_record) {
            let of_record = &read[&machine.name()].value;
            // A record of an earlier process of the node does not bind the owner.
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
            prop_assert!(
                !is_current || has >= through,
                "{} needs what is removed of {shard}",
                machine.name()
            );
        }
        self.streams[shard].first = through + 1;
        self.trimmed += 1;
        Ok(())
    }

    /// Whether the disks of two others have all of each shard.
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
                >= 2
        })
    }

    fn set_drained(&mut self, number: usize, drained: bool) {
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
        for shard in 0..SHARDS {
            let Stream { first, last } = self.streams[shard];
            prop_assert_eq!(first, last + 1, "the changelog of {} is not trimmed", shard);
            for number in running {
                prop_assert_eq!(self.machines[*number].disks[shard].flushed, last);
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
    fn no_record_is_removed_that_a_node_needs(
        faults in vec((0..NODES, any::<u8>(), any::<u8>(), any::<u8>()), 0..16),
    ) {
        run(&faults, Trim::AsTheRecordsSay)?;
    }
}

/// A node joins, one is killed, another one joins, and the killed one returns.
const JOINS: [Fault; 4] = [(3, 1, 0, 39), (1, 0, 0, 39), (4, 1, 0, 39), (1, 1, 0, 39)];

#[test]
fn nodes_that_join_fetch_copies_and_changelogs_are_trimmed_meanwhile() {
    let world = run(&JOINS, Trim::AsTheRecordsSay).expect("it is as it should be");
    assert!(world.fetched > 0 && world.trimmed > 50);
}

#[test]
fn a_node_that_reads_old_records_while_it_starts_again_renews_its_record() {
    // Node 2 reads old records, is killed and starts again meanwhile.
    let behind = [(2, 252, 144, 121), (2, 7, 54, 40), (2, 169, 1, 1)];
    run(&behind, Trim::AsTheRecordsSay)
        .map(drop)
        .expect("it is as it should be");
}

#[test]
fn an_owner_that_waits_for_no_node_removes_what_one_needs() {
    let error = run(&JOINS, Trim::AsFarAsItHasSynced)
        .err()
        .expect("it is found")
        .to_string();
    assert!(error.contains("what is removed"), "{error}");
}

#[test]
fn the_changelog_is_kept_for_a_node_that_is_gone_until_it_is_forgotten() {
    let mut world = SimulatedCopies::new(Trim::AsTheRecordsSay);
    (0..3).for_each(|number| world.machines[number].start());
    world.run(40, 1).expect("all follow");
    world.machines[2].kill();
    world.run(80, 1).expect("it is waited for");
    let mut kept = world.streams.iter();
    assert!(
        kept.all(|stream| stream.last + 1 - stream.first > 60),
        "{:?}",
        world.streams
    );
    world.forget(2);
    world.settle(&[0, 1]).expect("nothing is kept for it");
}
