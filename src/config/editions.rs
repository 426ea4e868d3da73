//! The editions that topics can name: the built-in ones, and those of the operator's folder.
//!
//! An edition is complete, or names a built-in edition as its `base` and has only what differs.
//! Keys of a section replace those of the base. A table of waits or durations replaces that of the
//! base as a whole, because an absent status has a meaning.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use toml::{Table, Value};

use crate::{Error, error::EditionError};
use gridhook_policy::edition::Edition;

/// The built-in editions, by name.
const BUILT_IN: [(&str, &str); 5] = [
    ("2020", include_str!("../../config/editions/2020.toml")),
    ("2021", include_str!("../../config/editions/2021.toml")),
    ("2023", include_str!("../../config/editions/2023.toml")),
    (
        "current",
        include_str!("../../config/editions/current.toml"),
    ),
    (
        "namespace",
        include_str!("../../config/editions/namespace.toml"),
    ),
];

/// All editions, by name and validated.
#[derive(Clone, Debug)]
pub struct Editions {
    all: BTreeMap<String, Arc<Edition>>,
    after_failures: Option<u32>,
}

impl Editions {
    /// Reads the built-in editions, and those of `folder`, which take precedence. `after_failures`
    /// overrides their setting.
    pub fn load(folder: Option<&Path>, after_failures: Option<u32>) -> Result<Self, Error> {
        let (editions, errors) = Self::read_all(folder, after_failures);
        if errors.is_empty() {
            Ok(editions)
        } else {
            Err(Error::from_list(errors))
        }
    }

    /// Loads editions like [`Editions::load`], but returns the valid ones and an error for each
    /// invalid one.
    pub(super) fn read_all(
        folder: Option<&Path>,
        after_failures: Option<u32>,
    ) -> (Self, Vec<Error>) {
        let mut editions = Self {
            all: BTreeMap::new(),
            after_failures,
        };
        let mut errors = Vec::new();
        for (name, text) in BUILT_IN {
            match editions.parse_edition(&format!("edition {name}"), text) {
                Ok(edition) => drop(editions.all.insert(name.to_owned(), edition)),
                Err(error) => errors.push(error),
            }
        }
        match folder.map(list_files) {
            Some(Ok(files)) => {
                for path in files {
                    let name = path.file_stem().unwrap_or_default().to_string_lossy();
                    match editions.read(&path) {
                        Ok(edition) => drop(editions.all.insert(name.into_owned(), edition)),
                        Err(error) => errors.push(error),
                    }
                }
            }
            Some(Err(error)) => errors.push(error),
            None => {}
        }
        (editions, errors)
    }

    /// Reads the edition of a file without a name, to show its effect.
    pub fn read(&self, path: &Path) -> Result<Arc<Edition>, Error> {
        let text = fs::read_to_string(path).map_err(unreadable_file(path))?;
        self.parse_edition(&path.display().to_string(), &text)
    }

    fn parse_edition(&self, origin: &str, text: &str) -> Result<Arc<Edition>, Error> {
        let mut edition = read(text).map_err(|error| Error::Edition {
            origin: origin.to_owned(),
            error: Box::new(error),
        })?;
        edition.probation.after_failures = self
            .after_failures
            .unwrap_or(edition.probation.after_failures);
        Ok(Arc::new(edition))
    }

    pub fn get(&self, name: &str) -> Option<Arc<Edition>> {
        self.all.get(name).cloned()
    }

    /// The names in alphabetical order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.all.keys().map(String::as_str)
    }
}

/// The `.toml` files of a folder in alphabetical order.
fn list_files(folder: &Path) -> Result<Vec<PathBuf>, Error> {
    let entries = fs::read_dir(folder).map_err(unreadable_file(folder))?;
    let paths: Result<Vec<_>, _> = entries
        .map(|entry| Ok(entry.map_err(unreadable_file(folder))?.path()))
        .collect();
    let mut paths = paths?;
    paths.retain(|path| {
        path.extension()
            .is_some_and(|extension| extension == "toml")
    });
    paths.sort();
    Ok(paths)
}

fn unreadable_file(path: &Path) -> impl FnOnce(io::Error) -> Error {
    let path = path.to_owned();
    move |error| Error::Unreadable { path, error }
}

fn read(text: &str) -> Result<Edition, EditionError> {
    let edition: Edition = match split_base(text)? {
        // Read from the text itself, so that an error has its line.
        None => toml::from_str(text)?,
        // Through text: keys that are numbers can be read from TOML, not from a table.
        Some(table) => {
            let text = toml::to_string(&table)?;
            serde_path_to_error::deserialize(toml::Deserializer::parse(&text)?)?
        }
    };
    edition.validate()?;
    Ok(edition)
}

/// The base with what differs from it; [`None`] where the text names no base.
fn split_base(text: &str) -> Result<Option<Table>, EditionError> {
    let mut changes: Table = text.parse()?;
    let Some(base) = changes.remove("base") else {
        return Ok(None);
    };
    let Some((_, text)) = BUILT_IN
        .into_iter()
        .find(|(name, _)| base.as_str() == Some(name))
    else {
        let allowed = BUILT_IN.map(|(name, _)| format!("\"{name}\"")).into();
        return Err(EditionError::Base { base, allowed });
    };
    let mut table = match split_base(text)? {
        Some(table) => table,
        None => text
            .parse()
            .expect("a test reads the editions of the program"),
    };
    for (section, value) in changes {
        match (table.get_mut(&section), value) {
            (Some(Value::Table(keys)), Value::Table(changed)) => keys.extend(changed),
            (_, value) => drop(table.insert(section, value)),
        }
    }
    Ok(Some(table))
}
