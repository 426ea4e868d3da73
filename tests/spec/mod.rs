//! The specification as rows, and for each row the test that shows it: `rows/` has the facts of the
//! source documents, `coverage.txt` a line for each that applies.
//!
//! A line is the row's id and one of these:
//! - names of tests, each of which has the row's id: it calls [`shows`] with it, or [`fact`] with
//!   what it found;
//! - `partly: `, names of tests, `; `, and what is missing;
//! - `may: ` and how the server uses what the row permits;
//! - `waits: ` and the capability that it waits for;
//! - `not applicable: ` and the reason.
//!
//! A row that does not apply says why in its own file and needs no line. Of a document that is done
//! no row waits. At the end of a whole run `.ci/test` looks whether the tests of all rows ran to
//! their end.

use std::{
    collections::BTreeMap,
    env,
    fs::{self, OpenOptions},
    io::Write,
    path::Path,
    sync::LazyLock,
    thread,
};

use serde::Deserialize;
use serde_json::Value;

use crate::support::needs;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    id: String,
    #[serde(rename = "kind")]
    _kind: String,
    statement: String,
    value: Value,
    #[serde(rename = "tier")]
    _tier: String,
    applies: bool,
    /// Why it does not apply, where it does not.
    reason: Option<String>,
}

const SEEDS: [&str; 5] = ["000", "001", "002", "003", "004"];

/// The documents that nothing may wait for any more: all that they ask for is there.
const DONE: [&str; 4] = ["001", "002", "003", "004"];

static ROWS: LazyLock<BTreeMap<String, Row>> = LazyLock::new(|| {
    SEEDS
        .into_iter()
        .flat_map(rows)
        .map(|row| (row.id.clone(), row))
        .collect()
});

/// The rows of a document.
fn rows(seed: &str) -> Vec<Row> {
    let path = needs::repository().join(format!("tests/spec/rows/{seed}.json"));
    serde_json::from_str(&fs::read_to_string(path).expect("the rows of a seed")).expect("rows")
}

/// The rows that the test around it shows, if it runs to its end.
pub(crate) struct ShownRows(Vec<&'static str>);

/// The test that calls this shows these facts. Each is the ids of its rows and the statement of the
/// first row, `S000-001, S002-001: Event Grid provides durable delivery.`; the other rows say the
/// same in another document.
#[must_use]
pub(crate) fn shows(facts: &[&'static str]) -> ShownRows {
    needs::begin();
    ShownRows(facts.iter().flat_map(|fact| parse_fact(fact)).collect())
}

/// The ids of a fact whose words are those of its first row.
fn parse_fact(fact: &'static str) -> Vec<&'static str> {
    let (ids, statement) = fact.split_once(": ").expect("ids, a colon and a statement");
    let ids: Vec<&str> = ids.split(", ").collect();
    for id in &ids {
        assert!(ROWS.contains_key(*id), "{id} is no row");
    }
    let row = &ROWS[ids[0]];
    assert_eq!(statement, row.statement, "{}", row.id);
    ids
}

impl Drop for ShownRows {
    fn drop(&mut self) {
        if !thread::panicking() && !needs::was_skipped() {
            self.0.iter().for_each(|id| note(id));
        }
    }
}

/// The value of a row, for a test that compares a part of it, or more than one.
pub(crate) fn stated(id: &str) -> &'static Value {
    &ROWS
        .get(id)
        .unwrap_or_else(|| panic!("{id} is no row"))
        .value
}

/// Asserts that a value is that of the row.
#[track_caller]
pub(crate) fn fact(id: &str, found: &Value) {
    assert_eq!(found, stated(id), "{id}: {}", ROWS[id].statement);
    note(id);
}

/// Adds a row to the list of those whose tests have run, if there is one.
fn note(id: &str) {
    let list = env::var_os("GRIDHOOK_ROWS_LIST")
        .and_then(|list| OpenOptions::new().append(true).open(list).ok());
    if let Some(mut list) = list {
        list.write_all(format!("{id}\n").as_bytes())
            .expect("a list that can be written");
    }
}

/// All tests below `folder`: their names and their source.
fn tests(folder: &Path, found: &mut BTreeMap<String, String>) {
    for entry in fs::read_dir(folder).expect("a folder of tests") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            tests(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).expect("a test's source");
            for after in text.split("test]\n").skip(1) {
                let Some((name, body)) = after
                    .split_once("fn ")
                    .and_then(|(_, rest)| rest.split_once('('))
                else {
                    continue;
                };
                let body = body.split("\n}\n").next().unwrap_or_default();
                found.entry(name.to_owned()).or_default().push_str(body);
            }
        }
    }
}

/// The problems of the tests that are named for a row.
fn wrong_with<'a>(
    id: &'a str,
    names: &'a str,
    known: &'a BTreeMap<String, String>,
) -> impl Iterator<Item = String> + 'a {
    names
        .split(", ")
        .filter_map(move |name| match known.get(name) {
            None => Some(format!("{id}: there is no test \"{name}\"")),
            Some(body) if !body.contains(id) => {
                Some(format!("{id}: \"{name}\" does not have this row's id"))
            }
            Some(_) => None,
        })
}

#[test]
fn every_row_that_applies_has_a_test_or_a_reason() {
    let folder = needs::repository().join("tests");
    let mut known = BTreeMap::new();
    tests(&folder, &mut known);
    let coverage = fs::read_to_string(folder.join("spec/coverage.txt")).expect("the coverage");
    let lines = coverage
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'));
    let mut coverage: BTreeMap<&str, &str> = BTreeMap::new();
    let mut wrong = Vec::new();
    for line in lines {
        let (id, what) = line.split_once(' ').unwrap_or((line, ""));
        if coverage.insert(id, what).is_some() {
            wrong.push(format!("{id} has two lines"));
        }
    }
    for seed in SEEDS {
        let rows = rows(seed);
        let mut counts = BTreeMap::<&str, u32>::new();
        let mut waiting = BTreeMap::<&str, u32>::new();
        for row in &rows {
            let Some(what) = coverage.remove(row.id.as_str()) else {
                *counts.entry("not applicable").or_default() += 1;
                if row.applies || row.reason.is_none() {
                    wrong.push(format!(
                        "{} has neither a test nor a reason: {}",
                        row.id, row.statement
                    ));
                }
                continue;
            };
            let (kind, what) = what.split_once(": ").unwrap_or(("covered", what));
            *counts.entry(kind).or_default() += 1;
            match kind {
                "covered" => wrong.extend(wrong_with(&row.id, what, &known)),
                "partly" => match what.split_once("; ") {
                    Some((names, _)) => wrong.extend(wrong_with(&row.id, names, &known)),
                    None => wrong.push(format!("{} does not say what is missing", row.id)),
                },
                "waits" => {
                    *waiting.entry(what).or_default() += 1;
                    if DONE.contains(&seed) {
                        wrong.push(format!("{} waits again: {}", row.id, row.statement));
                    }
                }
                "may" | "not applicable" => {}
                other => wrong.push(format!("{}: \"{other}\" is no kind of line", row.id)),
            }
        }
        println!("{seed}: {} rows: {counts:?}", rows.len());
        for (capability, rows) in waiting {
            println!("     {rows:>4} wait for {capability}");
        }
    }
    wrong.extend(coverage.keys().map(|id| format!("{id} is no row")));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_test_without_the_rows_id_is_detected() {
    let body = "() {\n    let _rows = shows(&[\"S000-001: Events are delivered durably.\"]);";
    let known = BTreeMap::from([("there".to_owned(), body.to_owned())]);
    let wrong = |id: &'static str, names| wrong_with(id, names, &known).collect::<Vec<_>>();
    assert_eq!(wrong("S000-001", "there"), Vec::<String>::new());
    assert_eq!(
        wrong("S000-002", "there"),
        ["S000-002: \"there\" does not have this row's id"]
    );
    assert_eq!(
        wrong("S000-001", "there, gone"),
        ["S000-001: there is no test \"gone\""]
    );
}

#[test]
#[should_panic(expected = "S000-001")]
fn a_fact_in_other_words_than_its_row_is_refused() {
    parse_fact("S000-001, S002-001: Event Grid provides fast delivery.");
}

#[test]
#[should_panic(expected = "S000-167: The probation caused by Unauthorized lasts 5 minutes.")]
fn another_fact_than_the_rows_fails() {
    fact(
        "S000-167",
        &serde_json::json!({"outcome": "Unauthorized", "seconds": 299}),
    );
}
