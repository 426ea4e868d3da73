//! The processing of a publish request, in an order that bounds its cost.
//!
//! First come the cheap checks: the topic, the publisher, and the announced sizes. Then
//! [`in_flight_bytes`](super::in_flight_bytes) are reserved as the body is received (`receive`),
//! and the reservation travels with the events into the journal (`append`). So the memory that
//! publishers can use is bounded, a publisher beyond it receives 503, and a publisher that
//! announces much and sends little reserves little.
//!
//! If a publisher disconnects while the journal writes, its events are stored. It sends them again:
//! delivery is at least once.

mod append;
mod receive;

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use actix_web::{
    HttpRequest, HttpResponse,
    http::header::{CONTENT_TYPE, HeaderMap, HeaderValue},
    web,
};
use bytes::Bytes;
use uuid::Uuid;

use self::append::backlog_full;
use super::{
    PublishLimits, Refusal,
    auth::{Authenticator, CheckTimes, KeyScope, RejectionCounts, RequestAuthority},
    body::announced_length,
    encoding::BodyEncoding,
    http::find_topic,
    in_flight_bytes::InFlightBytes,
    namespace::{self, PublishRoute},
    rate::PublishThrottle,
};
use gridhook_clock::Clock;
use gridhook_compute::Compute;
use gridhook_engine::{
    control::{
        registry::{Registry, TopicHandle},
        tokens::Token,
    },
    fanout::meter::{PublishCounts, TopicMeter},
};
use gridhook_event::Timestamp;
use gridhook_journal::Journal;
use gridhook_record::token::TokenRole;
use gridhook_telemetry::trace::Tracer;

/// The content type of events that this server delivers to a topic of its own.
const DELIVERED_TYPE: &str = "application/cloudevents-batch+json";

/// Processes publish requests. There is one for the server, in the `app_data` of every worker.
pub struct Publisher {
    pub(super) registry: Arc<Registry>,
    journal: Journal,
    clock: Clock,
    limits: PublishLimits,
    authenticator: Authenticator,
    throttle: PublishThrottle,
    tracer: Tracer,
    compute: Compute,
    in_flight_bytes: Arc<InFlightBytes>,
    is_closed: AtomicBool,
    /// Whether long polls end at once.
    end_of_polls: tokio::sync::watch::Sender<bool>,
    /// The counts of requests for unknown topics.
    unknown_topics: TopicMeter,
}

impl Publisher {
    /// Publishes to the topics of `registry` through `journal`, with the authentication of
    /// `authenticator`.
    pub fn new(
        registry: Arc<Registry>,
        journal: Journal,
        clock: Clock,
        limits: PublishLimits,
        authenticator: Authenticator,
    ) -> Self {
        let in_flight_bytes =
            InFlightBytes::new(limits.admitted_bytes_max, limits.request_bytes_max);
        let throttle = PublishThrottle::new(limits.rates);
        let tracer = Tracer::default();
        let is_closed = AtomicBool::new(false);
        let (end_of_polls, _) = tokio::sync::watch::channel(false);
        Self {
            registry,
            journal,
            clock,
            limits,
            authenticator,
            throttle,
            tracer,
            compute: Compute::default(),
            in_flight_bytes,
            is_closed,
            end_of_polls,
            unknown_topics: TopicMeter::default(),
        }
    }

    #[must_use]
    pub fn with_tracer(self, tracer: Tracer) -> Self {
        Self { tracer, ..self }
    }

    /// Sets the threads on which events are checked.
    #[must_use]
    pub fn with_compute(self, compute: Compute) -> Self {
        Self { compute, ..self }
    }

    /// Refuses every request from now on. A request that the journal already has still returns its
    /// outcome.
    pub fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
    }

    /// Ends long polls: waiting clients receive the events that are there.
    pub fn end_polls(&self) {
        self.end_of_polls.send_replace(true);
    }

    /// Whether long polls end at once.
    pub fn has_ended_polls(&self) -> bool {
        *self.end_of_polls.borrow()
    }

    /// Returns once long polls must end.
    pub async fn wait_for_end_of_polls(&self) {
        // `self` holds the sender, so it cannot be dropped meanwhile.
        self.end_of_polls
            .subscribe()
            .wait_for(|has_ended| *has_ended)
            .await
            .ok();
    }

    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Returns once a token with a name is revoked or expires.
    pub async fn wait_for_token_end(&self, token: Option<&Token>) {
        match token {
            Some(token) => token.wait_for_end(self.clock.wall_time()).await,
            None => std::future::pending().await,
        }
    }

    pub fn rejection_counts(&self) -> RejectionCounts {
        self.authenticator.rejection_counts()
    }

    /// The counts of requests for unknown topics.
    pub fn unknown_topic_counts(&self) -> PublishCounts {
        self.unknown_topics.publish_counts()
    }

    /// The bytes in flight, and their limit.
    pub fn bytes_in_flight(&self) -> (usize, usize) {
        (
            self.in_flight_bytes.bytes_in_flight(),
            self.in_flight_bytes.bytes_max(),
        )
    }

    /// Publishes the events of a request. `authority` is the host that the request was sent to, if
    /// it is known already.
    pub(super) async fn publish(
        &self,
        request: &HttpRequest,
        body: &mut web::Payload,
        authority: Option<RequestAuthority>,
    ) -> Result<(), Refusal> {
        let began = self.clock.now();
        self.refuse_closed()?;
        let topic = find_topic(self, request)
            .inspect_err(|refusal| self.unknown_topics.count_refused(refusal.metric_label()))?;
        let record = topic.record();
        let scope = KeyScope::for_topic(&record);
        let publishing = async {
            self.authenticate(request, authority, &scope, TokenRole::Publish)
                .await?;
            self.receive_and_append(&topic, request, body, &self.limits, began)
                .await
        };
        self.record_result(&topic, began, publishing.await)
    }

    /// As [`Publisher::publish`], for a topic of a namespace.
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
        let record = topic.record();
        let scope = KeyScope::in_namespace(&namespace, &record);
        let publishing = async {
            self.authenticate(request, None, &scope, TokenRole::Publish)
                .await?;
            self.receive_and_append(&topic, request, body, &limits, began)
                .await
        };
        self.record_result(&topic, began, publishing.await)
    }

    fn record_result(
        &self,
        topic: &TopicHandle,
        began: Timestamp,
        result: Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        match &result {
            Ok(()) => topic.meter().count_accepted(self.clock.now().since(began)),
            Err(refusal) => topic.meter().count_refused(refusal.metric_label()),
        }
        result
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
        if self.is_closed.load(Ordering::Acquire) {
            Err(Refusal::Closing)
        } else {
            Ok(())
        }
    }

    async fn authenticate(
        &self,
        request: &HttpRequest,
        authority: Option<RequestAuthority>,
        scope: &KeyScope<'_>,
        role: TokenRole,
    ) -> Result<Option<Arc<Token>>, Refusal> {
        let authority = authority.map_or_else(|| self.called_authority(request), Ok);
        let times = CheckTimes {
            wall: self.clock.wall_time(),
            now: self.clock.now(),
        };
        let result = authority.and_then(|authority| {
            self.authenticator
                .authenticate(request, &authority, scope, role, times)
        });
        if let Err(refusal) = &result {
            self.authenticator
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
        self.refuse_over_limit(topic, began)?;
        let (body, mut permit) = self
            .receive_body(request, topic, body, length, limits.request_bytes_max)
            .await?;
        let body = encoding.decode(body, limits.request_bytes_max, &mut permit)?;
        self.append_body(topic, headers, limits, body, permit, began)
            .await
    }

    /// Refuses a request to a topic whose backlog or rate is at its limit.
    fn refuse_over_limit(&self, topic: &TopicHandle, now: Timestamp) -> Result<(), Refusal> {
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
        let publishing = async {
            let encoding = BodyEncoding::from_headers(request.headers())?;
            let mut permit = self.reserve_body_bytes(
                topic,
                self.authenticator.accountable_address(request),
                body.len(),
                began,
            )?;
            let body = encoding.decode(body, self.limits.request_bytes_max, &mut permit)?;
            self.append_body(topic, request.headers(), &self.limits, body, permit, began)
                .await
        };
        let result = publishing.await;
        self.record_result(topic, began, result)
    }

    /// Publishes a JSON array of CloudEvents that this server, or the cluster, delivers to a topic
    /// of its own. The topic treats it as a request of a publisher: its duplicate window, its rate
    /// limit and the reserved bytes apply.
    ///
    /// # Errors
    /// If the topic would refuse them from a publisher.
    pub async fn forward_events(&self, topic: &TopicHandle, events: Bytes) -> Result<(), Refusal> {
        let began = self.clock.now();
        let headers =
            HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(DELIVERED_TYPE))]);
        let publishing = async {
            let permit = self.reserve_body_bytes(topic, None, events.len(), began)?;
            self.append_body(topic, &headers, &self.limits, events, permit, began)
                .await
        };
        let result = publishing.await;
        self.record_result(topic, began, result)
    }

    /// The host that a request was sent to.
    pub(super) fn called_authority(
        &self,
        request: &HttpRequest,
    ) -> Result<RequestAuthority, Refusal> {
        self.authenticator.called_authority(request)
    }

    /// The host that a request was sent to, before its route is known.
    ///
    /// # Errors
    /// The refusal of a request with an invalid host, or without one.
    pub fn check_host(&self, request: &HttpRequest) -> Result<RequestAuthority, Refusal> {
        self.authenticator.check_host(request)
    }

    pub fn respond_refused(&self, refusal: &Refusal) -> HttpResponse {
        refusal.to_response(Uuid::new_v4(), self.clock.wall_time())
    }

    pub fn refuse_in_namespace(&self, refusal: &Refusal) -> HttpResponse {
        refusal.respond_in_namespace(Uuid::new_v4(), self.clock.wall_time())
    }
}
