//! Sections with a table for each name (`[dead_letter.stores.NAME]`), and the table
//! `[backup.store]`, whose keys are not among the defaults. A credential is a value, or the name of
//! a file with it (`…_file`), and is never shown.

use std::{collections::BTreeMap, fs, path::Path};

use super::{Secret, backup, dead_letter, layers::Layers, object_store, resources};

struct Section {
    /// The beginning of the section's keys, with a dot at the end. If the tables of the section
    /// have no names, the section is the table.
    prefix: &'static str,
    is_named: bool,
    plain: &'static [&'static [&'static str]],
    credentials: fn() -> Vec<&'static str>,
}

const SECTIONS: [Section; 3] = [
    Section {
        prefix: dead_letter::STORES,
        is_named: true,
        plain: &[&dead_letter::PLAIN, &object_store::PLAIN],
        credentials: object_store::all_credentials,
    },
    Section {
        prefix: backup::STORE,
        is_named: false,
        plain: &[&object_store::PLAIN],
        credentials: object_store::all_credentials,
    },
    Section {
        prefix: resources::RESOURCES,
        is_named: true,
        plain: &[&resources::PLAIN],
        credentials: || resources::CREDENTIALS.to_vec(),
    },
];

impl Section {
    /// The section of `key`, the name of the table, and the key in it.
    fn find_section(key: &str) -> Option<(&'static Self, &str, &str)> {
        SECTIONS.iter().find_map(|section| {
            let rest = key.strip_prefix(section.prefix)?;
            let (name, key) = if section.is_named {
                rest.split_once('.').unwrap_or((rest, ""))
            } else {
                ("", rest)
            };
            Some((section, name, key))
        })
    }

    fn plain_keys(&self) -> impl Iterator<Item = &'static str> {
        self.plain.iter().flat_map(|keys| keys.iter().copied())
    }

    fn section_keys(&self) -> Vec<String> {
        let credentials = (self.credentials)().into_iter();
        let mut keys: Vec<String> = self.plain_keys().map(str::to_owned).collect();
        keys.extend(credentials.flat_map(|key| [key.to_owned(), format!("{key}_file")]));
        keys.sort();
        keys.dedup();
        keys
    }
}

/// Whether `key` is a key of such a table.
pub(super) fn is_key(key: &str) -> bool {
    Section::find_section(key)
        .is_some_and(|(section, _, key)| section.section_keys().iter().any(|known| known == key))
}

/// Whether `key` is such a table, or has such tables.
pub(super) fn is_table(key: &str) -> bool {
    let inside = format!("{key}.");
    let depth = key.matches('.').count();
    SECTIONS.iter().any(|section| {
        let below = section.prefix.matches('.').count();
        section.prefix.starts_with(&inside)
            || section.is_named && depth == below && key.starts_with(section.prefix)
    })
}

/// Whether the value of `key` is secret.
pub(super) fn is_secret(key: &str) -> bool {
    Section::find_section(key).is_some_and(|(section, _, key)| {
        !section.plain_keys().any(|plain| plain == key) && !key.ends_with("_file")
    })
}

pub(super) fn keys_of_table(key: &str) -> Option<String> {
    let (section, name, _) = Section::find_section(key)?;
    let prefix = if section.is_named {
        format!("{}{name}.", section.prefix)
    } else {
        section.prefix.to_owned()
    };
    Some(
        section
            .section_keys()
            .iter()
            .map(|key| format!("{prefix}{key}"))
            .collect::<Vec<_>>()
            .join(", "),
    )
}

/// Reads the credentials of the table `at`, of which `known` are allowed. Others are passed to
/// `refuse`.
pub(super) fn read_credentials(
    at: &str,
    given: BTreeMap<String, String>,
    known: &[&'static str],
    layers: &mut Layers,
    refuse: impl Fn(&mut Layers, &str),
) -> Vec<(&'static str, Secret)> {
    let mut read = Vec::new();
    for (name, value) in given {
        let key = format!("{at}.{name}");
        let plain = name.strip_suffix("_file").unwrap_or(&name);
        let Some(known) = known.iter().find(|known| **known == plain) else {
            refuse(layers, &key);
            continue;
        };
        if read.iter().any(|(there, _)| there == known) {
            let expectation = format!("nothing, because {at}.{plain} is set, too");
            layers.refuse_value(&[&key], expectation);
            continue;
        }
        let secret = if plain == name {
            Ok(value)
        } else {
            read_file(Path::new(&value))
        };
        match secret {
            Ok(secret) => read.push((*known, Secret::new(&secret))),
            Err(problem) => layers.refuse_value(&[&key], problem),
        }
    }
    read
}

/// Reads a credential from a file.
fn read_file(path: &Path) -> Result<String, String> {
    let text = fs::read_to_string(path).map_err(|error| format!("a readable file: {error}"))?;
    Ok(text.trim_end().to_owned())
}
