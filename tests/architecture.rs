//! Which module may import which: the table of `src/README.md`, checked against every path in `src/`.
//!
//! The sources are scanned as text: strings and comments are taken out, `use` trees are spelled out, and every path
//! that begins with `crate::`, `super::` or a crate's name is looked up. A module may always know itself.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

/// One line of the table.
struct Rule {
    /// The module, a file or a folder directly in `src/`.
    module: &'static str,
    /// The modules of ours that it may import. `policy::filter` allows that part of `policy` only.
    ours: &'static [&'static str],
    /// The crates that it may import.
    crates: Crates,
}

enum Crates {
    /// These and no others; `std` and `core` are always allowed.
    Only(&'static [&'static str]),
    /// All but these.
    Not(&'static [&'static str]),
}

use Crates::{Not, Only};

const ALL: &[&str] = &[
    "admin",
    "api",
    "chaos",
    "cli",
    "clock",
    "cluster",
    "config",
    "control",
    "dashboard",
    "dead_letter",
    "declared",
    "deliver",
    "escape",
    "event",
    "fanout",
    "insight",
    "journal",
    "metrics",
    "policy",
    "publish",
    "pull",
    "repair",
    "server",
    "simulate",
    "store",
    "subscription",
    "supervision",
    "telemetry",
];

/// Only `store` may use RocksDB, only `deliver` and `cli` an HTTP client.
const NEITHER_STORE_NOR_WIRE: Crates = Not(&["rocksdb", "awc", "actix_web"]);
const NEITHER_STORE_NOR_CLIENT: Crates = Not(&["rocksdb", "awc"]);
const NO_ACTORS_NO_STORE: Crates = Not(&["actix", "actix_web", "awc", "rocksdb"]);
const NO_ACTORS: Crates = Not(&["actix", "actix_rt", "actix_web", "awc"]);

#[rustfmt::skip]
const TABLE: &[Rule] = &[
    // Pure: no input or output, no clock, no randomness.
    Rule { module: "escape", ours: &[], crates: Only(&[]) },
    Rule { module: "metrics", ours: &[], crates: Only(&[]) },
    Rule { module: "event", ours: &[], crates: Only(&["bytes", "serde", "serde_json", "jiff", "foldhash"]) },
    Rule { module: "policy", ours: &["event"], crates: Only(&["aho_corasick", "bytes", "jmespath", "percent_encoding", "serde", "serde_json", "humantime", "humantime_serde", "thiserror"]) },
    Rule { module: "simulate", ours: &["event", "policy"], crates: Only(&["bytes", "fastrand", "humantime_serde", "plotters", "serde", "thiserror", "utoipa"]) },
    Rule { module: "declared", ours: &["policy::filter"], crates: Only(&["percent_encoding", "serde_json", "thiserror", "toml"]) },
    Rule { module: "api", ours: &["control::record", "deliver::resource", "policy::transform"], crates: Only(&["clap", "serde", "serde_json", "utoipa"]) },
    // The process: time, settings, the log.
    Rule { module: "clock", ours: &["event"], crates: NO_ACTORS_NO_STORE },
    Rule { module: "config", ours: &["event", "policy"], crates: NO_ACTORS_NO_STORE },
    Rule { module: "telemetry", ours: &["event", "config", "clock", "escape"], crates: NO_ACTORS_NO_STORE },
    // The disk.
    Rule { module: "store", ours: &["event", "policy::record", "policy::outcome", "clock", "metrics"], crates: NO_ACTORS },
    Rule { module: "journal", ours: &["event", "policy::record", "policy::outcome", "store", "clock", "metrics"], crates: NEITHER_STORE_NOR_WIRE },
    Rule { module: "repair", ours: &["event", "policy::backup", "policy::record", "policy::outcome", "dead_letter::sink", "store", "clock"], crates: NO_ACTORS },
    // The way of an event.
    Rule { module: "cluster", ours: &["journal::changelog::nats"], crates: NEITHER_STORE_NOR_WIRE },
    Rule { module: "publish", ours: &["event", "control", "fanout::meter", "journal", "store::chunk", "telemetry", "clock"], crates: NEITHER_STORE_NOR_CLIENT },
    Rule { module: "fanout", ours: &["event", "control::registry", "subscription", "supervision", "policy::filter", "journal", "store::chunk", "chaos", "metrics"], crates: NEITHER_STORE_NOR_WIRE },
    Rule { module: "subscription", ours: &["event", "policy", "journal", "store", "fanout::recent_events", "insight::event_feed", "control::record", "control::validation", "deliver", "supervision::timers", "supervision::turns", "telemetry", "chaos", "clock", "cluster::Lease", "metrics"], crates: NEITHER_STORE_NOR_WIRE },
    Rule { module: "deliver", ours: &["event", "cluster::Lease", "policy::outcome", "policy::property", "policy::validation"], crates: Not(&["rocksdb", "actix_web"]) },
    Rule { module: "dead_letter", ours: &["event", "policy", "journal", "store", "chaos", "clock"], crates: NEITHER_STORE_NOR_WIRE },
    Rule { module: "pull", ours: &["event", "control::registry", "control::tokens", "journal", "store::keys", "publish", "subscription", "policy::record"], crates: NEITHER_STORE_NOR_CLIENT },
    // Beside the way.
    Rule { module: "chaos", ours: &["event", "policy::outcome"], crates: Only(&["actix", "fastrand"]) },
    Rule { module: "supervision", ours: &["event", "control::registry", "fanout", "subscription", "journal", "chaos", "clock"], crates: NEITHER_STORE_NOR_WIRE },
    Rule { module: "control", ours: &["event", "policy", "journal", "store", "subscription", "fanout", "supervision", "insight", "deliver", "chaos", "clock"], crates: NEITHER_STORE_NOR_WIRE },
    Rule { module: "insight", ours: &["event", "policy", "journal", "store::chunk", "subscription::shared_state", "control::record"], crates: NEITHER_STORE_NOR_WIRE },
    Rule { module: "dashboard", ours: &["event", "cli::manual::chapter"], crates: NEITHER_STORE_NOR_CLIENT },
    Rule { module: "admin", ours: &["api", "cluster", "event", "control", "dashboard", "fanout::meter", "subscription", "supervision", "insight", "dead_letter", "deliver::resource", "declared", "policy::delivery_history", "policy::dead_letter_store", "policy::edition", "policy::explain", "policy::filter", "policy::order", "policy::outcome", "policy::property", "policy::record", "policy::retry", "policy::transform", "simulate", "journal", "store", "repair", "publish", "pull", "chaos", "clock", "escape", "metrics"], crates: NEITHER_STORE_NOR_CLIENT },
    Rule { module: "cli", ours: &["api", "config", "event", "clock", "policy::backup", "policy::dead_letter_store", "store", "repair", "dead_letter", "declared", "escape", "simulate", "control::registry::check_record"], crates: Not(&["actix", "rocksdb"]) },
    Rule { module: "server", ours: ALL, crates: Not(&[]) },
    Rule { module: "main", ours: ALL, crates: Not(&[]) },
];

/// A path that a file names, and the line it begins in.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Import {
    line: usize,
    path: Vec<String>,
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder of sources") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// The text with comments, strings and characters blanked, line by line as long as before.
fn code(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let skip = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            rest.find("*/").map_or(rest.len(), |end| end + 2)
        } else if let Some(hashes) = raw_string(rest) {
            let close = format!("\"{}", "#".repeat(hashes));
            let open = hashes + 2;
            rest[open..].find(&close).map_or(rest.len(), |end| open + end + close.len())
        } else if c == '"' {
            string_end(rest)
        } else if rest.starts_with("'\"'") || rest.starts_with("b'\"'") {
            3
        } else {
            out.push(c);
            rest = &rest[c.len_utf8()..];
            continue;
        };
        out.extend(rest[..skip].chars().map(|c| if c == '\n' { '\n' } else { ' ' }));
        rest = &rest[skip..];
    }
    out
}

/// How many hashes the raw string has that begins here.
fn raw_string(text: &str) -> Option<usize> {
    let after = text.strip_prefix('r')?;
    let hashes = after.len() - after.trim_start_matches('#').len();
    after[hashes..].starts_with('"').then_some(hashes)
}

fn string_end(text: &str) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Every path with `::` in `code`, `use` trees spelled out. `module` is where the file stands, for `super`.
fn imports(code: &str, module: &[&str]) -> Vec<Import> {
    let mut found = Vec::new();
    let (mut at, mut line, mut counted) = (0, 1, 0);
    while let Some(c) = code[at..].chars().next() {
        let before = code[..at].chars().next_back();
        let begins = (c.is_alphabetic() || c == '_') && !before.is_some_and(|c| is_word(c) || c == ':' || c == '.');
        if !begins {
            at += c.len_utf8();
            continue;
        }
        line += code[counted..at].matches('\n').count();
        counted = at;
        let word = code[at..].find(|c| !is_word(c)).unwrap_or(code.len() - at);
        if &code[at..at + word] == "use" {
            let end = code[at..].find(';').map_or(code.len(), |end| at + end);
            for path in spell_out(&code[at + word..end]) {
                found.push(Import { line, path: absolute(path, module) });
            }
            at = end;
        } else {
            let end = code[at..].find(|c| !is_word(c) && c != ':').unwrap_or(code.len() - at);
            let path = &code[at..at + end];
            if path.contains("::") {
                let path = path.split("::").filter(|part| !part.is_empty()).map(str::to_owned).collect();
                found.push(Import { line, path: absolute(path, module) });
            }
            at += end.max(word);
        }
    }
    found
}

/// The paths of a `use` tree: `a::{b, c::d}` is `a::b` and `a::c::d`.
fn spell_out(tree: &str) -> Vec<Vec<String>> {
    let tree = tree.trim();
    let Some(open) = tree.find('{') else {
        let path = tree.split(" as ").next().unwrap_or_default();
        return vec![path.split("::").map(|part| part.trim().to_owned()).filter(|part| !part.is_empty()).collect()];
    };
    let prefix = spell_out(&tree[..open]).remove(0);
    let inner = &tree[open + 1..tree.rfind('}').unwrap_or(tree.len())];
    let (mut depth, mut start, mut parts) = (0, 0, Vec::new());
    for (at, c) in inner.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&inner[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&inner[start..]);
    let parts = parts.into_iter().filter(|part| !part.trim().is_empty());
    parts.flat_map(spell_out).map(|path| [prefix.clone(), path].concat()).collect()
}

/// `super` and `self` at the beginning, as seen from `module`.
fn absolute(path: Vec<String>, module: &[&str]) -> Vec<String> {
    let mut base = module.to_vec();
    let mut rest = path.as_slice();
    let mut relative = false;
    while let Some(first @ ("super" | "self")) = rest.first().map(String::as_str) {
        if first == "super" {
            base.pop();
        }
        relative = true;
        rest = &rest[1..];
    }
    if !relative {
        return path;
    }
    ["crate"].iter().chain(&base).map(|part| (*part).to_owned()).chain(rest.iter().cloned()).collect()
}

/// The crates of the manifest, as paths spell them.
fn dependencies() -> BTreeSet<String> {
    let manifest: toml::Table = include_str!("../Cargo.toml").parse().expect("a manifest");
    let listed = manifest["dependencies"].as_table().expect("dependencies");
    listed.keys().map(|name| name.replace('-', "_")).collect()
}

/// What is wrong with an import of `rule`'s module, if anything is.
fn judge(rule: &Rule, path: &[String], crates: &BTreeSet<String>) -> Option<String> {
    let [first, rest @ ..] = path else { return None };
    // The binary knows the library by its name.
    if first == "crate" || first == "gridhook" {
        let target = rest.first()?;
        let known = ALL.contains(&target.as_str());
        let allowed = rule.ours.iter().any(|ours| ours.split("::").eq(rest.iter().take(ours.split("::").count())));
        return (known && target != rule.module && !allowed).then(|| match rule.ours {
            [] => "nothing of ours".to_owned(),
            ours => ours.join(", "),
        });
    }
    if !crates.contains(first) {
        return None;
    }
    match &rule.crates {
        Only(only) if !only.contains(&first.as_str()) => Some(format!("no crates but std, {}", only.join(", "))),
        Not(not) if not.contains(&first.as_str()) => Some(format!("every crate but {}", not.join(", "))),
        Only(_) | Not(_) => None,
    }
}

/// The complaints about one file of `src/`, by its path in there.
fn complaints(file: &str, text: &str) -> Vec<String> {
    let module: Vec<&str> = file.trim_end_matches(".rs").split('/').filter(|part| *part != "mod").collect();
    if module == ["lib"] {
        return Vec::new();
    }
    let Some(rule) = TABLE.iter().find(|rule| rule.module == module[0]) else {
        return vec![format!("src/{file}: the module {} is not in the table of imports", module[0])];
    };
    let crates = dependencies();
    let wrong = imports(&code(text), &module).into_iter().filter_map(|Import { line, path }| {
        let allowed = judge(rule, &path, &crates)?;
        Some(format!("src/{file}:{line}: {} imports {}; it may import {allowed}", rule.module, path.join("::")))
    });
    wrong.collect()
}

#[test]
fn no_module_imports_what_the_table_does_not_allow() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    sources(&root, &mut files);
    files.sort();
    assert!(files.len() > 10, "{} sources were found", files.len());
    let wrong: Vec<String> = files
        .iter()
        .flat_map(|path| {
            let file = path.strip_prefix(&root).expect("a file below src").to_string_lossy().replace('\\', "/");
            complaints(&file, &fs::read_to_string(path).expect("a source"))
        })
        .collect();
    assert!(wrong.is_empty(), "the design's table of imports is broken:\n{}", wrong.join("\n"));
}

/// The files that use the client of NATS: the others build without the feature `nats`.
const NATS: [&str; 2] = ["cluster/nats.rs", "journal/changelog/nats.rs"];

#[test]
fn only_two_files_use_the_client_of_nats() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    sources(&root, &mut files);
    let name = |path: &Path| path.strip_prefix(&root).expect("a file below src").to_string_lossy().replace('\\', "/");
    let users = files.iter().filter(|path| code(&fs::read_to_string(path).expect("a source")).contains("async_nats"));
    let mut users: Vec<String> = users.map(|path| name(path)).collect();
    users.sort();
    assert_eq!(users, NATS);
}

#[test]
fn every_way_of_naming_a_module_is_seen() {
    let check =
        |file: &str, text: &str, expected: expect_test::Expect| expected.assert_eq(&complaints(file, text).join("\n"));
    check(
        "policy/retry.rs",
        "use std::time::Duration;\nuse crate::{event::Seq, journal::{Store, chunk}};\n",
        expect_test::expect![[r#"
            src/policy/retry.rs:2: policy imports crate::journal::Store; it may import event
            src/policy/retry.rs:2: policy imports crate::journal::chunk; it may import event"#]],
    );
    check(
        "policy/retry.rs",
        "fn now() { tokio::time::sleep(x); super::super::clock::now(); }",
        expect_test::expect![[r#"
            src/policy/retry.rs:1: policy imports tokio::time::sleep; it may import no crates but std, aho_corasick, bytes, jmespath, percent_encoding, serde, serde_json, humantime, humantime_serde, thiserror
            src/policy/retry.rs:1: policy imports crate::clock::now; it may import event"#]],
    );
    check(
        "fanout/index.rs",
        "use crate::policy::{filter::Filter, retry};\n// crate::server\nlet s = \"awc::Client\";",
        expect_test::expect![
            "src/fanout/index.rs:1: fanout imports crate::policy::retry; it may import event, control::registry, subscription, supervision, policy::filter, journal, store::chunk, chaos, metrics"
        ],
    );
    check(
        "admin/mod.rs",
        "use rocksdb as store;\npub use crate::policy::edition::Edition;",
        expect_test::expect!["src/admin/mod.rs:1: admin imports rocksdb; it may import every crate but rocksdb, awc"],
    );
    check(
        "event.rs",
        "fn f() -> ::bytes::Bytes { crate::policy::filter::Filter::default() }",
        expect_test::expect![
            "src/event.rs:1: event imports crate::policy::filter::Filter::default; it may import nothing of ours"
        ],
    );
    check("fresh.rs", "", expect_test::expect!["src/fresh.rs: the module fresh is not in the table of imports"]);
    check(
        "journal/rocks.rs",
        "use super::{codec, super::event::Seq};\nlet c = '\"'; use rocksdb::DB; let d = '\"';",
        expect_test::expect![
            "src/journal/rocks.rs:2: journal imports rocksdb::DB; it may import every crate but rocksdb, awc, actix_web"
        ],
    );
}

/// Files that may print by themselves, and what they print: everything else goes through `cli::print`, which escapes.
const PRINTERS: [(&str, &str); 5] = [
    ("cli/print.rs", "the one place"),
    ("cli/top/screen.rs", "a screen, drawn with escapes of its own"),
    ("telemetry/mod.rs", "the log, which escapes"),
    ("server/startup.rs", "the path of the admin token, and why the store failed"),
    ("server/listener.rs", "the addresses that the server listens on"),
];

#[test]
fn output_of_commands_goes_through_the_function_that_escapes_it() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    sources(&root, &mut files);
    let mut wrong = Vec::new();
    for path in files {
        let file = path.strip_prefix(&root).expect("a file below src").to_string_lossy().replace('\\', "/");
        let text = code(&fs::read_to_string(&path).expect("a source"));
        let prints = ["println!", "print!", "dbg!", "stdout()", "stderr()", "io::stdout", "io::stderr"];
        let found: Vec<_> = prints.iter().filter(|print| text.contains(**print)).collect();
        // A progress bar draws by itself where standard error is a terminal; its texts are escaped where they are set.
        let only_bars = text.matches("stderr()").count() == text.matches("ProgressDrawTarget::stderr()").count()
            && found.iter().all(|print| **print == "stderr()");
        if !found.is_empty() && !only_bars && PRINTERS.iter().all(|(known, _)| *known != file) {
            wrong.push(format!("src/{file}: {found:?}"));
        }
    }
    assert!(wrong.is_empty(), "these print past cli::print:\n{}", wrong.join("\n"));
}
