//! The specification as rows, and for each row the test that shows it: `rows/` has the facts of the source documents,
//! `coverage.txt` a line for each that applies.
//!
//! A line is the row's id and one of three things: names of tests; `waits: ` and the capability that it waits for; or
//! `not applicable: ` and the reason. A row that does not apply says why in its own file and needs no line. Of a document
//! that is done no row waits.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use serde::Deserialize;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    id: String,
    #[serde(rename = "kind")]
    _kind: String,
    statement: String,
    #[serde(rename = "value")]
    _value: serde_json::Value,
    #[serde(rename = "tier")]
    _tier: String,
    applies: bool,
    /// Why it does not apply, where it does not.
    reason: Option<String>,
}

/// The documents that nothing may wait for any more: all that they ask for is there.
const DONE: [&str; 3] = ["001", "002", "003"];

/// The names of all tests below `folder`.
fn tests(folder: &Path, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).expect("a folder of tests") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            tests(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).expect("a test's source");
            for after in text.split("test]\n").skip(1) {
                let name = after.split("fn ").nth(1).and_then(|rest| rest.split('(').next());
                found.extend(name.map(str::to_owned));
            }
        }
    }
}

#[test]
fn every_row_that_applies_has_a_test_or_a_reason() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let mut known = BTreeSet::new();
    tests(&folder, &mut known);
    let coverage = fs::read_to_string(folder.join("spec/coverage.txt")).expect("the coverage");
    let lines = coverage.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let mut coverage: BTreeMap<&str, &str> = BTreeMap::new();
    let mut wrong = Vec::new();
    for line in lines {
        let (id, what) = line.split_once(' ').unwrap_or((line, ""));
        if coverage.insert(id, what).is_some() {
            wrong.push(format!("{id} has two lines"));
        }
    }
    for seed in ["000", "001", "002", "003", "004"] {
        let text = fs::read_to_string(folder.join(format!("spec/rows/{seed}.json"))).expect("the rows of a seed");
        let rows: Vec<Row> = serde_json::from_str(&text).expect("rows");
        let (mut covered, mut absent, mut waiting) = (0, 0, BTreeMap::<&str, u32>::new());
        for row in &rows {
            let Some(what) = coverage.remove(row.id.as_str()) else {
                absent += 1;
                if row.applies || row.reason.is_none() {
                    wrong.push(format!("{} has neither a test nor a reason: {}", row.id, row.statement));
                }
                continue;
            };
            if let Some(capability) = what.strip_prefix("waits: ").filter(|capability| !capability.is_empty()) {
                *waiting.entry(capability).or_default() += 1;
                if DONE.contains(&seed) {
                    wrong.push(format!("{} waits again: {}", row.id, row.statement));
                }
            } else if what.strip_prefix("not applicable: ").is_some_and(|reason| !reason.is_empty()) {
                absent += 1;
            } else {
                covered += 1;
                let unknown = what.split(", ").filter(|name| !known.contains(*name));
                wrong.extend(unknown.map(|name| format!("{}: there is no test \"{name}\"", row.id)));
            }
        }
        let waits: u32 = waiting.values().sum();
        println!("{seed}: {} rows, {covered} covered, {waits} waiting, {absent} not applicable", rows.len());
        for (capability, rows) in waiting {
            println!("     {rows:>4} wait for {capability}");
        }
    }
    wrong.extend(coverage.keys().map(|id| format!("{id} is no row")));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
