//! What whoever watches the server is told: the log, and ([`trace`]) the way of single events through it.
//!
//! The log is structured, to standard error, as text for people or one JSON object a line for machines.
//!
//! Standard output belongs to what the commands print. Absent on purpose: log files and their rotation; whoever runs the
//! server has a journal for that.

pub mod trace;

use std::io::{self, IsTerminal};

use tracing_subscriber::{EnvFilter, util::SubscriberInitExt};

use crate::config::{Format, Log};

/// The log could not be set up; nothing is logged.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The filter is not one.
    #[error("log.filter cannot be read: {0}")]
    Filter(#[from] tracing_subscriber::filter::ParseError),
    /// The process has a log already.
    #[error("the log is set up already: {0}")]
    Twice(#[from] tracing_subscriber::util::TryInitError),
}

/// Sets the log of the process up.
pub fn init(log: &Log) -> Result<(), Error> {
    let filter = EnvFilter::try_new(&log.filter)?;
    let subscriber = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr);
    match log.format {
        Format::Text => subscriber.with_ansi(io::stderr().is_terminal()).finish().try_init()?,
        Format::Json => subscriber.json().flatten_event(true).finish().try_init()?,
    }
    Ok(())
}
