//! Alive? Ready?

use expect_test::expect;
use gridhook::{
    admin::health::{Far, Phase, Readiness, Step, Vitals},
    journal::{self, damage::Seen, salvage::Gap, store::Family},
};

#[test]
fn readiness_says_what_is_wrong() {
    let mut lines = Vec::new();
    for phase in [Phase::Recovering, Phase::Serving, Phase::Stopping] {
        for state in [journal::State::Writable, journal::State::Full, journal::State::Closed] {
            lines.push(serde_json::to_string(&Readiness::of(phase, &state, &Seen::default())).expect("it is JSON"));
        }
    }
    expect![[r#"
        {"ready":false,"phase":"recovering","journal":"writable","lostEvents":0,"problems":["the store is being read after the start"]}
        {"ready":false,"phase":"recovering","journal":"full","lostEvents":0,"problems":["the store is being read after the start","the disk of the data folder is full: publishers are refused until there is room"]}
        {"ready":false,"phase":"recovering","journal":"closed","lostEvents":0,"problems":["the store is being read after the start","the journal is closed: nothing can be stored any more"]}
        {"ready":true,"phase":"serving","journal":"writable","lostEvents":0,"problems":[]}
        {"ready":false,"phase":"serving","journal":"full","lostEvents":0,"problems":["the disk of the data folder is full: publishers are refused until there is room"]}
        {"ready":false,"phase":"serving","journal":"closed","lostEvents":0,"problems":["the journal is closed: nothing can be stored any more"]}
        {"ready":false,"phase":"stopping","journal":"writable","lostEvents":0,"problems":["the server is shutting down"]}
        {"ready":false,"phase":"stopping","journal":"full","lostEvents":0,"problems":["the server is shutting down","the disk of the data folder is full: publishers are refused until there is room"]}
        {"ready":false,"phase":"stopping","journal":"closed","lostEvents":0,"problems":["the server is shutting down","the journal is closed: nothing can be stored any more"]}"#]].assert_eq(&lines.join("\n"));
}

#[test]
fn a_damaged_store_is_told_and_takes_events() {
    let gap = |first, count| Gap { partition: 3, first, count };
    let damage = Seen { gaps: vec![gap(7, 4), gap(20, 1)], families: vec![Family::Log, Family::Owed] };
    let told = Readiness::of(Phase::Serving, &journal::State::Writable, &damage);
    assert!(told.ready);
    expect![[r#"
        {"ready":true,"phase":"serving","journal":"writable","lostEvents":5,"problems":["lost to damage: 4 events, sequences 7 to 10 of partition 3","lost to damage: 1 events, sequences 20 to 20 of partition 3","the store is damaged: a table of log, owed cannot be read in part; stop the server, and restore a backup or accept the loss with gridhook restore --accept-loss"]}"#]].assert_eq(&serde_json::to_string(&told).expect("it is JSON"));
}

#[test]
fn a_server_never_goes_back_to_an_earlier_phase() {
    let vitals = Vitals::new(|| journal::State::Writable);
    assert_eq!(vitals.phase(), Phase::Recovering);
    vitals.enter(Phase::Serving);
    assert_eq!(vitals.phase(), Phase::Serving);
    vitals.enter(Phase::Stopping);
    vitals.enter(Phase::Serving);
    assert_eq!(vitals.phase(), Phase::Stopping);
}

#[test]
fn a_start_says_what_it_does_and_how_far_it_is() {
    let vitals = Vitals::starting();
    vitals.at(Step::with("the store is opened", || Some(Far { done: 3, of: 7 })));
    let readiness = vitals.readiness();
    assert!(!readiness.ready);
    assert_eq!(readiness.journal, "opening");
    assert_eq!(readiness.problems, ["the store is being read after the start: the store is opened, 3 of 7 bytes"]);
    vitals.attach(|| journal::State::Writable);
    vitals.enter(Phase::Serving);
    assert!(vitals.readiness().ready);
}
