//! Who is told of every file.
//!
//! A herald is asked after a file is at its destination and before its dead letters are taken away: where the process
//! ends in between, the file is written again under its name, and told again. So each file is told at least once, and
//! never one that is not there. What a herald cannot do now it says, and the turn is tried again as a whole; what it can
//! never do it must let pass, because nobody's dead letters wait for somebody to hear of them.
//!
//! Absent on purpose: what it tells, and whom. This room knows no topics.

use std::pin::Pin;

use crate::{
    dead_letter::sink::BlobLocation,
    event::{SubscriptionKey, Timestamp},
    journal,
};

/// A file that is at its destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileWritten {
    /// Whose dead letters are in it.
    pub subscription_key: SubscriptionKey,
    /// Where it is: its path's last part is its GUID.
    pub blob: BlobLocation,
    /// How long it is.
    pub bytes: usize,
    /// When it was written, this time.
    pub at: Timestamp,
}

impl FileWritten {
    /// Its GUID: the same however often it is written and told.
    pub fn id(&self) -> &str {
        let name = self.blob.path.rsplit('/').next().unwrap_or_default();
        name.strip_suffix(".json").unwrap_or(name)
    }
}

/// Ends when what was told is durable, or never will be and need not be.
pub type Notification = Pin<Box<dyn Future<Output = Result<(), journal::Error>> + Send>>;

/// Is told of every file.
pub type Notifier = Box<dyn Fn(FileWritten) -> Notification + Send + Sync>;
