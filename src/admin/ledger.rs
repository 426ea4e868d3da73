//! `GET …/ledger`: the lines of an event subscription in a time range, optionally of one step, outcome or reason.

use std::{str::FromStr, time::Duration};

use actix_web::HttpResponse;
use data_encoding::{DecodeError, HEXLOWER, HEXLOWER_PERMISSIVE};

use super::{
    AdminError,
    arm::{Call, no_subscription, path::TopicPath, topic},
    ledger_line::{LineContext, OutcomeFilter},
    model::{InvalidRequest, instant},
    trace::Paging,
};
use crate::ledger_line::line_view;
use gridhook_api::ledger::LedgerPageView;
use gridhook_engine::control::registry::{self, LedgerPeriod};
use gridhook_event::Timestamp;
use gridhook_policy::record::LedgerEntry;

/// Default number of lines in a response.
const TOP: usize = 100;

/// Default time range.
const DEFAULT_RANGE: Duration = Duration::from_secs(3600);

/// Start of the next page: a key of the ledger in hexadecimal digits.
struct LedgerToken(Vec<u8>);

impl FromStr for LedgerToken {
    type Err = DecodeError;

    fn from_str(text: &str) -> Result<Self, DecodeError> {
        HEXLOWER_PERMISSIVE.decode(text.as_bytes()).map(Self)
    }
}

/// `GET …/ledger?from=…&to=…&outcome=…`.
pub(super) async fn ledger(call: Call<'_>, path: &TopicPath, name: &str) -> Result<HttpResponse, AdminError> {
    let Paging { from: start, top, rest } = Paging::<LedgerToken>::read(call.request.query_string(), TOP)?;
    let LedgerRequest { from, to, outcome } = LedgerRequest::read(&rest, call.control.clock.now())?;
    let topic = topic(call.control, path)?;
    let subscription = topic.subscription(name).ok_or_else(|| no_subscription(path, name))?;
    let wanted = move |entry: &LedgerEntry| outcome.as_ref().is_none_or(|outcome| outcome.matches(&entry.what));
    let start = start.map(|LedgerToken(key)| key);
    let found = topic.ledger(subscription.number, from..to, start, top, wanted).await;
    let LedgerPeriod { lines, excerpts, oldest, next } = found.map_err(registry::Error::from)?;
    let context = LineContext { filters: None, excerpts: Some(&excerpts) };
    Ok(HttpResponse::Ok().json(LedgerPageView {
        subscription: subscription.name.to_string(),
        from: from.to_string(),
        to: to.to_string(),
        oldest: oldest.map(|oldest| oldest.to_string()),
        lines: lines.iter().map(|line| line_view(line, context)).collect(),
        r#continue: next.map(|key| HEXLOWER.encode(&key)),
    }))
}

/// The query of a request.
struct LedgerRequest {
    from: Timestamp,
    to: Timestamp,
    outcome: Option<OutcomeFilter>,
}

impl LedgerRequest {
    fn read(query: &str, now: Timestamp) -> Result<Self, AdminError> {
        let (mut from, mut to, mut outcome) = (None, None, None);
        for (key, value) in url::form_urlencoded::parse(query.as_bytes()) {
            match key.as_ref() {
                "from" => from = Some(instant("from", &value)?),
                "to" => to = Some(instant("to", &value)?),
                "outcome" => outcome = Some(OutcomeFilter::read(&value)?),
                // Azure's clients send it with every request.
                "api-version" => {}
                other => {
                    let problem = format!("has '{other}'; allowed are from, to, outcome, top and continue");
                    return Err(InvalidRequest::new("the query", problem).into());
                }
            }
        }
        let to = to.unwrap_or_else(|| now.after(Duration::from_micros(1)));
        Ok(Self { from: from.unwrap_or_else(|| to.before(DEFAULT_RANGE)), to, outcome })
    }
}
