//! A streamed response of a running server: progress lines, then the result as the last line.

use std::time::Duration;

use awc::http::Method;
use futures_util::StreamExt;
use serde_json::Value;

use super::{
    client::{self, ServerClient},
    http,
    output::{CommandError, read},
    spinner::Spinner,
};
use gridhook_api::store::ProgressLine;
use gridhook_escape as escape;

/// One week. A running server sends a line every second; a dead one is noticed by its connection.
const STREAM_MAX: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
pub enum StreamError {
    /// The request failed.
    #[error(transparent)]
    Control(#[from] client::ClientError),
    /// The server reported an error in the stream.
    #[error("the server reports: {0}")]
    Server(String),
    /// The response ended early.
    #[error("the connection to the server ended early: {0}")]
    Disconnected(String),
}

impl CommandError for StreamError {
    fn is_usage(&self) -> bool {
        match self {
            Self::Control(error) => error.is_usage(),
            Self::Server(_) | Self::Disconnected(_) => false,
        }
    }
}

/// Posts to `path`, shows the progress, and returns the last line.
pub(super) async fn follow_progress(
    session: &ServerClient,
    path: &str,
    body: &Value,
) -> Result<Value, StreamError> {
    let disconnected_error =
        |error: &dyn std::fmt::Display| StreamError::Disconnected(error.to_string());
    let sent = session
        .build_request(Method::POST, path)
        .send_json(body)
        .await;
    let mut answer = sent
        .map_err(|error| session.not_reached(&error))?
        .timeout(STREAM_MAX);
    if !answer.status().is_success() {
        let status = answer.status();
        let body = answer
            .body()
            .await
            .map_err(|error| disconnected_error(&error))?;
        return Err(client::ClientError::Refused {
            status,
            reason: http::error_reason(&body),
        }
        .into());
    }
    let spinner = Spinner::new();
    let mut text = Vec::new();
    while let Some(chunk) = answer.next().await {
        text.extend_from_slice(&chunk.map_err(|error| disconnected_error(&error))?);
        while let Some(end) = text.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = text.drain(..=end).collect();
            let value: Value =
                serde_json::from_slice(&line).map_err(client::ClientError::Answer)?;
            match read(&value)? {
                ProgressLine {
                    error: Some(error), ..
                } => {
                    return Err(StreamError::Server(
                        escape::escape_text(&error).into_owned(),
                    ));
                }
                ProgressLine {
                    progress: Some(progress),
                    ..
                } => spinner.set_message(progress),
                ProgressLine {
                    progress: None,
                    error: None,
                    ..
                } => return Ok(value),
            }
        }
    }
    Err(StreamError::Disconnected(
        "the response has no result line".to_owned(),
    ))
}
