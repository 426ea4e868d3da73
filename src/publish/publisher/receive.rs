//! The body of a publish request as it arrives.
//!
//! - A byte is reserved before it is kept, and announcing a length reserves nothing.
//! - A body is at most as long as announced, has a deadline and a minimum rate: actix-web has none
//!   of these.
//! - Most bodies arrive whole with their heads, and need neither a timer nor a copy.

use std::{future::poll_fn, mem, net::IpAddr, task::Poll};

use actix_web::{HttpRequest, error::PayloadError, http::header::EXPECT, web};
use bytes::{Bytes, BytesMut};
use futures_util::{FutureExt as _, StreamExt as _};
use tokio::time::timeout_at;

use super::Publisher;
use crate::{
    Refusal,
    body::{BodyDeadline, announced_length, strip_byte_order_mark},
    in_flight_bytes::{Full, Permit, RequestHolders},
};
use gridhook_engine::control::registry::TopicHandle;
use gridhook_event::Timestamp;

/// The initial buffer of a body that arrives in parts, enough for most.
const PREPARED_BYTES: usize = 16 * 1024;

impl Publisher {
    /// Admits a body that is in memory already, and reserves its bytes.
    pub(super) fn reserve_body_bytes(
        &self,
        topic: &TopicHandle,
        address: Option<IpAddr>,
        bytes: usize,
        now: Timestamp,
    ) -> Result<Permit, Refusal> {
        self.refuse_closed()?;
        self.refuse_over_limit(topic, now)?;
        let holders = RequestHolders::for_publish(topic, &topic.record(), address);
        Ok(self.in_flight_bytes.reserve_bytes(holders, bytes)?)
    }

    /// Reads the body of a request that [`Publisher::authenticate_consumer`] accepted, of at most
    /// `bytes_max` bytes, with the limits of a publish request.
    ///
    /// # Errors
    /// The refusal.
    pub async fn read_body(
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
        Ok(strip_byte_order_mark(bytes))
    }

    /// Receives the body and reserves bytes for it as they arrive. Announcing a length reserves
    /// nothing.
    pub(super) async fn receive_body(
        &self,
        request: &HttpRequest,
        topic: &TopicHandle,
        body: &mut web::Payload,
        announced: usize,
        bytes_max: usize,
    ) -> Result<(Bytes, Permit), Refusal> {
        let holders = RequestHolders::for_publish(
            topic,
            &topic.record(),
            self.authenticator.accountable_address(request),
        );
        let permit = self.in_flight_bytes.reserve_bytes(holders, 0)?;
        // The first read makes the HTTP library send `100 Continue`.
        if request.headers().contains_key(EXPECT) && !permit.could_grow_to(announced) {
            return Err(Refusal::NoRoom);
        }
        let mut next = first_part(body).await;
        let is_whole = matches!(&next, Some(Some(Ok(part))) if part.len() == announced);
        // Refused before the rest is sent, if there is no room for the announced length.
        if !is_whole && !permit.could_grow_to(announced) {
            return Err(Refusal::NoRoom);
        }
        let mut received = ReceivedBody {
            first: Bytes::new(),
            bytes: BytesMut::new(),
            announced,
            bytes_max,
            permit,
        };
        let mut deadline = None;
        loop {
            next = match next {
                Some(None) => return Ok(received.into_bytes()),
                Some(Some(part)) => {
                    received.add_part(part.map_err(|_| Refusal::Broken)?)?;
                    body.next().now_or_never()
                }
                None => {
                    received.copy_first_part();
                    let deadline = deadline.get_or_insert_with(|| {
                        BodyDeadline::begin(&self.limits, received.bytes.len())
                    });
                    match timeout_at(deadline.next_check(), body.next()).await {
                        Ok(part) => Some(part),
                        Err(_) => {
                            deadline.check_progress(&self.limits, received.bytes.len())?;
                            None
                        }
                    }
                }
            };
        }
    }
}

/// The parts of a body that have arrived, with the bytes reserved for them.
struct ReceivedBody {
    /// The first part, until another follows: it is a part of a larger buffer of the HTTP library,
    /// which must not stay in memory for it. Most bodies have one part, which is not copied.
    first: Bytes,
    bytes: BytesMut,
    announced: usize,
    bytes_max: usize,
    permit: Permit,
}

impl ReceivedBody {
    fn add_part(&mut self, part: Bytes) -> Result<(), Refusal> {
        self.copy_first_part();
        let len = self.bytes.len() + part.len();
        if len > self.announced {
            // Reading stops at the announced length.
            return Err(if self.announced < self.bytes_max {
                Refusal::Broken
            } else {
                Refusal::TooLarge {
                    bytes_max: self.bytes_max,
                }
            });
        }
        self.permit.grow_to(len)?;
        if self.bytes.is_empty() {
            self.first = part;
        } else {
            self.bytes.extend_from_slice(&part);
        }
        Ok(())
    }

    fn copy_first_part(&mut self) {
        if self.first.is_empty() {
            return;
        }
        let first = mem::take(&mut self.first);
        // Announcing a length reserves little: there is room for all of a body once half of it has
        // come.
        let is_half_here = first.len() >= self.announced / 2;
        self.bytes.reserve(if is_half_here {
            self.announced
        } else {
            self.announced.min(PREPARED_BYTES)
        });
        self.bytes.extend_from_slice(&first);
    }

    fn into_bytes(self) -> (Bytes, Permit) {
        let bytes = if self.bytes.is_empty() {
            self.first
        } else {
            self.bytes.freeze()
        };
        (bytes, self.permit)
    }
}

impl From<Full> for Refusal {
    fn from(_: Full) -> Self {
        Self::NoRoom
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
