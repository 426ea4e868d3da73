//! The processing of a publish request, in an order that bounds its cost.
//!
//! First come checks that cost nothing: the topic, the publisher, and the announced sizes. Then
//! [`in_flight_bytes`] are reserved as the body is received, and the reservation travels with the
//! events into the journal. So the memory that publishers can use is bounded, a publisher beyond it
//! receives 503, and one that announces much and sends little holds little. A body has a size
//! limit, a deadline and a minimum rate, because actix-web has none of these.
//!
//! If a publisher disconnects while the journal writes, its events are stored. It sends them again:
//! delivery is at least once.

use std::{
    future::poll_fn,
    mem,
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::Poll,
    time::Duration,
};

use actix_web::{
    HttpRequest, HttpResponse,
    error::PayloadError,
    http::header::{CONTENT_TYPE, EXPECT, HeaderMap, HeaderValue},
    web,
};
use bytes::{Bytes, BytesMut};
use futures_util::{FutureExt as _, StreamExt as _};
use tokio::time::timeout_at;
use uuid::Uuid;

use super::{
    PublishLimits, Refusal,
    auth::{Authenticator, CheckTimes, KeyScope, RejectionCounts, RequestAuthority},
    body::{BodyDeadline, announced_length},
    encoding::BodyEncoding,
    http::find_topic,
    in_flight_bytes::{self, InFlightBytes, Permit},
    namespace::{self, PublishRoute},
    rate::PublishThrottle,
    schema::{self, DataChecks, EventTarget, Nonconforming, RequestContent},
    traced::{TracedPublish, TracedRequest},
};
use gridhook_clock::Clock;
use gridhook_compute::{Compute, ComputeCaller};
use gridhook_engine::{
    control::{
        registry::{Registry, TopicHandle},
        tokens::Token,
    },
    fanout::meter::{PublishCounts, TopicMeter},
};
use gridhook_event::{Schema, SubscriptionId, Timestamp, chunk::ChunkBuilder};
use gridhook_journal as journal;
use gridhook_journal::Journal;
use gridhook_record::token::TokenRole;
use gridhook_telemetry::trace::Tracer;

/// The initial buffer of a body that arrives in parts, enough for most.
const PREPARED_BYTES: usize = 16 * 1024;

/// One of 1,000 events that do not match their schema is logged: a publisher's mistake is in each
/// of its events.
const LOGGED_EVERY: u64 = 1_000;

/// The content type of events that this server delivers to a topic of its own.
const DELIVERED: &str = "application/cloudevents-batch+json";

/// The prefix of attribute headers in the binary mode of CloudEvents.
const ATTRIBUTE: &str = "ce-";

/// Processes publish requests. There is one for the server, in the `app_data` of every worker.
pub struct Publisher {
    pub(super) registry: Arc<Registry>,
    journal: Journal,
    clock: Clock,
    limits: PublishLimits,
    gate: Authenticator,
    throttle: PublishThrottle,
    tracer: Tracer,
    compute: Compute,
    room: Arc<InFlightBytes>,
    closed: AtomicBool,
    /// Whether long polls end at once.
    polls_ended: tokio::sync::watch::Sender<bool>,
    /// The counts of requests for unknown topics.
    unknown_topics: TopicMeter,
}

impl Publisher {
    /// Publishes to the topics of `registry` through `journal`, with the authentication of `gate`.
    pub fn new(
        registry: Arc<Registry>,
        journal: Journal,
        clock: Clock,
        limits: PublishLimits,
        gate: Authenticator,
    ) -> Self {
        let room = InFlightBytes::new(limits.admitted_bytes_max, limits.request_bytes_max);
        let throttle = PublishThrottle::new(limits.rates);
        let tracer = Tracer::default();
        let is_closed = AtomicBool::new(false);
        let (polls_ended, _) = tokio::sync::watch::channel(false);
        Self {
            registry,
            journal,
            clock,
            limits,
            gate,
            throttle,
            tracer,
            compute: Compute::default(),
            room,
            closed: is_closed,
            polls_ended,
            unknown_topics: TopicMeter::default(),
        }
    }

    #[must_use]
    pub fn traced_by(self, tracer: Tracer) -> Self {
        Self { tracer, ..self }
    }

    /// Checks events on these threads.
    #[must_use]
    pub fn with_compute(self, compute: Compute) -> Self {
        Self { compute, ..self }
    }

    /// Refuses every request from now on. Requests that the journal already has are still answered.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Release);
    }

    /// Ends long polls: waiting clients are answered with the events at hand.
    pub fn end_polls(&self) {
        self.polls_ended.send_replace(true);
    }

    /// Returns once long polls must end.
    pub async fn polls_end(&self) {
        // `self` holds the sender, so it cannot be dropped meanwhile.
        self.polls_ended
            .subscribe()
            .wait_for(|ended| *ended)
            .await
            .ok();
    }

    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Returns once a token with a name is revoked or expires.
    pub async fn token_end(&self, token: Option<&Token>) {
        match token {
            Some(token) => token.wait_for_end(self.clock.wall_time()).await,
            None => std::future::pending().await,
        }
    }

    pub fn rejection_counts(&self) -> RejectionCounts {
        self.gate.rejection_counts()
    }

    /// The counts of requests for unknown topics.
    pub fn unknown_topic_counts(&self) -> PublishCounts {
        self.unknown_topics.publish_counts()
    }

    /// The bytes in flight, and their limit.
    pub fn bytes_in_flight(&self) -> (usize, usize) {
        (self.room.bytes_in_flight(), self.room.bytes_max())
    }

    /// `called` is the host that the request was sent to, if it is known already.
    pub(super) async fn publish(
        &self,
        request: &HttpRequest,
        body: &mut web::Payload,
        called: Option<RequestAuthority>,
    ) -> Result<(), Refusal> {
        let began = self.clock.now();
        self.refuse_closed()?;
        let topic = find_topic(self, request)
            .inspect_err(|refusal| self.unknown_topics.count_refused(refusal.metric_label()))?;
        let work = async {
            self.authenticate(
                request,
                called,
                &KeyScope::for_topic(&topic.record()),
                TokenRole::Publish,
            )
            .await?;
            self.receive_and_append(&topic, request, body, &self.limits, began)
                .await
        };
        let result = work.await;
        self.record_result(&topic, began, result)
    }

    /// As [`Publisher::publish_messages`], for a topic of a namespace.
    pub(super) async fn publish_in_namespace(
        &self,
        request: &HttpRequest,
        body: &mut web::Payload,
    ) -> Result<(), Refusal> {
        let began = self.clock.now();
        self.refuse_closed()?;
        let route = namespace::find_route(self, request);
        let PublishRoute { namespace, topic } = route
            .inspect_err(|refusal| self.unknown_topics.count_refused(refusal.metric_label()))?;
        let limits = PublishLimits {
            events_max: self.limits.namespace_events_max,
            ..self.limits
        };
        let work = async {
            self.authenticate(
                request,
                None,
                &KeyScope::in_namespace(&namespace, &topic.record()),
                TokenRole::Publish,
            )
            .await?;
            self.receive_and_append(&topic, request, body, &limits, began)
                .await
        };
        let result = work.await;
        self.record_result(&topic, began, result)
    }

    fn record_result(
        &self,
        topic: &TopicHandle,
        began: Timestamp,
        taken: Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        match &taken {
            Ok(()) => topic.meter().count_accepted(self.clock.now().since(began)),
            Err(refusal) => topic.meter().count_refused(refusal.metric_label()),
        }
        taken
    }

    /// Finds the topic of a namespace and authenticates the request of a consumer. A refusal is
    /// counted; that of a failed authentication is delayed.
    ///
    /// # Errors
    /// The refusal, for [`Publisher::refuse_in_namespace`].
    pub async fn authenticate_consumer(
        &self,
        request: &HttpRequest,
    ) -> Result<(PublishRoute, Option<Arc<Token>>), Refusal> {
        self.refuse_closed()?;
        let route = namespace::find_route(self, request)?;
        let record = route.topic.record();
        let scope = KeyScope::in_namespace(&route.namespace, &record);
        let token = self
            .authenticate(request, None, &scope, TokenRole::Consume)
            .await?;
        Ok((route, token))
    }

    fn refuse_closed(&self) -> Result<(), Refusal> {
        if self.closed.load(Ordering::Acquire) {
            Err(Refusal::Closing)
        } else {
            Ok(())
        }
    }

    async fn authenticate(
        &self,
        request: &HttpRequest,
        called: Option<RequestAuthority>,
        scope: &KeyScope<'_>,
        role: TokenRole,
    ) -> Result<Option<Arc<Token>>, Refusal> {
        let authority = called.map_or_else(|| self.called_authority(request), Ok);
        let times = CheckTimes {
            wall: self.clock.wall_time(),
            now: self.clock.now(),
        };
        let result = authority.and_then(|authority| {
            self.gate
                .authenticate(request, &authority, scope, role, times)
        });
        if let Err(refusal) = &result {
            self.gate
                .delay_refusal(request, refusal, self.clock.now())
                .await;
        }
        result
    }

    async fn receive_and_append(
        &self,
        topic: &TopicHandle,
        request: &HttpRequest,
        body: &mut web::Payload,
        limits: &PublishLimits,
        began: Timestamp,
    ) -> Result<(), Refusal> {
        let headers = request.headers();
        let encoding = BodyEncoding::from_headers(headers)?;
        let length = announced_length(headers, limits.request_bytes_max)?;
        self.refuse_early(topic, began)?;
        let (body, mut permit) = self
            .receive_body(request, topic, body, length, limits.request_bytes_max)
            .await?;
        let body = encoding.decode(body, limits.request_bytes_max, &mut permit)?;
        self.append_body(topic, headers, limits, body, permit, began)
            .await
    }

    fn refuse_early(&self, topic: &TopicHandle, now: Timestamp) -> Result<(), Refusal> {
        if let Some(crowded) = topic.crowded_partition().filter(|crowded| crowded.is_full) {
            return Err(backlog_full(topic, crowded.laggard));
        }
        self.throttle.check_rate(topic.partition(), now)
    }

    /// Publishes a body to a topic for an operator, whom the control plane has authenticated.
    ///
    /// # Errors
    /// The refusal.
    pub async fn publish_for_operator(
        &self,
        topic: &TopicHandle,
        request: &HttpRequest,
        body: Bytes,
    ) -> Result<(), Refusal> {
        let began = self.clock.now();
        let work = async {
            let encoding = BodyEncoding::from_headers(request.headers())?;
            let mut permit = self.reserve_body_bytes(
                topic,
                self.gate.accountable_address(request),
                body.len(),
                began,
            )?;
            let body = encoding.decode(body, self.limits.request_bytes_max, &mut permit)?;
            self.append_body(topic, request.headers(), &self.limits, body, permit, began)
                .await
        };
        let result = work.await;
        self.record_result(topic, began, result)
    }

    /// Admits a body that is in memory already, and reserves its bytes.
    fn reserve_body_bytes(
        &self,
        topic: &TopicHandle,
        address: Option<IpAddr>,
        bytes: usize,
        now: Timestamp,
    ) -> Result<Permit, Refusal> {
        self.refuse_closed()?;
        self.refuse_early(topic, now)?;
        let sender = in_flight_bytes::Request::for_publish(topic, &topic.record(), address);
        self.room
            .reserve_bytes(sender, bytes)
            .map_err(|in_flight_bytes::Full| Refusal::NoRoom)
    }

    /// Reads and appends a body that is admitted. Every way into a topic ends here.
    async fn append_body(
        &self,
        topic: &TopicHandle,
        headers: &HeaderMap,
        limits: &PublishLimits,
        body: Bytes,
        permit: Permit,
        began: Timestamp,
    ) -> Result<(), Refusal> {
        let record = topic.record();
        let target = EventTarget::cached_for(&record).with_catalogue(topic.catalogue());
        let content = request_content(headers, target.schema);
        let trace = TracedRequest::begin_trace(
            &self.tracer,
            headers,
            target.schema,
            &content,
            &body,
            began,
        );
        let draft = match &trace {
            Some(trace) => {
                schema::read_traced(&target, &content, &body, limits, &trace.stored_context())?
            }
            None => schema::read(&target, &content, &body, limits)?,
        };
        note_nonconforming(topic, self.check_data(topic, target.take_checks()).await?);
        let events = draft.count();
        let bytes = body.len();
        let throttle_time = if trace.is_some() || self.throttle.is_limited() {
            self.clock.now()
        } else {
            began
        };
        self.throttle
            .take_tokens(topic.partition(), events, bytes, throttle_time);
        drop(body);
        let result = self
            .append_events(topic, draft, record.ingress.duplicate_window(), permit)
            .await;
        if let Some(trace) = trace {
            let topic = record.name.as_str();
            let response_time = self.clock.now();
            trace.end_trace(
                &TracedPublish {
                    topic,
                    events,
                    bytes,
                    asked: throttle_time,
                    answered: response_time,
                },
                &result,
            );
        }
        result
    }

    /// Checks the data of events where others compute, unless that costs little.
    async fn check_data(
        &self,
        topic: &TopicHandle,
        checks: DataChecks,
    ) -> Result<Option<Nonconforming>, Refusal> {
        if checks.are_quick() {
            return checks.check_all();
        }
        let caller = ComputeCaller::Topic(topic.partition());
        let result = self
            .compute
            .run(caller, |meter| checks.check_in_slices(meter))
            .await;
        result.unwrap_or(Err(Refusal::Unchecked))
    }

    async fn append_events(
        &self,
        topic: &TopicHandle,
        draft: ChunkBuilder,
        window: Option<Duration>,
        permit: Permit,
    ) -> Result<(), Refusal> {
        let partition = topic.partition();
        let chunks = draft.into_chunks();
        let room = Some(Box::new(permit) as journal::Permit);
        match self
            .journal
            .append_new_events(partition, chunks, window, room)?
            .await
        {
            Ok(receipt) => {
                topic.meter().count_duplicates(receipt.duplicates.into());
                Ok(())
            }
            Err(journal::Error::Backlog(laggard)) => Err(backlog_full(topic, laggard)),
            Err(error) => {
                if let journal::Error::Damaged(what) = &error {
                    tracing::error!(topic = %topic.record().name, what, "publish failed: the \
                        journal is damaged");
                }
                Err(error.into())
            }
        }
    }

    /// Publishes a JSON array of CloudEvents that this server, or the cluster, delivers to a topic
    /// of its own. The topic treats it as a request of a publisher: its duplicate window, its rate
    /// limit and the reserved bytes apply.
    ///
    /// # Errors
    /// If the topic would refuse them from a publisher.
    pub async fn forward_events(&self, topic: &TopicHandle, events: Bytes) -> Result<(), Refusal> {
        let began = self.clock.now();
        let headers = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(DELIVERED))]);
        let work = async {
            let permit = self.reserve_body_bytes(topic, None, events.len(), began)?;
            self.append_body(topic, &headers, &self.limits, events, permit, began)
                .await
        };
        let result = work.await;
        self.record_result(topic, began, result)
    }

    /// Reads the body of a request that [`Publisher::authenticate_consumer`] accepted, of at most
    /// `bytes_max` bytes, with the limits of a publish request.
    ///
    /// # Errors
    /// The refusal.
    pub async fn read(
        &self,
        request: &HttpRequest,
        topic: &TopicHandle,
        body: &mut web::Payload,
        bytes_max: usize,
    ) -> Result<Bytes, Refusal> {
        let length = announced_length(request.headers(), bytes_max)?;
        let (bytes, _permit) = self
            .receive_body(request, topic, body, length, bytes_max)
            .await?;
        Ok(bytes)
    }

    /// Receives the body and reserves bytes for it as they arrive. Announcing a length reserves
    /// nothing.
    async fn receive_body(
        &self,
        request: &HttpRequest,
        topic: &TopicHandle,
        body: &mut web::Payload,
        announced: usize,
        bytes_max: usize,
    ) -> Result<(Bytes, Permit), Refusal> {
        let no_room = |in_flight_bytes::Full| Refusal::NoRoom;
        let sender = in_flight_bytes::Request::for_publish(
            topic,
            &topic.record(),
            self.gate.accountable_address(request),
        );
        let mut permit = self.room.reserve_bytes(sender, 0).map_err(no_room)?;
        // Most bodies arrive whole with their heads: they need no timer and no copy. A part that
        // others follow is copied, because it is a part of a larger buffer.
        let mut first = Bytes::new();
        let mut bytes = BytesMut::new();
        let mut wait = None;
        // The first read asks a client for its body that waits for that.
        if request.headers().contains_key(EXPECT) && !permit.could_grow_to(announced) {
            return Err(Refusal::NoRoom);
        }
        let mut next = first_part(body).await;
        let is_whole = matches!(&next, Some(Some(Ok(part))) if part.len() == announced);
        // Refused before the rest is sent, if there is no room for the announced length.
        if !is_whole && !permit.could_grow_to(announced) {
            return Err(Refusal::NoRoom);
        }
        loop {
            let part = match next {
                Some(None) => break,
                Some(Some(part)) => Some(part.map_err(|_| Refusal::Broken)?),
                None => None,
            };
            if !first.is_empty() {
                // Announcing a length reserves little: there is room for all of a body once half of
                // it has come.
                let is_coming = first.len() >= announced / 2;
                bytes.reserve(if is_coming {
                    announced
                } else {
                    announced.min(PREPARED_BYTES)
                });
                bytes.extend_from_slice(&mem::take(&mut first));
            }
            next = match part {
                Some(part) => {
                    let len = bytes.len() + part.len();
                    if len > announced {
                        // Reading stops at the announced length.
                        return Err(if announced < bytes_max {
                            Refusal::Broken
                        } else {
                            Refusal::TooLarge { bytes_max }
                        });
                    }
                    permit.grow_to(len).map_err(no_room)?;
                    if bytes.is_empty() {
                        first = part
                    } else {
                        bytes.extend_from_slice(&part)
                    }
                    body.next().now_or_never()
                }
                None => {
                    let wait =
                        wait.get_or_insert_with(|| BodyDeadline::begin(&self.limits, bytes.len()));
                    match timeout_at(wait.next_check(), body.next()).await {
                        Ok(next) => Some(next),
                        Err(_) => {
                            wait.go_on(&self.limits, bytes.len())?;
                            None
                        }
                    }
                }
            };
        }
        Ok((
            if bytes.is_empty() {
                first
            } else {
                bytes.freeze()
            },
            permit,
        ))
    }

    /// The host that a request was sent to.
    pub(super) fn called_authority(
        &self,
        request: &HttpRequest,
    ) -> Result<RequestAuthority, Refusal> {
        self.gate.called_authority(request)
    }

    /// The host that a request was sent to, before its route is known.
    ///
    /// # Errors
    /// The refusal of a request with an invalid host, or without one.
    pub fn check_host(&self, request: &HttpRequest) -> Result<RequestAuthority, Refusal> {
        self.gate.check_host(request)
    }

    pub fn respond_refused(&self, refusal: &Refusal) -> HttpResponse {
        refusal.to_response(Uuid::new_v4(), self.clock.wall_time())
    }

    /// The response of a refusal in a namespace.
    pub fn refuse_in_namespace(&self, refusal: &Refusal) -> HttpResponse {
        refusal.respond_in_namespace(Uuid::new_v4(), self.clock.wall_time())
    }
}

/// The first part of a body; [`None`] if it has not come with the head. The HTTP library hands a
/// body over only after it has polled the handler of the request once.
async fn first_part(body: &mut web::Payload) -> Option<Option<Result<Bytes, PayloadError>>> {
    let mut is_polled = false;
    let next_part = poll_fn(|cx| match body.poll_next_unpin(cx) {
        Poll::Ready(part) => Poll::Ready(Some(part)),
        Poll::Pending if is_polled => Poll::Ready(None),
        Poll::Pending => {
            is_polled = true;
            cx.waker().wake_by_ref();
            Poll::Pending
        }
    });
    next_part.await
}

/// Counts the events whose data does not match, and logs one of a thousand.
fn note_nonconforming(topic: &TopicHandle, nonconforming: Option<Nonconforming>) {
    let Some(Nonconforming { events, first }) = nonconforming else {
        return;
    };
    let before = topic.meter().count_nonconforming(events);
    if before == 0 || before / LOGGED_EVERY != (before + events) / LOGGED_EVERY {
        tracing::warn!(topic = %topic.record().name, events = before + events, first, "events do \
            not match their schema");
    }
}

/// The refusal of a topic whose backlog is at its limit.
fn backlog_full(topic: &TopicHandle, laggard: SubscriptionId) -> Refusal {
    let name = topic
        .subscription_name(laggard)
        .map(|name| name.to_string());
    Refusal::Backlog {
        laggard: name.unwrap_or_else(|| laggard.0.to_string()),
    }
}

fn request_content(headers: &HeaderMap, schema: Schema) -> RequestContent<'_> {
    let content_type = headers
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok());
    let attributes = match schema {
        Schema::EventGrid | Schema::Custom => Vec::new(),
        Schema::CloudEvents => headers
            .iter()
            .filter_map(|(name, value)| {
                Some((name.as_str().strip_prefix(ATTRIBUTE)?, value.as_bytes()))
            })
            .collect(),
    };
    RequestContent {
        content_type,
        attributes,
    }
}
