//! `GET …/ledger`: the lines of a subscription by their time, those of one kind or with one outcome only if somebody asks.

use std::{fmt::Write as _, num::ParseIntError, str::FromStr, time::Duration};

use actix_web::HttpResponse;
use serde::Serialize;
use utoipa::ToSchema;

use super::{
    AdminError, Control,
    arm::{no_subscription, path::TopicPath, topic},
    ledger_line::{LineContext, LineView, WORDS, is_called},
    model::{InvalidRequest, instant},
    trace::Paging,
};
use crate::{
    control::registry::{self, LedgerPeriod},
    event::Timestamp,
    policy::{outcome::Outcome, record::LedgerEntry},
};

/// So many lines are in one answer, unless it is asked for fewer or more.
const TOP: usize = 100;

/// An hour is looked at where nobody says from when.
const LATELY: Duration = Duration::from_secs(3600);

/// A part of a ledger.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Ledger)]
pub(super) struct LedgerPageView {
    subscription: String,
    from: String,
    to: String,
    /// When the oldest line was written that is still kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    oldest: Option<String>,
    lines: Vec<LineView>,
    /// To be sent back as `continue`, with the same question; absent where that was all. There may be more even where an
    /// answer has no lines.
    #[serde(skip_serializing_if = "Option::is_none")]
    r#continue: Option<String>,
}

/// Where a list goes on: a key of the ledger in hexadecimal digits.
struct LedgerToken(Vec<u8>);

impl FromStr for LedgerToken {
    type Err = ParseIntError;

    fn from_str(text: &str) -> Result<Self, ParseIntError> {
        let digits: Vec<char> = text.chars().collect();
        let byte = |pair: &[char]| u8::from_str_radix(&pair.iter().collect::<String>(), 16);
        digits.chunks(2).map(byte).collect::<Result<_, _>>().map(Self)
    }
}

/// `GET …/ledger?from=…&to=…&outcome=…`.
pub(super) async fn ledger(
    control: &Control,
    path: &TopicPath,
    name: &str,
    query: &str,
) -> Result<HttpResponse, AdminError> {
    let Paging { from: place, top, rest } = Paging::<LedgerToken>::read(query, TOP)?;
    let LedgerRequest { from, to, outcome } = LedgerRequest::read(&rest, control.clock.now())?;
    let topic = topic(control, path)?;
    let subscription = topic.subscription(name).ok_or_else(|| no_subscription(path, name))?;
    let wanted = move |entry: &LedgerEntry| outcome.as_ref().is_none_or(|outcome| is_called(&entry.what, outcome));
    let place = place.map(|LedgerToken(key)| key);
    let found = topic.ledger(subscription.number, (from, to), place, top, wanted).await;
    let LedgerPeriod { lines, excerpts, oldest, next } = found.map_err(registry::Error::from)?;
    let beside = LineContext { filters: None, excerpts: Some(&excerpts) };
    Ok(HttpResponse::Ok().json(LedgerPageView {
        subscription: subscription.name.to_string(),
        from: from.to_string(),
        to: to.to_string(),
        oldest: oldest.map(|oldest| oldest.to_string()),
        lines: lines.iter().map(|line| LineView::new(line, beside)).collect(),
        r#continue: next.map(|key| {
            key.iter().fold(String::new(), |mut text, byte| {
                // Writing to a string does not fail.
                write!(text, "{byte:02x}").ok();
                text
            })
        }),
    }))
}

/// A request for a replay.
struct LedgerRequest {
    from: Timestamp,
    to: Timestamp,
    outcome: Option<String>,
}

impl LedgerRequest {
    fn read(query: &str, now: Timestamp) -> Result<Self, AdminError> {
        let (mut from, mut to, mut outcome) = (None, None, None);
        for (key, value) in url::form_urlencoded::parse(query.as_bytes()) {
            match key.as_ref() {
                "from" => from = Some(instant("from", &value)?),
                "to" => to = Some(instant("to", &value)?),
                "outcome" => outcome = Some(check_outcome(&value)?),
                // Azure's clients put it everywhere.
                "api-version" => {}
                other => {
                    let problem = format!("has '{other}'; allowed are from, to, outcome, top and continue");
                    return Err(InvalidRequest::new("the query", problem).into());
                }
            }
        }
        let to = to.unwrap_or_else(|| now.after(Duration::from_micros(1)));
        Ok(Self { from: from.unwrap_or_else(|| to.before(LATELY)), to, outcome })
    }
}

fn check_outcome(text: &str) -> Result<String, AdminError> {
    let is_word = WORDS.iter().any(|word| word.eq_ignore_ascii_case(text));
    let is_outcome = Outcome::all().any(|outcome| outcome.to_string().eq_ignore_ascii_case(text));
    if is_word || is_outcome {
        return Ok(text.to_owned());
    }
    let outcomes: Vec<String> = Outcome::all().map(|outcome| outcome.to_string()).collect();
    let allowed = format!("{}, or the outcome of an attempt: {}", WORDS.join(", "), outcomes.join(", "));
    Err(InvalidRequest::new("outcome", format!("is '{text}'; allowed are {allowed}")).into())
}
