//! `GET /deadLetters`: events of all event subscriptions that became dead letters, the newest
//! first, from their ledgers.

use std::{collections::BTreeMap, sync::Arc};

use actix_web::{HttpRequest, web};
use serde::Deserialize;

use super::body::known_reason;
use crate::{
    AdminResult, Control,
    ledger_line::{LineContext, line_view},
    model::InvalidRequest,
    newest_lines::{INSTANT, NewestLines, read_newest_lines},
    permissions::Permissions,
    query, respond_json,
    top::contains,
    topic_filter::TopicFilter,
    windows::list_snapshots,
};
use gridhook_api::dead_letters::{NewDeadLetterView, NewestDeadLettersView};
use gridhook_engine::control::registry::TopicHandle;
use gridhook_event::{SubscriptionKey, Timestamp};
use gridhook_policy::record::{LedgerEntry, LedgerEvent};
use gridhook_record::subscription::SubscriptionRecord;

/// Default number of lines.
const TOP: usize = 100;

/// Maximum number of lines. More are listed only if they are of the same instant as the last one.
const TOP_MAX: usize = 500;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NewestQuery {
    top: Option<String>,
    r#continue: Option<String>,
    reason: Option<String>,
    topic: Option<String>,
    search: Option<String>,
}

type Candidates = BTreeMap<SubscriptionKey, (Arc<TopicHandle>, Arc<SubscriptionRecord>)>;

/// Whether an event was dead-lettered, for this reason if one is given.
fn is_dead_lettered(entry: &LedgerEntry, wanted: Option<&str>) -> bool {
    match &entry.what {
        LedgerEvent::GivenUp {
            reason,
            dead_lettered: true,
        } => wanted.is_none_or(|wanted| wanted == reason.to_string()),
        _ => false,
    }
}

/// `GET /deadLetters`.
pub(crate) async fn list_newest(request: HttpRequest, control: web::Data<Control>) -> AdminResult {
    let query: NewestQuery = query::read(
        request.query_string(),
        "top, continue, reason, topic or search",
    )?;
    let top = query::parse_number("top", query.top.as_deref(), TOP, 1..=TOP_MAX, "lines")?;
    let now = control.clock.now();
    let before = match query.r#continue.as_deref() {
        None => now.after(INSTANT),
        Some(given) => Timestamp(given.parse().map_err(|_| {
            InvalidRequest::unexpected("continue", given, "the value of a response")
        })?),
    };
    let permissions = Permissions::from_request(&request)?;
    let mut candidates = find_candidates(&control, &permissions, &query)?;
    candidates.retain(|_, (topic, record)| {
        permissions.sees_subscription(&control, &topic.record(), record)
    });
    let keys: Vec<SubscriptionKey> = candidates.keys().copied().collect();
    let reason = query
        .reason
        .as_deref()
        .map(|given| known_reason("reason", given))
        .transpose()?;
    let NewestLines { lines, next } = read_newest_lines(
        &control,
        &keys,
        Timestamp::default(),
        before,
        top,
        move |entry| is_dead_lettered(entry, reason.as_deref()),
    )
    .await?;
    let value = lines.iter().filter_map(|(key, line)| {
        let (topic, record) = candidates.get(key)?;
        Some(NewDeadLetterView {
            topic: topic
                .record()
                .resource_id_of(record.filter.domain_topic.as_deref()),
            subscription: record.name.to_string(),
            line: line_view(line, LineContext::default()),
        })
    });
    respond_json(&NewestDeadLettersView {
        now: now.to_string(),
        value: value.collect(),
        r#continue: next.map(|before| before.0.to_string()),
    })
}

/// Event subscriptions that match and may have dead letters.
fn find_candidates(
    control: &Control,
    permissions: &Permissions,
    query: &NewestQuery,
) -> AdminResult<Candidates> {
    let filter = query
        .topic
        .as_deref()
        .map(|id| TopicFilter::find(control, permissions, id))
        .transpose()?;
    let search = query
        .search
        .as_deref()
        .unwrap_or_default()
        .to_ascii_lowercase();
    let mut candidates = Candidates::new();
    for topic in control.registry.list_topics() {
        for (key, snapshot) in list_snapshots(&topic) {
            let record = snapshot.record();
            let domain_topic = record.filter.domain_topic.as_deref();
            let is_of_topic = filter
                .as_ref()
                .is_none_or(|filter| filter.contains(key.partition, domain_topic));
            let has_any = record.dead_letter.is_some() || snapshot.counters.dead_lettered > 0;
            if is_of_topic && has_any && contains(record.name.as_str(), &search) {
                candidates.insert(key, (Arc::clone(&topic), record));
            }
        }
    }
    Ok(candidates)
}
