//! Merges settings: flags override the environment, which overrides the file, which overrides the
//! defaults.
//!
//! A layer is a flat list of keys (`server.listen`) with values; the embedded defaults define the
//! keys. Values are merged one by one and typed only afterwards, so that every error can name the
//! origin of its value. Layering libraries know the file of a value, but not its variable or flag,
//! or not what is allowed.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsString,
    fmt,
    path::PathBuf,
};

use toml::{Table, Value};

use crate::{DEFAULTS, Error, RawConfig, tables};

/// The prefix of environment variables.
const PREFIX: &str = "GRIDHOOK_";

/// The maximum edit distance of a mistyped key to its suggestion.
const EDIT_DISTANCE: usize = 3;

/// The variables of commands that call a server.
const CLIENT_VARIABLES: [&str; 3] = ["key", "server", "token"];

/// The maximum number of suggestions.
const SUGGESTIONS: usize = 3;

/// The variable of a setting.
fn variable_name(key: &str) -> String {
    format!("{PREFIX}{}", key.to_ascii_uppercase().replace('.', "__"))
}

/// The sources of settings, besides the defaults.
#[derive(Clone, Debug, Default)]
pub struct SettingSources {
    pub file: Option<PathBuf>,
    /// The environment. A setting is `GRIDHOOK_SECTION__KEY`; other variables are ignored.
    pub environment: Vec<(OsString, OsString)>,
    pub flags: Vec<SettingFlag>,
}

#[derive(Clone, Debug)]
pub struct SettingFlag {
    /// The name with its dashes, such as `--listen`.
    pub name: &'static str,
    /// The setting's key, such as `server.listen`.
    pub key: &'static str,
    pub value: String,
}

/// The origin of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SettingOrigin {
    Default,
    File(PathBuf),
    Variable(String),
    Flag(&'static str),
}

impl fmt::Display for SettingOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File(path) => path.display().fmt(f),
            Self::Variable(name) => write!(f, "environment variable {name}"),
            Self::Flag(name) => write!(f, "flag {name}"),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// The key, such as `server.listen`.
    pub key: String,
    /// The value as TOML. A secret's value is not shown.
    pub value: String,
    pub origin: SettingOrigin,
    /// Whether the value differs from the default.
    pub is_changed: bool,
}

/// The merged layers, with every error found so far.
pub(super) struct Layers {
    values: BTreeMap<String, (Value, SettingOrigin)>,
    errors: Vec<Error>,
    /// The keys whose own value is invalid. Their replacement must not be compared with other
    /// values.
    replaced: BTreeSet<String>,
}

impl Layers {
    pub(super) fn merge_sources(sources: &SettingSources) -> Result<Self, Error> {
        let mut layers = Self {
            values: default_values()
                .map(|(key, value)| (key, (value, SettingOrigin::Default)))
                .collect(),
            errors: Vec::new(),
            replaced: BTreeSet::new(),
        };
        layers.add_file(sources)?;
        layers.add_environment(sources);
        for SettingFlag { name, key, value } in &sources.flags {
            layers.put_value(
                (*key).to_owned(),
                Value::String(value.clone()),
                SettingOrigin::Flag(name),
            );
        }
        Ok(layers)
    }

    fn add_file(&mut self, sources: &SettingSources) -> Result<(), Error> {
        let Some(path) = &sources.file else {
            return Ok(());
        };
        let text = std::fs::read_to_string(path).map_err(|error| Error::Unreadable {
            path: path.clone(),
            error,
        })?;
        let table: Table = text.parse().map_err(|error| Error::Syntax {
            path: path.clone(),
            error,
        })?;
        let mut values = Vec::new();
        let mut empty = Vec::new();
        flatten_with(
            "",
            table,
            &mut |key, value| values.push((key, value)),
            &mut |key| empty.push(key),
        );
        for key in empty {
            let inside = format!("{key}.");
            let is_known = self.values.keys().any(|known| known.starts_with(&inside))
                || tables::is_table(&key);
            if !is_known {
                self.put_value(
                    key,
                    Value::Table(Table::new()),
                    SettingOrigin::File(path.clone()),
                );
            }
        }
        for (key, value) in values {
            self.put_value(key, value, SettingOrigin::File(path.clone()));
        }
        Ok(())
    }

    fn add_environment(&mut self, sources: &SettingSources) {
        for (name, value) in &sources.environment {
            let name = name.to_string_lossy();
            let Some(rest) = name.strip_prefix(PREFIX) else {
                continue;
            };
            let key = match rest {
                "ADMIN_TOKEN" => "server.admin_token".to_owned(),
                // A Kubernetes service "gridhook" sets GRIDHOOK_PORT in every pod.
                _ if !rest.contains("__") => continue,
                _ => rest.to_ascii_lowercase().replace("__", "."),
            };
            let origin = SettingOrigin::Variable(name.clone().into_owned());
            let Some(text) = value.to_str() else {
                let read = "(not UTF-8)".to_owned();
                let expectation = "UTF-8".to_owned();
                self.errors.push(Error::Value {
                    origin,
                    key,
                    read,
                    expectation,
                });
                continue;
            };
            let value = self.guess_value(&key, text);
            self.put_value(key, value, origin);
        }
    }

    /// Parses the text of a variable as the kind of the default value, if possible. The parsers of
    /// lists read the text of a list.
    fn guess_value(&self, key: &str, text: &str) -> Value {
        let value = match self.values.get(key) {
            Some((Value::Integer(_), _)) => text.parse().map(Value::Integer).ok(),
            Some((Value::Boolean(_), _)) => text.parse().map(Value::Boolean).ok(),
            Some(_) | None => None,
        };
        value.unwrap_or_else(|| Value::String(text.to_owned()))
    }

    fn put_value(&mut self, key: String, value: Value, origin: SettingOrigin) {
        if !self.values.contains_key(&key) && !tables::is_key(&key) {
            let like = self
                .similar_keys(&key)
                .into_iter()
                .map(|known| match origin {
                    SettingOrigin::Variable(_) => variable_name(&known),
                    SettingOrigin::Default | SettingOrigin::File(_) | SettingOrigin::Flag(_) => {
                        known
                    }
                });
            let error = Error::UnknownKey {
                like: like.collect(),
                expectation: self.keys_of_section(&key),
                key,
                origin,
            };
            self.errors.push(error);
            return;
        }
        self.values.insert(key, (value, origin));
    }

    /// The keys that are most similar to `key`.
    fn similar_keys(&self, key: &str) -> Vec<String> {
        let mut like: Vec<(usize, &String)> = self
            .values
            .keys()
            .map(|known| (strsim::damerau_levenshtein(key, known), known))
            .collect();
        like.retain(|(far, known)| *far <= EDIT_DISTANCE.min(known.len() / 4));
        // The same name in another section is a candidate, too.
        let name = key.rsplit('.').next().unwrap_or_default();
        if like.is_empty() {
            let ends = format!(".{name}");
            like.extend(
                self.values
                    .keys()
                    .filter(|known| known.ends_with(&ends))
                    .map(|known| (0, known)),
            );
        }
        like.sort();
        like.into_iter()
            .take(SUGGESTIONS)
            .map(|(_, known)| known.clone())
            .collect()
    }

    /// The keys of the same section, or the sections if the section is unknown.
    fn keys_of_section(&self, key: &str) -> String {
        if let Some(keys) = tables::keys_of_table(key) {
            return keys;
        }
        let section = key.split('.').next().unwrap_or_default();
        let inside = self
            .values
            .keys()
            .filter(|known| known.split('.').next() == Some(section))
            .cloned();
        let mut section_keys: Vec<String> = inside.collect();
        if section_keys.is_empty() {
            let sections = self
                .values
                .keys()
                .filter_map(|known| known.split('.').next());
            section_keys = sections.map(|section| format!("{section}.*")).collect();
            section_keys.dedup();
        }
        section_keys.join(", ")
    }

    /// Types the values and records an error for each invalid one. Fails only if a value cannot be
    /// replaced.
    pub(super) fn read(&mut self) -> Result<RawConfig, Error> {
        let mut table = self.to_table();
        let mut defaults: BTreeMap<String, Value> = default_values().collect();
        loop {
            let error =
                match serde_path_to_error::deserialize::<_, RawConfig>(Value::Table(table.clone()))
                {
                    Ok(config) => return Ok(config),
                    Err(error) => error,
                };
            let key = error.path().to_string();
            self.errors
                .push(self.value_error(&key, error.inner().message().to_owned()));
            // The default replaces the value, so that later values are checked, too. A key without
            // a default is removed.
            let section = key.rsplit_once('.').and_then(|(section, name)| {
                let above = section.split('.').try_fold(&mut table, |table, part| {
                    table.get_mut(part)?.as_table_mut()
                });
                Some((above?, name))
            });
            let is_out = section.is_some_and(|(section, name)| match defaults.remove(&key) {
                Some(default) => section.insert(name.to_owned(), default).is_some(),
                None => section.remove(name).is_some(),
            });
            if !is_out {
                return Err(self.take_failure());
            }
            self.replaced.insert(key);
        }
    }

    /// Records that the value of the first of `keys` is not allowed with those of the others,
    /// unless one of them is itself invalid.
    pub(super) fn refuse_value(&mut self, keys: &[&str], expectation: impl Into<String>) {
        if !keys.iter().any(|key| self.is_replaced(key)) {
            let error = self.value_error(keys[0], expectation.into());
            self.errors.push(error);
        }
    }

    /// Records an error that is not about a single value.
    pub(super) fn add_error(&mut self, error: Error) {
        self.errors.push(error);
    }

    /// Whether the value of `key` is invalid and was replaced.
    pub(super) fn is_replaced(&self, key: &str) -> bool {
        self.replaced.contains(key)
    }

    /// Returns `config`, or all errors.
    pub(super) fn finish_with<T>(mut self, config: T) -> Result<T, Error> {
        if self.errors.is_empty() {
            Ok(config)
        } else {
            Err(self.take_failure())
        }
    }

    fn take_failure(&mut self) -> Error {
        Error::from_list(std::mem::take(&mut self.errors))
    }

    fn to_table(&self) -> Table {
        let mut table = Table::new();
        for (key, (value, _)) in &self.values {
            let (section, name) = key
                .rsplit_once('.')
                .expect("a test finds every default in a section");
            let section = section.split('.').fold(&mut table, |table, part| {
                let inner = table
                    .entry(part)
                    .or_insert_with(|| Value::Table(Table::new()));
                inner.as_table_mut().expect("only tables were put there")
            });
            section.insert(name.to_owned(), value.clone());
        }
        table
    }

    /// The error for a value that is not allowed.
    fn value_error(&self, key: &str, expectation: String) -> Error {
        Error::Value {
            origin: self.origin_of(key),
            key: key.to_owned(),
            read: self.show_value(key),
            expectation,
        }
    }

    /// Records that `small` is larger than `large`. The error names the one that the operator set.
    pub(super) fn refuse_larger(&mut self, small: &str, large: &str) {
        match self.origin_of(small) {
            SettingOrigin::Default => {
                let expectation = format!("at least {}", self.describe_value(small));
                self.refuse_value(&[large, small], expectation);
            }
            SettingOrigin::File(_) | SettingOrigin::Variable(_) | SettingOrigin::Flag(_) => {
                let expectation = format!("at most {}", self.describe_value(large));
                self.refuse_value(&[small, large], expectation);
            }
        }
    }

    fn describe_value(&self, key: &str) -> String {
        let value = self.show_value(key);
        let origin = self.origin_of(key);
        format!("{key}, which is {value} ({origin})")
    }

    fn origin_of(&self, key: &str) -> SettingOrigin {
        self.values
            .get(key)
            .map_or(SettingOrigin::Default, |(_, origin)| origin.clone())
    }

    fn show_value(&self, key: &str) -> String {
        match self.values.get(key) {
            Some(_) if key.ends_with("token") || tables::is_secret(key) => "(not shown)".to_owned(),
            // The user information of a URL.
            Some((value, _)) if key == "cluster.urls" && value.to_string().contains('@') => {
                "(not shown)".to_owned()
            }
            Some((value, _)) => value.to_string(),
            None => "missing".to_owned(),
        }
    }
}

impl Layers {
    /// Every key with its value and origin. A secret's value is not shown.
    pub(super) fn all_settings(&self) -> Vec<Setting> {
        let defaults: BTreeMap<String, Value> = default_values().collect();
        let keys = self.values.keys();
        keys.map(|key| self.describe_setting(key, defaults.get(key)))
            .collect()
    }

    fn describe_setting(&self, key: &str, default: Option<&Value>) -> Setting {
        let (value, origin) = &self.values[key];
        let is_empty = value.as_str().is_some_and(str::is_empty);
        Setting {
            key: key.to_owned(),
            value: if is_empty {
                value.to_string()
            } else {
                self.show_value(key)
            },
            origin: origin.clone(),
            is_changed: default != Some(value),
        }
    }
}

/// The unknown variables that resemble a setting, each with the suggested variable.
pub(super) fn near_misses(sources: &SettingSources) -> Vec<(String, String)> {
    let keys = default_values().map(|(key, _)| (fold_name(&key), key));
    let keys = keys.collect();
    let names = sources
        .environment
        .iter()
        .filter_map(|(name, _)| name.to_str());
    let others = names.filter_map(|name| Some((name, name.strip_prefix(PREFIX)?)));
    let candidates = others.filter(|(_, rest)| !rest.contains("__") && *rest != "ADMIN_TOKEN");
    candidates
        .filter_map(|(name, rest)| Some((name.to_owned(), find_meant_variable(&keys, rest)?)))
        .collect()
}

fn fold_name(text: &str) -> String {
    text.to_ascii_lowercase().replace(['_', '.'], "")
}

/// The variable of the setting that has this name, or the only one whose last part has it. `keys`
/// has the settings by their folded names.
fn find_meant_variable(keys: &BTreeMap<String, String>, name: &str) -> Option<String> {
    let name = fold_name(name);
    let last_part = |key: &str| fold_name(key.rsplit('.').next().unwrap_or_default());
    let mut ends = keys.values().filter(|key| last_part(key) == name);
    // Some variables belong to commands that call a server.
    let short = ends
        .next()
        .filter(|_| ends.next().is_none() && !CLIENT_VARIABLES.contains(&name.as_str()));
    keys.get(&name).or(short).map(|key| variable_name(key))
}

/// The defaults by their keys.
fn default_values() -> impl Iterator<Item = (String, Value)> {
    let defaults = DEFAULTS
        .parse()
        .expect("a test reads the embedded defaults");
    let mut values = Vec::new();
    flatten_with(
        "",
        defaults,
        &mut |key, value| values.push((key, value)),
        &mut |_| {},
    );
    values.into_iter()
}

/// Passes each value with its key to `put`, and the key of each table without values to
/// `put_empty`.
fn flatten_with(
    prefix: &str,
    table: Table,
    put: &mut impl FnMut(String, Value),
    put_empty: &mut impl FnMut(String),
) {
    for (name, value) in table {
        let key = if prefix.is_empty() {
            name
        } else {
            format!("{prefix}.{name}")
        };
        match value {
            Value::Table(table) if table.is_empty() => put_empty(key),
            Value::Table(table) => flatten_with(&key, table, put, put_empty),
            value => put(key, value),
        }
    }
}
