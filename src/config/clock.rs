//! `[clock]`: the trust in the wall clock.

use std::time::Duration;

use serde::Deserialize;

use super::read::{self, DAY, SECOND};

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Clock {
    /// A larger jump between two runs is logged, and suspends expiry.
    #[serde(deserialize_with = "read::wait::<_, { 60 * SECOND }, { 365 * DAY }>")]
    pub jump_max: Duration,
    /// The longest time that expiry is suspended without a confirmation.
    #[serde(deserialize_with = "read::wait::<_, 0, { 30 * DAY }>")]
    pub expiry_pause_max: Duration,
}
