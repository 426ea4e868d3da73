//! Bodies and views of the operations on dead letters.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use crate::{
    admin::model::{InvalidRequest, instant},
    dead_letter::browse::{BrowseProblem, DeadLetterId, DeadLetterQuery, DeadLetterStage, FoundDeadLetter},
    policy::outcome::Reason,
};

/// Selection of dead letters.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(as = DeadLetterFilter)]
pub(in crate::admin) struct FilterBody {
    /// `waiting` or `written`.
    pub(super) stage: Option<String>,
    /// Earliest time of the last attempt, or of the publish if there was none.
    pub(super) from: Option<String>,
    /// Time before which the last attempt, or else the publish, was.
    pub(super) to: Option<String>,
    /// `deadLetterReason`, compared without case.
    pub(super) reason: Option<String>,
    /// Id of the event.
    pub(super) id: Option<String>,
}

/// A purge of dead letters.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(as = DeadLetterPurge)]
pub(in crate::admin) struct PurgeBody {
    pub(super) filter: Option<FilterBody>,
    /// Keys of the selected dead letters.
    pub(super) keys: Option<Vec<String>>,
    /// Whether to select all dead letters.
    #[serde(default)]
    pub(super) all: bool,
    /// Whether to count without a purge.
    #[serde(default)]
    pub(super) dry_run: bool,
    /// `next` of the previous response.
    pub(super) after: Option<String>,
}

/// A redrive of dead letters.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(as = DeadLetterRedrive)]
pub(in crate::admin) struct RedriveBody {
    pub(super) filter: Option<FilterBody>,
    /// Keys of the selected dead letters.
    pub(super) keys: Option<Vec<String>>,
    /// Whether to select all dead letters.
    #[serde(default)]
    pub(super) all: bool,
    /// Whether to count without a redrive.
    #[serde(default)]
    pub(super) dry_run: bool,
    /// `next` of the previous dry run.
    pub(super) after: Option<String>,
    /// Maximum events a second.
    pub(super) rate: Option<f64>,
    /// Whether to keep a file whose dead letters were all redriven; a marker file records that.
    #[serde(default)]
    pub(super) keep: bool,
}

/// A started redrive.
#[derive(Serialize, ToSchema)]
#[schema(as = RedriveStarted)]
pub(in crate::admin) struct RedriveStartedView {
    pub(super) job: u16,
}

/// Result of the operation
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = DeadLettersPurged)]
pub(in crate::admin) struct PurgedView {
    pub(super) dead_letters: u64,
    pub(super) dry_run: bool,
    pub(super) problems: Vec<ProblemView>,
    pub(super) next: Option<String>,
}

/// Files that could not be read and were left as they are
#[derive(Serialize, ToSchema)]
#[schema(as = DeadLetterProblem)]
pub(in crate::admin) struct ProblemView {
    path: String,
    reason: String,
}

/// A page of dead letters.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = DeadLetters)]
pub(in crate::admin) struct PageView {
    pub(super) value: Vec<DeadLetterView>,
    pub(super) problems: Vec<ProblemView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) next_link: Option<String>,
}

/// A dead letter.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = DeadLetter)]
pub(in crate::admin) struct DeadLetterView {
    key: String,
    pub(super) stage: &'static str,
    id: Option<String>,
    event_type: Option<String>,
    subject: Option<String>,
    dead_letter_reason: Option<String>,
    delivery_attempts: Option<u32>,
    last_delivery_outcome: Option<String>,
    last_http_status_code: Option<u16>,
    publish_time: Option<String>,
    last_delivery_attempt_time: Option<String>,
    /// Time at which the file of a waiting dead letter is due.
    #[serde(skip_serializing_if = "Option::is_none")]
    file_due: Option<String>,
    /// File of a written dead letter, below the folder of the event subscription, and the position in it.
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    index: Option<u32>,
}

/// A dead letter with its event.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = DeadLetterWithEvent)]
pub(in crate::admin) struct DeadLetterDetailView {
    #[serde(flatten)]
    pub(super) letter: DeadLetterView,
    pub(super) schema: &'static str,
    /// The event as it was published, byte for byte.
    #[schema(value_type = Object)]
    pub(super) event: Box<RawValue>,
}

impl FilterBody {
    pub(super) fn query(&self, under: &str) -> Result<DeadLetterQuery, InvalidRequest> {
        let target = |key: &str| format!("{under}{key}");
        let time =
            |key: &str, given: &Option<String>| given.as_deref().map(|given| instant(&target(key), given)).transpose();
        let stage = match self.stage.as_deref() {
            None => None,
            Some("waiting") => Some(DeadLetterStage::Waiting),
            Some("written") => Some(DeadLetterStage::Written),
            Some(other) => {
                let problem = format!("is \"{}\"; allowed are waiting and written", other.escape_debug());
                return Err(InvalidRequest::new(target("stage"), problem));
            }
        };
        Ok(DeadLetterQuery {
            place: stage,
            from: time("from", &self.from)?,
            to: time("to", &self.to)?,
            reason: self.reason.as_deref().map(|given| known(&target("reason"), given)).transpose()?,
            id: self.id.clone(),
            keys: None,
        })
    }

    pub(super) fn is_empty(&self) -> bool {
        let Self { stage, from, to, reason, id } = self;
        [stage, from, to, reason, id].into_iter().all(Option::is_none)
    }
}

/// A known reason, compared without case. An unknown one is refused: an empty list would look like good news.
fn known(target: &str, given: &str) -> Result<String, InvalidRequest> {
    let names: Vec<String> = Reason::all().map(|reason| reason.to_string()).collect();
    match names.iter().find(|name| name.eq_ignore_ascii_case(given)) {
        Some(name) => Ok(name.clone()),
        None => {
            let problem = format!("is \"{}\"; allowed are {}", given.escape_debug(), names.join(", "));
            Err(InvalidRequest::new(target, problem))
        }
    }
}

impl DeadLetterView {
    pub(super) fn new(found: &FoundDeadLetter) -> Self {
        let (letter, fate) = (&found.dead_letter, &found.dead_letter.fate);
        let (stage, file_due, file, index) = match &found.key {
            DeadLetterId::Waiting(key) => ("waiting", Some(key.due.to_string()), None, None),
            DeadLetterId::Written { file, index } => ("written", None, Some(file.clone()), Some(*index)),
        };
        Self {
            key: found.key.to_string(),
            stage,
            id: letter.id.clone(),
            event_type: letter.event_type.clone(),
            subject: letter.subject.clone(),
            dead_letter_reason: fate.reason.clone(),
            delivery_attempts: fate.attempts,
            last_delivery_outcome: fate.outcome.clone(),
            last_http_status_code: fate.status,
            publish_time: fate.published.map(|at| at.to_string()),
            last_delivery_attempt_time: fate.tried.map(|at| at.to_string()),
            file_due,
            file,
            index,
        }
    }
}

pub(super) fn problem_views(problems: Vec<BrowseProblem>) -> Vec<ProblemView> {
    problems.into_iter().map(|BrowseProblem { at, why }| ProblemView { path: at, reason: why }).collect()
}
