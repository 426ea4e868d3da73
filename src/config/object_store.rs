//! The address and the credentials of an object store or a folder, in a table whose keys are not
//! among the defaults. A credential is a value, or the name of a file with it (`…_file`), and is
//! never shown.

use std::collections::BTreeMap;

use serde::Deserialize;
use url::Url;

use super::{Secret, layers::Layers, read, tables};
use gridhook_policy::dead_letter_store::{FORMS, InvalidAddress, StoreAddress, StoreKind};

/// The keys of a store that are not secret.
pub(super) const PLAIN: [&str; 6] = [
    "allow_http",
    "client_id",
    "endpoint",
    "region",
    "tenant_id",
    "url",
];

const CREDENTIALS: [(StoreKind, &[&str]); 4] = [
    (StoreKind::Folder, &[]),
    (
        StoreKind::S3,
        &["access_key_id", "secret_access_key", "session_token"],
    ),
    (
        StoreKind::Azure,
        &[
            "access_key",
            "sas_token",
            "tenant_id",
            "client_id",
            "client_secret",
        ],
    ),
    (StoreKind::Google, &["service_account_key"]),
];

#[derive(Clone, Debug)]
pub struct ObjectStoreConfig {
    pub address: StoreAddress,
    /// The server, if it is not the cloud's own.
    pub endpoint: Option<Url>,
    /// The region of the bucket.
    pub region: Option<String>,
    pub allow_http: bool,
    /// Credentials by the name of the setting. If empty, those of the environment or the machine
    /// apply.
    pub credentials: Vec<(&'static str, Secret)>,
}

#[derive(Deserialize)]
pub(super) struct RawObjectStore {
    #[serde(default, deserialize_with = "read::optional")]
    url: Option<String>,
    /// A key that only a dead-letter store has.
    #[serde(default, deserialize_with = "read::texts")]
    pub(super) accounts: Vec<String>,
    /// A key that only a dead-letter store has.
    #[serde(default, deserialize_with = "read::texts")]
    pub(super) used_by: Vec<String>,
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
pub(super) fn all_credentials() -> Vec<&'static str> {
    CREDENTIALS
        .iter()
        .flat_map(|(_, names)| names.iter().copied())
        .collect()
}

impl RawObjectStore {
    /// Returns [`None`] if the address is invalid, because the allowed credentials depend on it.
    pub(super) fn resolve(self, at: &str, layers: &mut Layers) -> Option<ObjectStoreConfig> {
        let Self {
            url,
            accounts: _,
            used_by: _,
            endpoint,
            region,
            allow_http,
            credentials,
        } = self;
        let key = |name: &str| format!("{at}.{name}");
        if endpoint
            .as_ref()
            .is_some_and(|endpoint| endpoint.scheme() == "http")
            && !allow_http
        {
            let expectation = format!("https, or http where {at}.allow_http is true");
            layers.refuse_value(&[&key("endpoint"), &key("allow_http")], expectation);
        }
        let address = match StoreAddress::parse(&url.unwrap_or_default()) {
            Ok(address) => address,
            Err(problem) => {
                let expectation = match problem {
                    InvalidAddress::Form => FORMS.to_owned(),
                    problem => format!("an address, but {problem}"),
                };
                layers.refuse_value(&[&key("url")], expectation);
                return None;
            }
        };
        if address.kind == StoreKind::Folder && address.path.is_empty() {
            layers.refuse_value(&[&key("url")], "a folder other than the root folder");
        }
        let of_kind = CREDENTIALS
            .iter()
            .find(|(kind, _)| *kind == address.kind)
            .map_or(&[][..], |(_, names)| names);
        let refuse = |layers: &mut Layers, key: &str| {
            let expectation = match of_kind {
                [] => format!("nothing: a folder needs no credentials ({address})"),
                names => format!(
                    "nothing: the credentials for {address} are {}",
                    names.join(", ")
                ),
            };
            layers.refuse_value(&[key], expectation);
        };
        let credentials = tables::read_credentials(at, credentials, of_kind, layers, refuse);
        Some(ObjectStoreConfig {
            address,
            endpoint,
            region,
            allow_http,
            credentials,
        })
    }
}
