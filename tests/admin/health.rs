//! Alive? Ready?

use expect_test::expect;
use gridhook::{
    admin::health::{Far, Phase, Readiness, Step, Vitals},
    journal,
};

#[test]
fn readiness_says_what_is_wrong() {
    let mut lines = Vec::new();
    for phase in [Phase::Recovering, Phase::Serving, Phase::Stopping] {
        for state in [journal::State::Writable, journal::State::Full, journal::State::Closed] {
            lines.push(serde_json::to_string(&Readiness::of(phase, &state)).expect("it is JSON"));
        }
    }
    expect![[r#"
        {"ready":false,"phase":"recovering","journal":"writable","problems":["the store is being read after the start"]}
        {"ready":false,"phase":"recovering","journal":"full","problems":["the store is being read after the start","the disk of the data folder is full: publishers are refused until there is room"]}
        {"ready":false,"phase":"recovering","journal":"closed","problems":["the store is being read after the start","the journal is closed: nothing can be stored any more"]}
        {"ready":true,"phase":"serving","journal":"writable","problems":[]}
        {"ready":false,"phase":"serving","journal":"full","problems":["the disk of the data folder is full: publishers are refused until there is room"]}
        {"ready":false,"phase":"serving","journal":"closed","problems":["the journal is closed: nothing can be stored any more"]}
        {"ready":false,"phase":"stopping","journal":"writable","problems":["the server is shutting down"]}
        {"ready":false,"phase":"stopping","journal":"full","problems":["the server is shutting down","the disk of the data folder is full: publishers are refused until there is room"]}
        {"ready":false,"phase":"stopping","journal":"closed","problems":["the server is shutting down","the journal is closed: nothing can be stored any more"]}"#]].assert_eq(&lines.join("\n"));
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
