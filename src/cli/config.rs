//! `gridhook config check`: validates the settings as a start would, without starting the server.

use clap::Subcommand;
use serde_json::{Value, json};

use super::{
    Serve,
    output::{CommandError, OutputArgs, TextTable},
};
use gridhook_config as config;
use gridhook_config::Setting;
use gridhook_declared as declared;
use gridhook_declared::{ResourceGroup, TemplateOptions};

#[derive(Debug, Subcommand)]
#[command(after_help = "Examples:
  gridhook config check --config gridhook.toml
  gridhook config check --changed
  GRIDHOOK_LOG__FORMAT=json gridhook config check --output json")]
pub enum ConfigCommand {
    /// Validate the settings and print each with its source; the exit status is 1 if the server
    /// could not start with them
    Check {
        #[command(flatten)]
        serve: Serve,
        /// Print only settings that differ from the defaults
        #[arg(long)]
        changed: bool,
        #[command(flatten)]
        output: OutputArgs,
    },
}

/// Why the server could not start with these settings.
#[derive(Debug, thiserror::Error)]
pub enum ConfigCommandError {
    /// The settings cannot be used.
    #[error(transparent)]
    Config(#[from] config::Error),
    /// The configuration file that is applied at the start.
    #[error("server.apply: {0}")]
    Declared(#[from] declared::DeclaredError),
    /// A file that the settings name, such as a certificate.
    #[error(transparent)]
    Start(Box<dyn std::error::Error + Send + Sync>),
}

impl CommandError for ConfigCommandError {
    fn is_usage(&self) -> bool {
        matches!(self, Self::Config(error) if error.is_usage())
    }
}

/// Reads the files that the settings name, as a start would.
type Check = fn(&config::Config) -> Result<(), Box<dyn std::error::Error + Send + Sync>>;

impl ConfigCommand {
    /// Validates the settings; `check` reads the files that they name.
    ///
    /// # Errors
    /// The server could not start with these settings.
    pub fn run(self, check: Check) -> Result<String, ConfigCommandError> {
        let Self::Check {
            serve,
            changed,
            output,
        } = self;
        let sources = serve.setting_sources();
        let all = config::effective_settings(&sources)?;
        let config = config::Config::load(&sources)?;
        if let Some(file) = &config.server.apply {
            declared::load_complete(file, &ResourceGroup::default(), &TemplateOptions::default())?;
        }
        check(&config).map_err(ConfigCommandError::Start)?;
        let shown = all.iter().filter(|setting| !changed || setting.is_changed);
        let shown: Vec<[String; 3]> = shown
            .map(
                |Setting {
                     key, value, origin, ..
                 }| [key.clone(), value.clone(), origin.to_string()],
            )
            .collect();
        let view = |[key, value, origin]: &[String; 3]| json!({"key": key, "value": value, "origin": origin});
        Ok(output.format_value(
            &json!({ "value": shown.iter().map(view).collect::<Value>() }),
            |_| {
                let mut table = TextTable::new(["KEY", "VALUE", "FROM"]);
                shown.into_iter().for_each(|line| table.add_row(line));
                table.to_string()
            },
        ))
    }
}
