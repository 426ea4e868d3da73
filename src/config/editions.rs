//! The editions that topics may name: those of the program, and those of the operator's folder.

use std::{collections::BTreeMap, fs, path::Path, sync::Arc};

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
pub struct Editions(BTreeMap<String, Arc<Edition>>);

impl Editions {
    /// Reads the editions of the program, and those of `folder` over them. `after_failures` goes over what they say.
    pub fn load(folder: Option<&Path>, after_failures: Option<u32>) -> Result<Self, Error> {
        let mut editions = BTreeMap::new();
        let mut take = |name: &str, origin: &str, text: &str| -> Result<(), Error> {
            let mut edition = read(text).map_err(|what| Error::Edition { origin: origin.to_owned(), what })?;
            edition.probation.after_failures = after_failures.unwrap_or(edition.probation.after_failures);
            editions.insert(name.to_owned(), Arc::new(edition));
            Ok(())
        };
        for (name, text) in BUILT_IN {
            take(name, &format!("edition {name}"), text)?;
        }
        let Some(folder) = folder else { return Ok(Self(editions)) };
        let unreadable = |path: &Path| {
            let path = path.to_owned();
            move |error| Error::Unreadable { path, error }
        };
        for entry in fs::read_dir(folder).map_err(unreadable(folder))? {
            let path = entry.map_err(unreadable(folder))?.path();
            if path.extension().is_none_or(|extension| extension != "toml") {
                continue;
            }
            let name = path.file_stem().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            let text = fs::read_to_string(&path).map_err(unreadable(&path))?;
            take(&name, &path.display().to_string(), &text)?;
        }
        Ok(Self(editions))
    }

    /// The edition of that name.
    pub fn get(&self, name: &str) -> Option<Arc<Edition>> {
        self.0.get(name).cloned()
    }

    /// All names, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }
}

fn read(text: &str) -> Result<Edition, String> {
    let edition: Edition = toml::from_str(text).map_err(|error| error.to_string().trim_end().to_owned())?;
    edition.check()?;
    Ok(edition)
}
