//! The dependencies are what `.deny.toml` allows, as far as that can be known without its tool:
//! licences, sources, bans.

use std::{collections::BTreeSet, process::Command};

use serde_json::Value;
use toml::Table;

const RULES: &str = include_str!("../.deny.toml");

/// All packages that Cargo.lock may bring.
fn packages() -> Vec<Value> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    let linux = ["--filter-platform", "x86_64-unknown-linux-gnu"];
    let output = Command::new(cargo)
        .args([
            "metadata",
            "--format-version",
            "1",
            "--locked",
            "--offline",
            "--manifest-path",
            manifest,
        ])
        .args(linux)
        .output()
        .expect("cargo runs");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("it is JSON");
    metadata["packages"].as_array().expect("a list").clone()
}

fn texts(value: &toml::Value) -> BTreeSet<String> {
    value
        .as_array()
        .expect("a list")
        .iter()
        .map(|text| text.as_str().expect("a text").to_owned())
        .collect()
}

/// Whether one of the licences that may be chosen from is allowed. Enough of SPDX for what crates
/// say: `OR` of `AND`s, with brackets around either.
fn is_allowed(expression: &str, allowed: &BTreeSet<String>) -> bool {
    let expression = expression.replace('/', " OR ");
    let all = |part: &str| {
        part.split(" AND ")
            .all(|name| allowed.contains(name.trim().trim_matches(['(', ')'])))
    };
    if let Some((either, also)) = expression
        .strip_prefix('(')
        .and_then(|rest| rest.split_once(") AND "))
    {
        return is_allowed(either, allowed) && is_allowed(also, allowed);
    }
    expression.split(" OR ").any(all)
}

#[test]
fn every_dependency_has_an_allowed_licence_and_comes_from_the_registry() {
    let rules: Table = RULES.parse().expect("the rules are TOML");
    let allowed = texts(&rules["licenses"]["allow"]);
    let banned = texts(&rules["bans"]["deny"]);
    let mut wrong = Vec::new();
    let packages = packages();
    assert!(packages.len() > 100, "{} packages", packages.len());
    for package in &packages {
        let text = |name: &str| package[name].as_str().unwrap_or_default();
        let name = text("name");
        let licence = text("license");
        let source = text("source");
        if !is_allowed(licence, &allowed) {
            wrong.push(format!("{name} has the licence {licence:?}"));
        }
        if !name.starts_with("gridhook")
            && source != "registry+https://github.com/rust-lang/crates.io-index"
        {
            wrong.push(format!("{name} comes from {source:?}"));
        }
        if banned.contains(name) {
            wrong.push(format!("{name} is banned"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn a_licence_is_judged_as_it_is_written() {
    let allowed = ["MIT", "Apache-2.0", "ISC"].map(str::to_owned).into();
    for (expression, expected) in [
        ("MIT", true),
        ("GPL-3.0", false),
        ("", false),
        ("GPL-3.0 OR MIT", true),
        ("MIT/Apache-2.0", true),
        ("MIT AND GPL-3.0", false),
        ("(MIT OR GPL-3.0) AND ISC", true),
        ("(MIT OR GPL-3.0) AND OpenSSL", false),
    ] {
        assert_eq!(is_allowed(expression, &allowed), expected, "{expression}");
    }
}
