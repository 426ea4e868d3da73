//! Dead letters, for operators: looked through, read, sent again, purged.
//!
//! Which ones are meant is said by a filter, by their keys, or by `all`: a body that says none of these is refused, so that
//! nobody sends everything again, or purges it, by a slip. What may take long is done a part at a time: an answer with
//! `next` asks for another call with it as `after`.

use actix_web::{HttpRequest, HttpResponse};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tracing::info;
use utoipa::ToSchema;

use super::{
    Control, Error,
    arm::{no_subscription, path::TopicPath, topic},
    model::{Invalid, instant, parse, read},
};
use crate::{
    dead_letter::{
        self, DeadLetters,
        browse::{self, Cursor, Found, Key, Page, Place, Problem, Query, Shelf},
        purge::Purged,
    },
    event::{Obligor, Schema},
};

/// Letters on a page where nobody asks for another number …
const TOP: usize = 50;

/// … and the most that anybody gets.
const TOP_MAX: usize = 1_000;

/// Which dead letters are meant.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(as = DeadLetterFilter)]
pub(super) struct FilterBody {
    /// `waiting` or `written`.
    place: Option<String>,
    /// Last tried, or else published, then or later.
    from: Option<String>,
    /// Before then.
    to: Option<String>,
    /// `deadLetterReason`, compared without case.
    reason: Option<String>,
    /// The event's own id.
    id: Option<String>,
}

/// What is to be done, and with which.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(as = DeadLetterPurge)]
pub(super) struct PurgeBody {
    filter: Option<FilterBody>,
    /// These, by their keys.
    keys: Option<Vec<String>>,
    /// All there are.
    #[serde(default)]
    all: bool,
    /// Only counts them.
    #[serde(default)]
    dry_run: bool,
    /// Goes on where an answer said `next`.
    after: Option<String>,
}

/// What came of it.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = DeadLettersPurged)]
pub(super) struct PurgedView {
    letters: u64,
    dry_run: bool,
    problems: Vec<ProblemView>,
    next: Option<String>,
}

/// What could not be read, and was left as it is.
#[derive(Serialize, ToSchema)]
#[schema(as = DeadLetterProblem)]
struct ProblemView {
    at: String,
    why: String,
}

/// A page of dead letters, as it is told.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = DeadLetters)]
pub(super) struct PageView {
    value: Vec<LetterView>,
    problems: Vec<ProblemView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_link: Option<String>,
}

/// A dead letter, as it is told.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = DeadLetter)]
pub(super) struct LetterView {
    key: String,
    place: &'static str,
    id: Option<String>,
    event_type: Option<String>,
    subject: Option<String>,
    dead_letter_reason: Option<String>,
    delivery_attempts: Option<u32>,
    last_delivery_outcome: Option<String>,
    last_http_status_code: Option<u16>,
    publish_time: Option<String>,
    last_delivery_attempt_time: Option<String>,
    /// When the file of one that waits is due.
    #[serde(skip_serializing_if = "Option::is_none")]
    file_due: Option<String>,
    /// The file of one that is written, below the subscription's folder, and its place in it.
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    index: Option<u32>,
}

/// One of them, with its event.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = DeadLetterWithEvent)]
pub(super) struct WholeView {
    #[serde(flatten)]
    letter: LetterView,
    schema: &'static str,
    /// The event as it was before it was given up, byte for byte.
    #[schema(value_type = Object)]
    event: Box<RawValue>,
}

impl FilterBody {
    fn query(&self, under: &str) -> Result<Query, Invalid> {
        let target = |key: &str| format!("{under}{key}");
        let time =
            |key: &str, given: &Option<String>| given.as_deref().map(|given| instant(&target(key), given)).transpose();
        let place = match self.place.as_deref() {
            None => None,
            Some("waiting") => Some(Place::Waiting),
            Some("written") => Some(Place::Written),
            Some(other) => {
                let problem = format!("is \"{}\"; allowed are waiting and written", other.escape_debug());
                return Err(Invalid::new(target("place"), problem));
            }
        };
        Ok(Query {
            place,
            from: time("from", &self.from)?,
            to: time("to", &self.to)?,
            reason: self.reason.clone(),
            id: self.id.clone(),
            keys: None,
        })
    }

    fn says_nothing(&self) -> bool {
        let Self { place, from, to, reason, id } = self;
        [place, from, to, reason, id].into_iter().all(Option::is_none)
    }
}

/// Which dead letters a body means.
fn meant(filter: Option<&FilterBody>, keys: Option<&[String]>, all: bool) -> Result<Query, Invalid> {
    if !all && keys.is_none() && filter.is_none_or(FilterBody::says_nothing) {
        let problem = "says not which dead letters are meant; allowed are \"keys\", a \"filter\" with place, from, to, \
                       reason or id, or \"all\": true";
        return Err(Invalid::new("the body", problem));
    }
    let query = filter.map_or_else(|| Ok(Query::default()), |filter| filter.query("filter."))?;
    let key = |key: &String| {
        key.parse().map_err(|no_key: browse::NoKey| {
            Invalid::new("keys", format!("has \"{}\", which {no_key}", key.escape_debug()))
        })
    };
    let keys = keys.map(|keys| keys.iter().map(key).collect()).transpose()?;
    Ok(Query { keys, ..query })
}

fn cursor(target: &str, given: Option<&str>) -> Result<Cursor, Invalid> {
    let Some(given) = given else { return Ok(Cursor::START) };
    given.parse().map_err(|_| {
        let problem = format!("is \"{}\"; allowed is what an answer said", given.escape_debug());
        Invalid::new(target, problem)
    })
}

/// `GET …/deadLetters`.
pub(super) async fn list(
    control: &Control,
    request: &HttpRequest,
    path: &TopicPath,
    name: &str,
) -> Result<HttpResponse, Error> {
    let (letters, shelf) = shelf(control, path, name)?;
    let (mut filter, mut top, mut after, mut kept) = (FilterBody::default(), TOP, None, Vec::new());
    for (key, value) in url::form_urlencoded::parse(request.query_string().as_bytes()) {
        let (key, value) = (key.into_owned(), value.into_owned());
        match key.as_str() {
            "$top" => top = page_size(&value)?,
            "$skipToken" => {
                after = Some(value);
                continue;
            }
            "place" => filter.place = Some(value.clone()),
            "from" => filter.from = Some(value.clone()),
            "to" => filter.to = Some(value.clone()),
            "reason" => filter.reason = Some(value.clone()),
            "id" => filter.id = Some(value.clone()),
            // Azure's clients put it everywhere.
            "api-version" => {}
            other => {
                let problem = format!("has '{other}'; allowed are place, from, to, reason, id, $top and $skipToken");
                return Err(Invalid::new("the query", problem).into());
            }
        }
        kept.push((key, value));
    }
    let (query, at) = (filter.query("")?, cursor("$skipToken", after.as_deref())?);
    let Page { found, problems, next } = letters.page(&shelf, &query, at, top).await?;
    let next_link = next.map(|next| {
        let mut query = url::form_urlencoded::Serializer::new(String::new());
        query.extend_pairs(&kept).append_pair("$skipToken", &next.to_string());
        format!("{}{}?{}", control.public_url.trim_end_matches('/'), request.path(), query.finish())
    });
    let value = found.iter().map(LetterView::new).collect();
    Ok(HttpResponse::Ok().json(PageView { value, problems: told(problems), next_link }))
}

fn page_size(given: &str) -> Result<usize, Invalid> {
    let top = given.parse().ok().filter(|top| (1..=TOP_MAX).contains(top));
    top.ok_or_else(|| Invalid::new("$top", format!("is \"{given}\"; allowed is 1 to {TOP_MAX}")))
}

/// `GET …/deadLetters/{key}`.
pub(super) async fn get(control: &Control, path: &TopicPath, name: &str, key: &str) -> Result<HttpResponse, Error> {
    let (letters, shelf) = shelf(control, path, name)?;
    let wanted: Key = key.parse().map_err(|no_key: browse::NoKey| Invalid::new("the key", no_key.to_string()))?;
    match letters.one(&shelf, wanted).await? {
        Ok(Some(found)) => {
            let event = RawValue::from_string(found.letter.event.clone())
                .map_err(|error| Error::Journal(format!("the event is no JSON: {error}")))?;
            let schema = match found.letter.schema {
                Schema::EventGrid => "EventGridSchema",
                Schema::CloudEvents => "CloudEventSchemaV1_0",
                Schema::Custom => "CustomEventSchema",
            };
            Ok(HttpResponse::Ok().json(WholeView { letter: LetterView::new(&found), schema, event }))
        }
        Ok(None) => Err(Error::NotFound(format!(
            "There is no dead letter '{key}': it may be in its file by now, or was sent again, or purged."
        ))),
        Err(Problem { at, why }) => Err(Error::Conflict(format!("The dead letter can't be read: {at}: {why}."))),
    }
}

/// `POST …/deadLetters/purge`.
pub(super) async fn purge(control: &Control, path: &TopicPath, name: &str, body: &[u8]) -> Result<HttpResponse, Error> {
    let (letters, shelf) = shelf(control, path, name)?;
    let asked: PurgeBody = read(parse(body)?)?;
    let query = meant(asked.filter.as_ref(), asked.keys.as_deref(), asked.all)?;
    let at = cursor("after", asked.after.as_deref())?;
    let Purged { letters, problems, next } = letters.purge(&shelf, &query, at, asked.dry_run).await?;
    if !asked.dry_run {
        info!(topic = path.key(), subscription = name, letters, "dead letters are purged");
    }
    let next = next.map(|next| next.to_string());
    Ok(HttpResponse::Ok().json(PurgedView { letters, dry_run: asked.dry_run, problems: told(problems), next }))
}

/// Where the dead letters of a subscription are, and who writes them.
fn shelf<'a>(control: &'a Control, path: &TopicPath, name: &str) -> Result<(&'a DeadLetters, Shelf), Error> {
    let topic = topic(control, path)?;
    let subscription = topic.subscription(name).ok_or_else(|| no_subscription(path, name))?;
    let obligor = Obligor { partition: topic.partition(), subscription: subscription.number };
    let stores = control.letters.as_ref().and_then(|stores| stores.of(obligor));
    let (letters, target) = stores.ok_or(Error::Broken("there is nobody who writes dead letters"))?;
    let folder = target.as_ref().map(dead_letter::file::folder);
    Ok((letters, Shelf { obligor, folder, custom: topic.record().input_schema == Schema::Custom }))
}

fn told(problems: Vec<Problem>) -> Vec<ProblemView> {
    problems.into_iter().map(|Problem { at, why }| ProblemView { at, why }).collect()
}

impl LetterView {
    fn new(found: &Found) -> Self {
        let (letter, fate) = (&found.letter, &found.letter.fate);
        let (place, file_due, file, index) = match &found.key {
            Key::Waiting(key) => ("waiting", Some(key.due.to_string()), None, None),
            Key::Written { file, index } => ("written", None, Some(file.clone()), Some(*index)),
        };
        Self {
            key: found.key.to_string(),
            place,
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

impl From<browse::Error> for Error {
    fn from(error: browse::Error) -> Self {
        match error {
            browse::Error::Journal(error) => crate::topic::registry::Error::Journal(error).into(),
            browse::Error::Store(error) => {
                Self::Unavailable(format!("The store of dead letters does not answer: {error}. Try again later."))
            }
            browse::Error::Work(error) => Self::Journal(error.to_string()),
        }
    }
}
