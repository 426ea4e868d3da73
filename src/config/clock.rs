//! `[clock]`: how far the clock of the machine is believed.

use std::time::Duration;

use serde::Deserialize;

use super::read::{self, DAY, SECOND};

/// `[clock]`
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Clock {
    /// A larger jump between two runs is told, and holds expiry.
    #[serde(deserialize_with = "read::wait::<_, { 60 * SECOND }, { 365 * DAY }>")]
    pub jump_max: Duration,
    /// How long expiry is held where nobody confirms the clock.
    #[serde(deserialize_with = "read::wait::<_, 0, { 30 * DAY }>")]
    pub hold_wait: Duration,
}
