//! `[telemetry]`: traces.

use std::time::Duration;

use serde::Deserialize;
use url::Url;

use super::read::{self, HOUR, SECOND};

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Telemetry {
    /// The collector; [`None`] for no traces.
    #[serde(deserialize_with = "read::web")]
    pub otlp_endpoint: Option<Url>,
    /// The sampled share of traces that begin here, from 0 to 1.
    #[serde(deserialize_with = "read::share")]
    pub sample_share: f64,
    /// The size of the queue in spans.
    #[serde(deserialize_with = "read::count::<_, _, 1, 1_000_000>")]
    pub queue_spans: usize,
    /// The time that a batch waits for more spans.
    #[serde(deserialize_with = "read::wait::<_, 1, HOUR>")]
    pub batch_delay: Duration,
    /// The timeout of an export request.
    #[serde(deserialize_with = "read::wait::<_, 1, { 60 * SECOND }>")]
    pub export_timeout: Duration,
}

impl Telemetry {
    /// The URL of export requests.
    pub fn traces_url(&self) -> Option<Url> {
        let base = self
            .otlp_endpoint
            .as_ref()?
            .as_str()
            .trim_end_matches('/')
            .to_owned();
        Url::parse(&format!("{base}/v1/traces")).ok()
    }
}
