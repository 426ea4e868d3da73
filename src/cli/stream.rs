//! A long answer of a running server, read line by line while it comes: progress, and at last what was asked for.

use std::time::Duration;

use awc::http::Method;
use futures_util::StreamExt;
use serde::Deserialize;
use serde_json::Value;

use super::{
    client::{self, ServerClient},
    http,
    spinner::Spinner,
};
use crate::escape;

/// A week: a server that is alive says something every second, and one that is not is noticed by its socket.
const LONGEST: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// A line, of which one thing is there.
#[derive(Deserialize)]
struct StreamLine {
    progress: Option<String>,
    error: Option<String>,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum StreamError {
    /// It was not asked, or said no at once.
    #[error(transparent)]
    Control(#[from] client::ClientError),
    /// It said why it could not do it.
    #[error("the server says: {0}")]
    Told(String),
    /// It is gone.
    #[error("the server broke off: {0}")]
    BrokeOff(String),
}

/// Has something done at `path`, shows how far it is, and answers with the last line.
pub(super) async fn follow(session: &ServerClient, path: &str, body: &Value) -> Result<Value, StreamError> {
    let broke = |error: &dyn std::fmt::Display| StreamError::BrokeOff(error.to_string());
    let sent = session.request(Method::POST, path).send_json(body).await;
    let mut answer = sent.map_err(|error| broke(&error))?.timeout(LONGEST);
    if !answer.status().is_success() {
        let status = answer.status();
        let body = answer.body().await.map_err(|error| broke(&error))?;
        return Err(client::ClientError::Refused { status, reason: http::reason(&body) }.into());
    }
    let (spinner, mut text) = (Spinner::new(), Vec::new());
    while let Some(piece) = answer.next().await {
        text.extend_from_slice(&piece.map_err(|error| broke(&error))?);
        while let Some(end) = text.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = text.drain(..=end).collect();
            let told: Value = serde_json::from_slice(&line).map_err(client::ClientError::Answer)?;
            match StreamLine::deserialize(&told).map_err(client::ClientError::Answer)? {
                StreamLine { error: Some(error), .. } => {
                    return Err(StreamError::Told(escape::text(&error).into_owned()));
                }
                StreamLine { progress: Some(progress), .. } => spinner.set_message(progress),
                StreamLine { progress: None, error: None } => return Ok(told),
            }
        }
    }
    Err(StreamError::BrokeOff("its answer has no end".to_owned()))
}
