//! `GET /jobs`: the replays and redrives of all event subscriptions that have not ended.

use std::cmp::Reverse;

use actix_web::{HttpRequest, web};
use serde::Deserialize;

use super::{Control, merge, permissions::Permissions, query};
use crate::{AdminResult, replay::replay_view, respond_json};
use gridhook_api::jobs::{JobsReport, OpenJob};

/// Default number of listed jobs.
pub(super) const TOP: usize = 100;

/// Maximum number of listed jobs.
const TOP_MAX: usize = 1_000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct JobsQuery {
    top: Option<String>,
}

/// `GET /jobs`.
pub(super) async fn list_jobs(request: HttpRequest, control: web::Data<Control>) -> AdminResult {
    let JobsQuery { top } = query::read(request.query_string(), "top")?;
    let top = query::parse_number("top", top.as_deref(), TOP, 1..=TOP_MAX, "jobs")?;
    let permissions = Permissions::from_request(&request)?;
    let now = control.clock.now();
    let topics = control.registry.list_topics();
    let mut all = Vec::new();
    for topic in &topics {
        let of_topic = topic.record();
        let seen = topic
            .open_jobs()
            .into_iter()
            .filter(|(record, _)| permissions.sees_subscription(&control, &of_topic, record));
        all.extend(seen.map(|(record, job)| (topic, record, job)));
    }
    all.sort_by_key(|(topic, record, job)| {
        (
            Reverse(job.began),
            topic.partition(),
            record.number,
            job.lane,
        )
    });
    let open = all.len();
    let mut jobs = Vec::new();
    for (topic, record, job) in all.into_iter().take(top) {
        let key = topic.subscription_key(record.number);
        let total = control.redrive_total(key, &job).await;
        let of_topic = topic.record();
        let mut job = replay_view(&job, total, now);
        if let Some(shard) = control.shard_of_part(&of_topic) {
            job.id = merge::id_of_shard(shard, &job.id);
        }
        jobs.push(OpenJob {
            topic: of_topic.resource_id_of(record.filter.domain_topic.as_deref()),
            subscription: record.name.to_string(),
            job,
        });
    }
    respond_json(&JobsReport {
        now: now.to_string(),
        open,
        jobs,
    })
}
