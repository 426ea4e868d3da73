//! `[metrics]`: access to metrics, and the number of series.

use serde::Deserialize;

use super::{Secret, read};

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Metrics {
    /// Whether metrics need no token.
    #[serde(deserialize_with = "read::flag")]
    pub public: bool,
    /// A token that only reads metrics.
    #[serde(deserialize_with = "read::token")]
    pub token: Option<Secret>,
    /// The number of subscriptions of all topics with their own series.
    #[serde(deserialize_with = "read::count::<_, _, 0, 100_000>")]
    pub subscriptions: usize,
    /// The number of subscriptions of one topic with their own series.
    #[serde(deserialize_with = "read::count::<_, _, 0, 100_000>")]
    pub subscriptions_per_topic: usize,
    /// The number of topics with their own series.
    #[serde(deserialize_with = "read::count::<_, _, 0, 100_000>")]
    pub topics: usize,
}
