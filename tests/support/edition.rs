//! The edition of the tests: the current one with milliseconds for minutes.

use std::time::Duration;

use toml::{Table, Value};

/// The waits after the first, the second and the third failure.
pub(crate) const STEPS: [Duration; 3] = [
    Duration::from_millis(200),
    Duration::from_millis(400),
    Duration::from_millis(800),
];

/// The share by which a wait may be longer at random.
pub(crate) const JITTER: f64 = 0.1;

/// The delay from giving up an event to the writing of its file.
pub(crate) const FILE_DELAY: Duration = Duration::from_secs(1);

/// The waits after a store did not take a file.
const STORE_WAITS: [&str; 2] = ["200ms", "400ms"];

/// The file of the edition.
pub(crate) fn milliseconds() -> String {
    toml::to_string(&table()).expect("a table is TOML")
}

/// The file of the edition with dead letters as in namespaces: each has a file at once, and none is
/// lost if its store has no such folder.
pub(crate) fn namespaces() -> String {
    let mut edition = table();
    let form = [
        ("delay", "0s".into()),
        ("layout", "namespace".into()),
        ("retry_period_days_max", 2.into()),
        ("drop_where_not_found", false.into()),
    ];
    set(&mut edition, "dead_letter", &form);
    toml::to_string(&edition).expect("a table is TOML")
}

/// The wait of `patient` after a first failure.
pub(crate) const PATIENT_STEP: Duration = Duration::from_secs(2);

/// The current edition, but nothing suspends an endpoint, chance adds nothing to a wait, and what
/// receives 503 waits for an hour: a retry queue grows for as long as the test wants, and when
/// the others are due is known.
pub(crate) fn patient() -> String {
    let mut edition = current();
    let step = Value::from(format!("{}ms", PATIENT_STEP.as_millis()));
    let retry = [
        ("schedule", vec![step.clone()].into()),
        ("repeat", step.clone()),
        ("jitter_share", 0.0.into()),
    ];
    set(&mut edition, "retry", &retry);
    set(&mut edition, "webhook", &[("otherwise", step)]);
    let never = [
        ("after_failures", 1_000_000_000.into()),
        ("requests_min", 1_000_000_000.into()),
    ];
    set(&mut edition, "probation", &never);
    let waits = edition["webhook"]["waits"].as_table_mut().expect("a table");
    waits.insert("503".to_owned(), "1h".into());
    toml::to_string(&edition).expect("a table is TOML")
}

fn current() -> Table {
    include_str!("../../config/editions/current.toml")
        .parse()
        .expect("the current edition is TOML")
}

fn table() -> Table {
    let mut edition = current();
    let steps = STEPS
        .iter()
        .map(|step| Value::from(format!("{}ms", step.as_millis())))
        .collect::<Vec<_>>();
    set(
        &mut edition,
        "retry",
        &[
            ("schedule", steps.into()),
            ("repeat", "1s".into()),
            ("jitter_share", JITTER.into()),
        ],
    );
    set(&mut edition, "webhook", &[("otherwise", "100ms".into())]);
    set(&mut edition, "resource", &[("otherwise", "100ms".into())]);
    for waits in ["webhook", "resource"] {
        shorten(edition[waits]["waits"].as_table_mut(), "100ms");
    }
    set(
        &mut edition,
        "probation",
        &[("otherwise", "300ms".into()), ("longest", "1s".into())],
    );
    shorten(edition["probation"]["durations"].as_table_mut(), "300ms");
    let retry = STORE_WAITS.map(Value::from).to_vec();
    let delay = format!("{}ms", FILE_DELAY.as_millis());
    set(
        &mut edition,
        "dead_letter",
        &[("delay", delay.into()), ("retry", retry.into())],
    );
    edition
}

fn set(edition: &mut Table, table: &str, values: &[(&str, Value)]) {
    let table = edition[table].as_table_mut().expect("a table");
    for (key, value) in values {
        assert!(
            table.insert((*key).to_owned(), value.clone()).is_some(),
            "the current edition has {key}"
        );
    }
}

fn shorten(durations: Option<&mut Table>, to: &str) {
    for (_, duration) in durations.expect("a table") {
        *duration = to.into();
    }
}
