//! The member, which drives the claims, on records in memory and in NATS: what the server learns, and how much is
//! written.

use std::{
    collections::BTreeMap,
    future::ready,
    net::{SocketAddr, TcpListener},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use async_nats::ConnectOptions;
use bytes::Bytes;
use gridhook::admin::ClusterContext;
use gridhook::api::cluster::NodeState;
use gridhook::clock::Lease;
use gridhook::cluster::{
    self, GivenUp, MemberEnd, Role, ShardClaim,
    balance::NodeId,
    claim::ClaimSettings,
    lease::LeaseIntervals,
    member::{Member, OwnerHandshake},
    membership::{ClusterSnapshot, Membership, MembershipEnd, RequestError},
    nats::NatsRecords,
    records::{
        ClusterRecords, NodeRecord, OwnershipRecord, OwnershipScope, RecordError, RecordStore,
        ShardPosition, StoredRecord, cluster_id, cluster_shards, drained_key, node_key, shard_key,
    },
};
use gridhook::journal::changelog::nats::NatsConnection;
use gridhook::metrics::Counter;
use tokio::{runtime::Builder, task::JoinHandle, time::timeout};

use super::{node, simulated::settings};
use crate::{
    spec::{fact, shows, stated},
    support::{
        memory_records::MemoryRecords,
        nats::{NatsCluster, PASSWORD, has_nats},
    },
    telemetry::Kept,
};

/// Far longer than anything takes.
const LONG: Duration = Duration::from_secs(60);

/// A node that runs here.
struct Running {
    claim: ShardClaim,
    membership: Membership,
    task: JoinHandle<MembershipEnd>,
    listener: Option<TcpListener>,
}

fn start(number: usize, store: impl RecordStore, intervals: LeaseIntervals) -> Running {
    start_with(
        ClaimSettings {
            intervals,
            ..settings(number, 1)
        },
        store,
    )
}

/// Both ends of the claim of a shard of which the node has everything.
fn complete_claim(shard: usize) -> (ShardClaim, MemberEnd) {
    let (claim, claim_end) = cluster::shard_claim(shard);
    claim.progress.note_complete();
    (claim, claim_end)
}

/// A handshake that takes every connection.
fn trusting_handshake() -> OwnerHandshake {
    Arc::new(|connection, _, _| Box::pin(ready(Ok(Box::new(connection) as _))))
}

fn start_with(settings: ClaimSettings, store: impl RecordStore) -> Running {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address: SocketAddr = listener.local_addr().expect("an address");
    let settings = ClaimSettings {
        address: address.to_string(),
        ..settings
    };
    let (claim, claim_end) = complete_claim(0);
    let (member, membership) = Member::new(store, settings, vec![claim_end], trusting_handshake());
    Running {
        claim,
        membership,
        task: tokio::spawn(member.run()),
        listener: Some(listener),
    }
}

/// A node of a cluster with several shards.
struct Sharded {
    claims: Vec<ShardClaim>,
    /// Without it the node leaves.
    membership: Membership,
    task: JoinHandle<MembershipEnd>,
    listener: Option<TcpListener>,
}

fn start_sharded(number: usize, shards: u16, store: impl RecordStore) -> Sharded {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    let (claims, claim_ends): (Vec<_>, Vec<_>) = (0..shards.into()).map(complete_claim).unzip();
    let settings = ClaimSettings {
        address,
        intervals: long_leases(),
        ..settings(number, shards.into())
    };
    let (member, membership) = Member::new(store, settings, claim_ends, trusting_handshake());
    Sharded {
        claims,
        membership,
        task: tokio::spawn(member.run()),
        listener: Some(listener),
    }
}

impl Sharded {
    /// Waits until it owns so many shards, and gives up what it is asked for meanwhile.
    async fn owns(&self, count: usize) {
        let owned = async {
            loop {
                let mut owned = 0;
                for claim in &self.claims {
                    let role = claim.role.borrow().clone();
                    match role {
                        Role::Owner(lease) if !lease.is_over() => owned += 1,
                        Role::Draining(lease) => claim.give_up(&lease, GivenUp::Released),
                        Role::Owner(_) | Role::Standby { .. } => {}
                    }
                }
                if owned == count {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(LONG, owned)
            .await
            .unwrap_or_else(|_| panic!("it owns {count} shards"));
    }

    /// As after `kill -9`.
    fn kill(&mut self) {
        self.task.abort();
        self.listener = None;
    }
}

/// Leases that end after half a minute: nothing here waits for that.
fn long_leases() -> LeaseIntervals {
    LeaseIntervals::new(Duration::from_millis(40), Duration::from_secs(30))
}

impl Running {
    async fn until(&mut self, what: &str, wanted: impl FnMut(&Role) -> bool) -> Role {
        let role = timeout(LONG, self.claim.role.wait_for(wanted)).await;
        role.unwrap_or_else(|_| panic!("{what}"))
            .expect("it runs")
            .clone()
    }

    async fn owner(&mut self) -> Lease {
        match self
            .until("it owns the shard", |role| matches!(role, Role::Owner(_)))
            .await
        {
            Role::Owner(lease) | Role::Draining(lease) => lease,
            Role::Standby { .. } => unreachable!("it waited for an owner"),
        }
    }

    async fn standby_of(&mut self, address: &str) {
        let is_behind = |role: &Role| matches!(role, Role::Standby { owner: Some(owner) } if owner.address == address);
        self.until("it knows the owner", is_behind).await;
    }

    fn address(&self) -> String {
        self.listener
            .as_ref()
            .expect("it listens")
            .local_addr()
            .expect("an address")
            .to_string()
    }

    async fn give_up_when_asked(&mut self) {
        let role = self
            .until("it is asked", |role| matches!(role, Role::Draining(_)))
            .await;
        self.claim
            .give_up(role.lease().expect("it has one"), GivenUp::Released);
    }

    /// Leaves, and gives up what it has when it is asked to.
    async fn leave(self) {
        let Self {
            mut claim,
            membership,
            task,
            listener: _listener,
        } = self;
        membership.begin_leave();
        let gives_up = tokio::spawn(async move {
            let role = claim
                .role
                .wait_for(|role| matches!(role, Role::Draining(_)))
                .await;
            if let Some(lease) = role.ok().and_then(|role| role.lease().cloned()) {
                claim.give_up(&lease, GivenUp::Released);
            }
        });
        assert_eq!(
            timeout(LONG, task)
                .await
                .expect("it ends")
                .expect("no panic"),
            MembershipEnd::Left
        );
        gives_up.await.expect("no panic");
    }

    /// As after `kill -9`: nothing is renewed, and the address refuses connections.
    fn kill(&mut self) {
        self.task.abort();
        self.listener = None;
    }
}

fn block_on(future: impl Future<Output = ()>) {
    Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime")
        .block_on(future);
}

#[test]
fn a_standby_takes_over_at_once_from_a_killed_owner_and_on_request_only_from_a_living_one() {
    let _rows = shows(&[
        "S004-061: An event processor instance that acquires ownership of a partition starts \
         processing that partition.",
    ]);
    block_on(async {
        let records = MemoryRecords::default();
        let mut owner = start(0, records.for_other(), long_leases());
        let first = owner.owner().await;
        assert!(first.may_act());
        let mut other = start(1, records.for_other(), long_leases());
        other.standby_of(&owner.address()).await;
        assert!(!records.all().is_empty());
        // Long enough for the connection to the owner.
        tokio::time::sleep(Duration::from_millis(50)).await;
        owner.kill();
        let lease = other.owner().await;
        assert!(lease.may_act(), "no lease is waited for");
        other.claim.give_up(&lease, GivenUp::Released);
        let again = other
            .until(
                "it claims it again",
                |role| matches!(role, Role::Owner(new) if !new.is_over()),
            )
            .await;
        let Role::Owner(again) = again else {
            unreachable!("it waited for an owner")
        };
        assert!(lease.is_over(), "a claim has a lease of its own");
        assert!(!again.is_over());
    });
}

#[test]
fn an_owner_whose_listener_ends_later_than_its_connections_is_seen_to_end() {
    block_on(async {
        let records = MemoryRecords::default();
        let mut owner = start(0, records.for_other(), long_leases());
        owner.owner().await;
        let mut other = start(1, records.for_other(), long_leases());
        other.standby_of(&owner.address()).await;
        let listener = owner.listener.take().expect("it listens");
        listener
            .set_nonblocking(true)
            .expect("a socket takes its option");
        let listener = tokio::net::TcpListener::from_std(listener).expect("a listener");
        let watch = listener.accept().await.expect("a connection");
        owner.kill();
        drop(watch);
        // The other node asks whether the process has ended.
        let asked = listener.accept().await.expect("a connection");
        drop((listener, asked));
        timeout(Duration::from_secs(10), other.owner())
            .await
            .expect("no lease is waited for");
    });
}

#[test]
fn a_node_takes_over_at_once_the_shards_of_all_owners_that_were_killed() {
    block_on(async {
        let records = MemoryRecords::default();
        let mut first = start_sharded(0, 3, records.for_other());
        first.owns(3).await;
        let mut second = start_sharded(1, 3, records.for_other());
        tokio::join!(first.owns(2), second.owns(1));
        let third = start_sharded(2, 3, records.for_other());
        tokio::join!(first.owns(1), second.owns(1), third.owns(1));
        // Long enough for the connections to both.
        tokio::time::sleep(Duration::from_millis(50)).await;
        first.kill();
        second.kill();
        // Their leases end long after this test.
        third.owns(3).await;
    });
}

#[test]
fn a_node_that_cannot_serve_a_shard_keeps_the_others() {
    block_on(async {
        let node = start_sharded(0, 2, MemoryRecords::default());
        node.owns(2).await;
        let leases = node
            .claims
            .iter()
            .map(|claim| claim.role.borrow().lease().cloned().expect("it owns it"));
        let leases: Vec<Lease> = leases.collect();
        node.claims[1].give_up(&leases[1], GivenUp::Failed);
        let mut role = node.claims[1].role.clone();
        timeout(LONG, role.wait_for(|role| role.lease().is_none()))
            .await
            .expect("in time")
            .expect("it runs");
        // As many turns as a request to give everything up would take.
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert!(matches!(&*node.claims[0].role.borrow(), Role::Owner(lease) if !lease.is_over()));
        assert!(
            node.claims[1].role.borrow().lease().is_none(),
            "it is left to others for now"
        );
    });
}

#[test]
fn a_node_with_nothing_left_but_the_control_plane_is_not_drained_yet() {
    block_on(async {
        let node = start_sharded(0, 2, MemoryRecords::default());
        node.owns(2).await;
        let membership = node.membership.clone();
        let mut snapshot = membership.snapshot.clone();
        let context = ClusterContext {
            cluster: "shop".to_owned(),
            node: "name0".to_owned(),
            membership,
            forwarded: Arc::default(),
            copies: Counter::default(),
            stream_bytes_max: vec![None; 2],
        };
        let drained = node.membership.drain_node("name0".to_owned(), true).await;
        assert_eq!(drained, Ok(()));
        // The control plane comes behind the shards.
        for (claim, expected) in node
            .claims
            .iter()
            .zip([NodeState::Draining, NodeState::Drained])
        {
            let mut role = claim.role.clone();
            let asked = role.wait_for(|role| matches!(role, Role::Draining(_)));
            let role = timeout(LONG, asked)
                .await
                .expect("in time")
                .expect("it runs");
            let lease = role.lease().expect("it has one").clone();
            drop(role);
            claim.give_up(&lease, GivenUp::Released);
            let given_up = snapshot.wait_for(|snapshot| {
                let shard = &snapshot.records.shards[claim.shard].value;
                shard.owner_id.is_none()
            });
            timeout(LONG, given_up)
                .await
                .expect("in time")
                .expect("it runs");
            let node = &context.cluster_view().nodes[0];
            assert_eq!(node.state, expected, "{node:?}");
        }
    });
}

/// Records whose first claim of the shard is written without a response, while the node is asked to
/// give everything up.
struct LosesClaim(MemoryRecords, AtomicBool);

impl RecordStore for LosesClaim {
    async fn read(&self) -> Result<Vec<StoredRecord>, RecordError> {
        self.0.read().await
    }

    async fn write(&self, key: &str, value: Bytes, revision: u64) -> Result<u64, RecordError> {
        let written = self.0.write(key, value, revision).await;
        if key == shard_key(0) && !self.1.swap(true, Ordering::Relaxed) {
            self.0
                .write(&drained_key("name0"), "{}".into(), 0)
                .await
                .expect("a record");
            return Err(RecordError::Unavailable("the answer was lost".to_owned()));
        }
        written
    }
}

#[test]
fn a_node_that_is_asked_for_a_shard_before_it_was_seen_to_own_it_has_a_lease_to_end() {
    block_on(async {
        let records = MemoryRecords::default();
        let mut first = start(
            0,
            LosesClaim(records.for_other(), AtomicBool::new(false)),
            long_leases(),
        );
        let role = first
            .until("it has a claim", |role| role.lease().is_some())
            .await;
        assert!(matches!(role, Role::Draining(_)), "{role:?}");
        let mut other = start(1, records.for_other(), long_leases());
        other.standby_of(&first.address()).await;
        first
            .claim
            .give_up(role.lease().expect("it has one"), GivenUp::Released);
        assert!(role.lease().is_none());
        assert!(other.owner().await.may_act(), "no lease is waited for");
    });
}

#[test]
fn a_claim_that_is_given_up_late_ends_no_newer_claim_of_the_same_node() {
    block_on(async {
        let records = MemoryRecords::default();
        let mut one = start(0, records.for_other(), long_leases());
        let first = one.owner().await;
        let shard = || {
            records
                .all()
                .into_iter()
                .find(|stored| stored.key == shard_key(0))
                .expect("a record")
        };
        let set = |owner: usize, claims: u64| {
            let written = || {
                let StoredRecord {
                    key,
                    value,
                    revision,
                    ..
                } = shard();
                let mut record: OwnershipRecord = serde_json::from_slice(&value).expect("a record");
                (record.owner_id, record.claims) = (Some(node(owner)), claims);
                let value = serde_json::to_vec(&record).expect("a record");
                records.set(&key, value.into(), revision).is_ok()
            };
            // The owner renews it meanwhile.
            assert!((0..100).any(|_| written()), "it is written");
        };
        // The claim is lost to a node that is alive, and won again, before the server has noticed.
        let two = start(1, records.for_other(), long_leases());
        set(1, 2);
        one.until("it has lost the claim", |role| {
            matches!(role, Role::Standby { .. })
        })
        .await;
        set(0, 3);
        let second = one.owner().await;
        one.claim.give_up(&first, GivenUp::Released);
        let mut renewed = shard().revision;
        for _ in 0..5 {
            let next = async {
                while shard().revision == renewed {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            };
            timeout(LONG, next).await.expect("it renews its claim");
            renewed = shard().revision;
        }
        let record: OwnershipRecord = serde_json::from_slice(&shard().value).expect("a record");
        assert_eq!((record.owner_id, record.claims), (Some(node(0)), 3));
        assert!(one.claim.role.borrow().is_of(&second) && !second.is_over());
        drop(two);
    });
}

#[test]
fn the_record_of_a_shard_has_the_six_fields_of_azure_and_changes_at_every_renewal() {
    let _rows = shows(&[
        "S004-037: Each event processor has a unique identifier.",
        "S004-038: An event processor claims ownership of partitions by adding an entry to the \
         checkpoint store.",
        "S004-039: An event processor claims ownership of partitions by updating an existing entry \
         in the checkpoint store.",
        "S004-040: All event processor instances communicate with the checkpoint store \
         periodically.",
        "S004-041: In the periodic communication each instance updates its own processing state in \
         the store.",
        "S004-042: In the periodic communication each instance learns about the other active \
         instances from the store.",
        "S004-047: A partition ownership record in the checkpoint store holds exactly six items: \
         Event Hubs namespace, event hub name, consumer group, event processor identifier (owner), \
         partition ID and last modified time.",
        "S004-048: The ownership record has a field for the Event Hubs namespace, which holds the \
         fully qualified host name.",
        "S004-049: The ownership record has a field for the event hub name.",
        "S004-050: The ownership record has a field for the consumer group.",
        "S004-051: The ownership record has a field for the event processor identifier, also known \
         as the owner.",
        "S004-052: The ownership record has a field for the partition ID.",
        "S004-053: The ownership record has a field for the last modified time.",
    ]);
    block_on(async {
        let records = MemoryRecords::default();
        let mut owner = start(0, records.for_other(), long_leases());
        owner.owner().await;
        let read = || {
            records
                .all()
                .into_iter()
                .find(|stored| stored.key == "shard.0")
                .expect("a record")
        };
        let first = read();
        let json: serde_json::Value = serde_json::from_slice(&first.value).expect("JSON");
        let expected = serde_json::json!({
            "fullyQualifiedNamespace": "events.example.com", "eventHubName": "store", "consumerGroup": "gridhook",
            "partitionId": "0", "ownerId": "n0", "wantedBy": null, "claims": 1,
        });
        assert_eq!(json, expected);
        while read().revision == first.revision {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let renewed = read();
        assert!(
            renewed.written > first.written,
            "the time of the last change"
        );
        let record: OwnershipRecord = serde_json::from_slice(&renewed.value).expect("a record");
        assert_eq!(record.claims, 1, "a renewal is no claim");
    });
}

#[test]
fn an_operator_moves_a_shard_drains_a_node_and_sees_what_is_wrong() {
    let _rows = shows(&["S004-044: New instances can join the processing pool to scale up."]);
    block_on(async {
        let records = MemoryRecords::default();
        let mut one = start(0, records.for_other(), long_leases());
        one.owner().await;
        let mut two = start(1, records.for_other(), long_leases());
        two.standby_of(&one.address()).await;
        let ask = &one.membership;
        assert_eq!(
            ask.move_shard(1, "name1".to_owned()).await,
            Err(RequestError::Shard { shard: 1, last: 0 })
        );
        let unknown = RequestError::NotAlive("name7".to_owned(), "name0, name1".to_owned());
        assert_eq!(ask.move_shard(0, "name7".to_owned()).await, Err(unknown));
        let unknown = RequestError::NoRecord("name7".to_owned(), "name0, name1".to_owned());
        assert_eq!(
            ask.drain_node("name7".to_owned(), true).await,
            Err(unknown.clone())
        );
        assert_eq!(ask.forget_node("name7".to_owned()).await, Err(unknown));
        assert_eq!(
            ask.move_shard(0, "name0".to_owned()).await,
            Ok(()),
            "it has it"
        );
        assert_eq!(
            two.membership.move_shard(0, "name1".to_owned()).await,
            Ok(())
        );
        let drained = one
            .until("it is asked", |role| matches!(role, Role::Draining(_)))
            .await;
        let Role::Draining(lease) = drained else {
            unreachable!("it waited for that")
        };
        assert!(lease.may_act(), "it finishes what is in flight");
        one.claim.give_up(&lease, GivenUp::Released);
        two.owner().await;
        assert!(lease.is_over());
        assert_eq!(
            one.membership.drain_node("name1".to_owned(), true).await,
            Ok(())
        );
        let leaving = RequestError::Leaving("name1".to_owned());
        assert_eq!(
            one.membership.move_shard(0, "name1".to_owned()).await,
            Err(leaving)
        );
        two.give_up_when_asked().await;
        one.owner().await;
        assert_eq!(
            one.membership.drain_node("name1".to_owned(), false).await,
            Ok(())
        );
        assert_eq!(
            one.membership.move_shard(0, "name1".to_owned()).await,
            Ok(())
        );
        one.membership.begin_leave();
        one.give_up_when_asked().await;
        two.owner().await;
        assert_eq!(
            timeout(LONG, one.task)
                .await
                .expect("it ends")
                .expect("no panic"),
            MembershipEnd::Left
        );
        let stored = records
            .all()
            .into_iter()
            .find(|stored| stored.key == "node.name0")
            .expect("a record");
        let record: NodeRecord =
            serde_json::from_slice(&stored.value).expect("a node that left keeps its record");
        assert!(record.leaving);
    });
}

#[test]
fn a_node_sees_the_settings_in_which_another_one_differs_and_logs_each_once() {
    let log = Kept::default();
    let _here = tracing::dispatcher::set_default(&log.logger("info"));
    block_on(async {
        let records = MemoryRecords::default();
        let begin = |me: &str, number: usize, expiry: &str, later: Option<&str>| {
            let me = NodeId(me.to_owned());
            let shared = [("cluster.expiry", Some(expiry)), ("cluster.later", later)];
            let shared = shared
                .into_iter()
                .filter_map(|(key, value)| Some((key.to_owned(), value?.to_owned())));
            let shared = shared.collect();
            let intervals = long_leases();
            start_with(
                ClaimSettings {
                    me,
                    shared,
                    intervals,
                    ..settings(number, 1)
                },
                records.for_other(),
            )
        };
        let differences = |running: &Running| -> Vec<String> {
            let ClusterSnapshot {
                me, records, alive, ..
            } = running.membership.snapshot.borrow().clone();
            let found = records.setting_differences(&me.expect("it has read"), &alive);
            found
                .into_iter()
                .map(|found| [found.node, found.setting, found.here, found.there].join(" "))
                .collect()
        };
        let mut one = begin("first", 1, "3", None);
        one.owner().await;
        // Of a newer release, which has one more to compare.
        let mut two = begin("second", 2, "2", Some("1"));
        two.standby_of(&one.address()).await;
        for running in [&mut one, &mut two] {
            let is_seen = |snapshot: &ClusterSnapshot| {
                let nodes = &snapshot.records.nodes;
                nodes.len() == 2 && nodes.values().all(|node| node.value.renewals > 3)
            };
            running
                .membership
                .snapshot
                .wait_for(is_seen)
                .await
                .expect("it runs");
        }
        assert_eq!(differences(&one), ["name2 cluster.expiry 3 2"]);
        assert_eq!(differences(&two), ["name1 cluster.expiry 2 3"]);
        two.leave().await;
        let _again = begin("again", 2, "3", Some("1"));
        let agree = |snapshot: &ClusterSnapshot| {
            snapshot
                .records
                .find_node(&NodeId("again".to_owned()))
                .is_some()
        };
        one.membership
            .snapshot
            .wait_for(agree)
            .await
            .expect("it runs");
        assert_eq!(differences(&one), Vec::<String>::new());
    });
    let log = log.text();
    assert_eq!(
        log.matches("a node has another value of a setting that all nodes share")
            .count(),
        2,
        "{log}"
    );
    assert_eq!(
        log.matches("all living nodes have the same settings again")
            .count(),
        1,
        "{log}"
    );
}

#[test]
fn a_node_claims_nothing_before_it_has_caught_up() {
    block_on(async {
        let records = MemoryRecords::default();
        let mut behind = start(0, records.for_other(), long_leases());
        behind.claim.progress.note_doubt();
        let mut snapshot = behind.membership.snapshot.clone();
        let first = timeout(LONG, snapshot.wait_for(|snapshot| snapshot.read.is_some()))
            .await
            .expect("it reads");
        let later = first
            .expect("it runs")
            .read
            .map(|read| read + Duration::from_millis(200));
        timeout(LONG, snapshot.wait_for(|snapshot| snapshot.read > later))
            .await
            .expect("it reads")
            .expect("it runs");
        assert!(
            matches!(&*behind.claim.role.borrow(), Role::Standby { owner: None }),
            "nobody else is there"
        );
        let mut other = start(1, records.for_other(), long_leases());
        other.owner().await;
        behind.standby_of(&other.address()).await;
        let catching_up = RequestError::CatchingUp("name0".to_owned());
        assert_eq!(
            other.membership.move_shard(0, "name0".to_owned()).await,
            Err(catching_up),
            "it cannot serve"
        );
        other.leave().await;
        behind.claim.progress.note_complete();
        behind.owner().await;
    });
}

#[test]
fn nodes_that_have_all_left_or_were_deleted_join_again_under_their_names() {
    block_on(async {
        let records = MemoryRecords::default();
        for round in 0..3 {
            let mut nodes = [0, 1].map(|number| start(number, records.for_other(), long_leases()));
            let [one, two] = &mut nodes;
            let is_owner = |role: &Role| matches!(role, Role::Owner(_));
            let owner = timeout(LONG, async {
                tokio::select! {
                    role = one.claim.role.wait_for(is_owner) => drop(role.expect("it runs")),
                    role = two.claim.role.wait_for(is_owner) => drop(role.expect("it runs")),
                }
            });
            owner
                .await
                .unwrap_or_else(|_| panic!("no owner after {round} restarts of all"));
            for node in nodes {
                node.leave().await;
            }
            // An operator may delete the record of a node that is gone for good.
            let own = records
                .all()
                .into_iter()
                .find(|stored| stored.key == node_key("name1"))
                .expect("a record");
            records
                .set(&own.key, "".into(), own.revision)
                .expect("nobody else writes");
        }
    });
}

#[test]
fn the_changelog_keeps_what_a_node_needs_that_has_left_or_whose_record_cannot_be_read() {
    block_on(async {
        let records = MemoryRecords::default();
        let mut owner = start(0, records.for_other(), long_leases());
        owner.owner().await;
        owner.claim.progress.flushed.store(20, Ordering::Release);
        let other = start(1, records.for_other(), long_leases());
        other.claim.progress.flushed.store(7, Ordering::Release);
        let mut third = start(2, records.for_other(), long_leases());
        third.claim.progress.flushed.store(20, Ordering::Release);
        let until = async |expected: u64, what: &str| {
            let seen = &owner.claim.progress.trimmable;
            let is_seen = async {
                while seen.load(Ordering::Acquire) != expected {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            };
            timeout(LONG, is_seen)
                .await
                .unwrap_or_else(|_| panic!("{what}"));
        };
        until(7, "both run").await;
        other.leave().await;
        let problem = "a read after the other one has left";
        let seen = owner.membership.snapshot.borrow().read;
        let mut snapshot = owner.membership.snapshot.clone();
        let later = snapshot.wait_for(|snapshot| {
            snapshot.read > seen.map(|seen| seen + Duration::from_millis(100))
        });
        timeout(LONG, later).await.expect(problem).expect(problem);
        until(7, "one has left").await;
        let key = node_key("name1");
        let revision = || {
            records
                .all()
                .into_iter()
                .find(|stored| stored.key == key)
                .expect("a record")
                .revision
        };
        records
            .set(&key, "{}".into(), revision())
            .expect("nobody else writes");
        until(0, "its record cannot be read").await;
        let unreadable = RequestError::Unreadable("name1".to_owned());
        assert_eq!(
            owner.membership.forget_node("name1".to_owned()).await,
            Err(unreadable)
        );
        records
            .set(&key, "".into(), revision())
            .expect("nobody else writes");
        until(20, "an operator deleted it").await;
        // A node that was killed is not taken for dead before its lease has ended.
        third.kill();
        let alive = RequestError::Alive("name2".to_owned());
        assert_eq!(
            owner.membership.forget_node("name2".to_owned()).await,
            Err(alive.clone())
        );
        assert_eq!(
            owner.membership.forget_node("name0".to_owned()).await,
            Err(RequestError::Alive("name0".to_owned()))
        );
    });
}

#[test]
fn a_node_that_is_gone_for_good_is_forgotten_and_may_come_back() {
    block_on(async {
        let records = MemoryRecords::default();
        let short = LeaseIntervals::new(Duration::from_millis(40), Duration::from_millis(400));
        let mut owner = start(0, records.for_other(), short);
        owner.owner().await;
        owner.claim.progress.flushed.store(20, Ordering::Release);
        let mut gone = start(1, records.for_other(), short);
        gone.claim.progress.flushed.store(7, Ordering::Release);
        gone.standby_of(&owner.address()).await;
        assert_eq!(
            owner.membership.drain_node("name1".to_owned(), true).await,
            Ok(())
        );
        let view = owner.membership.snapshot.borrow().clone();
        assert!(
            view.records.drained["name1"].0,
            "who has asked sees it: {view:?}"
        );
        gone.kill();
        let asked = async {
            while let Err(error) = owner.membership.forget_node("name1".to_owned()).await {
                assert_eq!(error, RequestError::Alive("name1".to_owned()));
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        timeout(LONG, asked).await.expect("it is dead");
        let view = owner.membership.snapshot.borrow().clone();
        assert!(
            !view.records.nodes.contains_key("name1") && !view.records.drained["name1"].0,
            "{view:?}"
        );
        assert_eq!(
            owner.claim.progress.trimmable.load(Ordering::Acquire),
            20,
            "nothing is kept for it"
        );
        let unknown = RequestError::NoRecord("name1".to_owned(), "name0".to_owned());
        assert_eq!(
            owner.membership.forget_node("name1".to_owned()).await,
            Err(unknown)
        );
        let mut back = start(1, records.for_other(), short);
        back.standby_of(&owner.address()).await;
        assert_eq!(
            owner.membership.move_shard(0, "name1".to_owned()).await,
            Ok(()),
            "it is drained no longer"
        );
    });
}

#[test]
fn a_running_node_whose_record_was_removed_writes_none_before_it_has_caught_up_again() {
    block_on(async {
        let records = MemoryRecords::default();
        let mut owner = start(0, records.for_other(), long_leases());
        owner.owner().await;
        let mut other = start(1, records.for_other(), long_leases());
        other.standby_of(&owner.address()).await;
        let stored = |name: &str| {
            records
                .all()
                .into_iter()
                .find(|stored| stored.key == node_key(name))
                .expect("a record")
        };
        let remove = async |name: &str| {
            // The node renews it meanwhile.
            while records
                .set(&node_key(name), "".into(), stored(name).revision)
                .is_err()
            {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        let caught_up = Arc::clone(&other.claim.progress);
        let is_behind = async || {
            while caught_up.is_complete() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        for _ in 0..2 {
            remove("name1").await;
            timeout(LONG, is_behind())
                .await
                .expect("it is asked to catch up");
            let mut snapshot = other.membership.snapshot.clone();
            let later = snapshot
                .borrow()
                .read
                .map(|read| read + Duration::from_millis(200));
            timeout(LONG, snapshot.wait_for(|seen| seen.read > later))
                .await
                .expect("it reads on")
                .expect("it runs");
            assert!(stored("name1").value.is_empty(), "five renewals later");
            caught_up.note_complete();
            let mut seen = owner.membership.snapshot.clone();
            let joined = seen.wait_for(|seen| seen.records.nodes.contains_key("name1"));
            drop(
                timeout(LONG, joined)
                    .await
                    .expect("it joins again")
                    .expect("it runs"),
            );
        }
        other.task.abort();
        // An owner has everything, and cannot catch up. A standby would have taken it for dead.
        remove("name0").await;
        let back = async {
            while stored("name0").value.is_empty() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(LONG, back).await.expect("it goes on");
        assert!(matches!(&*owner.claim.role.borrow(), Role::Owner(lease) if !lease.is_over()));
    });
}

/// Records with a round trip.
struct FarRecords(MemoryRecords, Duration);

impl RecordStore for FarRecords {
    async fn read(&self) -> Result<Vec<StoredRecord>, RecordError> {
        tokio::time::sleep(self.1).await;
        self.0.get()
    }

    async fn write(&self, key: &str, value: Bytes, revision: u64) -> Result<u64, RecordError> {
        let written = self.0.set(key, value, revision);
        tokio::time::sleep(self.1).await;
        written
    }
}

#[test]
fn a_round_trip_of_more_than_a_quarter_of_the_expiry_ends_no_lease() {
    block_on(async {
        let intervals = LeaseIntervals::new(Duration::from_millis(40), Duration::from_millis(160));
        let far = Duration::from_millis(45);
        assert!(far > intervals.call_limit());
        let records = FarRecords(MemoryRecords::default(), far);
        let mut owner = start(0, records, intervals);
        let lease = owner.owner().await;
        for _ in 0..3 {
            let may_act = async {
                while !lease.may_act() {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            };
            timeout(LONG, may_act).await.expect("it may act");
            timeout(LONG, tokio::time::sleep(2 * far))
                .await
                .expect("a while");
        }
    });
}

#[test]
fn a_node_writes_its_records_once_in_an_interval_whatever_happens() {
    block_on(async {
        let records = MemoryRecords::default();
        let mine = records.for_other();
        let others = records.for_other();
        let interval = Duration::from_millis(40);
        let mut owner = start(0, mine.clone(), long_leases());
        owner.owner().await;
        let mut standby = start(1, others.clone(), long_leases());
        standby.standby_of(&owner.address()).await;
        let began = tokio::time::Instant::now();
        let before = [&mine, &others].map(|records| records.faults.writes.load(Ordering::Relaxed));
        // Connections that end wake the standby.
        let listener = owner
            .listener
            .as_ref()
            .expect("it listens")
            .try_clone()
            .expect("a socket");
        listener.set_nonblocking(true).expect("a socket");
        while began.elapsed() < 10 * interval {
            listener.accept().ok();
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let after = [&mine, &others].map(|records| records.faults.writes.load(Ordering::Relaxed));
        let turns =
            u64::try_from(began.elapsed().as_nanos() / interval.as_nanos()).expect("few") + 2;
        assert!(
            after[0] - before[0] <= 2 * turns,
            "two records: {} in {turns}",
            after[0] - before[0]
        );
        assert!(
            after[1] - before[1] <= turns,
            "one record: {} in {turns}",
            after[1] - before[1]
        );
    });
}

#[test]
fn an_owner_that_cannot_reach_the_records_may_not_act_and_goes_on_when_it_can() {
    block_on(async {
        let records = MemoryRecords::default();
        let mine = records.for_other();
        let short = LeaseIntervals::new(Duration::from_millis(30), Duration::from_millis(150));
        let mut owner = start(0, mine.clone(), short);
        let lease = owner.owner().await;
        let until = async |may_act: bool| {
            while lease.may_act() != may_act {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(LONG, until(true)).await.expect("it renews");
        mine.faults.is_cut.store(true, Ordering::Relaxed);
        timeout(LONG, until(false)).await.expect("it stops");
        let problem = || owner.membership.snapshot.borrow().problem.clone();
        assert!(
            problem().is_some_and(|problem| problem.contains("cut off")),
            "{:?}",
            problem()
        );
        mine.faults.is_cut.store(false, Ordering::Relaxed);
        timeout(LONG, until(true))
            .await
            .expect("nobody took the shard");
        assert!(!lease.is_over(), "it is the same claim");
    });
}

/// Records whose store responds late, as on a busy machine.
struct LateRecords(MemoryRecords);

impl LateRecords {
    /// Longer than two renewals.
    const WAIT: Duration = Duration::from_millis(100);
}

impl RecordStore for LateRecords {
    async fn read(&self) -> Result<Vec<StoredRecord>, RecordError> {
        tokio::time::sleep(Self::WAIT).await;
        self.0.get()
    }

    async fn write(&self, key: &str, value: Bytes, revision: u64) -> Result<u64, RecordError> {
        tokio::time::sleep(Self::WAIT).await;
        self.0.set(key, value, revision)
    }
}

#[test]
fn a_store_that_answers_later_than_the_next_renewal_is_due_is_waited_for() {
    block_on(async {
        let mut owner = start(0, LateRecords(MemoryRecords::default()), long_leases());
        let lease = owner.owner().await;
        timeout(LONG, async {
            while !lease.may_act() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await
        .expect("its renewals count");
        assert_eq!(owner.membership.snapshot.borrow().problem, None);
    });
}

/// Checks the contract of a store of records.
async fn keeps_the_contract(one: &impl RecordStore, other: &impl RecordStore) {
    assert_eq!(one.read().await, Ok(Vec::new()), "an empty bucket");
    let first = one.write("node.a", "1".into(), 0).await.expect("it is new");
    assert_eq!(
        other.write("node.a", "2".into(), 0).await,
        Err(RecordError::Conflict),
        "it exists"
    );
    let second = other
        .write("shard.0", "s".into(), 0)
        .await
        .expect("another key");
    assert!(second > first);
    let third = other
        .write("node.a", "2".into(), first)
        .await
        .expect("it has that revision");
    assert_eq!(
        one.write("node.a", "3".into(), first).await,
        Err(RecordError::Conflict),
        "it has another one"
    );
    let deleted = one
        .write("shard.0", "".into(), second)
        .await
        .expect("it has that revision");
    let stored = one.read().await.expect("records");
    let seen: BTreeMap<&str, (&[u8], u64)> = stored
        .iter()
        .map(|stored| (stored.key.as_str(), (&stored.value[..], stored.revision)))
        .collect();
    assert_eq!(
        seen,
        BTreeMap::from([
            ("node.a", (&b"2"[..], third)),
            ("shard.0", (&b""[..], deleted))
        ])
    );
    assert!(
        stored
            .iter()
            .all(|stored| stored.written.starts_with("20") && stored.written.ends_with('Z')),
        "{stored:?}"
    );
}

#[test]
fn the_last_owner_is_that_of_the_last_fence_whatever_its_clock_says() {
    block_on(async {
        let store = MemoryRecords::default();
        // Its clock was five hours ahead when it owned the shard, before the other one did.
        let ahead = ShardPosition {
            time: 18_000_000_000,
            epoch: 7,
            ..ShardPosition::default()
        };
        let right = ShardPosition {
            time: 1_000,
            expiry_paused: true,
            epoch: 9,
            ..ShardPosition::default()
        };
        // Each of them reports that as long as it owns nothing again.
        let nodes =
            [(0, ahead), (1, right), (2, ShardPosition::default())].map(|(number, earlier)| {
                let node = start(number, store.for_other(), long_leases());
                node.claim.progress.record_clock(earlier);
                node
            });
        let seen = &mut nodes[2].membership.snapshot.clone();
        let reported = |seen: &ClusterSnapshot, epoch| {
            let mut positions = seen
                .records
                .nodes
                .values()
                .filter_map(|node| node.value.positions.first());
            positions.any(|at| at.epoch == epoch)
        };
        let all = seen.wait_for(|seen| reported(seen, 7) && reported(seen, 9));
        let all = timeout(LONG, all)
            .await
            .expect("both report")
            .expect("it runs")
            .clone();
        let (name, at) = all.records.latest_owner(0).expect("an owner");
        let right = ShardPosition {
            complete: true,
            ..right
        };
        assert_eq!((name, at), (settings(1, 1).name.as_str(), right));
        nodes.into_iter().for_each(|mut node| node.kill());
    });
}

#[test]
fn a_cluster_has_one_identifier_and_another_cluster_has_another() {
    block_on(async {
        let one = MemoryRecords::default();
        let elsewhere = MemoryRecords::default();
        let other = one.for_other();
        // Both nodes begin at once.
        let first = cluster_id(&one, &[]).await;
        let second = cluster_id(&other, &[]).await;
        let first = first.expect("it is new");
        assert_eq!(
            second,
            Ok(first.clone()),
            "the second node takes that of the first"
        );
        let known = one.read().await.expect("records");
        assert_eq!(
            cluster_id(&one, &known).await,
            Ok(first.clone()),
            "a later start"
        );
        assert_ne!(cluster_id(&elsewhere, &[]).await, Ok(first.clone()));
        let id = known
            .iter()
            .find(|record| record.key == "id")
            .expect("it is stored");
        one.write("id", "".into(), id.revision)
            .await
            .expect("deleted");
        let known = one.read().await.expect("records");
        assert_ne!(
            cluster_id(&one, &known).await.expect("it is made again"),
            first
        );
    });
}

#[test]
fn the_first_node_fixes_the_number_of_shards() {
    block_on(async {
        let one = MemoryRecords::default();
        let other = one.for_other();
        let first = cluster_shards(&one, &[], 4).await;
        let second = cluster_shards(&other, &[], 8).await;
        assert_eq!(
            (first, second),
            (Ok(4), Ok(4)),
            "the second node finds that of the first"
        );
        let known = one.read().await.expect("records");
        assert_eq!(
            cluster_shards(&one, &known, 16).await,
            Ok(4),
            "a later start"
        );
    });
}

#[test]
fn records_in_memory_and_in_nats_are_written_by_revision_and_owned_by_one() {
    let _rows = shows(&[
        "S004-065: The checkpoint store guarantees that only one of the instances succeeds in \
         claiming ownership of a partition.",
    ]);
    let memory = MemoryRecords::default();
    block_on(async { keeps_the_contract(&memory, &memory.for_other()).await });
    if !has_nats() {
        return;
    }
    let nats = NatsCluster::start(1, "always");
    let connect = || {
        let options =
            ConnectOptions::with_user_and_password("gridhook".to_owned(), PASSWORD.to_owned());
        NatsConnection::open(&nats.urls(), options).expect("it runs")
    };
    let connections = [connect(), connect(), connect()];
    let open = |at: usize, bucket| {
        let connection: &NatsConnection = &connections[at];
        connection
            .runtime()
            .block_on(NatsRecords::open(connection, bucket, 1))
            .expect("a bucket")
    };
    let [one, other] = [0, 1].map(|at| open(at, "contract"));
    connections[0].runtime().block_on(async {
        keeps_the_contract(&one, &other).await;
    });
    let stores: Vec<NatsRecords> = (0..3).map(|at| open(at, "cluster")).collect();
    block_on(async {
        let mut nodes: Vec<Running> = stores
            .into_iter()
            .enumerate()
            .map(|(at, store)| start(at, store, long_leases()))
            .collect();
        for killed in 0..2 {
            let mut owner = None;
            while owner.is_none() {
                tokio::time::sleep(Duration::from_millis(5)).await;
                owner = nodes
                    .iter()
                    .position(|node| matches!(&*node.claim.role.borrow(), Role::Owner(_)));
            }
            let mut node = nodes.remove(owner.expect("one"));
            for standby in &mut nodes {
                standby.standby_of(&node.address()).await;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
            node.kill();
            println!("{killed} of 3 were killed");
        }
        nodes[0].owner().await;
        assert_eq!(nodes[0].membership.snapshot.borrow().takeovers, 1);
    });
}

/// A record of a shard as the example of Azure has it.
#[test]
fn the_example_records_of_azure_are_records_of_shards() {
    let _rows = shows(&[
        "S004-054: Example ownership record: mynamespace.servicebus.windows.net, myeventhub, \
         myconsumergroup, owner 3be3f9d3-9d9e-4c50-9491-85ece8334ff6, partition 0, last modified \
         2020-01-15T01:22:15.",
        "S004-055: Example ownership record: mynamespace.servicebus.windows.net, myeventhub, \
         myconsumergroup, owner f5cc5176-ce96-4bb4-bbaa-a0e3a9054ecf, partition 1, last modified \
         2020-01-15T01:22:17.",
        "S004-056: Example ownership record: mynamespace.servicebus.windows.net, myeventhub, \
         myconsumergroup, owner 72b980e9-2efc-4ca7-ab1b-ffd7bece8472, partition 2, last modified \
         2020-01-15T01:22:10.",
        "S004-057: Example ownership record: mynamespace.servicebus.windows.net, myeventhub, \
         myconsumergroup, owner 844bd8fb-1f3a-4580-984d-6324f9e208af, partition 15, last modified \
         2020-01-15T01:22:00.",
        "S004-059: The owner identifiers in the example ownership records are lower-case \
         hyphenated GUIDs.",
    ]);
    let shards =
        usize::try_from(stated("S004-058")["count"].as_u64().expect("a number")).expect("a number");
    let mut written = Vec::new();
    for row in ["S004-054", "S004-055", "S004-056", "S004-057"] {
        let example = stated(row);
        let text = |name: &str| example[name].as_str().expect("a text").to_owned();
        let record = OwnershipRecord {
            scope: OwnershipScope {
                fully_qualified_namespace: text("namespace"),
                event_hub_name: text("event_hub"),
                consumer_group: text("consumer_group"),
            },
            partition_id: text("partition_id"),
            owner_id: Some(NodeId(text("owner"))),
            ..OwnershipRecord::default()
        };
        let stored = StoredRecord {
            key: shard_key(text("partition_id").parse().expect("a number")),
            value: serde_json::to_vec(&record).expect("a record").into(),
            revision: 7,
            written: text("last_modified"),
        };
        let guid: uuid::Uuid = text("owner").parse().expect("a GUID");
        assert_eq!(guid.hyphenated().to_string(), text("owner"), "{row}");
        let records = ClusterRecords::from_stored(&[stored], shards);
        assert_eq!(records.shards.len(), shards);
        let read = records
            .shards
            .iter()
            .filter(|shard| shard.revision > 0)
            .collect::<Vec<_>>();
        assert_eq!(read.len(), 1, "{row}");
        assert_eq!(
            (&read[0].value, &read[0].written),
            (&record, &text("last_modified")),
            "{row}"
        );
        written.push(read[0].written.clone());
    }
    let [min, max] =
        [written.iter().min(), written.iter().max()].map(|time| time.expect("four times"));
    let second = |time: &str| {
        time.rsplit(':')
            .next()
            .and_then(|second| second.parse::<u32>().ok())
            .expect("a second")
    };
    let span = format!("PT{}S", second(max) - second(min));
    fact(
        "S004-060",
        &serde_json::json!({"min": min, "max": max, "span": span}),
    );
}
