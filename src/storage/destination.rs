//! Opens the stores and the destination of backups that the settings describe, for the server and
//! the offline commands.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use gridhook_config as config;
use gridhook_config::ObjectStoreConfig;
use gridhook_dead_letter::{
    Sink,
    sink::{CloudSettings, SinkError},
};
use gridhook_policy::{
    backup::BackupRetention,
    dead_letter_store::{InvalidAddress, StoreAddress, StoreKind},
};
use gridhook_repair::backup::{BackupDestination, SealKey, SealKeyError};

/// Opens a folder or an object store. Blocks, because it creates a folder.
///
/// # Errors
/// The folder cannot be created, or the settings of the store are not usable.
pub fn open_sink(store: &ObjectStoreConfig) -> Result<Sink, SinkError> {
    let ObjectStoreConfig {
        address,
        endpoint,
        region,
        allow_http,
        credentials,
    } = store;
    match address.kind {
        StoreKind::Folder => Sink::in_folder(&Path::new("/").join(address.path.join("/"))),
        StoreKind::S3 | StoreKind::Azure | StoreKind::Google => Sink::in_cloud(CloudSettings {
            address: address.clone(),
            endpoint: endpoint.clone(),
            region: region.clone(),
            allow_http: *allow_http,
            credentials: credentials
                .iter()
                .map(|(name, value)| (*name, value.expose().to_owned()))
                .collect(),
        }),
    }
}

/// Why a destination of backups cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum BackupDestinationError {
    #[error("{url} is no address: {error}")]
    Address { url: String, error: InvalidAddress },
    #[error("backup.key_file is {}; expected {error}", .file.display())]
    Key { file: PathBuf, error: SealKeyError },
}

/// The store of backups at `url`; without one, that of the settings, if any. An address within that
/// of the settings, such as that of a shard, is used with the credentials of the settings, and
/// another one with those of the environment.
///
/// # Errors
/// The address is not usable; the message says what is allowed.
pub fn backup_store(
    backup: &config::Backup,
    url: Option<&str>,
) -> Result<Option<ObjectStoreConfig>, BackupDestinationError> {
    let Some(url) = url else {
        return Ok(backup.store.clone());
    };
    let address = StoreAddress::parse(url).map_err(|error| BackupDestinationError::Address {
        url: url.to_owned(),
        error,
    })?;
    let of_settings = backup.store.as_ref();
    let of_settings = of_settings.filter(|store| is_within(&address, &store.address));
    Ok(Some(match of_settings.cloned() {
        Some(store) => ObjectStoreConfig { address, ..store },
        None => ObjectStoreConfig {
            address,
            endpoint: None,
            region: None,
            allow_http: false,
            credentials: Vec::new(),
        },
    }))
}

fn is_within(address: &StoreAddress, outer: &StoreAddress) -> bool {
    let StoreAddress {
        kind,
        account,
        path,
    } = outer;
    (kind, account) == (&address.kind, &address.account) && address.path.starts_with(path)
}

/// The destination of backups at `url`, as [`backup_store`] has it.
///
/// # Errors
/// The address or the key is not usable; the message says what is allowed.
pub fn backup_destination(
    backup: &config::Backup,
    url: Option<&str>,
) -> Result<Option<BackupDestination>, BackupDestinationError> {
    let store = backup_store(backup, url)?;
    let key = backup.key_file.as_ref().map(|file| {
        let key = SealKey::read(file).map(Arc::new);
        key.map_err(|error| BackupDestinationError::Key {
            file: file.clone(),
            error,
        })
    });
    let key = key.transpose()?;
    Ok(store.map(|store| BackupDestination {
        address: store.address.to_string(),
        folder: (store.address.kind == StoreKind::Folder)
            .then(|| Path::new("/").join(store.address.path.join("/"))),
        open: Arc::new(move || open_sink(&store)),
        key,
        retention: BackupRetention {
            count: backup.keep,
            age: backup.keep_for,
        },
    }))
}
