//! `gridhook health`: whether a server takes events, as an exit status. For what watches containers and has no curl.

use std::time::Duration;

use awc::{Client, http::StatusCode};
use humantime_serde::re::humantime::parse_duration;
use serde::Deserialize;
use serde_json::json;
use url::Url;

use super::{
    client::{ClientError, OutputArgs, OutputFormat, ServerAddressArgs, not_reached},
    print,
};
use crate::escape;

/// The flags of `health`.
#[derive(Clone, Debug, clap::Args)]
#[command(
    after_help = "The exit status is 0 where it is so, and 1 where it is not or nobody answers. No token is needed.\nExample: gridhook health --server http://127.0.0.1:8080 && echo ready"
)]
pub struct Health {
    /// Ask only whether it is alive: a server without room on its disk is, though it takes no events
    #[arg(long)]
    live: bool,
    /// How long it may take to answer
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = parse_duration)]
    wait: Duration,
    #[command(flatten)]
    place: ServerAddressArgs,
    #[command(flatten)]
    printed: OutputArgs,
}

/// How it is.
pub struct HealthView {
    /// Whether it is as it should be.
    pub is_well: bool,
    /// What is printed.
    pub text: String,
}

/// What `/healthz` says.
#[derive(Deserialize)]
struct Alive {
    #[serde(rename = "status")]
    _status: String,
}

/// What `/readyz` says, as far as it is shown.
#[derive(Deserialize)]
struct Readiness {
    phase: String,
    problems: Vec<String>,
}

impl Health {
    /// Asks. Has to be called where a system of actix runs.
    ///
    /// # Errors
    /// Where it is not clear which server is asked.
    pub async fn run(self) -> Result<HealthView, ClientError> {
        let (server, client) = self.place.client()?;
        let (is_well, text) = match tokio::time::timeout(self.wait, self.probe(&server, &client)).await {
            Ok(Ok(told)) => told,
            Ok(Err(error)) => (false, error),
            Err(_) => (false, format!("{server}: no answer within {:?}", self.wait)),
        };
        let text = match self.printed.output {
            OutputFormat::Table => escape::text(&text).into_owned(),
            OutputFormat::Json => print::json(&json!({"server": server.as_str(), "healthy": is_well, "text": text})),
        };
        Ok(HealthView { is_well, text })
    }

    async fn probe(&self, server: &Url, client: &Client) -> Result<(bool, String), String> {
        let path = if self.live { "healthz" } else { "readyz" };
        let url = format!("{}/{path}", server.as_str().trim_end_matches('/'));
        let sent = client.get(url).send().await;
        let mut response = sent.map_err(|error| not_reached(server, &error).to_string())?;
        let status = response.status();
        let body = response.body().await.map_err(|error| format!("{server}: {error}"))?;
        let told = if self.live {
            serde_json::from_slice::<Alive>(&body).map(|_| "alive".to_owned())
        } else {
            let told = |Readiness { phase, problems }| if problems.is_empty() { phase } else { problems.join("; ") };
            serde_json::from_slice::<Readiness>(&body).map(told)
        };
        let text = told.map_err(|_| format!("{server}: {status}, and the answer is not gridhook's"))?;
        Ok((status == StatusCode::OK, text))
    }
}
