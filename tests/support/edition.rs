//! The edition of the tests: the current one with milliseconds for minutes.

use std::time::Duration;

use toml::{Table, Value};

/// The waits after the first, the second and the third failure.
pub(crate) const STEPS: [Duration; 3] =
    [Duration::from_millis(200), Duration::from_millis(400), Duration::from_millis(800)];

/// By chance a wait is longer by a tenth at the most.
pub(crate) const JITTER: f64 = 0.1;

/// From the giving up of an event to its file.
pub(crate) const FILE_DELAY: Duration = Duration::from_secs(1);

/// The waits of a store that does not take a file.
const STORE_WAITS: [&str; 2] = ["200ms", "400ms"];

/// The edition's file.
pub(crate) fn milliseconds() -> String {
    toml::to_string(&table()).expect("a table is TOML")
}

/// The same, but for dead letters: each has a file at once, in the form of namespaces, and none is lost where its store has
/// no such place.
pub(crate) fn namespaces() -> String {
    let mut edition = table();
    let form = [("delay", "0s".into()), ("form", "namespace".into()), ("drop_where_not_found", false.into())];
    set(&mut edition, "dead_letter", &form);
    toml::to_string(&edition).expect("a table is TOML")
}

fn table() -> Table {
    let current = include_str!("../../config/editions/current.toml");
    let mut edition: Table = current.parse().expect("the current edition is TOML");
    let steps = STEPS.iter().map(|step| Value::from(format!("{}ms", step.as_millis()))).collect::<Vec<_>>();
    set(&mut edition, "retry", &[("schedule", steps.into()), ("repeat", "1s".into()), ("jitter_share", JITTER.into())]);
    set(&mut edition, "webhook", &[("otherwise", "100ms".into())]);
    for waits in ["webhook", "resource"] {
        shorten(edition[waits]["waits"].as_table_mut(), "100ms");
    }
    set(&mut edition, "probation", &[("otherwise", "300ms".into()), ("longest", "1s".into())]);
    shorten(edition["probation"]["durations"].as_table_mut(), "300ms");
    let retry = STORE_WAITS.map(Value::from).to_vec();
    let delay = format!("{}ms", FILE_DELAY.as_millis());
    set(&mut edition, "dead_letter", &[("delay", delay.into()), ("retry", retry.into())]);
    edition
}

fn set(edition: &mut Table, table: &str, values: &[(&str, Value)]) {
    let table = edition[table].as_table_mut().expect("a table");
    for (key, value) in values {
        assert!(table.insert((*key).to_owned(), value.clone()).is_some(), "the current edition has {key}");
    }
}

fn shorten(durations: Option<&mut Table>, to: &str) {
    for (_, duration) in durations.expect("a table") {
        *duration = to.into();
    }
}
