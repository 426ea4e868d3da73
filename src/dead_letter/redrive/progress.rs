//! The request and the progress of a redrive, stored with each page.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::browse::{BrowseCursor, DeadLetterId, DeadLetterQuery, DeadLetterStage};
use gridhook_event::Timestamp;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RedriveRequest {
    pub query: DeadLetterQuery,
    /// Whether files are kept in which nothing is left.
    pub keep: bool,
    /// Number of selected dead letters, if dry runs counted them.
    pub total: Option<u64>,
}

/// The stored progress of a redrive.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RedriveProgress {
    from: Option<Timestamp>,
    to: Option<Timestamp>,
    reason: Option<String>,
    id: Option<String>,
    waiting: Option<bool>,
    keys: Option<Vec<String>>,
    pub(super) keep: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) total: Option<u64>,
    /// The position of the next page.
    pub(super) at: Option<String>,
    /// The accepted page, if it is of a file.
    pub(super) page: Option<FileBatch>,
}

/// Dead letters of a file that are being sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FileBatch {
    pub(super) file: String,
    /// Number of dead letters in the file.
    #[serde(rename = "letters")]
    pub(super) dead_letters: u32,
    pub(super) indexes: Vec<(u32, u32)>,
    /// Events that the job had dropped and canceled before this page.
    pub(super) lost_before: u64,
}

impl RedriveProgress {
    pub(super) fn new(request: &RedriveRequest) -> Self {
        let RedriveRequest { query, keep, total } = request;
        let keys = query
            .keys
            .as_ref()
            .map(|keys| keys.iter().map(DeadLetterId::to_string).collect());
        Self {
            from: query.from,
            to: query.to,
            reason: query.reason.clone(),
            id: query.id.clone(),
            waiting: query.stage.map(|stage| stage == DeadLetterStage::Waiting),
            keys,
            keep: *keep,
            total: *total,
            at: Some(BrowseCursor::START.to_string()),
            page: None,
        }
    }

    pub(super) fn to_query(&self) -> DeadLetterQuery {
        let stage = self.waiting.map(|waiting| {
            if waiting {
                DeadLetterStage::Waiting
            } else {
                DeadLetterStage::Written
            }
        });
        // Only valid keys were stored.
        let keys = self
            .keys
            .as_ref()
            .map(|keys| keys.iter().filter_map(|key| key.parse().ok()).collect());
        DeadLetterQuery {
            stage,
            from: self.from,
            to: self.to,
            reason: self.reason.clone(),
            id: self.id.clone(),
            keys,
        }
    }

    pub(super) fn current_cursor(&self) -> Option<BrowseCursor> {
        self.at.as_ref().and_then(|at| at.parse().ok())
    }

    pub(super) fn to_record(&self) -> Bytes {
        serde_json::to_vec(self)
            .expect("strings and numbers are JSON")
            .into()
    }
}
