//! What a redrive was asked for and how far it has come, as it is written down with each page.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::{
    dead_letter::browse::{BrowseCursor, DeadLetterId, DeadLetterQuery, DeadLetterStage},
    event::Timestamp,
};

/// What an operator asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RedriveRequest {
    /// These.
    pub query: DeadLetterQuery,
    /// Whether files stay also where nothing is left of them.
    pub keep: bool,
}

/// How far a redrive has come, as it is written down.
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
    /// Where the next page begins.
    pub(super) at: Option<String>,
    /// The page that was taken in, where it is of a file.
    pub(super) page: Option<FileBatch>,
}

/// Letters of a file that are on their way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FileBatch {
    pub(super) file: String,
    /// How many letters the file has.
    pub(super) letters: u32,
    /// Those of the page.
    pub(super) indexes: Vec<(u32, u32)>,
    /// What the job had dropped and canceled before it.
    pub(super) lost_before: u64,
}

impl RedriveProgress {
    pub(super) fn new(ask: &RedriveRequest) -> Self {
        let RedriveRequest { query, keep } = ask;
        let keys = query.keys.as_ref().map(|keys| keys.iter().map(DeadLetterId::to_string).collect());
        Self {
            from: query.from,
            to: query.to,
            reason: query.reason.clone(),
            id: query.id.clone(),
            waiting: query.place.map(|place| place == DeadLetterStage::Waiting),
            keys,
            keep: *keep,
            at: Some(BrowseCursor::START.to_string()),
            page: None,
        }
    }

    pub(super) fn query(&self) -> DeadLetterQuery {
        let place =
            self.waiting.map(|waiting| if waiting { DeadLetterStage::Waiting } else { DeadLetterStage::Written });
        // What was written down was a key.
        let keys = self.keys.as_ref().map(|keys| keys.iter().filter_map(|key| key.parse().ok()).collect());
        DeadLetterQuery { place, from: self.from, to: self.to, reason: self.reason.clone(), id: self.id.clone(), keys }
    }

    pub(super) fn at(&self) -> Option<BrowseCursor> {
        self.at.as_ref().and_then(|at| at.parse().ok())
    }

    pub(super) fn record(&self) -> Bytes {
        serde_json::to_vec(self).expect("strings and numbers are JSON").into()
    }
}
