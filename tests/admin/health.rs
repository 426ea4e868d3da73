//! `/healthz` and `/readyz`.

use expect_test::expect;
use gridhook::admin::health::readiness;
use gridhook::{
    admin::health::{NodeShard, ServerHealth, ShardState, StartPhase, StartStep, StepProgress},
    journal,
    store::{
        Family,
        damage::{DamageSummary, LogGap},
    },
};

#[test]
fn readiness_says_what_is_wrong() {
    let mut lines = Vec::new();
    for phase in [
        StartPhase::Recovering,
        StartPhase::Serving,
        StartPhase::Stopping,
    ] {
        for state in [
            journal::JournalState::Writable,
            journal::JournalState::Full,
            journal::JournalState::Closed,
        ] {
            lines.push(
                serde_json::to_string(&readiness(phase, &state, None, &DamageSummary::default()))
                    .expect("it is JSON"),
            );
        }
    }
    expect![[r#"
        {"ready":false,"phase":"recovering","journal":"writable","lostEvents":0,"problems":["the store is being read after the start"]}
        {"ready":false,"phase":"recovering","journal":"full","lostEvents":0,"problems":["the store is being read after the start","the disk of the data folder is full: publishes are refused until there is space"]}
        {"ready":false,"phase":"recovering","journal":"closed","lostEvents":0,"problems":["the store is being read after the start","the journal is closed: nothing can be stored any more"]}
        {"ready":true,"phase":"serving","journal":"writable","lostEvents":0,"problems":[]}
        {"ready":false,"phase":"serving","journal":"full","lostEvents":0,"problems":["the disk of the data folder is full: publishes are refused until there is space"]}
        {"ready":false,"phase":"serving","journal":"closed","lostEvents":0,"problems":["the journal is closed: nothing can be stored any more"]}
        {"ready":false,"phase":"stopping","journal":"writable","lostEvents":0,"problems":["the server is shutting down"]}
        {"ready":false,"phase":"stopping","journal":"full","lostEvents":0,"problems":["the server is shutting down","the disk of the data folder is full: publishes are refused until there is space"]}
        {"ready":false,"phase":"stopping","journal":"closed","lostEvents":0,"problems":["the server is shutting down","the journal is closed: nothing can be stored any more"]}"#]].assert_eq(&lines.join("\n"));
}

#[test]
fn a_full_stream_is_not_explained_by_the_data_folder() {
    let full = readiness(
        StartPhase::Serving,
        &journal::JournalState::Full,
        Some("GH_shop_0"),
        &DamageSummary::default(),
    );
    assert!(!full.ready);
    let of_stream = "the stream GH_shop_0 in NATS is full: publishes are refused until the nodes \
        that are down were started, or forgotten (gridhook help cluster)";
    assert_eq!(full.problems, [of_stream]);
}

#[test]
fn a_damaged_store_is_reported_and_takes_events() {
    let gap = |first, count| LogGap {
        partition: 3,
        first,
        count,
    };
    let damage = DamageSummary {
        gaps: vec![gap(7, 4), gap(20, 1)],
        families: vec![Family::Log, Family::Pending],
    };
    let reported = readiness(
        StartPhase::Serving,
        &journal::JournalState::Writable,
        None,
        &damage,
    );
    assert!(reported.ready);
    expect![[r#"
        {"ready":true,"phase":"serving","journal":"writable","lostEvents":5,"problems":["lost to damage: 4 events, sequences 7 to 10 of partition 3","lost to damage: 1 event, sequences 20 to 20 of partition 3","the store is damaged: a table of log, owed cannot be read in part; stop the server, and restore a backup or accept the loss with gridhook restore --accept-loss"]}"#]].assert_eq(&serde_json::to_string(&reported).expect("it is JSON"));
}

#[test]
fn a_server_never_goes_back_to_an_earlier_phase() {
    let vitals = ServerHealth::new(|| journal::JournalState::Writable);
    assert_eq!(vitals.phase(), StartPhase::Recovering);
    vitals.enter_phase(StartPhase::Serving);
    assert_eq!(vitals.phase(), StartPhase::Serving);
    vitals.enter_phase(StartPhase::Stopping);
    vitals.enter_phase(StartPhase::Serving);
    assert_eq!(vitals.phase(), StartPhase::Stopping);
}

#[test]
fn a_start_says_what_it_does_and_how_far_it_is() {
    let vitals = ServerHealth::starting();
    vitals.set_step(StartStep::with_progress("the store is opened", || {
        Some(StepProgress {
            done_bytes: 3,
            total_bytes: 7,
        })
    }));
    let readiness = vitals.readiness();
    assert!(!readiness.ready);
    assert_eq!(readiness.journal, "opening");
    assert_eq!(
        readiness.problems,
        ["the store is being read after the start: the store is opened, 3 of 7 bytes"]
    );
    vitals.attach_journal(|| journal::JournalState::Writable);
    vitals.enter_phase(StartPhase::Serving);
    assert!(vitals.readiness().ready);
}

#[test]
fn a_node_is_ready_while_it_can_answer_or_forward_and_says_what_it_is_for_each_shard() {
    let serving = |damage: &DamageSummary| NodeShard {
        state: ShardState::Serving,
        has_owner: true,
        core: Some(readiness(
            StartPhase::Serving,
            &journal::JournalState::Writable,
            None,
            damage,
        )),
        failure: None,
        is_cut_off: false,
    };
    let own = serving(&DamageSummary::default());
    let damaged = serving(&DamageSummary {
        gaps: vec![LogGap {
            partition: 3,
            first: 7,
            count: 4,
        }],
        families: vec![],
    });
    let other = |state, has_owner| NodeShard {
        state,
        has_owner,
        core: None,
        failure: None,
        is_cut_off: false,
    };
    let following = other(ShardState::Following, true);
    let ownerless = other(ShardState::Following, false);
    let fetching = other(ShardState::Fetching, true);
    let late = other(ShardState::CatchingUp, true);
    let starting = other(ShardState::Starting, true);
    let failed = NodeShard {
        failure: Some("its stream is missing".to_owned()),
        ..other(ShardState::Failed, false)
    };
    let cut_off = NodeShard {
        is_cut_off: true,
        ..other(ShardState::CutOff, false)
    };
    let forwarded = NodeShard {
        is_cut_off: true,
        ..following.clone()
    };
    let nodes: &[&[&NodeShard]] = &[
        &[&following],
        &[&ownerless],
        &[&fetching],
        &[&late],
        // With several shards the control plane is the last one.
        &[&following, &own, &following],
        &[&following, &ownerless, &following],
        &[&ownerless, &ownerless, &following],
        &[&damaged, &starting, &following],
        // The others serve, and a rolling upgrade waits for this node.
        &[&following, &late, &fetching, &following],
        // Its shards need it.
        &[&own, &late, &fetching, &following],
        // A shard fails alone.
        &[&own, &failed, &following],
        &[&failed],
        &[&cut_off, &forwarded, &forwarded],
        // Changes wait, and nothing else.
        &[&own, &following, &ownerless],
        &[&own, &following, &failed],
        // It has only the control plane.
        &[&following, &following, &own],
    ];
    let readiness = nodes.iter().map(|shards| {
        let health = ServerHealth::starting();
        let shards = shards
            .iter()
            .map(|shard| (*shard).clone())
            .collect::<Vec<_>>();
        health.stand_by(move || shards.clone());
        serde_json::to_string(&health.readiness()).expect("it is JSON")
    });
    expect![[r#"
        {"ready":true,"phase":"standby","journal":"following","lostEvents":0,"problems":[]}
        {"ready":false,"phase":"standby","journal":"following","lostEvents":0,"problems":["requests wait, because no node of the cluster owns the store"]}
        {"ready":false,"phase":"standby","journal":"following","lostEvents":0,"problems":["this node fetches a copy of the store from the owner"]}
        {"ready":false,"phase":"standby","journal":"following","lostEvents":0,"problems":["this node catches up with the changelog"]}
        {"ready":true,"phase":"serving","journal":"writable","lostEvents":0,"problems":[],"shards":[{"shard":0,"state":"following","hasOwner":true},{"shard":1,"state":"serving","hasOwner":true}],"controlPlane":{"shard":2,"state":"following","hasOwner":true}}
        {"ready":true,"phase":"standby","journal":"following","lostEvents":0,"problems":["requests wait, because no node of the cluster owns these shards: 1"],"shards":[{"shard":0,"state":"following","hasOwner":true},{"shard":1,"state":"following","hasOwner":false}],"controlPlane":{"shard":2,"state":"following","hasOwner":true}}
        {"ready":false,"phase":"standby","journal":"following","lostEvents":0,"problems":["requests wait, because no node of the cluster owns these shards: 0, 1"],"shards":[{"shard":0,"state":"following","hasOwner":false},{"shard":1,"state":"following","hasOwner":false}],"controlPlane":{"shard":2,"state":"following","hasOwner":true}}
        {"ready":true,"phase":"serving","journal":"writable","lostEvents":4,"problems":["shard 0: lost to damage: 4 events, sequences 7 to 10 of partition 3"],"shards":[{"shard":0,"state":"serving","hasOwner":true},{"shard":1,"state":"starting","hasOwner":true}],"controlPlane":{"shard":2,"state":"following","hasOwner":true}}
        {"ready":false,"phase":"standby","journal":"following","lostEvents":0,"problems":["this node fetches copies of these shards from their owners: 2","this node catches up with these shards: 1"],"shards":[{"shard":0,"state":"following","hasOwner":true},{"shard":1,"state":"catchingUp","hasOwner":true},{"shard":2,"state":"fetching","hasOwner":true}],"controlPlane":{"shard":3,"state":"following","hasOwner":true}}
        {"ready":true,"phase":"serving","journal":"writable","lostEvents":0,"problems":["this node fetches copies of these shards from their owners: 2","this node catches up with these shards: 1"],"shards":[{"shard":0,"state":"serving","hasOwner":true},{"shard":1,"state":"catchingUp","hasOwner":true},{"shard":2,"state":"fetching","hasOwner":true}],"controlPlane":{"shard":3,"state":"following","hasOwner":true}}
        {"ready":true,"phase":"serving","journal":"writable","lostEvents":0,"problems":["this node cannot serve shard 1: its stream is missing","requests wait, because no node of the cluster owns these shards: 1"],"shards":[{"shard":0,"state":"serving","hasOwner":true},{"shard":1,"state":"failed","hasOwner":false,"cause":"its stream is missing"}],"controlPlane":{"shard":2,"state":"following","hasOwner":true}}
        {"ready":false,"phase":"standby","journal":"following","lostEvents":0,"problems":["this node cannot serve shard 0: its stream is missing","requests wait, because no node of the cluster owns the store"]}
        {"ready":false,"phase":"standby","journal":"following","lostEvents":0,"problems":["this node cannot use the NATS servers, and its log has the reason: it owns nothing, and its copies may be old","requests wait, because no node of the cluster owns these shards: 0"],"shards":[{"shard":0,"state":"cutOff","hasOwner":false},{"shard":1,"state":"following","hasOwner":true}],"controlPlane":{"shard":2,"state":"following","hasOwner":true}}
        {"ready":true,"phase":"serving","journal":"writable","lostEvents":0,"problems":["changes wait, because no node of the cluster owns the control plane"],"shards":[{"shard":0,"state":"serving","hasOwner":true},{"shard":1,"state":"following","hasOwner":true}],"controlPlane":{"shard":2,"state":"following","hasOwner":false}}
        {"ready":true,"phase":"serving","journal":"writable","lostEvents":0,"problems":["this node cannot serve the control plane: its stream is missing","changes wait, because no node of the cluster owns the control plane"],"shards":[{"shard":0,"state":"serving","hasOwner":true},{"shard":1,"state":"following","hasOwner":true}],"controlPlane":{"shard":2,"state":"failed","hasOwner":false,"cause":"its stream is missing"}}
        {"ready":true,"phase":"standby","journal":"writable","lostEvents":0,"problems":[],"shards":[{"shard":0,"state":"following","hasOwner":true},{"shard":1,"state":"following","hasOwner":true}],"controlPlane":{"shard":2,"state":"serving","hasOwner":true}}"#]]
    .assert_eq(&readiness.collect::<Vec<_>>().join("\n"));
}
