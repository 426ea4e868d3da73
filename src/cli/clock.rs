//! `gridhook clock`: shows a server's clock and confirms it after a jump.

use serde_json::json;

use super::client::{ClientArgs, ClientResult};
use gridhook_api::clock::ClockView;
use gridhook_clock::Clock;

#[derive(Clone, Debug, clap::Subcommand)]
#[command(after_help = "\
If the machine's clock jumped between two runs, the server delivers events but pauses all expiry by age: events,
event subscriptions, log retention (journal.retention), and dead letters whose destination is unreachable. Expiry
resumes after gridhook clock confirm, or after clock.expiry_pause_max. If the machine's clock is ahead, the server's
time goes on from it. If it is behind by more than a minute, the server begins again by it: requests in flight finish
first, within server.shutdown_timeout.

Examples:
  gridhook clock show
  gridhook clock confirm")]
pub enum ClockCommand {
    /// Show the server's time, the clock of its machine, and whether expiry is paused
    Show(ClientArgs),
    /// Confirm that the machine's clock is right, and resume expiry
    Confirm(ClientArgs),
}

impl ClockCommand {
    /// Returns the text to print.
    pub async fn run(self) -> ClientResult {
        match self {
            Self::Show(client) => client.get_and_format("/clock", format_table).await,
            Self::Confirm(client) => {
                client
                    .post_and_format("/clock", &json!({}), format_table)
                    .await
            }
        }
    }
}

fn format_table(view: &ClockView) -> String {
    let ClockView {
        time,
        wall_clock,
        wall_clock_ahead_seconds: ahead,
        expiry_paused,
    } = view;
    let expiry = if *expiry_paused {
        "paused until gridhook clock confirm, or for clock.expiry_pause_max"
    } else {
        "on"
    };
    let mut table = format!(
        "time           {time}\nmachine clock  {wall_clock} ({ahead:+.1} s)\nexpiry         \
         {expiry}"
    );
    if *ahead < -Clock::SET_BACK_MIN.as_secs_f64() {
        table.push_str(
            "\n\nThe machine's clock is behind. If it is right, run gridhook clock confirm: the \
             server then begins again by it.",
        );
    }
    table
}
