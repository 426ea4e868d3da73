//! The log, and traces of single events ([`trace`]).
//!
//! The log is structured and goes to standard error, as text or as one JSON object a line. Standard
//! output belongs to the output of the commands.
//!
//! Not here: log files and rotation, which the service manager provides.

mod limit;
pub mod trace;

use std::{
    io::{self, IsTerminal, Write},
    sync::Arc,
};

use tracing::Dispatch;
use tracing_subscriber::{
    EnvFilter, field::MakeExt, fmt::format, layer::SubscriberExt, reload, util::SubscriberInitExt,
};

use self::limit::Limit;
use gridhook_clock::Clock;
use gridhook_config as config;
use gridhook_config::LogFormat;
use gridhook_escape as escape;

/// The log cannot be set up or changed.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    #[error("log.filter cannot be read: {0}")]
    Filter(#[from] tracing_subscriber::filter::ParseError),
    /// The filter cannot be replaced.
    #[error("log.filter cannot be changed: {0}")]
    Reload(#[from] reload::Error),
    /// The process already has a log.
    #[error("the process already has a log: {0}")]
    Twice(#[from] tracing_subscriber::util::TryInitError),
}

/// Replaces the filter of the log while the process runs.
#[derive(Clone)]
pub struct LogFilter(Arc<dyn Fn(EnvFilter) -> Result<(), reload::Error> + Send + Sync>);

impl LogFilter {
    pub fn set_filter(&self, filter: &str) -> Result<(), TelemetryError> {
        Ok((self.0)(EnvFilter::try_new(filter)?)?)
    }
}

/// Sets up the log of the process.
pub fn init_logging(log: &config::LogConfig) -> Result<LogFilter, TelemetryError> {
    let (dispatch, filter) =
        new_subscriber(log, Clock::system(), io::stderr, io::stderr().is_terminal())?;
    dispatch.try_init()?;
    Ok(filter)
}

/// The subscriber that writes the log. Control characters are escaped in messages and fields, and
/// repeated lines of libraries are limited.
///
/// # Errors
/// If the filter is invalid.
pub fn new_subscriber<W: Write + 'static>(
    log: &config::LogConfig,
    clock: Clock,
    writer: impl Fn() -> W + Send + Sync + 'static,
    has_colours: bool,
) -> Result<(Dispatch, LogFilter), TelemetryError> {
    let filter = EnvFilter::try_new(&log.filter)?;
    let is_json = log.format == LogFormat::Json;
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(move || Lines {
            writer: writer(),
            is_json,
        })
        .with_ansi(has_colours && !is_json);
    if is_json {
        let subscriber = subscriber
            .json()
            .flatten_event(true)
            .with_filter_reloading();
        let handle = subscriber.reload_handle();
        let filter = LogFilter(Arc::new(move |filter| handle.reload(filter)));
        return Ok((subscriber.finish().with(Limit::new(clock)).into(), filter));
    }
    // Fields are escaped one by one, because the subscriber adds colour codes to the line.
    let fields = format::debug_fn(|writer, field, value| {
        let value = format!("{value:?}");
        match field.name() {
            "message" => write!(writer, "{}", escape::escape_text(&value)),
            name => write!(writer, "{name}={}", escape::escape_text(&value)),
        }
    });
    let subscriber = subscriber
        .fmt_fields(fields.delimited(" "))
        .with_filter_reloading();
    let handle = subscriber.reload_handle();
    let filter = LogFilter(Arc::new(move |filter| handle.reload(filter)));
    Ok((subscriber.finish().with(Limit::new(clock)).into(), filter))
}

/// Writes the log line by line. A failed write is ignored, because the server must not stop when
/// its log is not read.
struct Lines<W> {
    writer: W,
    is_json: bool,
}

impl<W: Write> Write for Lines<W> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let written = if self.is_json {
            self.writer
                .write_all(escape::escape_json(&String::from_utf8_lossy(line)).as_bytes())
        } else {
            self.writer.write_all(line)
        };
        written.ok();
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
