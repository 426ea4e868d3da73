//! `GET /search`: the events with an id, in all topics.

use actix_web::{HttpRequest, web};
use serde::Deserialize;

use super::{Control, model::InvalidRequest, query};
use crate::{AdminResult, respond_json};
use gridhook_api::search::{EventMatch, Search};

/// Maximum lookups of one search in all topics: each is a part of a log.
const LOOKUPS_MAX: usize = 256;

/// Maximum events of a response.
const EVENTS_MAX: usize = 50;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SearchQuery {
    id: Option<String>,
}

/// `GET /search`.
pub(super) async fn find_events(request: HttpRequest, control: web::Data<Control>) -> AdminResult {
    let SearchQuery { id } = query::read(request.query_string(), "id")?;
    let missing = || InvalidRequest::new("id", "is missing; expected the id of an event");
    let id = id.filter(|id| !id.is_empty()).ok_or_else(missing)?;
    let mut report = Search::default();
    let mut left = LOOKUPS_MAX;
    for topic in control.registry.list_topics() {
        let resource = topic.record().resource_id_of(None);
        if left == 0 || report.events.len() >= EVENTS_MAX {
            report.unsearched.push(resource);
            continue;
        }
        // A topic that was deleted meanwhile, or whose log cannot be read, does not hide what
        // others have.
        let Ok(matches) = topic.find_event_id(&id, left).await else {
            report.unsearched.push(resource);
            continue;
        };
        left -= matches.lookups;
        let room = EVENTS_MAX - report.events.len();
        let events = matches.sequences.iter().take(room);
        report.events.extend(events.map(|seq| EventMatch {
            topic: resource.clone(),
            sequence: seq.0,
        }));
        if !matches.is_whole {
            report.unsearched.push(resource);
        }
    }
    respond_json(&report)
}
