//! `gridhook simulate`.

use std::{
    fs,
    process::{Command, Output},
};

use expect_test::{Expect, expect};
use serde_json::Value;

fn simulate(more: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gridhook"));
    for (name, _) in
        std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("GRIDHOOK_"))
    {
        command.env_remove(name);
    }
    command.arg("simulate").args(more).output().expect("an end")
}

fn json(more: &[&str]) -> Value {
    let output = simulate(&[more, &["--output", "json"]].concat());
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).expect("JSON")
}

#[test]
fn an_invalid_option_is_refused_with_what_is_allowed() {
    let check = |more: &[&str], expected: Expect| {
        let output = simulate(more);
        assert_eq!(output.status.code(), Some(2), "{more:?}");
        assert!(output.stdout.is_empty(), "{more:?}");
        let text = String::from_utf8_lossy(&output.stderr)
            .replace("For more information, try '--help'.", "");
        expected.assert_eq(text.trim_end());
    };
    check(
        &["--model", "angry"],
        expect![[
            r#"gridhook: flag --model: there is no endpoint model "angry"; expected one of healthy, slow, black-hole, flapping, outage, overloaded, small-batches, wrong-address, faulty, bad-events"#
        ]],
    );
    check(
        &["--model", "healthy:3"],
        expect![[r#"gridhook: flag --model: healthy has "3" behind it; expected the word alone"#]],
    );
    check(
        &["--model", "outage:5"],
        expect![[
            r#"gridhook: flag --model: outage has "5" behind it; expected how long it is down, as outage:5h"#
        ]],
    );
    check(
        &["--model", "faulty:1.5=2"],
        expect![[
            r#"gridhook: flag --model: faulty has "1.5" behind it; expected the share of requests that fail, from 0 to 1, as faulty:0.1"#
        ]],
    );
    check(
        &["--model", "faulty=none"],
        expect![[
            r#"gridhook: flag --model: "faulty=none" has no valid share; expected a number from 1 to 10000"#
        ]],
    );
    check(
        &["--subscriptions", "3"],
        expect![
            "gridhook: flag --subscriptions: the value is 3; expected a number from 20 to 100000"
        ],
    );
    check(
        &["--days", "0"],
        expect!["error: invalid value '0' for '--days <N>': expected a number from 0.001 to 100"],
    );
    check(
        &["--rate", "100000"],
        expect![
            "gridhook: flag --rate: the value is 100000; expected a number from 0.000001 to 57"
        ],
    );
    check(
        &["--rate", "NaN"],
        expect![
            "error: invalid value 'NaN' for '--rate <EVENTS>': expected a number above 0, such \
             as 50 or 0.5"
        ],
    );
    check(
        &["--batch", "0"],
        expect![
            "error: invalid value '0' for '--batch <N>': expected a whole number from 1 to 5000"
        ],
    );
    check(
        &["--concurrency", "0"],
        expect![
            "error: invalid value '0' for '--concurrency <N>': expected a whole number from 1 to \
             10000"
        ],
    );
    check(
        &["--edition", "1999"],
        expect![[
            r#"gridhook: flag --edition: there is no edition "1999"; expected one of 2020, 2021, 2023, current, namespace, or a TOML file"#
        ]],
    );
    check(
        &["--edition", "nowhere.toml"],
        expect!["gridhook: nowhere.toml cannot be read: No such file or directory (os error 2)"],
    );
}

#[test]
fn an_edition_of_ones_own_is_tried_against_the_one_that_there_is() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("patient.toml");
    let current = include_str!("../../config/editions/current.toml");
    let impatient = current.replace("longest = \"3h\"", "longest = \"10m\"");
    assert_ne!(current, impatient);
    fs::write(&file, &impatient).expect("a file");
    let flags = [
        "--model",
        "outage:5h",
        "--model",
        "healthy",
        "--subscriptions",
        "20",
    ];
    let recovery = |edition: &str| {
        let report = json(&[&flags[..], &["--edition", edition]].concat());
        let row = &report["models"][0];
        assert_eq!(
            (&row["model"], &row["returns"], &row["pending"]),
            (&"outage:5h".into(), &10.into(), &0.into())
        );
        row["backlogGoneSeconds"]["p99"]
            .as_f64()
            .expect("a recovery")
    };
    let theirs = recovery("current");
    let ours = recovery(file.to_str().expect("UTF-8"));
    assert!(
        ours < 1200.0 && ours < theirs / 2.0,
        "{ours} s with an edition of our own, {theirs} s with theirs"
    );

    fs::write(
        &file,
        impatient.replace("after_failures = 10", "after_failures = 0"),
    )
    .expect("a file");
    let output = simulate(&["--edition", file.to_str().expect("UTF-8")]);
    let printed = String::from_utf8_lossy(&output.stderr)
        .replace(&*folder.path().to_string_lossy(), "FOLDER");
    expect!["gridhook: FOLDER/patient.toml: probation.after_failures is 0; expected 1 or more"]
        .assert_eq(printed.trim_end());
}

#[test]
fn people_get_tables() {
    let more = [
        "--model",
        "healthy=3",
        "--model",
        "outage:1h",
        "--subscriptions",
        "40",
        "--days",
        "0.5",
    ];
    let output = simulate(&more);
    let printed = String::from_utf8(output.stdout).expect("UTF-8");
    // The policy computes the numbers. This test checks their position in the table.
    let blocks: Vec<Vec<&str>> = printed
        .split("\n\n")
        .map(|block| block.lines().collect())
        .collect();
    assert_eq!(blocks.len(), 4, "{printed}");
    for (block, (title, rows)) in
        blocks[1..]
            .iter()
            .zip([("events", 2), ("attempts", 2), ("after a return", 1)])
    {
        assert!(
            block[0].starts_with(title) && block.len() == rows + 1,
            "{printed}"
        );
        assert!(
            block
                .iter()
                .all(|line| line.chars().count() == block[0].chars().count()),
            "{printed}"
        );
    }
    assert!(
        blocks[1][1].starts_with("healthy") && blocks[1][1].split_whitespace().nth(1) == Some("30"),
        "{printed}"
    );
}
