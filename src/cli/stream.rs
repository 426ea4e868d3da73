//! A streamed response of a running server: progress lines, then the result as the last line.

use std::time::Duration;

use awc::http::Method;
use serde_json::Value;

use super::{
    client::{ClientError, ClientResult, ServerClient},
    output::read,
    progress::Progress,
};
use gridhook_api::store::ProgressLine;
use gridhook_escape as escape;

/// Maximum duration of a stream: one week. There is no limit of the time between two lines, because
/// the server sends one only when the work has advanced; a dead server is noticed by its connection.
const STREAM_MAX: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// Posts to `path`, shows the progress, and returns the last line.
pub(super) async fn follow_progress(
    server: &ServerClient,
    path: &str,
    body: &Value,
) -> ClientResult<Value> {
    let request = server.build_request(Method::POST, path).send_json(body);
    let mut lines = server.open_lines(request, STREAM_MAX).await?;
    let line = Progress::spinner();
    loop {
        let value: Value = serde_json::from_slice(&lines.next_line().await?)?;
        let ProgressLine {
            error, progress, ..
        } = read(&value)?;
        if let Some(error) = error {
            let reason = escape::escape_text(&error).into_owned();
            return Err(ClientError::Reported(reason));
        }
        let Some(progress) = progress else {
            return Ok(value);
        };
        line.set_message(&progress);
    }
}
