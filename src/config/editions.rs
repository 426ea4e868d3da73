//! The editions that topics may name: those of the program, and those of the operator's folder.

use std::{collections::BTreeMap, fs, io, path::Path, sync::Arc};

use crate::{config::Error, policy::edition::Edition};

/// The editions of the program, by name.
const BUILT_IN: [(&str, &str); 5] = [
    ("2020", include_str!("../../config/editions/2020.toml")),
    ("2021", include_str!("../../config/editions/2021.toml")),
    ("2023", include_str!("../../config/editions/2023.toml")),
    ("current", include_str!("../../config/editions/current.toml")),
    ("namespace", include_str!("../../config/editions/namespace.toml")),
];

/// All editions, by name. Every one of them is checked.
#[derive(Clone, Debug)]
pub struct Editions {
    all: BTreeMap<String, Arc<Edition>>,
    after_failures: Option<u32>,
}

impl Editions {
    /// Reads the editions of the program, and those of `folder` over them. `after_failures` goes over what they say.
    pub fn load(folder: Option<&Path>, after_failures: Option<u32>) -> Result<Self, Error> {
        let mut editions = Self { all: BTreeMap::new(), after_failures };
        for (name, text) in BUILT_IN {
            let edition = editions.take(&format!("edition {name}"), text)?;
            editions.all.insert(name.to_owned(), edition);
        }
        let Some(folder) = folder else { return Ok(editions) };
        for entry in fs::read_dir(folder).map_err(unreadable(folder))? {
            let path = entry.map_err(unreadable(folder))?.path();
            if path.extension().is_none_or(|extension| extension != "toml") {
                continue;
            }
            let name = path.file_stem().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            let edition = editions.read(&path)?;
            editions.all.insert(name, edition);
        }
        Ok(editions)
    }

    /// The edition of that file, which has no name: somebody wants to know what it would do.
    pub fn read(&self, path: &Path) -> Result<Arc<Edition>, Error> {
        let text = fs::read_to_string(path).map_err(unreadable(path))?;
        self.take(&path.display().to_string(), &text)
    }

    fn take(&self, origin: &str, text: &str) -> Result<Arc<Edition>, Error> {
        let mut edition = read(text).map_err(|what| Error::Edition { origin: origin.to_owned(), what })?;
        edition.probation.after_failures = self.after_failures.unwrap_or(edition.probation.after_failures);
        Ok(Arc::new(edition))
    }

    /// The edition of that name.
    pub fn get(&self, name: &str) -> Option<Arc<Edition>> {
        self.all.get(name).cloned()
    }

    /// All names, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.all.keys().map(String::as_str)
    }
}

fn unreadable(path: &Path) -> impl FnOnce(io::Error) -> Error {
    let path = path.to_owned();
    move |error| Error::Unreadable { path, error }
}

fn read(text: &str) -> Result<Edition, String> {
    let edition: Edition = toml::from_str(text).map_err(|error| error.to_string().trim_end().to_owned())?;
    edition.check()?;
    Ok(edition)
}
