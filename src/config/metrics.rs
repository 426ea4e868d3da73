//! `[metrics]`: who may read figures, and how many have series of their own.

use serde::Deserialize;

use super::{Secret, read};

/// `[metrics]`
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Metrics {
    /// Whether everybody may read them.
    #[serde(deserialize_with = "read::flag")]
    pub public: bool,
    /// A token that reads them and is good for nothing else.
    #[serde(deserialize_with = "read::token")]
    pub token: Option<Secret>,
    /// Subscriptions of all topics.
    #[serde(deserialize_with = "read::count::<_, _, 0, 100_000>")]
    pub subscriptions: usize,
    /// Subscriptions of one topic.
    #[serde(deserialize_with = "read::count::<_, _, 0, 100_000>")]
    pub subscriptions_per_topic: usize,
    /// Topics.
    #[serde(deserialize_with = "read::count::<_, _, 0, 100_000>")]
    pub topics: usize,
}
