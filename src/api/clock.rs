//! The clocks of the server and the machine.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The clocks of the server and the machine.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Clock)]
pub struct ClockView {
    /// Time of the server's clock, by which events age
    pub time: String,
    /// Time of the machine's clock
    pub wall_clock: String,
    /// Seconds by which the machine's clock is ahead of the server's; negative if it is behind
    pub wall_clock_ahead_seconds: f64,
    /// Whether expiry is paused, because the machine's clock jumped or the server was off for long.
    pub expiry_paused: bool,
}
