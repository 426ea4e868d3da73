//! `gridhook health`: checks whether a server accepts events. For container health checks, which
//! have no curl.

use std::time::Duration;

use awc::{Client, http::StatusCode};
use serde_json::json;
use url::Url;

use super::{
    client::{ClientError, ClientResult, ServerAddressArgs, connection_error},
    http,
    output::{CommandOutcome, OutputArgs},
    value::parse_duration,
};
use gridhook_api::health::{Liveness, Readiness};
use gridhook_escape as escape;

#[derive(Clone, Debug, clap::Args)]
#[command(
    after_help = "The exit status is 0 if the server is healthy, and 1 if not or if it does not \
        respond. No token is needed.\n\nExample:\n  gridhook health --server http://127.0.0.1:8080 \
        && echo ready"
)]
pub struct Health {
    /// Check only that the process responds; a server with a full disk is live but accepts no
    /// events
    #[arg(long)]
    live: bool,
    /// Maximum time to wait for the response
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = parse_duration)]
    wait: Duration,
    #[command(flatten)]
    address: ServerAddressArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// Why the state of the server is not known.
#[derive(Debug, thiserror::Error)]
enum ProbeError {
    #[error(transparent)]
    Unreachable(#[from] ClientError),
    #[error("{server}: {status}, and the response is not from gridhook")]
    Foreign { server: Url, status: StatusCode },
}

impl Health {
    /// Runs the check. Needs a running actix system.
    ///
    /// # Errors
    /// The flags or the context name no usable server.
    pub async fn run(self) -> ClientResult<CommandOutcome> {
        let (server, client) = self.address.build_client()?;
        let (is_healthy, text) =
            match tokio::time::timeout(self.wait, self.probe_server(&server, &client)).await {
                Ok(Ok(result)) => result,
                Ok(Err(error)) => (false, error.to_string()),
                Err(_) => (
                    false,
                    format!("{server}: no response within {:?}", self.wait),
                ),
            };
        let json = json!({"server": server.as_str(), "healthy": is_healthy, "text": text});
        let text = self
            .output
            .format_value(&json, |_| escape::escape_text(&text).into_owned());
        Ok(CommandOutcome::new(text, is_healthy))
    }

    async fn probe_server(
        &self,
        server: &Url,
        client: &Client,
    ) -> Result<(bool, String), ProbeError> {
        let path = if self.live { "/healthz" } else { "/readyz" };
        let result = client.get(http::join_path(server, path)).send().await;
        let mut response = result.map_err(|error| connection_error(server, &error))?;
        let status = response.status();
        let body = response.body().await.map_err(|error| ClientError::Body {
            server: server.clone(),
            reason: http::payload_problem(&error),
        })?;
        let state = if self.live {
            serde_json::from_slice::<Liveness>(&body).map(|_| "alive".to_owned())
        } else {
            serde_json::from_slice::<Readiness>(&body).map(|readiness| {
                match readiness.problems.as_slice() {
                    [] => readiness.phase.to_string(),
                    problems => problems.join("; "),
                }
            })
        };
        let text = state.map_err(|_| ProbeError::Foreign {
            server: server.clone(),
            status,
        })?;
        Ok((status == StatusCode::OK, text))
    }
}
