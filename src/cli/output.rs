//! The output layer of all commands: the outcome of a command, text or JSON, tables.
//!
//! A command returns its text in a [`CommandOutcome`]; `tail`, `listen` and `top` print it while
//! they run, and some commands print progress or a plan before it. Everything is printed by
//! [`print`](mod@print), which escapes control characters and accepts closed pipes.

use std::{fmt, future::Future, process::ExitCode};

use clap::ValueEnum;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use super::{
    Command,
    client::ClientResult,
    cluster::ClusterFindings,
    format,
    print::{self, PipeState},
};
use gridhook_config as config;
use gridhook_config::SettingSources;
use gridhook_escape as escape;

/// The parts of the binary that commands may not import.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    pub serve: fn(SettingSources) -> anyhow::Result<()>,
    /// Reads the files that the settings name, as a start would.
    pub check: fn(&config::Config) -> Result<(), Box<dyn std::error::Error + Send + Sync>>,
    /// The names of the nodes of the cluster that run. Blocks for `cluster.expiry`.
    pub living_nodes: fn(&config::Config) -> anyhow::Result<Vec<String>>,
    /// Everything that is wrong with the set-up of a cluster; [`None`] for a server of its own.
    /// Blocks.
    pub examine_cluster: fn(&config::Config) -> Option<ClusterFindings>,
}

#[derive(Clone, Debug)]
pub struct CommandOutcome {
    output: CommandOutput,
    is_success: bool,
}

/// The output that is left to print at the end of a command.
#[derive(Clone, Debug)]
enum CommandOutput {
    /// The command printed everything while it ran.
    Nothing,
    /// Text, with control characters to be escaped.
    Text(String),
    /// Text of the program itself, such as a shell script.
    Raw(String),
}

impl CommandOutcome {
    /// A text, and whether the exit status is 0.
    pub(super) fn new(text: String, is_success: bool) -> Self {
        Self {
            output: CommandOutput::Text(text),
            is_success,
        }
    }

    /// A text of the program itself, printed without escaping.
    pub(super) fn from_own_text(text: String) -> Self {
        Self {
            output: CommandOutput::Raw(text),
            is_success: true,
        }
    }

    /// Prints the outcome. A closed pipe does not change the exit status.
    fn print(self) -> Result<ExitCode, print::PrintError> {
        let (PipeState::Open | PipeState::Closed) = match &self.output {
            CommandOutput::Nothing => PipeState::Open,
            CommandOutput::Text(text) => print::print_lines(text)?,
            CommandOutput::Raw(text) => print::print_unescaped(text)?,
        };
        Ok(if self.is_success {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        })
    }
}

impl From<()> for CommandOutcome {
    fn from((): ()) -> Self {
        Self {
            output: CommandOutput::Nothing,
            is_success: true,
        }
    }
}

impl From<String> for CommandOutcome {
    fn from(text: String) -> Self {
        Self::new(text, true)
    }
}

impl From<Option<String>> for CommandOutcome {
    fn from(text: Option<String>) -> Self {
        text.map_or_else(|| ().into(), Into::into)
    }
}

/// The exit status for a command line that cannot be used. clap ends with it, too.
const USAGE: u8 = 2;

/// An error that ends a command.
pub trait CommandError: std::error::Error + Send + Sync + 'static {
    /// Whether a flag, an argument or a variable cannot be used, or a file that one names.
    fn is_usage(&self) -> bool {
        false
    }
}

/// How a command ends.
pub type CommandResult<T = CommandOutcome> = Result<T, CommandFailure>;

/// Any error that ends a command.
#[derive(Debug)]
pub struct CommandFailure {
    error: anyhow::Error,
    is_usage: bool,
}

impl CommandFailure {
    /// The failure of the server, whose flags are settings.
    pub(super) fn from_server_error(error: anyhow::Error) -> Self {
        let is_usage = error
            .downcast_ref::<config::Error>()
            .is_some_and(CommandError::is_usage);
        Self { error, is_usage }
    }
}

impl<E: CommandError> From<E> for CommandFailure {
    fn from(error: E) -> Self {
        Self {
            is_usage: error.is_usage(),
            error: error.into(),
        }
    }
}

impl CommandError for config::Error {
    fn is_usage(&self) -> bool {
        self.is_of_flag()
    }
}

impl CommandError for print::PrintError {}

/// Runs a command, prints its outcome or its error, and returns the exit status.
pub fn run(command: Command, program: &Program) -> ExitCode {
    let result = command
        .execute(program)
        .and_then(|outcome| Ok(outcome.print()?));
    result.unwrap_or_else(|CommandFailure { error, is_usage }| {
        print::print_note(&format!("gridhook: {}", print::format_error(&error)));
        if is_usage {
            ExitCode::from(USAGE)
        } else {
            ExitCode::FAILURE
        }
    })
}

/// Runs the future of a command in an actix system.
pub(super) fn block_on<T, E>(run: impl Future<Output = Result<T, E>>) -> CommandResult
where
    T: Into<CommandOutcome>,
    E: Into<CommandFailure>,
{
    actix_rt::System::new()
        .block_on(run)
        .map(Into::into)
        .map_err(Into::into)
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum OutputFormat {
    /// Text and tables, for people
    #[default]
    Table,
    /// JSON, for scripts
    Json,
}

/// The output format, as a flag.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct OutputArgs {
    /// Output format
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t)]
    output: OutputFormat,
}

impl OutputArgs {
    /// Whether the output is a table for people, not JSON.
    pub(super) fn is_text(self) -> bool {
        self.output == OutputFormat::Table
    }

    /// Formats a value of the command: as `text` formats it, or as JSON.
    pub(super) fn format_value<T: Serialize + ?Sized>(
        self,
        value: &T,
        text: impl FnOnce(&T) -> String,
    ) -> String {
        if self.is_text() {
            text(value)
        } else {
            print::to_json(value)
        }
    }

    /// Formats a list: as `text` formats its items, or as JSON with the items in `value`, as all
    /// lists have them.
    pub(super) fn format_list<T: DeserializeOwned>(
        self,
        items: Vec<Value>,
        text: impl FnOnce(&[T]) -> String,
    ) -> ClientResult {
        let list = json!({ "value": items });
        if self.is_text() {
            Ok(text(&read::<Vec<T>>(&list["value"])?))
        } else {
            Ok(print::to_json(&list))
        }
    }

    /// Formats a response: as `text` formats what is read from it, or as the JSON that the server
    /// sent.
    pub(super) fn format_response<T: DeserializeOwned>(
        self,
        json: &Value,
        text: impl FnOnce(&T) -> String,
    ) -> ClientResult {
        if self.is_text() {
            Ok(text(&read(json)?))
        } else {
            Ok(print::to_json(json))
        }
    }

    /// A line of a stream: as `text` formats it, or as JSON.
    pub(super) fn format_line(
        self,
        json: impl FnOnce() -> String,
        text: impl FnOnce() -> String,
    ) -> String {
        if self.is_text() { text() } else { json() }
    }
}

/// Reads a part of a response.
pub(super) fn read<T: DeserializeOwned>(json: &Value) -> ClientResult<T> {
    Ok(T::deserialize(json)?)
}

/// A table with a header; each column is as wide as its widest cell.
pub struct TextTable {
    lines: Vec<Vec<String>>,
}

impl TextTable {
    pub fn new<const N: usize>(header: [&str; N]) -> Self {
        Self {
            lines: vec![header.map(str::to_owned).to_vec()],
        }
    }

    /// Adds a row. Control characters in a cell are escaped, so a cell stays on one line.
    pub fn add_row<const N: usize>(&mut self, cells: [String; N]) {
        self.lines.push(
            cells
                .iter()
                .map(|cell| escape::escape_text(cell).into_owned())
                .collect(),
        );
    }
}

impl fmt::Display for TextTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = self.lines.first().map_or(0, Vec::len);
        let mut widths = vec![0; columns];
        for line in &self.lines {
            for (width, cell) in widths.iter_mut().zip(line) {
                *width = cell.chars().count().max(*width);
            }
        }
        for (at, line) in self.lines.iter().enumerate() {
            let cells = line
                .iter()
                .zip(&widths)
                .map(|(cell, width)| format!("{cell:width$}"));
            let text = format::join(cells, "  ");
            let end = if at + 1 < self.lines.len() { "\n" } else { "" };
            write!(f, "{}{end}", text.trim_end())?;
        }
        Ok(())
    }
}
