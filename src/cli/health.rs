//! `gridhook health`: whether a server takes events, as an exit status. For what watches containers and has no curl.

use std::{fmt, time::Duration};

use awc::http::StatusCode;
use humantime_serde::re::humantime::parse_duration;
use serde::Deserialize;
use url::Url;

use super::web;

/// The flags of `health`.
#[derive(Clone, Debug, clap::Args)]
#[command(
    after_help = "The exit status is 0 where it is so, and 1 where it is not or nobody answers. No token is needed.\nExample: gridhook health --server http://127.0.0.1:8080 && echo ready"
)]
pub struct Health {
    /// The server
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8080")]
    server: Url,
    /// Ask only whether it is alive: a server without room on its disk is, though it takes no events
    #[arg(long)]
    live: bool,
    /// How long it may take to answer
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = parse_duration)]
    wait: Duration,
}

/// How it is.
pub struct Told {
    /// Whether it is as it should be.
    pub is_well: bool,
    text: String,
}

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
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
    pub async fn run(self) -> Told {
        match tokio::time::timeout(self.wait, self.ask()).await {
            Ok(Ok(told)) => told,
            Ok(Err(error)) => self.ill(&error),
            Err(_) => self.ill(&format_args!("no answer within {:?}", self.wait)),
        }
    }

    fn ill(&self, why: &dyn fmt::Display) -> Told {
        Told { is_well: false, text: format!("{}: {why}", self.server) }
    }

    async fn ask(&self) -> Result<Told, String> {
        let path = if self.live { "healthz" } else { "readyz" };
        let url = format!("{}/{path}", self.server.as_str().trim_end_matches('/'));
        let mut response = web::client().get(url).send().await.map_err(|error| error.to_string())?;
        let status = response.status();
        let body = response.body().await.map_err(|error| error.to_string())?;
        let told = if self.live {
            serde_json::from_slice::<Alive>(&body).map(|_| "alive".to_owned())
        } else {
            let told = |Readiness { phase, problems }| if problems.is_empty() { phase } else { problems.join("; ") };
            serde_json::from_slice::<Readiness>(&body).map(told)
        };
        let text = told.map_err(|_| format!("{status}, and not in the words of gridhook"))?;
        Ok(Told { is_well: status == StatusCode::OK, text })
    }
}
