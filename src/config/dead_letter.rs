//! `[dead_letter]`: the dead-letter stores, each a table `[dead_letter.stores.NAME]`.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf, absolute},
};

use serde::Deserialize;

use super::{
    layers::Layers,
    object_store::{ObjectStoreConfig, RawObjectStore},
    read,
};
use gridhook_policy::dead_letter_store::{
    FOLDER, NamedStore, NamedStores, StoreAddress, StoreKind,
};

/// The section of the stores.
pub(super) const STORES: &str = "dead_letter.stores.";

/// The keys of a store that are not secret, besides those of every store.
pub(super) const PLAIN: [&str; 2] = ["accounts", "used_by"];

#[derive(Clone, Debug)]
pub struct DeadLetter {
    /// All stores, by name. The local folder is [`FOLDER`].
    pub stores: BTreeMap<String, ObjectStoreConfig>,
    /// The store, and the folder in it, of each destination.
    pub named_stores: NamedStores,
    /// The scopes of the event subscriptions that may use a store, as written, by its name.
    pub used_by: BTreeMap<String, Vec<String>>,
}

/// The values as written, not yet checked against each other.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawDeadLetter {
    #[serde(deserialize_with = "read::optional")]
    folder: Option<PathBuf>,
    #[serde(deserialize_with = "read::list")]
    folder_used_by: Vec<String>,
    #[serde(default)]
    stores: BTreeMap<String, RawObjectStore>,
}

impl RawDeadLetter {
    pub(super) fn resolve(self, data_dir: &Path, layers: &mut Layers) -> DeadLetter {
        let mut settings = DeadLetter {
            stores: BTreeMap::new(),
            named_stores: NamedStores::default(),
            used_by: BTreeMap::from([(FOLDER.to_owned(), self.folder_used_by)]),
        };
        let mut known_stores: Vec<NamedStore> = Vec::new();
        if let Some(folder) = self.folder {
            match folder_address(&data_dir.join(folder)) {
                Ok(address) => known_stores.push(NamedStore {
                    name: FOLDER.to_owned(),
                    address,
                    accounts: Vec::new(),
                }),
                Err(expectation) => {
                    layers.refuse_value(&["dead_letter.folder", "server.data_dir"], expectation)
                }
            }
        }
        for (name, raw) in self.stores {
            let at = format!("{STORES}{name}");
            let url_key = format!("{at}.url");
            let accounts_key = format!("{at}.accounts");
            if let Err(expectation) = check_name(&name) {
                layers.refuse_value(&[&url_key], expectation);
            }
            let accounts = raw.accounts.clone();
            let used_by = raw.used_by.clone();
            let shared_account = accounts.iter().find(|account| {
                known_stores
                    .iter()
                    .any(|other| other.accounts.contains(account))
            });
            if let Some(account) = shared_account {
                let expectation =
                    format!("accounts that no other store has; another store has \"{account}\"");
                layers.refuse_value(&[&accounts_key], expectation);
            }
            let Some(store) = raw.resolve(&at, layers) else {
                continue;
            };
            if let Some(other) = known_stores
                .iter()
                .find(|other| other.address == store.address)
            {
                let expectation = format!(
                    "an address that no other store has; the store {} has it",
                    other.name
                );
                layers.refuse_value(&[&url_key], expectation);
            }
            known_stores.push(NamedStore {
                name: name.clone(),
                address: store.address.clone(),
                accounts,
            });
            settings.used_by.insert(name.clone(), used_by);
            settings.stores.insert(name, store);
        }
        // Destinations without a store go to the folder, unless a store takes all others.
        let rest = known_stores
            .iter()
            .any(|store| store.accounts.iter().any(|account| account == "*"));
        if let Some(folder) = known_stores
            .first_mut()
            .filter(|store| store.name == FOLDER)
        {
            let accounts = if rest {
                Vec::new()
            } else {
                vec!["*".to_owned()]
            };
            folder.accounts = accounts;
            let address = folder.address.clone();
            let store = ObjectStoreConfig {
                address,
                endpoint: None,
                region: None,
                allow_http: false,
                credentials: Vec::new(),
            };
            settings.stores.insert(FOLDER.to_owned(), store);
        }
        settings.named_stores = NamedStores::new(known_stores);
        settings
    }
}

/// Checks the name, which is part of environment variables and file names.
fn check_name(name: &str) -> Result<(), String> {
    let plain = |byte: u8| {
        byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_' || byte == b'-'
    };
    if name == FOLDER {
        return Err(format!(
            "another name: \"{FOLDER}\" is the store of dead_letter.folder"
        ));
    }
    if (1..=40).contains(&name.len()) && name.bytes().all(plain) {
        return Ok(());
    }
    Err("a name of 1 to 40 lower-case letters, digits, hyphens and underscores".to_owned())
}

fn folder_address(folder: &Path) -> Result<StoreAddress, String> {
    let folder = absolute(folder).map_err(|error| format!("an existing folder: {error}"))?;
    let parts = folder
        .iter()
        .skip(1)
        .map(|part| part.to_str().map(str::to_owned));
    let path = parts
        .collect::<Option<Vec<String>>>()
        .ok_or("a folder whose name is UTF-8")?;
    Ok(StoreAddress {
        kind: StoreKind::Folder,
        account: String::new(),
        path,
    })
}
