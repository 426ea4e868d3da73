//! Checks and backups of the store of the running server.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_with_macros::skip_serializing_none;
use utoipa::ToSchema;

/// The folder of a backup.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = BackupRequest)]
pub struct BackupBody {
    /// Absolute path on the server of a folder that is empty or does not exist. In a cluster with
    /// several shards, each is backed up to the folder `shard-NUMBER` in it, on the machine of its
    /// owner. Default: the destination of the settings
    pub folder: Option<String>,
}

/// A line of the response.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, Serialize, ToSchema)]
#[schema(as = StoreLine)]
pub struct ProgressLine {
    /// Progress of the operation
    pub progress: Option<String>,
    /// Findings of the check
    pub report: Option<Value>,
    /// Backup that was made
    pub backup: Option<BackupView>,
    /// Backups that were made of a cluster with several shards, in place of `backup`: one of each
    /// shard
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub backups: Vec<BackupView>,
    /// Cause of a failure of the operation
    pub error: Option<String>,
}

/// A backup that was made.
#[skip_serializing_none]
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[schema(as = StoreBackup)]
pub struct BackupView {
    /// Number of the shard, in a cluster with several
    pub shard: Option<usize>,
    /// Path of the folder on the server, or address of the backup
    pub folder: String,
    /// Time at which the backup was made
    pub made: String,
    /// Number of the store's last write in the backup
    pub sequence: u64,
    /// Number of files in the backup
    pub files: usize,
    /// Size of the files in bytes
    pub bytes: u64,
    /// Bytes that were written; the rest was there
    #[serde(default)]
    pub written: u64,
}
