//! `gridhook config check`: the settings read as a start would read them, and what would be run.

use std::collections::BTreeMap;

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::{
    Serve,
    control::{Output, Printed, Table},
    print,
};
use crate::{
    config::{self, Origin, Setting},
    declared::{self, Place},
};

/// The flags of `config`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  gridhook config check --config gridhook.toml
  gridhook config check --changed
  GRIDHOOK_LOG__FORMAT=json gridhook config check --output json")]
pub struct Settings {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Read the settings, and show each with where it came from; the exit status is 1 where the server could not start with
    /// them
    Check {
        #[command(flatten)]
        serve: Serve,
        /// Only those that are not the defaults
        #[arg(long)]
        changed: bool,
        #[command(flatten)]
        printed: Printed,
    },
}

/// Why the server could not start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The settings.
    #[error(transparent)]
    Config(#[from] config::Error),
    /// The file that is applied at the start.
    #[error("server.apply: {0}")]
    Declared(#[from] declared::Error),
    /// What the settings name, such as a certificate.
    #[error(transparent)]
    Start(Box<dyn std::error::Error + Send + Sync>),
}

/// Reads what the settings name as a start reads it.
type Check = fn(&config::Config) -> Result<(), Box<dyn std::error::Error + Send + Sync>>;

impl Settings {
    /// What there is to print; `check` reads the files that the settings name.
    ///
    /// # Errors
    /// Where the server could not start with these settings.
    pub fn run(self, check: Check) -> Result<String, Error> {
        let Verb::Check { serve, changed, printed } = self.verb;
        let sources = serve.sources();
        let all = config::settings(&sources)?;
        let config = config::Config::load(&sources)?;
        if let Some(file) = &config.server.apply {
            declared::load(file, &Place::default(), &BTreeMap::new())?;
        }
        check(&config).map_err(Error::Start)?;
        let shown = all.iter().filter(|setting| !changed || setting.origin != Origin::Default);
        Ok(match printed.output {
            Output::Json => {
                let told = |Setting { key, value, origin }: &Setting| json!({"key": key, "value": value, "origin": origin.to_string()});
                print::json(&shown.map(told).collect::<Value>())
            }
            Output::Table => {
                let mut table = Table::new(["KEY", "VALUE", "FROM"]);
                for Setting { key, value, origin } in shown {
                    table.line([key.clone(), value.clone(), origin.to_string()]);
                }
                table.to_string()
            }
        })
    }
}
