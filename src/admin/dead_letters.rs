//! Operations on dead letters: list, get, redrive and purge; `newest`: those of all event
//! subscriptions.
//!
//! A filter, keys, or `all` select dead letters. A body without any of them is refused, so that not
//! everything is redriven or purged by mistake. Long operations run in parts: a response with
//! `next` is followed by another request with that value as `after`.

mod body;
pub(super) mod newest;

use std::str::FromStr;

use actix_web::HttpResponse;
use serde_json::value::RawValue;
use tracing::info;

use self::body::{dead_letter_query, is_empty_filter, problem_views};
use super::{
    AdminError, Control,
    arm::Call,
    compute_caller,
    model::{CheckResult, InvalidRequest, topic::schema_name},
    query, shares,
};
use crate::{AdminResult, dead_letters::body::dead_letter_view, model::refuse_value, respond_json};
use gridhook_api::dead_letters::{
    DeadLetterFilter, DeadLetterPurge, DeadLetterRedrive, DeadLetterWithEvent, PageView,
    PurgedView, RedriveStartedView,
};
use gridhook_dead_letter::{
    DeadLetters, Redrives,
    browse::{
        self, BrowseCursor, BrowseProblem, DeadLetterId, DeadLetterLocation, DeadLetterPage,
        DeadLetterQuery,
    },
    purge::{PurgeCursor, PurgeProgress},
    redrive::RedriveRequest,
};
use gridhook_engine::control::audit::record_intent;
use gridhook_event::SubscriptionKey;
use gridhook_policy::record::{
    Command, Rate,
    job::{Job, JobCommand, JobKind},
};

/// Default number of dead letters on a page.
const TOP: usize = 50;

/// Maximum number of dead letters on a page.
const TOP_MAX: usize = 1_000;

/// The dead letters that a body selects.
fn parse_selection(
    filter: Option<&DeadLetterFilter>,
    keys: Option<&[String]>,
    all: bool,
) -> CheckResult<DeadLetterQuery> {
    if !all && keys.is_none() && filter.is_none_or(is_empty_filter) {
        let problem = "selects no dead letters; expected \"keys\", a \"filter\" with stage, \
            from, to, reason or id, or \"all\": true";
        return refuse_value("the body", problem);
    }
    if all && (keys.is_some() || filter.is_some_and(|filter| !is_empty_filter(filter))) {
        let problem = "is true beside \"keys\" or a \"filter\", which select some dead letters; \
            leave one of them out";
        return refuse_value("all", problem);
    }
    let query = filter.map_or_else(
        || Ok(DeadLetterQuery::default()),
        |filter| dead_letter_query(filter, "filter."),
    )?;
    let keys = keys
        .map(|keys| keys.iter().map(|key| parse_key(key)).collect())
        .transpose()?;
    Ok(DeadLetterQuery { keys, ..query })
}

fn parse_key(key: &str) -> CheckResult<browse::DeadLetterId> {
    key.parse().map_err(|error: browse::InvalidDeadLetterId| {
        let problem = format!("has \"{}\", which {error}", key.escape_debug());
        InvalidRequest::new("keys", problem)
    })
}

fn parse_cursor<T: FromStr>(target: &str, given: Option<&str>, start: T) -> CheckResult<T> {
    let Some(given) = given else { return Ok(start) };
    given
        .parse()
        .map_err(|_| InvalidRequest::unexpected(target, given, "the value of a response"))
}

/// `GET …/deadLetters`.
pub(super) async fn list(call: Call<'_>) -> AdminResult {
    let request = call.request()?;
    let (dead_letters, location) = find_location(call)?;
    let mut filter = DeadLetterFilter::default();
    let mut top = TOP;
    let mut after = None;
    let mut kept = Vec::new();
    for (key, value) in url::form_urlencoded::parse(request.query_string().as_bytes()) {
        let key = key.into_owned();
        let value = value.into_owned();
        match key.as_str() {
            "$top" => {
                top = query::parse_number("$top", Some(&value), TOP, 1..=TOP_MAX, "dead letters")?
            }
            "$skipToken" => {
                after = Some(value);
                continue;
            }
            "stage" => filter.stage = Some(value.clone()),
            "from" => filter.from = Some(value.clone()),
            "to" => filter.to = Some(value.clone()),
            "reason" => filter.reason = Some(value.clone()),
            "id" => filter.id = Some(value.clone()),
            // Azure's clients send it with every request.
            "api-version" => {}
            other => {
                let problem = format!(
                    "has '{other}'; expected stage, from, to, reason, id, $top or $skipToken"
                );
                return refuse_value("the query", problem);
            }
        }
        kept.push((key, value));
    }
    let query = dead_letter_query(&filter, "")?;
    let at = parse_cursor("$skipToken", after.as_deref(), BrowseCursor::START)?;
    let DeadLetterPage {
        found,
        problems,
        next,
    } = dead_letters.read_page(&location, &query, at, top).await?;
    let next_link = next.map(|next| {
        let mut query = url::form_urlencoded::Serializer::new(String::new());
        query
            .extend_pairs(&kept)
            .append_pair("$skipToken", &next.to_string());
        format!(
            "{}{}?{}",
            call.control.operators_url(request),
            request.path(),
            query.finish()
        )
    });
    let value = found.iter().map(dead_letter_view).collect();
    respond_json(&PageView {
        value,
        problems: problem_views(problems),
        next_link,
    })
}

/// `GET …/deadLetters/{key}`.
pub(super) async fn get(call: Call<'_>) -> AdminResult {
    let key = call.path.name("deadLetterKey")?;
    let (dead_letters, location) = find_location(call)?;
    let id: DeadLetterId = key.parse().map_err(|no_key: browse::InvalidDeadLetterId| {
        InvalidRequest::new("the key", no_key.to_string())
    })?;
    match dead_letters.read_one(&location, id).await? {
        Ok(Some(found)) => {
            let event = RawValue::from_string(found.dead_letter.event.clone())
                .map_err(|error| AdminError::Store(format!("the event is not JSON: {error}")))?;
            respond_json(&DeadLetterWithEvent {
                letter: dead_letter_view(&found),
                schema: schema_name(found.dead_letter.schema).to_owned(),
                event,
            })
        }
        Ok(None) => Err(AdminError::NotFound(format!(
            "There is no dead letter '{key}'. It may have been written to its file, redriven or \
             purged."
        ))),
        Err(BrowseProblem { at, why }) => Err(AdminError::Conflict(format!(
            "The dead letter cannot be read: {at}: {why}."
        ))),
    }
}

/// `POST …/deadLetters/purge`.
pub(super) async fn purge(call: Call<'_>) -> AdminResult {
    let (dead_letters, location) = find_location(call)?;
    let body: DeadLetterPurge = call.read_body()?;
    let query = parse_selection(body.filter.as_ref(), body.keys.as_deref(), body.all)?;
    let at = parse_cursor("after", body.after.as_deref(), PurgeCursor::START)?;
    if !body.dry_run {
        record_intent().await;
    }
    let progress = dead_letters
        .purge_page(&location, &query, at, body.dry_run)
        .await?;
    if !body.dry_run {
        info!(
            topic = call.path.topic()?.topic_key(),
            subscription = call.path.subscription()?,
            dead_letters = progress.dead_letters,
            "dead letters purged"
        );
    }
    respond_json(&purged_view(progress, body.dry_run))
}

/// `POST …/deadLetters/redrive`: 202 with the started job, or 200 with the count of a dry run.
pub(super) async fn redrive(call: Call<'_>) -> AdminResult {
    let control = call.control;
    let redrives = control.redrives()?;
    let (_, location) = find_location(call)?;
    let body: DeadLetterRedrive = call.read_body()?;
    let query = parse_selection(body.filter.as_ref(), body.keys.as_deref(), body.all)?;
    let at = parse_cursor("after", body.after.as_deref(), PurgeCursor::START)?;
    if body.dry_run {
        let caller = compute_caller(call.caller());
        let count = redrives.count_page(&location, &query, at, (&control.compute, &caller));
        return respond_json(&purged_view(count.await?, true));
    }
    let rate = body.rate.map(parse_rate).transpose()?;
    let topic = call.path.topic()?.topic_key();
    let subscription = call.path.subscription()?;
    shares::check_new_job(call, &topic, &subscription).await?;
    let kind = JobKind::Redrive { drained: false };
    let start = Command::Job(JobCommand::Start { kind, rate });
    let begun = control
        .registry
        .send_command(&topic, &subscription, start)
        .await?;
    let lane = begun
        .job
        .ok_or(AdminError::Broken("the started redrive has no job"))?;
    let request = RedriveRequest {
        query,
        keep: body.keep,
        total: body.total,
    };
    let begun = redrives
        .start(location.subscription_key, lane, &request)
        .await;
    if let Err(error) = begun {
        // The request is not stored, so the job ends. If that cannot be written either, the next
        // start ends it.
        let cancel = Command::Job(JobCommand::Cancel(lane));
        control
            .registry
            .send_command(&topic, &subscription, cancel)
            .await
            .ok();
        return Err(browse::BrowseError::Journal(error).into());
    }
    info!(topic, subscription, job = lane.0, "redrive started");
    Ok(HttpResponse::Accepted().json(RedriveStartedView { job: lane.0 }))
}

fn purged_view(progress: PurgeProgress, dry_run: bool) -> PurgedView {
    PurgedView {
        dead_letters: progress.dead_letters,
        dry_run,
        problems: problem_views(progress.problems),
        next: progress.next.map(|next| next.to_string()),
    }
}

fn parse_rate(asked: f64) -> CheckResult<Rate> {
    if asked.is_finite() && (0.001..=1_000_000.0).contains(&asked) {
        return Ok(Rate::from_per_second(asked));
    }
    refuse_value(
        "rate",
        format!("is {asked}; expected 0.001 to 1000000 events a second"),
    )
}

/// The dead letters of an event subscription, and their location.
fn find_location(call: Call<'_>) -> AdminResult<(&DeadLetters, DeadLetterLocation)> {
    let key = call.find_subscription()?.key();
    call.control
        .redrives()?
        .find_location(key)
        .ok_or_else(|| call.no_subscription())
}

impl Control {
    /// The number of dead letters of a job, if it is a redrive that runs and they were counted.
    pub(crate) async fn redrive_total(&self, key: SubscriptionKey, job: &Job) -> Option<u64> {
        if !matches!(job.kind, JobKind::Redrive { .. }) || job.state.has_ended() {
            return None;
        }
        // Progress without a total is better than no report.
        self.redrives
            .as_ref()?
            .read_total(key, job.lane)
            .await
            .ok()
            .flatten()
    }

    fn redrives(&self) -> AdminResult<&Redrives> {
        self.redrives
            .as_ref()
            .ok_or(AdminError::Broken("no dead-letter writer is set up"))
    }
}
impl From<browse::BrowseError> for AdminError {
    fn from(error: browse::BrowseError) -> Self {
        match error {
            browse::BrowseError::Journal(error) => error.into(),
            browse::BrowseError::Store(error) => Self::Unavailable(format!(
                "The dead-letter store is unavailable: {error}. Try again later."
            )),
            browse::BrowseError::NoStore => Self::Broken("no dead-letter writer is set up"),
            browse::BrowseError::Work(error) => Self::Store(error.to_string()),
            browse::BrowseError::Compute(error) => error.into(),
        }
    }
}
