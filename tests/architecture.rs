//! Rules that cargo does not check for the crates in `src/`: which external crates each may use,
//! that `src/README.md` lists all of them with what they depend on, and what only some files may
//! do.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// The pure crates (no input or output, no clock, no randomness), and the crates of others that
/// they may use.
const PURE: [(&str, &[&str]); 6] = [
    ("escape", &[]),
    ("metrics", &[]),
    (
        "event",
        &[
            "bytes",
            "foldhash",
            "jiff",
            "serde",
            "serde_json",
            "thiserror",
        ],
    ),
    (
        "policy",
        &[
            "aho-corasick",
            "bytes",
            "humantime",
            "humantime-serde",
            "jmespath",
            "percent-encoding",
            "serde",
            "serde_json",
            "thiserror",
        ],
    ),
    (
        "declared",
        &[
            "jiff",
            "percent-encoding",
            "serde_json",
            "thiserror",
            "toml",
        ],
    ),
    (
        "template",
        &[
            "base64",
            "jiff",
            "percent-encoding",
            "ring",
            "serde_json",
            "thiserror",
        ],
    ),
];

/// Crates of others that only these crates may use.
const RESERVED: [(&str, &[&str]); 5] = [
    ("rocksdb", &["store"]),
    ("awc", &["cli", "deliver", "server"]),
    (
        "actix-web",
        &["admin", "cli", "dashboard", "publish", "pull", "server"],
    ),
    ("lapin", &["deliver"]),
    ("object_store", &["dead_letter", "deliver"]),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

/// The names of a member's dependencies, by the member's folder.
fn manifests() -> BTreeMap<String, BTreeSet<String>> {
    let folders = fs::read_dir(root())
        .expect("a folder of crates")
        .map(|entry| entry.expect("an entry").path());
    let members = folders.filter_map(|folder| {
        let manifest = fs::read_to_string(folder.join("Cargo.toml")).ok()?;
        let manifest: toml::Table = manifest.parse().expect("a manifest");
        let dependencies = manifest.get("dependencies").and_then(toml::Value::as_table);
        let names = dependencies
            .into_iter()
            .flat_map(toml::Table::keys)
            .cloned()
            .collect();
        Some((
            folder
                .file_name()
                .expect("a name")
                .to_string_lossy()
                .into_owned(),
            names,
        ))
    });
    members.collect()
}

/// Our own crates among `dependencies`, by their folders.
fn members(dependencies: &BTreeSet<String>) -> Vec<String> {
    dependencies
        .iter()
        .filter_map(|name| name.strip_prefix("gridhook-"))
        .map(|name| name.replace('-', "_"))
        .collect()
}

#[test]
fn pure_crates_use_only_what_is_pure() {
    let manifests = manifests();
    for (member, allowed) in PURE {
        let others = manifests[member]
            .iter()
            .filter(|name| !name.starts_with("gridhook-"));
        let wrong: Vec<_> = others
            .filter(|name| !allowed.contains(&name.as_str()))
            .collect();
        assert!(
            wrong.is_empty(),
            "src/{member}/Cargo.toml has {wrong:?}; it may have {allowed:?}"
        );
    }
}

#[test]
fn reserved_crates_are_used_where_they_belong() {
    for (member, dependencies) in manifests() {
        for (name, allowed) in RESERVED {
            let is_allowed = allowed.contains(&member.as_str());
            assert!(
                is_allowed || !dependencies.contains(name),
                "src/{member} uses {name}, which is for {allowed:?}"
            );
        }
    }
}

/// The words in backticks.
fn quoted(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

#[test]
fn the_table_of_crates_is_true() {
    let readme = include_str!("../src/README.md");
    let rows = readme
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once("` | "));
    let rows: BTreeMap<&str, &str> = rows.collect();
    let mut wrong = Vec::new();
    for (member, dependencies) in manifests() {
        let ours = members(&dependencies);
        let row = rows
            .get(member.as_str())
            .and_then(|row| row.rsplit(" | ").next())
            .map(quoted);
        if row.as_ref().is_none_or(|row| *row != ours) {
            wrong.push(format!(
                "src/{member}/Cargo.toml has {ours:?}, src/README.md says {row:?}"
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
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
            rest[open..]
                .find(&close)
                .map_or(rest.len(), |end| open + end + close.len())
        } else if c == '"' {
            string_end(rest)
        } else if rest.starts_with("'\"'") || rest.starts_with("b'\"'") {
            3
        } else {
            out.push(c);
            rest = &rest[c.len_utf8()..];
            continue;
        };
        out.extend(
            rest[..skip]
                .chars()
                .map(|c| if c == '\n' { '\n' } else { ' ' }),
        );
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

/// The users of the NATS client, a file and a folder: the others build without the feature `nats`.
const NATS: [&str; 2] = ["cluster/nats.rs", "journal/changelog/nats/"];

/// The crates with their features, as these kinds of dependencies bring them.
fn features_with(edges: &str) -> BTreeSet<String> {
    let output = Command::new(env!("CARGO"))
        .current_dir(root())
        .args(["tree", "--locked", "--offline", "--prefix", "none"])
        .args(["--edges", edges, "--format", "{p} {f}"])
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{output:?}");
    let lines = String::from_utf8_lossy(&output.stdout);
    let lines = lines.lines().map(|line| line.trim_end_matches(" (*)"));
    lines.map(str::to_owned).collect()
}

#[test]
fn tests_compile_no_crate_of_the_server_again() {
    let of_tests = features_with("normal,dev");
    let others: Vec<String> = features_with("normal")
        .into_iter()
        .filter(|line| !of_tests.contains(line))
        .collect();
    assert!(
        others.is_empty(),
        "tests and benches bring features that these lack, so that they are compiled twice; name \
         the features in Cargo.toml (compare `cargo tree --edges features,normal,dev -i CRATE`): \
         {others:#?}"
    );
}

#[test]
fn only_two_modules_use_the_client_of_nats() {
    let mut files = Vec::new();
    sources(&root(), &mut files);
    let name = |path: &Path| {
        path.strip_prefix(root())
            .expect("a file below src")
            .to_string_lossy()
            .replace('\\', "/")
    };
    let users = files
        .iter()
        .filter(|path| code(&fs::read_to_string(path).expect("a source")).contains("async_nats"));
    let users: Vec<String> = users.map(|path| name(path)).collect();
    let is_of_module = |module: &&str, user: &String| user.starts_with(*module);
    for user in &users {
        let is_allowed = NATS.iter().any(|module| is_of_module(module, user));
        assert!(is_allowed, "{user} uses async_nats; expected only {NATS:?}");
    }
    for module in NATS {
        let is_used = users.iter().any(|user| is_of_module(&module, user));
        assert!(
            is_used,
            "{module} does not use async_nats: remove it from the list"
        );
    }
}

/// Files that may print by themselves, and what they print: everything else goes through
/// `cli::print`, which escapes.
const PRINTERS: [(&str, &str); 6] = [
    ("build.rs", "instructions for cargo"),
    ("cli/print.rs", "the one place"),
    ("cli/terminal.rs", "a screen, drawn with escapes of its own"),
    ("telemetry/lib.rs", "the log, which escapes"),
    (
        "server/startup.rs",
        "the path of the admin token, and why the store failed",
    ),
    (
        "server/listener.rs",
        "the addresses that the server listens on",
    ),
];

#[test]
fn output_of_commands_goes_through_the_function_that_escapes_it() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    sources(&root, &mut files);
    let mut wrong = Vec::new();
    for path in files {
        let file = path
            .strip_prefix(&root)
            .expect("a file below src")
            .to_string_lossy()
            .replace('\\', "/");
        let text = code(&fs::read_to_string(&path).expect("a source"));
        let prints = [
            "println!",
            "print!",
            "dbg!",
            "stdout()",
            "stderr()",
            "io::stdout",
            "io::stderr",
        ];
        let found: Vec<_> = prints
            .iter()
            .filter(|print| text.contains(**print))
            .collect();
        // A progress bar draws by itself where standard error is a terminal; its texts are escaped
        // where they are set.
        let only_bars = text.matches("stderr()").count()
            == text.matches("ProgressDrawTarget::stderr()").count()
            && found.iter().all(|print| **print == "stderr()");
        if !found.is_empty() && !only_bars && PRINTERS.iter().all(|(known, _)| *known != file) {
            wrong.push(format!("src/{file}: {found:?}"));
        }
    }
    assert!(
        wrong.is_empty(),
        "these print past cli::print:\n{}",
        wrong.join("\n")
    );
}
