//! `[telemetry]`: where the way of events is told as traces.

use std::time::Duration;

use serde::Deserialize;
use url::Url;

use super::read::{self, HOUR, SECOND};

/// `[telemetry]`
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Telemetry {
    /// The collector; [`None`] where nothing is traced.
    #[serde(deserialize_with = "read::web")]
    pub otlp_endpoint: Option<Url>,
    /// How much of the traces that begin here is recorded: from 0 to 1.
    #[serde(deserialize_with = "read::share")]
    pub sample_share: f64,
    /// Spans that wait for being sent.
    #[serde(deserialize_with = "read::count::<_, _, 1, 1_000_000>")]
    pub queue_spans: usize,
    /// How long a span waits for company.
    #[serde(deserialize_with = "read::wait::<_, 1, HOUR>")]
    pub batch_wait: Duration,
    /// How long the collector may take for a batch.
    #[serde(deserialize_with = "read::wait::<_, 1, { 60 * SECOND }>")]
    pub export_wait: Duration,
}

impl Telemetry {
    /// Where spans go.
    pub fn traces_url(&self) -> Option<Url> {
        let base = self.otlp_endpoint.as_ref()?.as_str().trim_end_matches('/').to_owned();
        Url::parse(&format!("{base}/v1/traces")).ok()
    }
}
