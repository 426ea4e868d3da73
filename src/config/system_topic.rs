//! `[system_topic]`: the topic of events about the server itself.

use std::time::Duration;

use serde::Deserialize;

use super::read::{self, DAY, HOUR, TIB};

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SystemTopic {
    #[serde(deserialize_with = "read::optional")]
    pub name: Option<String>,
    /// The interval between two looks at event subscriptions, certificates and the disk.
    #[serde(deserialize_with = "read::wait::<_, 100, HOUR>")]
    pub interval: Duration,
    /// The free space on the disk of the store below which it is reported.
    #[serde(deserialize_with = "read::size::<_, _, 0, { 64 * TIB }>")]
    pub disk_free_bytes: u64,
    /// A certificate that ends within this time is reported.
    #[serde(deserialize_with = "read::wait::<_, 0, { 365 * DAY }>")]
    pub certificate_expiry: Duration,
}
