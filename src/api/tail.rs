//! The lines of `GET /tail`.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::ledger::LineView;

/// A line of the response.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(tag = "kind", rename_all = "camelCase")]
pub enum TailLine {
    /// An event was published.
    Event(Published),
    /// An outcome of events.
    Outcome(Box<Ended>),
    /// Number of lines that were lost here
    Missed(TailMissed),
}

#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = TailEvent)]
pub struct Published {
    /// Time at which the event was published
    pub at: String,
    /// Resource id of the topic
    pub topic: String,
    /// Sequence number of the event in the log
    pub sequence: u64,
    /// `id` of the event, as the publisher set it
    pub id: String,
    /// `eventType` of the event, or `type` in CloudEvents
    pub event_type: String,
    /// Subject of the event in the context of its source
    pub subject: String,
    /// Size of the event in bytes
    pub bytes: usize,
    /// The event, if the request has `data=true`
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Object)]
    pub event: Option<Box<RawValue>>,
}

#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[schema(as = TailOutcome)]
pub struct Ended {
    /// Resource id of the topic
    pub topic: String,
    /// Name of the event subscription
    pub subscription: String,
    #[serde(flatten)]
    pub line: LineView,
}

#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct TailMissed {
    /// Number of lines of all topics that the reader missed
    pub count: u64,
}

impl TailLine {
    /// Reads a line. A derived reader would buffer it, and an event is passed on byte for byte.
    ///
    /// # Errors
    /// The text is not a line of this version.
    pub fn parse(text: &str) -> Result<Self, serde_json::Error> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        enum LineKind {
            Event,
            Outcome,
            Missed,
        }
        #[derive(Deserialize)]
        struct AnyLine {
            kind: LineKind,
        }
        match serde_json::from_str::<AnyLine>(text)?.kind {
            LineKind::Event => serde_json::from_str(text).map(Self::Event),
            LineKind::Outcome => serde_json::from_str(text).map(Self::Outcome),
            LineKind::Missed => serde_json::from_str(text).map(Self::Missed),
        }
    }
}
