//! `gridhook clock`: what time it is for a server, and the confirmation that the clock of its machine is right.

use serde_json::{Value, json};

use super::client::{ClientArgs, ClientError};

/// The flags of `clock`.
#[derive(Clone, Debug, clap::Args)]
#[command(
    after_help = "After a jump of its machine's clock between two runs a server delivers events, and holds everything that ends
by age: events, event subscriptions, the log that journal.retention trims, dead letters whose store is out of reach.

Examples:
  gridhook clock show
  gridhook clock confirm"
)]
pub struct Clock {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum Verb {
    /// Show the server's time, the clock of its machine, and whether expiry is held
    Show {
        #[command(flatten)]
        asked: ClientArgs,
    },
    /// Confirm that the clock of the machine is right, and end the hold of expiry
    Confirm {
        #[command(flatten)]
        asked: ClientArgs,
    },
}

impl Clock {
    /// What there is to print.
    pub async fn run(self) -> Result<String, ClientError> {
        let (asked, view) = match self.verb {
            Verb::Show { asked } => {
                let view: Value = asked.control.session()?.get("/clock").await?;
                (asked, view)
            }
            Verb::Confirm { asked } => {
                let view: Value = asked.control.session()?.post("/clock", &json!({})).await?;
                (asked, view)
            }
        };
        asked.print(&view, table)
    }
}

fn table(view: &Value) -> String {
    let text = |key: &str| view[key].as_str().unwrap_or_default().to_owned();
    let ahead = view["wallClockAheadSeconds"].as_f64().unwrap_or_default();
    let held =
        if view["expiryHeld"] == true { "held until gridhook clock confirm, or for clock.hold_wait" } else { "on" };
    format!(
        "time           {}\nmachine clock  {} ({ahead:+.1} s)\nexpiry         {held}",
        text("time"),
        text("wallClock")
    )
}
