//! A client that waits for events: of a subscription, or of the parts of one that are in several
//! shards.
//!
//! Invariants:
//! - An event is locked for at most one response. What was locked and is in none is given back, and
//!   does not count as a delivery.
//! - A response has at most the events that the client asked for, of all parts together. Once it has
//!   as many bytes as that of one part, no further part adds to it.

use std::{
    future::poll_fn,
    sync::{Arc, Weak},
    task::{Context, Poll},
    time::Duration,
};

use actix_web::{HttpRequest, web};
use futures_util::future::{FutureExt as _, LocalBoxFuture};
use tokio::time::{Instant, timeout};

use super::{
    LockTokenSealer, Peer,
    body::write_received,
    http::{PullRequest, deleted_subscription},
};
use gridhook_engine::control::registry::TopicHandle;
use gridhook_policy::record::lease::Lease;
use gridhook_publish::{Refusal, auth::has_access_token, http::Publisher, refusal::SasProblem};
use gridhook_subscription::{RECEIVED_BYTES, Received, SharedState, WaitingClient};

/// How long a part that may have events is waited for before others are asked.
const LOOK_MAX: Duration = Duration::from_millis(250);

/// The duration of a wait after which the client's key may have been replaced.
const KEY_RECHECK_AFTER: Duration = Duration::from_secs(1);

/// A client that waits for events of parts.
pub(super) struct LongPoll {
    request: HttpRequest,
    peer: Peer,
    parts: Vec<PartPoll>,
    events_max: usize,
    began: Instant,
    /// A part serves no client any more, or its client has no access to it.
    has_ended: bool,
}

/// A client that waits for events of a part.
pub(super) struct PartPoll {
    publisher: web::Data<Publisher>,
    tokens: web::Data<LockTokenSealer>,
    topic: Arc<TopicHandle>,
    shared: Arc<SharedState>,
    waiting: Option<WaitingClient>,
    /// Those for the response.
    events: Received,
    /// Returns once the part serves the client no more.
    end: LocalBoxFuture<'static, ()>,
}

impl PartPoll {
    /// Waits for a subscription until `end`, a stop of the server, or the end of the client's token.
    pub(super) fn new(
        publisher: web::Data<Publisher>,
        tokens: web::Data<LockTokenSealer>,
        pull: PullRequest,
        end: impl Future<Output = ()> + 'static,
    ) -> Self {
        let PullRequest {
            topic,
            shared,
            token,
        } = pull;
        let of_polls = publisher.clone();
        // At a stop, and when the token is revoked, long polls return the events at hand.
        let end = async move {
            tokio::select! {
                () = end => {}
                () = of_polls.wait_for_end_of_polls() => {}
                () = of_polls.wait_for_token_end(token.as_deref()) => {}
            }
        };
        Self {
            publisher,
            tokens,
            topic,
            shared,
            waiting: None,
            events: Vec::new(),
            end: end.boxed_local(),
        }
    }

    /// Waits for this number of events from now on.
    fn begin_wait(&mut self, events_max: usize) {
        let events_max = u32::try_from(events_max).unwrap_or(u32::MAX);
        self.waiting = Some(self.shared.receive_events(events_max));
        self.topic.ensure_actor(&self.shared);
    }

    /// Whether the wait is over: the part has events, or has ended. Takes at most this number of
    /// events.
    fn poll_wait(&mut self, cx: &mut Context<'_>, events_max: usize) -> PartProgress {
        let Some(waiting) = &mut self.waiting else {
            return PartProgress::Waits;
        };
        if let Poll::Ready(mut events) = waiting.poll_events(cx) {
            self.waiting = None;
            let rest = events.split_off(events_max.min(events.len()));
            self.give_back(rest);
            self.events = events;
            return if self.events.is_empty() {
                PartProgress::Ended
            } else {
                PartProgress::HasEvents
            };
        }
        match self.end.as_mut().poll(cx) {
            Poll::Ready(()) => PartProgress::Ended,
            Poll::Pending => PartProgress::Waits,
        }
    }

    fn give_back(&self, events: Received) {
        if !events.is_empty() {
            let leases = events.into_iter().map(|(lease, _)| lease).collect();
            self.shared.take_back_leases(leases);
            self.topic.ensure_actor(&self.shared);
        }
    }

    fn event_bytes(&self) -> u64 {
        let lengths = self.events.iter().map(|(_, event)| event.wire_len() as u64);
        lengths.sum()
    }

    /// The leases of the events, for the case that the client does not receive them.
    fn leases(&self) -> PartLeases {
        PartLeases {
            topic: Arc::downgrade(&self.topic),
            shared: Arc::downgrade(&self.shared),
            leases: self.events.iter().map(|(lease, _)| *lease).collect(),
        }
    }
}

impl Drop for PartPoll {
    fn drop(&mut self) {
        let events = std::mem::take(&mut self.events);
        self.give_back(events);
    }
}

enum PartProgress {
    Waits,
    HasEvents,
    Ended,
}

/// The leases of a response. A connection keeps them for longer than the part may be served.
struct PartLeases {
    topic: Weak<TopicHandle>,
    shared: Weak<SharedState>,
    leases: Vec<Lease>,
}

impl PartLeases {
    fn take_back(self) {
        if let (Some(topic), Some(shared)) = (self.topic.upgrade(), self.shared.upgrade()) {
            shared.take_back_leases(self.leases);
            topic.ensure_actor(&shared);
        }
    }
}

impl LongPoll {
    pub(super) fn new(request: &HttpRequest, events_max: u32, parts: Vec<PartPoll>) -> Self {
        Self {
            request: request.clone(),
            peer: request.conn_data::<Peer>().cloned().unwrap_or_default(),
            parts,
            events_max: events_max as usize,
            began: Instant::now(),
            has_ended: false,
        }
    }

    /// Whether there are no events yet, and parts to wait for.
    pub(super) fn can_wait(&self) -> bool {
        !self.has_ended && !self.parts.is_empty() && self.event_count() == 0
    }

    fn event_count(&self) -> usize {
        self.parts.iter().map(|part| part.events.len()).sum()
    }

    /// The number of events that the response may still have.
    fn count_left(&self) -> usize {
        let bytes: u64 = self.parts.iter().map(PartPoll::event_bytes).sum();
        if bytes >= RECEIVED_BYTES {
            return 0;
        }
        self.events_max - self.event_count()
    }

    /// Has all parts wait for events from now on, if they do not yet.
    pub(super) fn begin(&mut self) {
        for part in self.parts.iter_mut().filter(|part| part.waiting.is_none()) {
            part.begin_wait(self.events_max);
        }
    }

    /// Takes the events at hand, of one part after the other. A part without any is left alone.
    pub(super) async fn look(&mut self) {
        for index in 0..self.parts.len() {
            let left = self.count_left();
            if left == 0 || self.has_ended {
                return;
            }
            let part = &mut self.parts[index];
            if part.shared.may_have_events(part.publisher.now()) {
                part.begin_wait(left);
                timeout(LOOK_MAX, self.wait()).await.ok();
            }
        }
    }

    /// Waits for events as long as this, and not for a client that has gone.
    pub(super) async fn wait_at_most(&mut self, longest: Duration) {
        let peer = self.peer.clone();
        tokio::select! {
            biased;
            _ = timeout(longest, self.wait()) => {}
            () = peer.wait_until_gone() => {}
        }
    }

    /// Waits until a part has events, or one has ended.
    async fn wait(&mut self) {
        let is_over = poll_fn(|cx| self.poll_parts(cx)).await;
        self.has_ended |= is_over;
        for part in &mut self.parts {
            part.waiting = None;
        }
    }

    /// Whether a part has ended, once one has, or has events.
    fn poll_parts(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        let mut has_events = false;
        let mut has_ended = false;
        for index in 0..self.parts.len() {
            let left = self.count_left();
            if left == 0 {
                break;
            }
            match self.parts[index].poll_wait(cx, left) {
                PartProgress::Waits => {}
                PartProgress::HasEvents => has_events = true,
                PartProgress::Ended => has_ended = true,
            }
        }
        if has_events || has_ended {
            Poll::Ready(has_ended)
        } else {
            Poll::Pending
        }
    }

    /// The body of the response.
    ///
    /// # Errors
    /// If the subscription was deleted in the meantime, or the client's key was replaced.
    pub(super) async fn finish(mut self) -> Result<Vec<u8>, Refusal> {
        // The connection gives the events back from now on.
        let with_events = self.parts.iter().filter(|part| !part.events.is_empty());
        let leases: Vec<PartLeases> = with_events.map(PartPoll::leases).collect();
        let mut received = Vec::with_capacity(self.event_count());
        let mut authority = None;
        for part in &mut self.parts {
            let is_spread = part.topic.record().is_spread();
            for (lease, event) in std::mem::take(&mut part.events) {
                let key = part.shared.subscription_key;
                let token = part.tokens.seal_lease(key, lease, is_spread);
                received.push((token, lease.attempt, event));
                authority = Some(part.publisher.clone());
            }
        }
        let Some(authority) = authority else {
            let deleted = self.parts.iter().find(|part| part.shared.is_deleted());
            return match deleted {
                Some(part) => Err(deleted_subscription(&part.topic, &part.shared)),
                None => Ok(write_received(&[])),
            };
        };
        self.peer
            .unless_written(move || leases.into_iter().for_each(PartLeases::take_back));
        // An access token may expire while its client waits.
        let has_waited = self.began.elapsed() >= KEY_RECHECK_AFTER;
        if has_waited && !has_access_token(&self.request) {
            let result = authority.authenticate_consumer(&self.request).await;
            if let Err(refusal) = result
                && is_without_key(&refusal)
            {
                // Once only: if the connection failed meanwhile, another client may have them.
                self.peer.run_undo();
                return Err(refusal);
            }
        }
        Ok(write_received(&received))
    }
}

/// Whether the access key is none of the resource's keys, or is not allowed.
fn is_without_key(refusal: &Refusal) -> bool {
    matches!(
        refusal,
        Refusal::NotAuthorized { .. }
            | Refusal::Sas {
                problem: SasProblem::Signature,
                ..
            }
    )
}
