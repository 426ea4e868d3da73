//! Notifications of written files.
//!
//! The notifier is called after a file is stored and before its dead letters are removed from the
//! journal. After a crash in between, the file is written again under its name and announced again.
//! So each file is announced at least once, and never one that does not exist. If a notification
//! fails for now, the notifier returns the error and the whole turn is retried. If it can never
//! succeed, the notifier must return success, because dead letters do not wait for notifications.
//!
//! Content and recipients are the notifier's: this module knows no topics.

use std::pin::Pin;

use crate::sink::BlobLocation;
use gridhook_event::{SubscriptionKey, Timestamp};
use gridhook_journal as journal;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileWritten {
    /// The subscription of the dead letters in the file.
    pub subscription_key: SubscriptionKey,
    /// The location of the file. The last part of the path is the file's GUID.
    pub blob: BlobLocation,
    pub bytes: usize,
    /// The time at which the file was last written.
    pub at: Timestamp,
}

impl FileWritten {
    /// The file's GUID, the same however often the file is written.
    pub fn id(&self) -> &str {
        let name = self.blob.path.rsplit('/').next().unwrap_or_default();
        name.strip_suffix(".json").unwrap_or(name)
    }
}

/// Completes once the notification is durable, or can never be.
pub type Notification = Pin<Box<dyn Future<Output = Result<(), journal::Error>> + Send>>;

/// Called for every stored file.
pub type Notifier = Box<dyn Fn(FileWritten) -> Notification + Send + Sync>;
