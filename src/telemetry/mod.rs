//! What whoever watches the server is told: the log, and ([`trace`]) the way of single events through it.
//!
//! The log is structured, to standard error, as text for people or one JSON object a line for machines.
//!
//! Standard output belongs to what the commands print. Absent on purpose: log files and their rotation; whoever runs the
//! server has a journal for that.

mod limit;
pub mod trace;

use std::io::{self, IsTerminal, Write};

use tracing::Dispatch;
use tracing_subscriber::{
    EnvFilter, field::MakeExt, fmt::format, layer::SubscriberExt, reload, util::SubscriberInitExt,
};

use self::limit::Limit;
use crate::{
    clock::Clock,
    config::{self, LogFormat},
    escape,
};

/// The log could not be set up; nothing is logged.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// The filter is not one.
    #[error("log.filter cannot be read: {0}")]
    Filter(#[from] tracing_subscriber::filter::ParseError),
    /// The filter cannot be changed any more.
    #[error("the filter of the log cannot be changed: {0}")]
    Reload(#[from] reload::Error),
    /// The process has a log already.
    #[error("the log is set up already: {0}")]
    Twice(#[from] tracing_subscriber::util::TryInitError),
}

/// Changes what is logged while the process runs.
pub struct LogFilter(Box<dyn Fn(EnvFilter) -> Result<(), reload::Error> + Send + Sync>);

impl LogFilter {
    /// From now on `filter` says what is logged.
    pub fn set(&self, filter: &str) -> Result<(), TelemetryError> {
        Ok((self.0)(EnvFilter::try_new(filter)?)?)
    }
}

/// Sets the log of the process up.
pub fn init(log: &config::LogConfig) -> Result<LogFilter, TelemetryError> {
    let (dispatch, filter) = logger(log, io::stderr, io::stderr().is_terminal())?;
    dispatch.try_init()?;
    Ok(filter)
}

/// What writes the log's lines. What a terminal would obey is escaped, in messages and in fields, and what a library repeats
/// is bounded.
///
/// # Errors
/// Where the filter is not one.
pub fn logger<W: Write + 'static>(
    log: &config::LogConfig,
    writer: impl Fn() -> W + Send + Sync + 'static,
    has_colours: bool,
) -> Result<(Dispatch, LogFilter), TelemetryError> {
    let filter = EnvFilter::try_new(&log.filter)?;
    let is_json = log.format == LogFormat::Json;
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(move || Lines { writer: writer(), is_json })
        .with_ansi(has_colours && !is_json);
    if is_json {
        let subscriber = subscriber.json().flatten_event(true).with_filter_reloading();
        let handle = subscriber.reload_handle();
        let filter = LogFilter(Box::new(move |filter| handle.reload(filter)));
        return Ok((subscriber.finish().with(Limit::new(Clock::system())).into(), filter));
    }
    // Fields are escaped one by one, because the line around them has colours of its own.
    let fields = format::debug_fn(|writer, field, value| {
        let value = format!("{value:?}");
        match field.name() {
            "message" => write!(writer, "{}", escape::text(&value)),
            name => write!(writer, "{name}={}", escape::text(&value)),
        }
    });
    let subscriber = subscriber.fmt_fields(fields.delimited(" ")).with_filter_reloading();
    let handle = subscriber.reload_handle();
    let filter = LogFilter(Box::new(move |filter| handle.reload(filter)));
    Ok((subscriber.finish().with(Limit::new(Clock::system())).into(), filter))
}

/// The log, line by line. A line that cannot be written is lost: the server must go on where nobody reads it.
struct Lines<W> {
    writer: W,
    is_json: bool,
}

impl<W: Write> Write for Lines<W> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let written = match self.is_json {
            true => self.writer.write_all(escape::json(&String::from_utf8_lossy(line)).as_bytes()),
            false => self.writer.write_all(line),
        };
        written.ok();
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
