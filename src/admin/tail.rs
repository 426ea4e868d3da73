//! `GET /tail`: published events and outcomes as they happen, as lines of JSON.
//!
//! Lines come from the event feed, not from the store. A slow reader loses lines, and a `missed`
//! line has their number. An empty line is sent every 5 s without an event, so that a closed
//! connection is noticed.

use crate::AdminResult;
use crate::model::refuse_value;
use crate::query;
use std::{collections::VecDeque, sync::Arc, time::Duration};

use actix_web::{
    HttpMessage, HttpRequest, HttpResponse,
    web::{self, Bytes},
};
use futures_util::{StreamExt as _, stream};
use serde_json::{json, value::RawValue};
use url::form_urlencoded;

use super::{
    AdminError, Control,
    arm::{self, path},
    ledger_line::{LineContext, OutcomeFilter},
    model::InvalidRequest,
    permissions::Permissions,
    shares::Share,
};
use crate::ledger_line::line_view;
use gridhook_api::tail::{Ended, Published, TailLine, TailMissed};
use gridhook_engine::control::registry::TopicHandle;
use gridhook_engine::control::sessions::OpenSession;
use gridhook_escape as escape;
use gridhook_event::{Event, PartitionId};
use gridhook_policy::record::{LedgerEvent, LedgerLine};
use gridhook_record::subscription::SubscriptionRecord;
use gridhook_subscription::event_feed::{FeedEvent, FeedSubscriber};

/// Interval of empty lines, which detect a closed connection.
const HEARTBEAT: Duration = Duration::from_secs(5);

/// The query of a request.
#[derive(Debug, Default)]
struct TailQuery {
    events: bool,
    outcomes: bool,
    data: bool,
    /// The only topic or domain to follow, and the only domain topic within it.
    topic: Option<(PartitionId, Option<String>)>,
    subscription: Option<String>,
    event_type: Option<String>,
    outcome: Option<OutcomeFilter>,
    status: Option<u16>,
}

/// `GET /tail`.
pub(super) async fn stream_tail(request: HttpRequest, control: web::Data<Control>) -> AdminResult {
    let permissions = Permissions::from_request(&request)?;
    let query = TailQuery::from_query(&control, &permissions, request.query_string())?;
    let busy = "Too many clients follow events, too many of this caller, or the server is \
        stopping. Try again later.";
    let unavailable = || AdminError::Unavailable(busy.to_owned());
    let share = control
        .tails
        .take_share(&permissions.holder())
        .ok_or_else(unavailable)?;
    let subscriber = control
        .registry
        .feed()
        .subscribe()
        .ok_or_else(unavailable)?;
    let caller = permissions.caller.clone();
    let wall = control.clock.wall_time();
    let now = control.clock.now();
    let session = request.extensions().get::<OpenSession>().cloned();
    let permissions = Some(permissions).filter(|permissions| !permissions.sees_everything());
    let state = TailStream {
        query,
        permissions,
        subscriber,
        control,
        session: session.clone(),
        ready: VecDeque::new(),
        _share: share,
    };
    let lines = stream::unfold(state, |mut state| async move {
        let text = state.next().await?;
        Some((Ok::<_, actix_web::Error>(Bytes::from(text)), state))
    });
    // The stream ends with the caller's token, and with the session.
    let end = async move {
        let session = async move {
            match session {
                Some(session) => session.wait_until_ended(now).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = caller.wait_until_ended(wall) => {}
            () = session => {}
        }
    };
    Ok(HttpResponse::Ok()
        .content_type("application/x-ndjson")
        .streaming(Box::pin(lines.take_until(Box::pin(end)))))
}

struct TailStream {
    query: TailQuery,
    /// Set for a caller who does not see everything.
    permissions: Option<Permissions>,
    subscriber: FeedSubscriber,
    control: web::Data<Control>,
    session: Option<OpenSession>,
    ready: VecDeque<String>,
    _share: Share,
}

impl TailStream {
    /// The next lines, or an empty one.
    async fn next(&mut self) -> Option<String> {
        loop {
            if !self.ready.is_empty() {
                return Some(self.ready.drain(..).collect());
            }
            let received = tokio::time::timeout(HEARTBEAT, self.subscriber.next()).await;
            if let Some(session) = &self.session {
                session.note_use(self.control.clock.now());
            }
            match received {
                Err(_) => return Some("\n".to_owned()),
                Ok(received) => {
                    let (missed, event) = received?;
                    if missed > 0 {
                        self.push_line(&TailLine::Missed(TailMissed { count: missed }));
                    }
                    match &*event {
                        FeedEvent::Published(partition, chunk) if self.query.events => {
                            for event in chunk.decode_events().into_iter().flatten() {
                                self.send_published(*partition, &event);
                            }
                        }
                        FeedEvent::Ended(subscription_key, record, lines)
                            if self.query.outcomes =>
                        {
                            let is_wanted = self.query.is_subscription(record.name.as_str())
                                && self.query.is_of(
                                    subscription_key.partition,
                                    record.filter.domain_topic.as_deref(),
                                )
                                && self.sees_event(
                                    subscription_key.partition,
                                    None,
                                    Some(&**record),
                                );
                            let topic = self.name_of(subscription_key.partition);
                            for line in lines {
                                if is_wanted && self.query.is_outcome(line) {
                                    let line = line_view(line, LineContext::default());
                                    let topic = topic.clone();
                                    let subscription = record.name.to_string();
                                    self.push_line(&TailLine::Outcome(Box::new(Ended {
                                        topic,
                                        subscription,
                                        line,
                                    })));
                                }
                            }
                        }
                        FeedEvent::Published(..) | FeedEvent::Ended(..) => {}
                    }
                }
            }
        }
    }

    fn send_published(&mut self, partition: PartitionId, event: &Event) {
        let TailQuery {
            event_type, data, ..
        } = &self.query;
        let domain_topic = event.domain_topic();
        let is_wanted = self.query.is_of(partition, Some(&domain_topic))
            && event_type
                .as_ref()
                .is_none_or(|wanted| *wanted == event.event_type())
            && self.sees_event(partition, Some(&domain_topic), None);
        if !is_wanted {
            return;
        }
        let whole =
            || RawValue::from_string(String::from_utf8_lossy(event.wire_bytes()).into_owned()).ok();
        self.push_line(&TailLine::Event(Published {
            at: event.appended.to_string(),
            topic: self.name_of(partition),
            sequence: event.seq.0,
            id: event.id().into_owned(),
            event_type: event.event_type().into_owned(),
            subject: event.subject().into_owned(),
            bytes: event.wire_len(),
            event: if *data { whole() } else { None },
        }));
    }

    /// Whether the caller sees an event subscription of a topic; without one, the events of the
    /// topic or the domain topic.
    fn sees_event(
        &self,
        partition: PartitionId,
        domain_topic: Option<&str>,
        subscription: Option<&SubscriptionRecord>,
    ) -> bool {
        let Some(permissions) = &self.permissions else {
            return true;
        };
        let topic = self
            .control
            .registry
            .topic_of_partition(partition)
            .map(|topic| topic.record());
        topic.is_some_and(|topic| match subscription {
            Some(subscription) => {
                permissions.sees_subscription(&self.control, &topic, subscription)
            }
            None => permissions.sees_topic(
                &self.control,
                &topic,
                domain_topic.filter(|_| topic.is_domain()),
            ),
        })
    }

    fn push_line(&mut self, line: &TailLine) {
        self.ready.push_back(format_line(line));
    }

    fn name_of(&self, partition: PartitionId) -> String {
        self.control
            .registry
            .topic_of_partition(partition)
            .map(|topic| topic.record().resource_id())
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
                    query.topic = Some(topic_of(control, permissions, &value)?);
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
        let (topic, _) = named_topic(control, topic_id)?;
        let is_named = topic.snapshots().any(|figures| {
            let record = figures.record();
            self.is_subscription(record.name.as_str())
                && self.is_of(topic.partition(), record.filter.domain_topic.as_deref())
        });
        if is_named {
            return Ok(());
        }
        Err(AdminError::NotFound(format!(
            "The event subscription '{name}' of {topic_id} was not found."
        )))
    }

    fn is_of(&self, partition: PartitionId, domain_topic: Option<&str>) -> bool {
        let Some((wanted, of_domain)) = &self.topic else {
            return true;
        };
        *wanted == partition
            && of_domain.as_ref().is_none_or(|wanted| {
                domain_topic.is_some_and(|given| given.eq_ignore_ascii_case(wanted))
            })
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

/// The topic or the domain that a resource id names, and the path.
pub(super) fn named_topic(
    control: &Control,
    id: &str,
) -> AdminResult<(Arc<TopicHandle>, path::TopicPath)> {
    let path = path::find_route(id)
        .filter(path::ArmPath::is_topic)
        .ok_or_else(|| not_a_topic(id))?
        .topic()?;
    Ok((arm::find_topic(control, &path)?, path))
}

/// The topic, the domain or the domain topic that a resource id names. One of which the caller may
/// see nothing does not exist for the caller.
pub(super) fn topic_of(
    control: &Control,
    permissions: &Permissions,
    id: &str,
) -> AdminResult<(PartitionId, Option<String>)> {
    let (topic, path) = named_topic(control, id)?;
    arm::check_seen(control, permissions, &topic, &path)?;
    Ok((
        topic.partition(),
        path.domain_topic.map(|name| name.to_string()),
    ))
}

fn not_a_topic(id: &str) -> InvalidRequest {
    InvalidRequest::new(
        "topic",
        format!("is \"{id}\"; expected the resource id of a topic, a domain or a domain topic"),
    )
}
