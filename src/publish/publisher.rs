//! What becomes of a request: the order in which it is looked at, and what it costs meanwhile.
//!
//! The order is the point. Topic, publisher and the sizes that the head announces are looked at first, at no cost. Then
//! [`in_flight_bytes`] for the body's bytes is taken, before they are kept, and it travels with the events into the journal:
//! what publishers can make the server hold is bounded, and where it runs out they are told to come back. It is taken as
//! the bytes come, so that those who announce much and send little hold little. A body has a limit, a deadline and a least
//! rate of its own, because actix-web has none of these for a body that trickles in or stops.
//!
//! A publisher that goes away while the journal works has published: it was not told, and sends again. That is what "at
//! least once" means.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use actix_web::{
    HttpRequest, HttpResponse,
    http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HeaderMap},
    web,
};
use bytes::{Bytes, BytesMut};
use futures_util::{FutureExt as _, StreamExt as _};
use tokio::time::{Instant, timeout_at};
use uuid::Uuid;

use super::{
    PublishLimits, Refusal,
    auth::{Authenticator, KeyScope, RejectionCounts, RequestAuthority},
    http::find_topic,
    in_flight_bytes::{self, InFlightBytes, Permit},
    namespace::{self, PublishRoute},
    rate::PublishThrottle,
    schema::{self, EventTarget, RequestContent},
    traced::{TracedPublish, TracedRequest},
};
use crate::{
    clock::Clock,
    control::registry::{Registry, TopicHandle},
    event::{Schema, SubscriptionId, Timestamp},
    fanout::meter::{PublishCounts, TopicMeter},
    journal::{self, Journal},
    telemetry::trace::Tracer,
};

/// Memory for a body that was announced and has not come: enough for most.
const PREPARED_BYTES: usize = 16 * 1024;

/// What the names of attributes begin with, in the binary mode of CloudEvents.
const ATTRIBUTE: &str = "ce-";

/// Takes what publishers send. One for the whole server, in the `app_data` of every worker.
pub struct Publisher {
    pub(super) registry: Arc<Registry>,
    journal: Journal,
    clock: Clock,
    limits: PublishLimits,
    gate: Authenticator,
    throttle: PublishThrottle,
    tracer: Tracer,
    room: Arc<InFlightBytes>,
    closed: AtomicBool,
    /// Whether clients that wait for events are sent away.
    polls_ended: tokio::sync::watch::Sender<bool>,
    /// What was refused because it was for no topic.
    strays: TopicMeter,
}

impl Publisher {
    /// Publishes to the topics of `registry` through `journal`, for whom `gate` lets in.
    pub fn new(
        registry: Arc<Registry>,
        journal: Journal,
        clock: Clock,
        limits: PublishLimits,
        gate: Authenticator,
    ) -> Self {
        let room = InFlightBytes::new(limits.admitted_bytes_max, limits.request_bytes_max);
        let throttle = PublishThrottle::new(limits.rates);
        let (tracer, closed) = (Tracer::default(), AtomicBool::new(false));
        let (polls_ended, _) = tokio::sync::watch::channel(false);
        Self {
            registry,
            journal,
            clock,
            limits,
            gate,
            throttle,
            tracer,
            room,
            closed,
            polls_ended,
            strays: TopicMeter::default(),
        }
    }

    /// The same, with its requests recorded there.
    #[must_use]
    pub fn traced_by(self, tracer: Tracer) -> Self {
        Self { tracer, ..self }
    }

    /// Refuses every request from now on. What is with the journal already is still answered.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Release);
    }

    /// Nobody waits for events from now on: whoever does is answered with those that there are.
    pub fn end_polls(&self) {
        self.polls_ended.send_replace(true);
    }

    /// Returns when nobody may wait for events any more.
    pub async fn polls_end(&self) {
        // The sender is ours: it is not gone while we wait.
        self.polls_ended.subscribe().wait_for(|ended| *ended).await.ok();
    }

    /// How many publishers were sent away at the door.
    pub fn refusals(&self) -> RejectionCounts {
        self.gate.refusals()
    }

    /// What was published to topics that are not there.
    pub fn unknown_topic_counts(&self) -> PublishCounts {
        self.strays.publishing()
    }

    /// How many bytes of publishers are in hand, and how many may be.
    pub fn room(&self) -> (usize, usize) {
        (self.room.taken(), self.room.bytes())
    }

    pub(super) async fn publish(&self, request: &HttpRequest, body: &mut web::Payload) -> Result<(), Refusal> {
        let began = self.clock.now();
        self.refuse_closed()?;
        let topic = find_topic(self, request).inspect_err(|refusal| self.strays.refused(refusal.counted()))?;
        let taking = async {
            self.ask(request, &KeyScope::of(&topic.record())).await?;
            self.take(&topic, request, body, &self.limits).await
        };
        let taken = taking.await;
        self.count(&topic, began, taken)
    }

    /// The same, for a topic of a namespace.
    pub(super) async fn publish_in_namespace(
        &self,
        request: &HttpRequest,
        body: &mut web::Payload,
    ) -> Result<(), Refusal> {
        let began = self.clock.now();
        self.refuse_closed()?;
        let found = namespace::find(self, request);
        let PublishRoute { namespace, topic } = found.inspect_err(|refusal| self.strays.refused(refusal.counted()))?;
        let limits = PublishLimits { events_max: self.limits.namespace_events_max, ..self.limits };
        let taking = async {
            self.ask(request, &KeyScope::in_namespace(&namespace, &topic.record())).await?;
            self.take(&topic, request, body, &limits).await
        };
        let taken = taking.await;
        self.count(&topic, began, taken)
    }

    fn count(&self, topic: &TopicHandle, began: Timestamp, taken: Result<(), Refusal>) -> Result<(), Refusal> {
        match &taken {
            Ok(()) => topic.meter().accepted(self.clock.now().since(began)),
            Err(refusal) => topic.meter().refused(refusal.counted()),
        }
        taken
    }

    /// The topic of a namespace that a request is for, where whoever sent it may do something there. What is refused is
    /// counted, and held back where it showed what is no good.
    ///
    /// # Errors
    /// What whoever sent it is told: with [`Publisher::refuse_in_namespace`].
    pub async fn enter(&self, request: &HttpRequest) -> Result<PublishRoute, Refusal> {
        self.refuse_closed()?;
        let entered = namespace::find(self, request)?;
        self.ask(request, &KeyScope::in_namespace(&entered.namespace, &entered.topic.record())).await?;
        Ok(entered)
    }

    fn refuse_closed(&self) -> Result<(), Refusal> {
        if self.closed.load(Ordering::Acquire) { Err(Refusal::Closing) } else { Ok(()) }
    }

    async fn ask(&self, request: &HttpRequest, scope: &KeyScope<'_>) -> Result<(), Refusal> {
        // A token ends by the clock of whoever made it, not by ours.
        if let Err(refusal) = self.gate.check(request, scope, self.clock.wall()) {
            self.gate.hold(request, &refusal, self.clock.now()).await;
            return Err(refusal);
        }
        Ok(())
    }

    async fn take(
        &self,
        topic: &TopicHandle,
        request: &HttpRequest,
        body: &mut web::Payload,
        limits: &PublishLimits,
    ) -> Result<(), Refusal> {
        let headers = request.headers();
        refuse_encoded(headers)?;
        if let Some(crowd) = topic.crowd().filter(|crowd| crowd.is_full) {
            return Err(full(topic, crowd.laggard));
        }
        let announced = announced(headers, limits.request_bytes_max)?;
        self.throttle.check(topic.partition(), self.clock.now())?;
        let began = self.clock.now();
        let (body, permit) = self.receive(request, topic, body, (announced, limits.request_bytes_max)).await?;
        let record = topic.record();
        let target = EventTarget::of(&record);
        let content = content(headers, target.schema);
        let traced = TracedRequest::begin(&self.tracer, headers, (target.schema, &content), &body, began);
        let draft = match &traced {
            Some(traced) => schema::read_traced(&target, &content, &body, limits, &traced.stored())?,
            None => schema::read(&target, &content, &body, limits)?,
        };
        let (events, bytes, asked) = (draft.count(), body.len(), self.clock.now());
        self.throttle.take(topic.partition(), events, bytes, asked);
        drop(body);
        let appended = self.append(topic, draft, permit).await;
        if let Some(traced) = traced {
            let (topic, answered) = (record.name.as_str(), self.clock.now());
            traced.end(&TracedPublish { topic, events, bytes, asked, answered }, &appended);
        }
        appended
    }

    async fn append(
        &self,
        topic: &TopicHandle,
        draft: crate::store::chunk::ChunkBuilder,
        permit: Permit,
    ) -> Result<(), Refusal> {
        match self.journal.publish(topic.partition(), draft.into_chunks(), Some(Box::new(permit))).await {
            Ok(_) => Ok(()),
            Err(journal::Error::Backlog(laggard)) => Err(full(topic, laggard)),
            Err(error) => {
                if let journal::Error::Damaged(what) = &error {
                    tracing::error!(topic = %topic.record().name, what, "publish failed: the journal is damaged");
                }
                Err(error.into())
            }
        }
    }

    /// The body of a request about a topic, of at most `bytes_max`, with the same bounds as what is published: for whoever
    /// was let in by [`Publisher::enter`].
    ///
    /// # Errors
    /// What whoever sent it is told.
    pub async fn read(
        &self,
        request: &HttpRequest,
        topic: &TopicHandle,
        body: &mut web::Payload,
        bytes_max: usize,
    ) -> Result<Bytes, Refusal> {
        let announced = announced(request.headers(), bytes_max)?;
        let (bytes, _permit) = self.receive(request, topic, body, (announced, bytes_max)).await?;
        Ok(bytes)
    }

    /// The body, and the room that it takes: so much as has come, because to announce a length costs nothing. Who sends
    /// slowly holds what he has sent, and must go on sending.
    async fn receive(
        &self,
        request: &HttpRequest,
        topic: &TopicHandle,
        body: &mut web::Payload,
        (announced, bytes_max): (usize, usize),
    ) -> Result<(Bytes, Permit), Refusal> {
        let no_room = |in_flight_bytes::Full| Refusal::NoRoom;
        let sender = in_flight_bytes::Request::to(topic, &topic.record(), self.gate.client(request));
        // Whoever would find no room need not send.
        if !self.room.has(&sender, announced) {
            return Err(Refusal::NoRoom);
        }
        let mut received = BytesMut::with_capacity(announced.min(PREPARED_BYTES));
        let mut permit = self.room.enter(sender, received.capacity()).map_err(no_room)?;
        let mut wait = None;
        loop {
            // Most are here with their heads, and need no timer.
            let next = match body.next().now_or_never() {
                Some(next) => next,
                None => {
                    let wait = wait.get_or_insert_with(|| BodyDeadline::begin(&self.limits, received.len()));
                    match timeout_at(wait.until(), body.next()).await {
                        Ok(next) => next,
                        Err(_) => {
                            wait.go_on(&self.limits, received.len())?;
                            continue;
                        }
                    }
                }
            };
            let Some(part) = next else { break };
            let part = part.map_err(|_| Refusal::Broken)?;
            let len = received.len() + part.len();
            if len > announced {
                // No more is read than was announced.
                return Err(if announced < bytes_max { Refusal::Broken } else { Refusal::TooLarge { bytes_max } });
            }
            permit.grow_to(len).map_err(no_room)?;
            received.extend_from_slice(&part);
        }
        permit.shrink_to(received.len());
        Ok((received.freeze(), permit))
    }

    /// Which host a request was sent to.
    pub(super) fn called(&self, request: &HttpRequest) -> Result<RequestAuthority, Refusal> {
        self.gate.called(request)
    }

    /// The answer to a request that does not say properly which host it is for; [`None`] where it does.
    pub fn refuse_host(&self, request: &HttpRequest) -> Option<HttpResponse> {
        self.gate.check_host(request).err().map(|refusal| self.refuse(&refusal))
    }

    pub(super) fn refuse(&self, refusal: &Refusal) -> HttpResponse {
        refusal.respond(Uuid::new_v4(), self.clock.now())
    }

    /// What whoever asks for something in a namespace is told instead.
    pub fn refuse_in_namespace(&self, refusal: &Refusal) -> HttpResponse {
        refusal.respond_in_namespace(Uuid::new_v4(), self.clock.now())
    }
}

/// The topic's backlog is at its bound: what its publishers are told.
fn full(topic: &TopicHandle, laggard: SubscriptionId) -> Refusal {
    let name = topic.subscription_name(laggard).map(|name| name.to_string());
    Refusal::Backlog { laggard: name.unwrap_or_else(|| laggard.0.to_string()) }
}

/// Compressed bodies are not taken: how large they are is known only when they are unpacked.
fn refuse_encoded(headers: &HeaderMap) -> Result<(), Refusal> {
    let plain = |encoding: &[u8]| encoding.trim_ascii().is_empty() || encoding.eq_ignore_ascii_case(b"identity");
    if headers.get_all(CONTENT_ENCODING).all(|encoding| plain(encoding.as_bytes())) {
        return Ok(());
    }
    Err(Refusal::ContentEncoding)
}

fn content(headers: &HeaderMap, schema: Schema) -> RequestContent<'_> {
    let content_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let attributes = match schema {
        Schema::EventGrid | Schema::Custom => Vec::new(),
        Schema::CloudEvents => headers
            .iter()
            .filter_map(|(name, value)| Some((name.as_str().strip_prefix(ATTRIBUTE)?, value.as_bytes())))
            .collect(),
    };
    RequestContent { content_type, attributes }
}

/// How many bytes the head says will come; the limit where it does not say. A lie is found out while reading.
fn announced(headers: &HeaderMap, bytes_max: usize) -> Result<usize, Refusal> {
    let Some(length) = headers.get(CONTENT_LENGTH) else { return Ok(bytes_max) };
    match length.to_str().ok().and_then(|length| length.parse::<usize>().ok()) {
        Some(length) if length <= bytes_max => Ok(length),
        Some(_) => Err(Refusal::TooLarge { bytes_max }),
        None => Err(Refusal::Broken),
    }
}

/// How long a body is waited for: to its end, and to the next of the bytes that it must bring meanwhile.
struct BodyDeadline {
    end: Instant,
    due: Instant,
    /// It must have more by then.
    least: usize,
}

impl BodyDeadline {
    fn begin(limits: &PublishLimits, received: usize) -> Self {
        let now = Instant::now();
        let mut wait = Self { end: now + limits.body_wait, due: now, least: 0 };
        wait.set(limits, received);
        wait
    }

    fn set(&mut self, limits: &PublishLimits, received: usize) {
        let bytes = u128::from(limits.body_bytes_per_second) * limits.body_window.as_millis() / 1_000;
        self.due += limits.body_window;
        self.least = received.saturating_add(usize::try_from(bytes).unwrap_or(usize::MAX));
    }

    /// When it must be asked whether to go on.
    fn until(&self) -> Instant {
        self.end.min(self.due)
    }

    /// A wait is over: sets the next one, where enough has come.
    fn go_on(&mut self, limits: &PublishLimits, received: usize) -> Result<(), Refusal> {
        if Instant::now() >= self.end {
            return Err(Refusal::Slow { seconds: limits.body_wait.as_secs() });
        }
        if received < self.least {
            let PublishLimits { body_bytes_per_second: bytes_per_second, body_window, .. } = limits;
            return Err(Refusal::Stalled { bytes_per_second: *bytes_per_second, seconds: body_window.as_secs() });
        }
        self.set(limits, received);
        Ok(())
    }
}
