//! `GET /tail`: published events and outcomes as they happen, as lines of JSON.
//!
//! Lines come from the event feed, not from the store. A slow reader loses lines, and a `missed`
//! line has their number. An empty line is sent when no other line was sent for 5 s, so that both
//! sides notice a closed connection.

use std::{sync::Arc, time::Duration};

use actix_web::{
    HttpMessage, HttpRequest, HttpResponse,
    web::{self, Bytes},
};
use futures_util::{StreamExt as _, stream};
use serde_json::{json, value::RawValue};
use tokio::time::{self, Interval, MissedTickBehavior};
use url::form_urlencoded;

use super::{
    AdminError, Control,
    auth::AdminCaller,
    ledger_line::{LineContext, OutcomeFilter},
    permissions::Permissions,
    shares::Share,
    topic_filter::{TopicFilter, find_topic_by_id},
};
use crate::{AdminResult, ledger_line::line_view, model::refuse_value, query};
use gridhook_api::tail::{Ended, Published, TailLine, TailMissed};
use gridhook_engine::control::sessions::OpenSession;
use gridhook_escape as escape;
use gridhook_event::{Event, PartitionId, Timestamp, WallTime};
use gridhook_policy::record::{LedgerEvent, LedgerLine};
use gridhook_record::{subscription::SubscriptionRecord, topic::TopicRecord};
use gridhook_subscription::event_feed::{FeedEvent, FeedSubscriber, SUBSCRIBERS_MAX};

/// The longest time without a line.
const HEARTBEAT: Duration = Duration::from_secs(5);

/// The query of a request.
#[derive(Debug, Default)]
struct TailQuery {
    events: bool,
    outcomes: bool,
    data: bool,
    topic: Option<TopicFilter>,
    subscription: Option<String>,
    event_type: Option<String>,
    outcome: Option<OutcomeFilter>,
    status: Option<u16>,
}

/// `GET /tail`.
pub(super) async fn stream_tail(request: HttpRequest, control: web::Data<Control>) -> AdminResult {
    let permissions = Permissions::from_request(&request)?;
    let query = TailQuery::from_query(&control, &permissions, request.query_string())?;
    let share = control
        .tails
        .take_share(&permissions.holder())
        .ok_or_else(no_share)?;
    let subscriber = control.registry.feed().subscribe().ok_or_else(|| {
        AdminError::Unavailable("The server is stopping. Try again later.".to_owned())
    })?;
    let session = request.extensions().get::<OpenSession>().cloned();
    let end = wait_until_ended(
        permissions.caller.clone(),
        session.clone(),
        control.clock.now(),
        control.clock.wall_time(),
    );
    let mut heartbeat = time::interval_at(time::Instant::now() + HEARTBEAT, HEARTBEAT);
    heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let state = TailStream {
        query,
        permissions: Some(permissions).filter(|permissions| !permissions.sees_everything()),
        subscriber,
        heartbeat,
        control,
        session,
        ready: String::new(),
        _share: share,
    };
    let lines = stream::unfold(state, |mut state| async move {
        let text = state.next().await?;
        Some((Ok::<_, actix_web::Error>(Bytes::from(text)), state))
    });
    Ok(HttpResponse::Ok()
        .content_type("application/x-ndjson")
        .streaming(Box::pin(lines.take_until(Box::pin(end)))))
}

fn no_share() -> AdminError {
    AdminError::Unavailable(format!(
        "All {SUBSCRIBERS_MAX} streams of events are in use, or a quarter of them by this caller. \
         End one, or try again later."
    ))
}

/// Waits for the end of the caller's token or session.
async fn wait_until_ended(
    caller: AdminCaller,
    session: Option<OpenSession>,
    now: Timestamp,
    wall: WallTime,
) {
    let session_end = async {
        match session {
            Some(session) => session.wait_until_ended(now).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        () = caller.wait_until_ended(wall) => {}
        () = session_end => {}
    }
}

struct TailStream {
    query: TailQuery,
    /// Set for a caller who does not see everything.
    permissions: Option<Permissions>,
    subscriber: FeedSubscriber,
    /// The times of empty lines. Each line that is sent defers them.
    heartbeat: Interval,
    control: web::Data<Control>,
    session: Option<OpenSession>,
    /// Lines that can be sent.
    ready: String,
    _share: Share,
}

impl TailStream {
    /// The next lines, or an empty one.
    async fn next(&mut self) -> Option<String> {
        while self.ready.is_empty() {
            let item = tokio::select! {
                // A busy feed whose items are all filtered out must not defer the heartbeat.
                biased;
                _ = self.heartbeat.tick() => None,
                item = self.subscriber.next() => Some(item?),
            };
            if let Some(session) = &self.session {
                session.note_use(self.control.clock.now());
            }
            let Some((missed, event)) = item else {
                return Some("\n".to_owned());
            };
            if missed > 0 {
                self.push_line(&TailLine::Missed(TailMissed { count: missed }));
            }
            self.push_item(&event);
        }
        self.heartbeat.reset();
        Some(std::mem::take(&mut self.ready))
    }

    fn push_item(&mut self, item: &FeedEvent) {
        let partition = match item {
            FeedEvent::Published(partition, _) => *partition,
            FeedEvent::Ended(key, ..) => key.partition,
        };
        if let Some(topic) = &mut self.query.topic {
            topic.follow_path(&self.control, partition);
        }
        match item {
            FeedEvent::Published(partition, chunk) if self.query.events => {
                for event in chunk.decode_events().into_iter().flatten() {
                    self.push_published(*partition, &event);
                }
            }
            FeedEvent::Ended(key, record, lines) if self.query.outcomes => {
                self.push_outcomes(key.partition, record, lines);
            }
            FeedEvent::Published(..) | FeedEvent::Ended(..) => {}
        }
    }

    fn push_published(&mut self, partition: PartitionId, event: &Event) {
        let domain_topic = event.domain_topic();
        let event_type = self.query.event_type.as_ref();
        let is_wanted = self.query.is_of_topic(partition, Some(&domain_topic))
            && event_type.is_none_or(|wanted| *wanted == event.event_type())
            && self.sees_events(partition, &domain_topic);
        if !is_wanted {
            return;
        }
        let wire_text = String::from_utf8_lossy(event.wire_bytes());
        let whole_event = if self.query.data {
            RawValue::from_string(wire_text.into_owned()).ok()
        } else {
            None
        };
        self.push_line(&TailLine::Event(Published {
            at: event.appended.to_string(),
            topic: self.topic_id(partition),
            sequence: event.seq.0,
            id: event.id().into_owned(),
            event_type: event.event_type().into_owned(),
            subject: event.subject().into_owned(),
            bytes: event.wire_len(),
            event: whole_event,
        }));
    }

    fn push_outcomes(
        &mut self,
        partition: PartitionId,
        record: &SubscriptionRecord,
        lines: &[LedgerLine],
    ) {
        let domain_topic = record.filter.domain_topic.as_deref();
        let is_wanted = self.query.is_subscription(record.name.as_str())
            && self.query.is_of_topic(partition, domain_topic)
            && self.sees_outcomes(partition, record);
        if !is_wanted {
            return;
        }
        let topic = self.topic_id(partition);
        for line in lines {
            if self.query.is_outcome(line) {
                self.push_line(&TailLine::Outcome(Box::new(Ended {
                    topic: topic.clone(),
                    subscription: record.name.to_string(),
                    line: line_view(line, LineContext::default()),
                })));
            }
        }
    }

    /// Whether the caller sees the events of a topic, or of this topic of a domain.
    fn sees_events(&self, partition: PartitionId, domain_topic: &str) -> bool {
        let Some(permissions) = &self.permissions else {
            return true;
        };
        self.find_topic(partition).is_some_and(|topic| {
            let domain_topic = topic.is_domain().then_some(domain_topic);
            permissions.sees_topic(&self.control, &topic, domain_topic)
        })
    }

    /// Whether the caller sees the outcomes of an event subscription.
    fn sees_outcomes(&self, partition: PartitionId, subscription: &SubscriptionRecord) -> bool {
        let Some(permissions) = &self.permissions else {
            return true;
        };
        self.find_topic(partition)
            .is_some_and(|topic| permissions.sees_subscription(&self.control, &topic, subscription))
    }

    fn push_line(&mut self, line: &TailLine) {
        self.ready.push_str(&format_line(line));
    }

    fn find_topic(&self, partition: PartitionId) -> Option<Arc<TopicRecord>> {
        let topic = self.control.registry.topic_of_partition(partition)?;
        Some(topic.record())
    }

    fn topic_id(&self, partition: PartitionId) -> String {
        self.find_topic(partition)
            .map(|topic| topic.resource_id())
            .unwrap_or_default()
    }
}

fn format_line(line: &TailLine) -> String {
    let line = serde_json::to_string(line)
        .unwrap_or_else(|error| json!({"error": error.to_string()}).to_string());
    // An event may contain line breaks and control characters.
    format!("{}\n", escape::json_line(&line))
}

impl TailQuery {
    fn from_query(control: &Control, permissions: &Permissions, text: &str) -> AdminResult<Self> {
        let mut query = Self {
            events: true,
            outcomes: true,
            ..Self::default()
        };
        let mut topic = None;
        for (key, value) in form_urlencoded::parse(text.as_bytes()) {
            let flag = || query::parse_flag(&key, &value);
            match key.as_ref() {
                "events" => query.events = flag()?,
                "outcomes" => query.outcomes = flag()?,
                "data" => query.data = flag()?,
                "topic" => {
                    query.topic = Some(TopicFilter::find(control, permissions, &value)?);
                    topic = Some(value.into_owned());
                }
                "subscription" => query.subscription = Some(value.to_lowercase()),
                "type" => query.event_type = Some(value.into_owned()),
                "outcome" => query.outcome = Some(OutcomeFilter::read(&value)?),
                "status" => {
                    let Ok(status) = value.parse() else {
                        let problem = format!("is \"{value}\"; expected a status such as 503");
                        return refuse_value("status", problem);
                    };
                    query.status = Some(status);
                }
                other => {
                    let allowed =
                        "events, outcomes, data, topic, subscription, type, outcome or status";
                    return refuse_value("the query", format!("has '{other}'; expected {allowed}"));
                }
            }
        }
        if let (Some(id), Some(name)) = (&topic, &query.subscription) {
            query.check_subscription(control, id, name)?;
        }
        Ok(query)
    }

    /// Refuses an event subscription that the topic does not have: its outcomes would never come.
    fn check_subscription(&self, control: &Control, topic_id: &str, name: &str) -> AdminResult<()> {
        let (topic, _) = find_topic_by_id(control, topic_id)?;
        let exists = topic.snapshots().any(|snapshot| {
            let record = snapshot.record();
            self.is_subscription(record.name.as_str())
                && self.is_of_topic(topic.partition(), record.filter.domain_topic.as_deref())
        });
        if exists {
            return Ok(());
        }
        Err(AdminError::NotFound(format!(
            "The event subscription '{name}' of {topic_id} was not found."
        )))
    }

    fn is_of_topic(&self, partition: PartitionId, domain_topic: Option<&str>) -> bool {
        let topic = self.topic.as_ref();
        topic.is_none_or(|topic| topic.contains(partition, domain_topic))
    }

    fn is_subscription(&self, name: &str) -> bool {
        self.subscription
            .as_ref()
            .is_none_or(|wanted| *wanted == name.to_lowercase())
    }

    fn is_outcome(&self, LedgerLine { entry, .. }: &LedgerLine) -> bool {
        let is_named = self
            .outcome
            .as_ref()
            .is_none_or(|wanted| wanted.matches_event(&entry.what));
        let status = match entry.what {
            LedgerEvent::Attempted { status, .. } => status,
            _ => None,
        };
        is_named && (self.status.is_none() || self.status == status)
    }
}
