//! Resolves a subscription's `deadLetterDestination`: which store, and which path in it.
//!
//! A store has an address, and each object in it has a path below that address. The address of a
//! store may omit the bucket or container: then the first part of each path names it. A storage
//! account can thus stand for a bucket with a folder per container, or for all buckets. One rule
//! covers both: the container is appended to the address.
//!
//! Invariants: a destination is always below the address of a store that the operator configured.
//! No part of its path is empty or leads upwards.
//!
//! What it does not do: it has no credentials and does not check whether the store exists.

use std::fmt;

/// The name of the store configured by `dead_letter.folder`.
pub const FOLDER: &str = "folder";

/// 200 bytes: file systems allow 255, and the name of a temporary file is longer than that of its
/// file.
const PART_BYTES_MAX: usize = 200;

/// S3 allows names of 1,024 bytes; the container, the subscription's folder and the file name
/// follow this path.
const PATH_BYTES_MAX: usize = 512;

/// The host suffix of Azure storage accounts.
const AZURE_HOST: &str = ".blob.core.windows.net";

/// The forms of an address.
pub const FORMS: &str = "file:///folder, s3://bucket/prefix, gs://bucket/prefix, \
    https://account.blob.core.windows.net/container or az://account/container";

/// The kind of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreKind {
    /// `file://`: a folder of the server's machine.
    Folder,
    /// S3 or a compatible store.
    S3,
    /// `az://` or `https://`: a container of Azure Blob Storage.
    Azure,
    /// `gs://`: a bucket of Google Cloud Storage.
    Google,
}

/// The address of a store, or of a folder in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreAddress {
    /// The scheme before `://`.
    pub kind: StoreKind,
    /// The storage account; empty for other kinds.
    pub account: String,
    /// The bucket or container, and the folders in it.
    pub path: Vec<String>,
}

/// Why an address, or a part of a path, is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidAddress {
    /// It has an unknown scheme.
    #[error("expected {FORMS}")]
    Form,
    /// Its path is too long.
    #[error("the path of an address can have at most {PATH_BYTES_MAX} bytes")]
    PathBytes,
    /// A part is empty or too long.
    #[error("a part of a dead-letter path must have 1 to {PART_BYTES_MAX} bytes")]
    PartBytes,
    /// A part names the folder itself or the one above.
    #[error("`{0}` can't be a part of a dead-letter path")]
    Dots(String),
    /// A character would begin another part.
    #[error("a part of a dead-letter path can't have the character {0:?}")]
    PartCharacter(char),
    /// A character would start a query, a fragment or an escape in a URL.
    #[error("the path of an address can't have the character {0:?}")]
    PathCharacter(char),
}

impl StoreAddress {
    /// A final `/` is ignored; an empty part of the path is an error.
    pub fn parse(text: &str) -> Result<Self, InvalidAddress> {
        let (scheme, rest) = text.split_once("://").ok_or(InvalidAddress::Form)?;
        let (kind, account, path) = match scheme {
            "file" => (
                StoreKind::Folder,
                "",
                rest.strip_prefix('/').ok_or(InvalidAddress::Form)?,
            ),
            "s3" => (StoreKind::S3, "", rest),
            "gs" => (StoreKind::Google, "", rest),
            "az" | "https" => {
                let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
                let account = if scheme == "az" {
                    Some(authority)
                } else {
                    authority.strip_suffix(AZURE_HOST)
                };
                (
                    StoreKind::Azure,
                    account
                        .filter(|account| is_account(account))
                        .ok_or(InvalidAddress::Form)?,
                    path,
                )
            }
            _ => return Err(InvalidAddress::Form),
        };
        let path = path.strip_suffix('/').unwrap_or(path);
        if path.len() > PATH_BYTES_MAX {
            return Err(InvalidAddress::PathBytes);
        }
        let path = if path.is_empty() {
            Vec::new()
        } else {
            path.split('/').map(str::to_owned).collect()
        };
        path.iter()
            .try_for_each(|part| check_part(part).and_then(|()| check_plain(part)))?;
        Ok(Self {
            kind,
            account: account.to_owned(),
            path,
        })
    }

    /// The path of `inner` below this address; [`None`] if it is elsewhere.
    fn path_below<'a>(&self, inner: &'a Self) -> Option<&'a [String]> {
        let same = self.kind == inner.kind && self.account == inner.account;
        inner
            .path
            .strip_prefix(self.path.as_slice())
            .filter(|_| same)
    }
}

impl fmt::Display for StoreAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.join("/");
        match self.kind {
            StoreKind::Folder => write!(f, "file:///{path}"),
            StoreKind::S3 => write!(f, "s3://{path}"),
            StoreKind::Google => write!(f, "gs://{path}"),
            StoreKind::Azure => write!(f, "https://{}{AZURE_HOST}/{path}", self.account),
        }
    }
}

fn is_account(text: &str) -> bool {
    (3..=24).contains(&text.len())
        && text
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
}

/// Checks whether `part` (a container, a subscription's name) can be part of a file path.
pub fn check_part(part: &str) -> Result<(), InvalidAddress> {
    if part.is_empty() || part.len() > PART_BYTES_MAX {
        return Err(InvalidAddress::PartBytes);
    }
    if part.chars().all(|c| c == '.') {
        return Err(InvalidAddress::Dots(part.to_owned()));
    }
    if let Some(bad) = part
        .chars()
        .find(|c| matches!(c, '/' | '\\' | ':') || c.is_control())
    {
        return Err(InvalidAddress::PartCharacter(bad));
    }
    Ok(())
}

/// Rejects characters that start a query, a fragment or an escape in a URL.
fn check_plain(part: &str) -> Result<(), InvalidAddress> {
    match part.chars().find(|c| matches!(c, '%' | '?' | '#')) {
        Some(bad) => Err(InvalidAddress::PathCharacter(bad)),
        None => Ok(()),
    }
}

/// The resolved destination of a subscription's dead letters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetterDestination {
    /// The name of the store in `dead_letter.stores`.
    pub store: String,
    /// The path below its address, with `/` between the parts; empty for the address itself.
    pub folder: String,
}

/// A store that the operator configured.
#[derive(Clone, Debug)]
pub struct NamedStore {
    /// Its key in `dead_letter.stores`.
    pub name: String,
    /// Where its files are; destinations are folders below it.
    pub address: StoreAddress,
    /// The storage accounts it stands for, as resource ids or names. `*`: all accounts without a
    /// store of their own.
    pub accounts: Vec<String>,
}

impl NamedStore {
    fn has_account(&self, name: &str) -> bool {
        let mut accounts = self.accounts.iter();
        accounts.any(|account| account.eq_ignore_ascii_case(name))
    }
}

/// All stores that the operator configured.
#[derive(Clone, Debug, Default)]
pub struct NamedStores(Vec<NamedStore>);

/// Why a destination cannot be resolved.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages describe the fields")]
pub enum UnknownDestination {
    /// It is no address of a store.
    #[error("is \"{given}\": {problem}")]
    Malformed {
        given: String,
        problem: InvalidAddress,
    },
    /// The address is in no store.
    #[error("is \"{given}\", which is in no store of dead_letter.stores; expected {allowed}")]
    Elsewhere {
        given: String,
        /// The addresses of the configured stores, as a list for the message.
        allowed: String,
    },
    /// No store stands for the storage account.
    #[error(
        "is \"{given}\", a storage account that no store of dead_letter.stores has among its \
         accounts; expected {allowed}"
    )]
    Account {
        given: String,
        /// The accounts of the configured stores, as a list for the message.
        allowed: String,
    },
    /// The store has no bucket or container of its own, and none was given.
    #[error(
        "is \"{given}\", which names no bucket; expected one behind it, or as blobContainerName"
    )]
    NoBucket { given: String },
}

/// Whether a resource id is an address instead.
pub fn is_address(resource_id: &str) -> bool {
    resource_id.contains("://")
}

impl NamedStores {
    /// Takes stores whose addresses differ, as the settings ensure.
    pub fn new(stores: Vec<NamedStore>) -> Self {
        Self(stores)
    }

    /// Resolves a storage account's resource id, or an address, and a container. An address needs
    /// no container.
    pub fn find_destination(
        &self,
        resource_id: &str,
        container: &str,
    ) -> Result<DeadLetterDestination, UnknownDestination> {
        let (store, mut parts) = if is_address(resource_id) {
            self.by_address(resource_id)?
        } else {
            (self.by_account(resource_id)?, Vec::new())
        };
        parts.extend(Some(container.to_owned()).filter(|container| !container.is_empty()));
        let own = store.address.kind == StoreKind::Folder || !store.address.path.is_empty();
        if !own && parts.is_empty() {
            return Err(UnknownDestination::NoBucket {
                given: resource_id.to_owned(),
            });
        }
        Ok(DeadLetterDestination {
            store: store.name.clone(),
            folder: parts.join("/"),
        })
    }

    /// The innermost store that contains the address, and the path below it.
    fn by_address(&self, given: &str) -> Result<(&NamedStore, Vec<String>), UnknownDestination> {
        let address =
            StoreAddress::parse(given).map_err(|problem| UnknownDestination::Malformed {
                given: given.to_owned(),
                problem,
            })?;
        let candidates = self
            .0
            .iter()
            .filter_map(|known| Some((known, known.address.path_below(&address)?)));
        match candidates.min_by_key(|(_, rest)| rest.len()) {
            Some((known, rest)) => Ok((known, rest.to_vec())),
            None => {
                let addresses: Vec<String> = self
                    .0
                    .iter()
                    .map(|known| known.address.to_string())
                    .collect();
                Err(UnknownDestination::Elsewhere {
                    given: given.to_owned(),
                    allowed: list_alternatives(addresses),
                })
            }
        }
    }

    fn by_account(&self, given: &str) -> Result<&NamedStore, UnknownDestination> {
        let name = given.rsplit('/').next().unwrap_or(given);
        let has_account = |known: &&NamedStore| known.has_account(given) || known.has_account(name);
        self.0
            .iter()
            .find(has_account)
            .or_else(|| self.0.iter().find(|known| known.has_account("*")))
            .ok_or_else(|| {
                let accounts = self
                    .0
                    .iter()
                    .flat_map(|known| known.accounts.clone())
                    .collect();
                UnknownDestination::Account {
                    given: given.to_owned(),
                    allowed: list_alternatives(accounts),
                }
            })
    }
}

fn list_alternatives(known: Vec<String>) -> String {
    match known.as_slice() {
        [] => "none, as there are no stores".to_owned(),
        known => format!("one of {}", known.join(", ")),
    }
}
