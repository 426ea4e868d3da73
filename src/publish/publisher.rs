//! What becomes of a request: the order in which it is looked at, and what it costs meanwhile.
//!
//! The order is the point. Topic, publisher and the sizes that the head announces are looked at first, at no cost. Then
//! permits for the body's bytes are taken, each before its bytes are kept, and they travel with the events into the journal:
//! what publishers can make the server hold is bounded, and where it runs out they are told to come back. They are taken as
//! the bytes come, so that those who announce much and send little hold little. A body has a limit and a deadline of its
//! own, because actix-web has neither for a body that trickles in.
//!
//! A publisher that goes away while the journal works has published: it was not told, and sends again. That is what "at
//! least once" means.

use std::{
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use actix_web::{
    HttpRequest, HttpResponse,
    http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HeaderMap},
    web,
};
use bytes::{Bytes, BytesMut};
use futures_util::{FutureExt as _, StreamExt as _};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use uuid::Uuid;

use super::{
    Limits, Refusal,
    auth::{Gate, House, Refusals},
    http::find_topic,
    namespace::{self, Entered},
    rate::Throttle,
    schema::{self, Content, Target},
    traced::{Published, Traced},
};
use crate::{
    clock::Clock,
    event::{Schema, SubscriptionId, Timestamp},
    journal::{self, Journal},
    telemetry::trace::Tracer,
    topic::{
        meter::{Meter, Publishing},
        registry::{Registry, Topic},
    },
};

/// One permit is a kibibyte: fine enough for small requests, and a semaphore of them counts to terabytes.
const PERMIT_BYTES: usize = 1024;

/// Memory for a body that was announced and has not come: enough for most.
const PREPARED_BYTES: usize = 16 * 1024;

/// What the names of attributes begin with, in the binary mode of CloudEvents.
const ATTRIBUTE: &str = "ce-";

/// Takes what publishers send. One for the whole server, in the `app_data` of every worker.
pub struct Publisher {
    pub(super) registry: Arc<Registry>,
    journal: Journal,
    clock: Clock,
    limits: Limits,
    gate: Gate,
    throttle: Throttle,
    tracer: Tracer,
    room: Arc<Semaphore>,
    closed: AtomicBool,
    /// Whether clients that wait for events are sent away.
    polls_ended: tokio::sync::watch::Sender<bool>,
    /// What was refused because it was for no topic.
    strays: Meter,
}

impl Publisher {
    /// Publishes to the topics of `registry` through `journal`, for whom `gate` lets in.
    pub fn new(registry: Arc<Registry>, journal: Journal, clock: Clock, limits: Limits, gate: Gate) -> Self {
        let room = Arc::new(Semaphore::new(permits(limits.admitted_bytes_max) as usize));
        let throttle = Throttle::new(limits.rates);
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
            strays: Meter::default(),
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
    pub fn refusals(&self) -> Refusals {
        self.gate.refusals()
    }

    /// What was published to topics that are not there.
    pub fn strays(&self) -> Publishing {
        self.strays.publishing()
    }

    /// How many bytes of publishers are in hand, and how many may be.
    pub fn room(&self) -> (usize, usize) {
        let most = permits(self.limits.admitted_bytes_max) as usize;
        ((most - self.room.available_permits().min(most)) * PERMIT_BYTES, most * PERMIT_BYTES)
    }

    pub(super) async fn publish(&self, request: &HttpRequest, body: &mut web::Payload) -> Result<(), Refusal> {
        let began = self.clock.now();
        self.refuse_closed()?;
        let topic =
            find_topic(&self.registry, request).inspect_err(|refusal| self.strays.refused(refusal.counted()))?;
        let taking = async {
            self.ask(request, &House::of(&topic.record())).await?;
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
        let found = namespace::find(&self.registry, request);
        let Entered { namespace, topic } = found.inspect_err(|refusal| self.strays.refused(refusal.counted()))?;
        let limits = Limits { events_max: self.limits.namespace_events_max, ..self.limits };
        let taking = async {
            self.ask(request, &House::in_namespace(&namespace, &topic.record())).await?;
            self.take(&topic, request, body, &limits).await
        };
        let taken = taking.await;
        self.count(&topic, began, taken)
    }

    fn count(&self, topic: &Topic, began: Timestamp, taken: Result<(), Refusal>) -> Result<(), Refusal> {
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
    pub async fn enter(&self, request: &HttpRequest) -> Result<Entered, Refusal> {
        self.refuse_closed()?;
        let entered = namespace::find(&self.registry, request)?;
        self.ask(request, &House::in_namespace(&entered.namespace, &entered.topic.record())).await?;
        Ok(entered)
    }

    fn refuse_closed(&self) -> Result<(), Refusal> {
        if self.closed.load(Ordering::Acquire) { Err(Refusal::Closing) } else { Ok(()) }
    }

    async fn ask(&self, request: &HttpRequest, house: &House<'_>) -> Result<(), Refusal> {
        // A token ends by the clock of whoever made it, not by ours.
        if let Err(refusal) = self.gate.check(request, house, self.clock.wall()) {
            self.gate.hold(request, &refusal, self.clock.now()).await;
            return Err(refusal);
        }
        Ok(())
    }

    async fn take(
        &self,
        topic: &Topic,
        request: &HttpRequest,
        body: &mut web::Payload,
        limits: &Limits,
    ) -> Result<(), Refusal> {
        let headers = request.headers();
        refuse_encoded(headers)?;
        if let Some(crowd) = topic.crowd().filter(|crowd| crowd.is_full) {
            return Err(full(topic, crowd.laggard));
        }
        let announced = self.announced(headers)?;
        self.throttle.ask(topic.partition(), self.clock.now())?;
        self.refuse_without_room(announced)?;
        let began = self.clock.now();
        let (body, permit) = self.receive(body, announced).await?;
        let record = topic.record();
        let target = Target::of(&record);
        let content = content(headers, target.schema);
        let traced = Traced::begin(&self.tracer, headers, (target.schema, &content), &body, began);
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
            traced.end(&Published { topic, events, bytes, asked, answered }, &appended);
        }
        appended
    }

    async fn append(
        &self,
        topic: &Topic,
        draft: journal::chunk::Draft,
        permit: OwnedSemaphorePermit,
    ) -> Result<(), Refusal> {
        match self.journal.publish(topic.partition(), draft.into_chunks(), Some(permit)).await {
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

    /// How many bytes the head says will come; the limit where it does not say. A lie is found out while reading.
    fn announced(&self, headers: &HeaderMap) -> Result<usize, Refusal> {
        let bytes_max = self.limits.request_bytes_max;
        let Some(length) = headers.get(CONTENT_LENGTH) else { return Ok(bytes_max) };
        match length.to_str().ok().and_then(|length| length.parse::<usize>().ok()) {
            Some(length) if length <= bytes_max => Ok(length),
            Some(_) => Err(Refusal::TooLarge { bytes_max }),
            None => Err(Refusal::Broken),
        }
    }

    /// Whoever would find no room need not send.
    fn refuse_without_room(&self, announced: usize) -> Result<(), Refusal> {
        if (permits(announced) as usize) <= self.room.available_permits() { Ok(()) } else { Err(Refusal::NoRoom) }
    }

    fn admit(&self, permits: u32) -> Result<OwnedSemaphorePermit, Refusal> {
        self.room.clone().try_acquire_many_owned(permits).map_err(|_| Refusal::NoRoom)
    }

    /// The body, and the room that it takes: so much as has come, because to announce a length costs nothing. Who sends
    /// slowly holds what he has sent.
    async fn receive(
        &self,
        body: &mut web::Payload,
        announced: usize,
    ) -> Result<(Bytes, OwnedSemaphorePermit), Refusal> {
        let bytes_max = self.limits.request_bytes_max;
        // No more is read than was announced.
        let too_much = || if announced < bytes_max { Refusal::Broken } else { Refusal::TooLarge { bytes_max } };
        // To announce a length costs nothing: beyond 64 KiB memory is taken as the bytes come.
        let mut received = BytesMut::with_capacity(announced.min(PREPARED_BYTES));
        let mut permit = self.admit(permits(received.capacity()))?;
        let reading = async {
            while let Some(part) = body.next().await {
                let part = part.map_err(|_| Refusal::Broken)?;
                if received.len() + part.len() > announced {
                    return Err(too_much());
                }
                let more = permits(received.len() + part.len()).saturating_sub(permit.num_permits() as u32);
                if more > 0 {
                    permit.merge(self.admit(more)?);
                }
                received.extend_from_slice(&part);
            }
            let spare = permit.num_permits().saturating_sub(permits(received.len()) as usize);
            drop(permit.split(spare));
            Ok((received.freeze(), permit))
        };
        let mut reading = pin!(reading);
        // Most are here with their heads, and need no timer.
        if let Some(read) = reading.as_mut().now_or_never() {
            return read;
        }
        match tokio::time::timeout(self.limits.body_wait, reading).await {
            Ok(read) => read,
            Err(_) => Err(Refusal::Slow { seconds: self.limits.body_wait.as_secs() }),
        }
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
fn full(topic: &Topic, laggard: SubscriptionId) -> Refusal {
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

fn content(headers: &HeaderMap, schema: Schema) -> Content<'_> {
    let content_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let attributes = match schema {
        Schema::EventGrid | Schema::Custom => Vec::new(),
        Schema::CloudEvents => headers
            .iter()
            .filter_map(|(name, value)| Some((name.as_str().strip_prefix(ATTRIBUTE)?, value.as_bytes())))
            .collect(),
    };
    Content { content_type, attributes }
}

/// How many permits so many bytes take; an empty body has one, too.
fn permits(bytes: usize) -> u32 {
    u32::try_from(bytes.div_ceil(PERMIT_BYTES).max(1)).unwrap_or(u32::MAX)
}
