//! The words of the project: retired words do not come back, no name has many meanings, functions
//! have a verb and an object, locals are nouns, statements have one idea and lines a width.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

/// Words that this project once used in meanings of its own, each with the word of the field that
/// replaced it.
///
/// Looked for as parts of names (`ObligorKey`, `obligor_key`) and as words of comments, messages
/// and documents.
#[rustfmt::skip]
const RETIRED: &[(&str, &str)] = &[
    ("aloft", "in flight"),
    ("dossier", "delivery history"),
    ("flights", "requests in flight"),
    ("greeter", "endpoint validator"),
    ("herald", "notifier"),
    ("mischief", "fault"),
    ("obligor", "subscription key"),
    ("obligors", "subscription keys"),
    ("ordeal", "fault"),
    ("owed", "pending"),
    ("owes", "has pending events"),
    ("sexton", "dead-letter routing"),
    ("shelf", "store"),
    ("sift", "filter out"),
    ("sifted", "filtered out"),
    ("strayed", "rescheduled"),
    ("strike", "suspension"),
    ("strikes", "suspensions"),
    ("temper", "endpoint model"),
    ("tempers", "endpoint models"),
    ("told", "reported, shown"),
    ("undertaker", "dead-letter handle"),
    ("whoever", "a noun"),
    ("wish", "spec, request"),
    ("wishes", "specs, requests"),
    ("wreak", "inject"),
];

/// Names that are stored, in the files that have them.
const STORED: [(&str, &str); 5] = [
    ("src/clock/beginning.rs", "told"),
    ("src/store/lib.rs", "owed"),
    ("tests/admin/health.rs", "owed"),
    ("tests/journal/formats.rs", "owed"),
    ("tests/journal/formats.txt", "owed"),
];

/// Files that may not come back: what they held has a name.
const RETIRED_FILES: [&str; 3] = ["words.rs", "told.rs", "wish.rs"];

/// How many types may share a name.
const OWNERS_MAX: usize = 3;

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        let extension = path
            .extension()
            .and_then(|extension| extension.to_str())
            .unwrap_or_default();
        if path.is_dir() {
            files(&path, found);
        } else if ["rs", "md", "toml", "json", "yaml", "yml", "txt"].contains(&extension) {
            found.push(path);
        }
    }
}

/// The files of this repository that people write, by their paths in it.
fn written() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = Vec::new();
    for folder in ["src", "tests", "benches", "config"] {
        files(&root.join(folder), &mut found);
    }
    found.push(root.join("README.md"));
    found.push(root.join("CONTRIBUTING.md"));
    let named = found.into_iter().map(|path| {
        let name = path
            .strip_prefix(root)
            .expect("a file of the repository")
            .to_string_lossy()
            .into_owned();
        (name, path)
    });
    // This list, and the documents of others.
    let exempt = ["tests/language.rs", "tests/data/", "tests/spec/rows/"];
    let ours = named.filter(|(name, _)| exempt.iter().all(|path| !name.starts_with(path)));
    ours.filter_map(|(name, path)| Some((name, fs::read_to_string(path).ok()?)))
        .collect()
}

/// The words of a line: `ObligorKey`, `obligor_key` and `obligor key` have the same ones.
fn words(line: &str) -> impl Iterator<Item = String> + '_ {
    line.split(|c: char| !c.is_ascii_alphabetic())
        .flat_map(|name| {
            let mut words: Vec<String> = Vec::new();
            let mut before = 'A';
            for c in name.chars() {
                if words.is_empty() || c.is_ascii_uppercase() && before.is_ascii_lowercase() {
                    words.push(String::new());
                }
                words
                    .last_mut()
                    .expect("a word")
                    .push(c.to_ascii_lowercase());
                before = c;
            }
            words
        })
}

fn retired_in(text: &str) -> Vec<(usize, &'static str, &'static str)> {
    let mut found = Vec::new();
    for (number, line) in text.lines().enumerate() {
        for word in words(line) {
            found.extend(
                RETIRED
                    .iter()
                    .filter(|(old, _)| *old == word)
                    .map(|(old, new)| (number + 1, *old, *new)),
            );
        }
    }
    found
}

#[test]
fn retired_words_do_not_come_back() {
    let written = written();
    assert!(written.len() > 300, "{} files were found", written.len());
    let found = written.iter().flat_map(|(name, text)| {
        let found = retired_in(text)
            .into_iter()
            .filter(move |(_, old, _)| !STORED.contains(&(name.as_str(), *old)));
        found.map(move |(line, old, new)| format!("{name}:{line}: {old}: say {new}"))
    });
    let found: Vec<String> = found.collect();
    assert!(
        found.is_empty(),
        "{} retired words:\n{}",
        found.len(),
        found.join("\n")
    );
}

#[test]
fn a_retired_word_is_found_in_names_and_in_sentences() {
    let found = |text: &str| {
        retired_in(text)
            .into_iter()
            .map(|(_, old, _)| old)
            .collect::<Vec<_>>()
    };
    assert_eq!(
        found("struct ObligorKey { of_obligor: u8 }"),
        ["obligor", "obligor"]
    );
    assert_eq!(found("// Whoever reads this."), ["whoever"]);
    assert_eq!(found("temperature, heralded, subscription_key"), [""; 0]);
}

#[test]
fn no_file_is_named_for_nothing() {
    let found = written().into_iter().map(|(name, _)| name);
    let found: Vec<String> = found
        .filter(|name| {
            RETIRED_FILES
                .iter()
                .any(|file| name.ends_with(&format!("/{file}")))
        })
        .collect();
    assert!(found.is_empty(), "{found:?}");
}

#[test]
fn no_name_belongs_to_many_types() {
    let mut owners: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, text) in written()
        .into_iter()
        .filter(|(name, _)| name.starts_with("src/") && name.ends_with(".rs"))
    {
        for line in text.lines() {
            let line = line.trim_start();
            let line = line.strip_prefix("pub").map_or(line, |rest| {
                rest.strip_prefix('(')
                    .and_then(|rest| rest.split_once(')'))
                    .map_or(rest, |(_, rest)| rest)
                    .trim_start()
            });
            let item = ["struct ", "enum ", "trait ", "union "]
                .iter()
                .find_map(|kind| line.strip_prefix(kind));
            let Some(item) = item else { continue };
            let item: String = item
                .chars()
                .take_while(|c| c.is_alphanumeric() || *c == '_')
                .collect();
            owners.entry(item).or_default().push(name.clone());
        }
    }
    assert!(owners.len() > 500, "{} types were found", owners.len());
    let in_api = |files: &[String]| {
        files
            .iter()
            .filter(|file| file.starts_with("src/api/"))
            .count()
    };
    let shared: Vec<&String> = owners
        .iter()
        .filter(|(_, files)| in_api(files) > 1)
        .map(|(name, _)| name)
        .collect();
    assert!(
        shared.is_empty(),
        "types of the API with the same name: {shared:?}"
    );
    owners.retain(|_, files| files.len() > OWNERS_MAX);
    assert!(owners.is_empty(), "one name, many things: {owners:#?}");
}

/// Functions of one word that need no object: those of std and of traits of others.
const PLAIN: &str = "new default fmt from into try_from drop next len get push pop insert remove \
    iter clone eq cmp hash deref index add sub poll clear contains extend main build name start \
    stop handle started stopped serialize deserialize borrow read write flush close open run";

/// The share of functions of one word that a source may have, in per cent.
const ONE_WORD_PERCENT_MAX: usize = 15;

/// How many statements may bind several values at once (`let (a, b) = (c, d)`).
const TUPLE_LETS_MAX: usize = 10;

/// The lines of the sources without comments.
fn code() -> Vec<(String, String)> {
    let sources = written()
        .into_iter()
        .filter(|(name, _)| name.starts_with("src/") && name.ends_with(".rs"));
    let code = sources.map(|(name, text)| {
        let lines = text.lines().map(|line| match line.find("//") {
            Some(start) if !line[..start].contains('"') => &line[..start],
            Some(_) | None => line,
        });
        (name, lines.collect::<Vec<_>>().join("\n"))
    });
    code.collect()
}

fn function_names(code: &str) -> impl Iterator<Item = &str> {
    code.split("fn ").skip(1).map(|rest| {
        let end = rest.find(|letter: char| !letter.is_alphanumeric() && letter != '_');
        &rest[..end.unwrap_or(rest.len())]
    })
}

#[test]
fn functions_have_a_verb_and_an_object() {
    let plain: Vec<&str> = PLAIN.split_whitespace().collect();
    let mut total = 0;
    let mut one_word = Vec::new();
    for (name, text) in code() {
        for function in function_names(&text).filter(|function| !function.is_empty()) {
            assert!(
                function != "of" && !function.starts_with("of_"),
                "{name}: {function}; expected, for example, from_record, with_limits or parse"
            );
            total += 1;
            if !function.contains('_') && !plain.contains(&function) {
                one_word.push(format!("{name}: {function}"));
            }
        }
    }
    assert!(total > 5_000, "{total} functions were found");
    assert!(
        one_word.len() * 100 <= total * ONE_WORD_PERCENT_MAX,
        "{} of {total}:\n{}",
        one_word.len(),
        one_word.join("\n")
    );
}

/// The patterns of statements such as `let (a, b) = (c, d)`.
fn tuple_lets(code: &str) -> impl Iterator<Item = &str> {
    code.split("let (").skip(1).filter_map(|rest| {
        let (pattern, value) = rest.split_once(')')?;
        let value = value.trim_start().strip_prefix('=')?;
        let binds_several = pattern.contains(',') && !pattern.contains('(');
        (binds_several && value.trim_start().starts_with('(')).then_some(pattern)
    })
}

#[test]
fn statements_have_one_idea() {
    let mut all = Vec::new();
    for (name, text) in code() {
        all.extend(tuple_lets(&text).map(|pattern| format!("{name}: let ({pattern}) = (…)")));
    }
    assert!(all.len() <= TUPLE_LETS_MAX, "{}", all.join("\n"));
}

/// The share of locals that may be named by a participle, in per cent.
const PARTICIPLES_PERCENT_MAX: usize = 5;

const PARTICIPLE_ENDS: &str = "ed ept aken ound ent one iven nown old eld een";

/// Nouns and adjectives that end like participles, also at the end of longer names.
const NO_PARTICIPLES: &str = "seed feed need speed event current content client parent segment \
    document tenant extent zone clone bound background round threshold field thread agent moment \
    elapsed settlement acknowledgement placement replacement element exponent";

/// The names that `let` binds, without patterns.
fn local_names(code: &str) -> impl Iterator<Item = &str> {
    let names = code.split("let ").skip(1).map(|rest| {
        let rest = rest.trim_start().trim_start_matches("mut ");
        let end = rest.find(|letter: char| !letter.is_alphanumeric() && letter != '_');
        &rest[..end.unwrap_or(rest.len())]
    });
    names.filter(|name| name.starts_with(|letter: char| letter.is_lowercase()))
}

/// Whether a name is a participle, as `found` and `last_seen`; flags such as `is_held` are none.
fn is_participle(name: &str) -> bool {
    let is_flag = ["is_", "has_", "was_"]
        .iter()
        .any(|verb| name.starts_with(verb));
    let ends_with = |words: &str| words.split_whitespace().any(|end| name.ends_with(end));
    !is_flag && ends_with(PARTICIPLE_ENDS) && !ends_with(NO_PARTICIPLES)
}

#[test]
fn locals_are_nouns() {
    let mut total = 0;
    let mut participles = Vec::new();
    for (file, text) in code() {
        let names: Vec<&str> = local_names(&text).collect();
        total += names.len();
        let found = names.into_iter().filter(|name| is_participle(name));
        participles.extend(found.map(|name| format!("{file}: {name}")));
    }
    assert!(total > 9_000, "{total} locals were found");
    assert!(
        participles.len() * 100 <= total * PARTICIPLES_PERCENT_MAX,
        "{} of {total}:\n{}",
        participles.len(),
        participles.join("\n")
    );
}

#[test]
fn a_participle_is_found_and_a_noun_is_not() {
    let code =
        "let found = 1; let mut last_seen = 2; let event = 3; let is_held = 4; let Err(_) = 5";
    let names: Vec<&str> = local_names(code)
        .filter(|name| is_participle(name))
        .collect();
    assert_eq!(names, ["found", "last_seen"]);
}

/// The columns of a line; rustfmt leaves wider ones where it cannot break a text.
const WIDTH: usize = 120;

#[test]
fn lines_fit_into_the_width() {
    let mut wide_lines = Vec::new();
    let sources = written()
        .into_iter()
        .filter(|(name, _)| name.starts_with("src/") && name.ends_with(".rs"));
    for (name, text) in sources {
        let numbers = (1..)
            .zip(text.lines())
            .filter(|(_, line)| line.chars().count() > WIDTH);
        wide_lines.extend(numbers.map(|(number, _)| format!("{name}:{number}")));
    }
    assert!(wide_lines.is_empty(), "{}", wide_lines.join("\n"));
}
