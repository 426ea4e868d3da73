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
    body::{BodyDeadline, announced_length},
    in_flight_bytes::{self, Permit},
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
        self.refuse_early(topic, now)?;
        let sender = in_flight_bytes::Request::for_publish(topic, &topic.record(), address);
        self.room
            .reserve_bytes(sender, bytes)
            .map_err(|in_flight_bytes::Full| Refusal::NoRoom)
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
    pub(super) async fn receive_body(
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
