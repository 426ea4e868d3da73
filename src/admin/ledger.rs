//! `GET …/ledger`: the lines of an event subscription in a time range, optionally of one step,
//! outcome or reason, the oldest or the newest first.

use std::{str::FromStr, time::Duration};

use data_encoding::{DecodeError, HEXLOWER, HEXLOWER_PERMISSIVE};

use super::{
    arm::Call,
    ledger_line::{LineContext, OutcomeFilter},
    model::{CheckResult, InvalidRequest, parse_instant},
    newest_lines::read_newest_lines,
    query::{self, Paging},
};
use crate::{AdminResult, ledger_line::line_view, model::refuse_value, respond_json};
use gridhook_api::ledger::LedgerPageView;
use gridhook_engine::control::registry::LedgerPeriod;
use gridhook_event::Timestamp;
use gridhook_policy::record::LedgerEntry;

/// Default number of lines in a response.
const TOP: usize = 100;

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
pub(super) async fn ledger(call: Call<'_>) -> AdminResult {
    let Paging {
        from: start,
        top,
        rest,
    } = Paging::<LedgerToken>::read(call.request()?.query_string(), TOP)?;
    let LedgerRequest {
        from,
        to,
        outcome,
        order,
    } = LedgerRequest::read(&rest, call.control.clock.now())?;
    let subscription = call.find_subscription()?;
    let number = subscription.record.number;
    let is_wanted = move |entry: &LedgerEntry| match &outcome {
        Some(outcome) => outcome.matches_event(&entry.what),
        None => true,
    };
    let start = start.map(|LedgerToken(key)| key);
    let found = match order {
        LedgerOrder::Oldest => {
            subscription
                .topic
                .read_ledger(number, from..to, start, top, is_wanted)
                .await
        }
        LedgerOrder::Newest => {
            let key = subscription.key();
            let before = start.map_or(Ok(to), |start| parse_instant_token(&start))?;
            let page =
                read_newest_lines(call.control, &[key], from, before.min(to), top, is_wanted)
                    .await?;
            let lines = page.lines.into_iter().map(|(_, line)| line).collect();
            let next = page.next.map(|before| before.0.to_be_bytes().to_vec());
            subscription.topic.with_excerpts(number, lines, next).await
        }
    };
    let LedgerPeriod {
        lines,
        excerpts,
        oldest,
        next,
    } = found?;
    let context = LineContext {
        filters: None,
        excerpts: Some(&excerpts),
    };
    respond_json(&LedgerPageView {
        subscription: subscription.record.name.to_string(),
        from: from.to_string(),
        to: to.to_string(),
        oldest: oldest.map(|oldest| oldest.to_string()),
        lines: lines.iter().map(|line| line_view(line, context)).collect(),
        r#continue: next.map(|key| HEXLOWER.encode(&key)),
    })
}

/// The time in a token of a page of the newest lines.
fn parse_instant_token(token: &[u8]) -> CheckResult<Timestamp> {
    match token.try_into() {
        Ok(bytes) => Ok(Timestamp(u64::from_be_bytes(bytes))),
        Err(_) => Err(query::invalid_continuation()),
    }
}

/// The query of a request.
struct LedgerRequest {
    from: Timestamp,
    to: Timestamp,
    outcome: Option<OutcomeFilter>,
    order: LedgerOrder,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LedgerOrder {
    Oldest,
    Newest,
}

impl LedgerRequest {
    fn read(query: &str, now: Timestamp) -> AdminResult<Self> {
        let mut from = None;
        let mut to = None;
        let mut outcome = None;
        let mut order = LedgerOrder::Oldest;
        for (key, value) in url::form_urlencoded::parse(query.as_bytes()) {
            match key.as_ref() {
                "from" => from = Some(parse_instant("from", &value)?),
                "to" => to = Some(parse_instant("to", &value)?),
                "outcome" => outcome = Some(OutcomeFilter::read(&value)?),
                "order" => {
                    order = match value.as_ref() {
                        "oldest" => LedgerOrder::Oldest,
                        "newest" => LedgerOrder::Newest,
                        other => {
                            let expected = "oldest or newest";
                            return Err(InvalidRequest::unexpected("order", other, expected).into());
                        }
                    };
                }
                // Azure's clients send it with every request.
                "api-version" => {}
                other => {
                    let problem = format!(
                        "has '{other}'; expected from, to, outcome, order, top or continue"
                    );
                    return refuse_value("the query", problem);
                }
            }
        }
        let to = to.unwrap_or_else(|| now.after(Duration::from_micros(1)));
        let earliest = match order {
            LedgerOrder::Oldest => to.before(DEFAULT_RANGE),
            LedgerOrder::Newest => Timestamp::default(),
        };
        Ok(Self {
            from: from.unwrap_or(earliest),
            to,
            outcome,
            order,
        })
    }
}
