//! The checklist of CONTRIBUTING.md for a new kind of destination, for every kind.

use std::{collections::BTreeSet, fs, path::Path};

use gridhook::deliver::resource::Resource;

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// All sources of a folder.
fn sources(folder: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let entries = fs::read_dir(folder)
        .expect("a folder")
        .map(|entry| entry.expect("an entry").path());
    entries
        .filter(|path| path.is_file())
        .map(|path| fs::read_to_string(path).expect("text"))
        .collect()
}

#[test]
fn every_kind_of_destination_has_what_the_checklist_asks_for() {
    let kinds: Vec<&str> = Resource::ENDPOINT_TYPES
        .iter()
        .copied()
        .filter(|kind| *kind != "WebHook")
        .collect();
    assert!(kinds.is_sorted(), "{kinds:?}");
    let table = read("src/deliver/resource/mod.rs");
    let manual = read("src/manual/destinations.md");
    let config = read("config/gridhook.toml");
    let tests = sources("tests/destinations");
    let table: BTreeSet<&str> = table
        .lines()
        .take_while(|line| line.starts_with("//!"))
        .flat_map(|line| line.split('`'))
        .collect();
    for kind in kinds {
        assert!(
            table.contains(kind),
            "{kind} has no row in the table of src/deliver/resource/mod.rs"
        );
        assert!(
            manual.contains(&format!("| `{kind}` |")),
            "{kind} has no row in the chapter `destinations`"
        );
        assert!(
            tests.contains(&format!("\"{kind}\"")),
            "{kind} has no test in tests/destinations"
        );
        assert!(
            kind == "NamespaceTopic" || config.contains(kind),
            "{kind} has no example in config/gridhook.toml"
        );
    }
}
