//! Bodies that are streamed between a client and an owner.

use std::{
    io,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, ready},
};

use actix_web::body::{BodySize, MessageBody};
use bytes::Bytes;
use futures_util::Stream as _;
use hyper::{
    body::{Body, Frame, Incoming, SizeHint},
    client::conn::http1::SendRequest,
};

use super::{EarlyEnd, HopKey, Hops};

/// The body of a request to an owner.
pub(crate) struct RequestBody {
    pub(super) content: Content,
    /// The bytes that are left, if their number is known.
    pub(super) left: Option<u64>,
}

pub(super) enum Content {
    /// The body of a client, as it arrives.
    Payload(actix_web::dev::Payload),
    /// The whole body, until it was sent.
    Whole(Option<Bytes>),
}

impl RequestBody {
    pub(crate) fn from_bytes(body: Bytes) -> Self {
        let left = Some(body.len() as u64);
        Self {
            content: Content::Whole(Some(body).filter(|body| !body.is_empty())),
            left,
        }
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let next = match &mut self.content {
            Content::Payload(payload) => ready!(Pin::new(payload).poll_next(cx))
                .transpose()
                .map_err(io::Error::other)?,
            Content::Whole(body) => body.take(),
        };
        let Some(bytes) = next else {
            return Poll::Ready(None);
        };
        if let Some(left) = &mut self.left {
            *left = left.saturating_sub(bytes.len() as u64);
        }
        Poll::Ready(Some(Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.left == Some(0)
    }

    fn size_hint(&self) -> SizeHint {
        self.left
            .map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

/// The body of the owner's response.
pub(crate) struct ResponseBody {
    pub(super) body: Incoming,
    pub(super) size: BodySize,
    pub(super) early_end: EarlyEnd,
    pub(super) has_ended: bool,
    /// The connection, which serves the next request once the body has ended.
    pub(super) hop: Option<ReturnedHop>,
}

/// A connection that goes back to those that are idle.
pub(super) struct ReturnedHop {
    pub(super) hops: Rc<Hops>,
    pub(super) key: HopKey,
    pub(super) hop: SendRequest<RequestBody>,
}

impl MessageBody for ResponseBody {
    type Error = Box<dyn std::error::Error>;

    fn size(&self) -> BodySize {
        self.size
    }

    fn poll_next(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, Self::Error>>> {
        loop {
            match Pin::new(&mut self.body).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => {
                    if let Ok(bytes) = frame.into_data() {
                        return Poll::Ready(Some(Ok(bytes)));
                    }
                }
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Some(Err(error.into()))),
                Poll::Ready(None) => {
                    self.has_ended = true;
                    return Poll::Ready(None);
                }
                Poll::Pending => {
                    let why = ready!(self.early_end.as_mut().poll(cx));
                    return Poll::Ready(Some(Err(why.into())));
                }
            }
        }
    }
}

impl Drop for ResponseBody {
    fn drop(&mut self) {
        let has_ended = self.has_ended || self.body.is_end_stream();
        if let Some(ReturnedHop { hops, key, hop }) = self.hop.take().filter(|_| has_ended) {
            hops.keep_hop(key, hop);
        }
    }
}
