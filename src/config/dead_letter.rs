//! `[dead_letter]`: the dead-letter stores and their credentials.
//!
//! A store is a table `[dead_letter.stores.NAME]`, so its keys are not among the defaults but defined here. A credential is
//! a value, or the name of a file with it (`…_file`), and is never shown.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf, absolute},
};

use serde::Deserialize;
use url::Url;

use super::{Secret, layers::Layers, read, tables};
use crate::policy::dead_letter_store::{
    FOLDER, FORMS, InvalidAddress, NamedStore, NamedStores, StoreAddress, StoreKind,
};

/// The section of the stores.
pub(super) const STORES: &str = "dead_letter.stores.";

/// The keys of a store that are not secret.
pub(super) const PLAIN: [&str; 7] = ["accounts", "allow_http", "client_id", "endpoint", "region", "tenant_id", "url"];

/// The credentials of each kind of store.
const CREDENTIALS: [(StoreKind, &[&str]); 4] = [
    (StoreKind::Folder, &[]),
    (StoreKind::S3, &["access_key_id", "secret_access_key", "session_token"]),
    (StoreKind::Azure, &["access_key", "sas_token", "tenant_id", "client_id", "client_secret"]),
    (StoreKind::Google, &["service_account_key"]),
];

/// `[dead_letter]`
#[derive(Clone, Debug)]
pub struct DeadLetter {
    /// The topic of notifications about dead-letter files, if any.
    pub notification_topic: Option<String>,
    /// All stores, by name. The local folder is [`FOLDER`].
    pub stores: BTreeMap<String, DeadLetterStore>,
    /// The store, and the folder in it, of each destination.
    pub places: NamedStores,
}

/// A dead-letter store.
#[derive(Clone, Debug)]
pub struct DeadLetterStore {
    /// Its address.
    pub address: StoreAddress,
    /// The server, if it is not the cloud's own.
    pub endpoint: Option<Url>,
    /// The region of its buckets.
    pub region: Option<String>,
    /// Whether http is allowed.
    pub allow_http: bool,
    /// Its credentials, by the name of the setting. If empty, those of the environment or the machine apply.
    pub credentials: Vec<(&'static str, Secret)>,
}

/// The values as written, not yet checked against each other.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawDeadLetter {
    #[serde(deserialize_with = "read::optional")]
    folder: Option<PathBuf>,
    #[serde(deserialize_with = "read::optional")]
    notification_topic: Option<String>,
    #[serde(default)]
    stores: BTreeMap<String, RawDeadLetterStore>,
}

#[derive(Deserialize)]
struct RawDeadLetterStore {
    #[serde(default, deserialize_with = "read::optional")]
    url: Option<String>,
    #[serde(default, deserialize_with = "read::texts")]
    accounts: Vec<String>,
    #[serde(default, deserialize_with = "read::web")]
    endpoint: Option<Url>,
    #[serde(default, deserialize_with = "read::optional")]
    region: Option<String>,
    #[serde(default, deserialize_with = "read::flag_or_text")]
    allow_http: bool,
    // The keys of the stores are checked before, one by one.
    #[serde(flatten)]
    credentials: BTreeMap<String, String>,
}

/// The credentials of all kinds of store.
pub(super) fn credentials() -> Vec<&'static str> {
    CREDENTIALS.iter().flat_map(|(_, names)| names.iter().copied()).collect()
}

impl RawDeadLetter {
    pub(super) fn resolve(self, data_dir: &Path, layers: &mut Layers) -> DeadLetter {
        let mut resolved = DeadLetter {
            notification_topic: self.notification_topic,
            stores: BTreeMap::new(),
            places: NamedStores::default(),
        };
        let mut known: Vec<NamedStore> = Vec::new();
        if let Some(folder) = self.folder {
            match folder_address(&data_dir.join(folder)) {
                Ok(address) => known.push(NamedStore { name: FOLDER.to_owned(), address, accounts: Vec::new() }),
                Err(allowed) => layers.refuse(&["dead_letter.folder", "server.data_dir"], allowed),
            }
        }
        for (name, raw) in self.stores {
            let at = format!("{STORES}{name}");
            let (url_key, accounts_key) = (format!("{at}.url"), format!("{at}.accounts"));
            if let Err(allowed) = check_name(&name) {
                layers.refuse(&[&url_key], allowed);
            }
            let accounts = raw.accounts.clone();
            let taken = accounts.iter().find(|account| known.iter().any(|other| other.accounts.contains(account)));
            if let Some(account) = taken {
                let allowed = format!("accounts that no other store has; another store has \"{account}\"");
                layers.refuse(&[&accounts_key], allowed);
            }
            let Some(store) = raw.resolve(&at, layers) else { continue };
            if let Some(other) = known.iter().find(|other| other.address == store.address) {
                let allowed = format!("an address that no other store has; the store {} has it", other.name);
                layers.refuse(&[&url_key], allowed);
            }
            known.push(NamedStore { name: name.clone(), address: store.address.clone(), accounts });
            resolved.stores.insert(name, store);
        }
        // Destinations without a store go to the folder, unless a store takes all others.
        let rest = known.iter().any(|known| known.accounts.iter().any(|account| account == "*"));
        if let Some(folder) = known.first_mut().filter(|known| known.name == FOLDER) {
            let accounts = if rest { Vec::new() } else { vec!["*".to_owned()] };
            folder.accounts = accounts;
            let address = folder.address.clone();
            let store =
                DeadLetterStore { address, endpoint: None, region: None, allow_http: false, credentials: Vec::new() };
            resolved.stores.insert(FOLDER.to_owned(), store);
        }
        resolved.places = NamedStores::new(known);
        resolved
    }
}

impl RawDeadLetterStore {
    /// Returns [`None`] if the address is invalid, because the allowed credentials depend on it.
    fn resolve(self, at: &str, layers: &mut Layers) -> Option<DeadLetterStore> {
        let Self { url, accounts: _, endpoint, region, allow_http, credentials } = self;
        let key = |name: &str| format!("{at}.{name}");
        if endpoint.as_ref().is_some_and(|endpoint| endpoint.scheme() == "http") && !allow_http {
            let allowed = format!("https, or http where {at}.allow_http is true");
            layers.refuse(&[&key("endpoint"), &key("allow_http")], allowed);
        }
        let address = match StoreAddress::parse(&url.unwrap_or_default()) {
            Ok(address) => address,
            Err(problem) => {
                let allowed = match problem {
                    InvalidAddress::Form => FORMS.to_owned(),
                    InvalidAddress::Part(problem) => format!("an address, but {problem}"),
                };
                layers.refuse(&[&key("url")], allowed);
                return None;
            }
        };
        if address.kind == StoreKind::Folder && address.path.is_empty() {
            layers.refuse(&[&key("url")], "a folder other than the root folder");
        }
        let of_kind = CREDENTIALS.iter().find(|(kind, _)| *kind == address.kind).map_or(&[][..], |(_, names)| names);
        let mut read = Vec::new();
        for (name, value) in credentials {
            let plain = name.strip_suffix("_file").unwrap_or(&name);
            let Some(known) = of_kind.iter().find(|known| **known == plain) else {
                let allowed = match of_kind {
                    [] => format!("nothing: a folder needs no credentials ({address})"),
                    names => format!("nothing: the credentials for {address} are {}", names.join(", ")),
                };
                layers.refuse(&[&key(&name)], allowed);
                continue;
            };
            if read.iter().any(|(there, _)| there == known) {
                layers.refuse(&[&key(&name)], format!("nothing, because {} is set, too", key(plain)));
                continue;
            }
            let secret = if plain == name { Ok(value) } else { tables::read_file(Path::new(&value)) };
            match secret {
                Ok(secret) => read.push((*known, Secret::new(&secret))),
                Err(problem) => layers.refuse(&[&key(&name)], problem),
            }
        }
        Some(DeadLetterStore { address, endpoint, region, allow_http, credentials: read })
    }
}

/// Checks the name, which is part of environment variables and file names.
fn check_name(name: &str) -> Result<(), String> {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_' || byte == b'-';
    if name == FOLDER {
        return Err(format!("another name: \"{FOLDER}\" is the store of dead_letter.folder"));
    }
    if (1..=40).contains(&name.len()) && name.bytes().all(plain) {
        return Ok(());
    }
    Err("a name of 1 to 40 lower-case letters, digits, hyphens and underscores".to_owned())
}

fn folder_address(folder: &Path) -> Result<StoreAddress, String> {
    let folder = absolute(folder).map_err(|error| format!("an existing folder: {error}"))?;
    let parts = folder.iter().skip(1).map(|part| part.to_str().map(str::to_owned));
    let path = parts.collect::<Option<Vec<String>>>().ok_or("a folder whose name is UTF-8")?;
    Ok(StoreAddress { kind: StoreKind::Folder, account: String::new(), path })
}
