//! `[backup]`: the destination of backups and their schedule.

use std::{path::PathBuf, time::Duration};

use serde::Deserialize;

use super::{
    layers::Layers,
    object_store::{ObjectStoreConfig, RawObjectStore},
    read::{self, DAY},
};
use gridhook_policy::backup::BackupSchedule;

/// The table of the destination.
pub(super) const STORE: &str = "backup.store.";

#[derive(Clone, Debug)]
pub struct Backup {
    pub store: Option<ObjectStoreConfig>,
    /// The schedule of backups; [`None`] if operators begin each.
    pub schedule: Option<BackupSchedule>,
    /// The number of newest backups that are kept, however old they are.
    pub keep: usize,
    /// How long backups besides the newest `keep` are kept.
    pub keep_for: Duration,
    /// The file of the key that encrypts backups.
    pub key_file: Option<PathBuf>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawBackup {
    #[serde(default)]
    store: Option<RawObjectStore>,
    #[serde(deserialize_with = "read::optional")]
    schedule: Option<String>,
    #[serde(deserialize_with = "read::count::<_, _, 1, 100_000>")]
    keep: usize,
    #[serde(deserialize_with = "read::wait::<_, 0, { 3_650 * DAY }>")]
    keep_for: Duration,
    #[serde(deserialize_with = "read::optional")]
    key_file: Option<PathBuf>,
}

impl RawBackup {
    pub(super) fn resolve(self, layers: &mut Layers) -> Backup {
        let Self {
            store,
            schedule,
            keep,
            keep_for,
            key_file,
        } = self;
        let has_store = store.is_some();
        let store = store.and_then(|store| store.resolve(STORE.trim_end_matches('.'), layers));
        let schedule = schedule.and_then(|text| match text.parse() {
            Ok(schedule) => Some(schedule),
            Err(expectation) => {
                layers.refuse_value(&["backup.schedule"], expectation);
                None
            }
        });
        if schedule.is_some() && !has_store {
            layers.refuse_value(
                &["backup.schedule"],
                "empty without a destination: set backup.store.url",
            );
        }
        Backup {
            store,
            schedule,
            keep,
            keep_for,
            key_file,
        }
    }
}
