//! The requests that the core of a shard sends to those of other shards.
//!
//! - The topics of namespaces, as destinations: what an event subscription delivers to one is
//!   published by its owner. An attempt fails if there is none, and is repeated as any other.
//! - To follow the control plane up to a change.

use std::{
    collections::HashMap,
    convert::Infallible,
    io,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use hyper::{
    Request, Response, StatusCode,
    body::{Body, Frame, Incoming, SizeHint},
    client::conn::http1::SendRequest,
    header::{CONTENT_LENGTH, CONTENT_TYPE, HOST},
};
use tokio::time::{Instant, sleep, timeout, timeout_at};
use url::form_urlencoded;

use super::{
    ShardRouter,
    owner::{FOLLOWED, OWNER_RESPONSE_MAX, TOPICS},
};
use gridhook_admin::FollowDelay;
use gridhook_cluster::shard_of;
use gridhook_deliver::resource::PublishFailure;

/// The longest time for the connection to an owner. The attempt has a limit of its own.
const CONNECT_MAX: Duration = Duration::from_secs(5);

/// The most idle connections to an owner.
const IDLE_MAX: usize = 8;

/// The maximum size of the reason why events were refused.
const REASON_BYTES: usize = 64 * 1024;

/// The longest time until a shard has followed a change.
const FOLLOW_MAX: Duration = Duration::from_secs(10);

/// The pause before a shard is asked again.
const RETRY_PAUSE: Duration = Duration::from_millis(100);

/// Sends requests of one core to the owners of the other shards. Clones share the connections.
#[derive(Clone)]
pub(crate) struct OtherShards {
    router: ShardRouter,
    pub own: usize,
    /// The idle connections for each shard, by the address of its owner.
    idle: Arc<Mutex<HashMap<(usize, String), Vec<SendRequest<WholeBody>>>>>,
}

impl OtherShards {
    /// All shards except `own`.
    pub(crate) fn new(router: ShardRouter, own: usize) -> Self {
        Self {
            router,
            own,
            idle: Arc::default(),
        }
    }

    /// The number of shards with topics.
    pub(crate) fn shards(&self) -> usize {
        self.router.shards.len() - 1
    }

    /// The other shard that has the topic `…/namespaces/NAMESPACE/topics/TOPIC`.
    pub(crate) fn shard_of(&self, resource_id: &str) -> Option<usize> {
        let namespace = resource_id.rsplit('/').nth(2)?;
        Some(shard_of(namespace, self.shards())).filter(|shard| *shard != self.own)
    }

    /// Publishes CloudEvents to a topic of another shard.
    pub(crate) async fn publish_events(
        &self,
        shard: usize,
        resource_id: &str,
        events: &[Bytes],
    ) -> Result<(), PublishFailure> {
        let body = json_array(events);
        match self
            .send_request(shard, "POST", &request_target(resource_id), body.into())
            .await
        {
            Ok((StatusCode::OK, _)) => Ok(()),
            Ok((status, reason)) => {
                let reason = String::from_utf8_lossy(&reason).into_owned();
                Err(PublishFailure {
                    status: status.as_u16(),
                    reason,
                })
            }
            Err(error) => Err(PublishFailure {
                status: 503,
                reason: format!("shard {shard}: {error}"),
            }),
        }
    }

    pub(crate) async fn has_topic(&self, shard: usize, resource_id: &str) -> bool {
        let target = request_target(resource_id);
        let exchange = self.send_request(shard, "GET", &target, Bytes::new());
        match timeout(OWNER_RESPONSE_MAX, exchange).await {
            Ok(Ok((status, _))) => status == StatusCode::OK,
            Ok(Err(_)) | Err(_) => false,
        }
    }

    /// Asks the owner of a shard to follow the control plane up to a position, until it has; without
    /// `needs_owner`, or until there is none.
    pub(crate) async fn await_followed(
        &self,
        shard: usize,
        position: u64,
        needs_owner: bool,
    ) -> Result<(), FollowDelay> {
        let until = Instant::now() + FOLLOW_MAX;
        let target = format!("{FOLLOWED}?position={position}");
        loop {
            let has_owner = self.router.shards[shard].owner_address().is_some();
            if !has_owner && !needs_owner {
                return Ok(());
            }
            let request = self.send_request(shard, "GET", &target, Bytes::new());
            let why = match timeout_at(until, request).await {
                Ok(Ok((StatusCode::OK, _))) => return Ok(()),
                Ok(Ok((_, reason))) => String::from_utf8_lossy(&reason).into_owned(),
                Ok(Err(error)) => error.to_string(),
                Err(_) => "its owner does not respond in time".to_owned(),
            };
            if Instant::now() + RETRY_PAUSE >= until {
                return Err(FollowDelay(why));
            }
            sleep(RETRY_PAUSE).await;
        }
    }

    async fn send_request(
        &self,
        shard: usize,
        method: &str,
        target: &str,
        body: Bytes,
    ) -> io::Result<(StatusCode, Bytes)> {
        let forwarder = &self.router.shards[shard];
        let address = forwarder
            .owner_address()
            .ok_or_else(|| io::Error::other("it has no owner"))?;
        let key = (shard, address);
        let (mut connection, response) = loop {
            let idle = self
                .idle
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .get_mut(&key)
                .and_then(Vec::pop);
            let is_idle = idle.is_some();
            let mut connection = match idle {
                Some(connection) => connection,
                None => timeout(CONNECT_MAX, forwarder.open_connection(&key.1))
                    .await
                    .map_err(io::Error::other)??,
            };
            let request = Request::builder()
                .method(method)
                .uri(target)
                .header(CONTENT_TYPE, "application/json")
                .header(HOST, "localhost")
                .header(CONTENT_LENGTH, body.len())
                .body(WholeBody(Some(body.clone())))
                .map_err(io::Error::other)?;
            let mut error = match connection.try_send_request(request).await {
                Ok(response) => break (connection, response),
                Err(error) => error,
            };
            // The owner may have closed an idle connection meanwhile, and has not read the request
            // then.
            if !is_idle || error.take_message().is_none() {
                return Err(io::Error::other(error.into_error()));
            }
        };
        let status = response.status();
        let reason = read(response).await?;
        if connection.ready().await.is_ok() {
            let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
            let connections = idle.entry(key).or_default();
            if connections.len() < IDLE_MAX {
                connections.push(connection);
            }
        }
        Ok((status, reason))
    }
}

/// The JSON array of these values.
pub(crate) fn json_array(values: &[Bytes]) -> Vec<u8> {
    [b"[", &*values.join(&b","[..]), b"]"].concat()
}

fn request_target(resource_id: &str) -> String {
    let topic: String = form_urlencoded::byte_serialize(resource_id.as_bytes()).collect();
    format!("{TOPICS}?topic={topic}")
}

async fn read(response: Response<Incoming>) -> io::Result<Bytes> {
    let mut body = response.into_body();
    let mut all = Vec::new();
    while let Some(frame) = std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
        if let Ok(bytes) = frame.map_err(io::Error::other)?.into_data() {
            all.extend_from_slice(&bytes);
            if all.len() > REASON_BYTES {
                return Err(io::Error::other("the response of the owner is too large"));
            }
        }
    }
    Ok(all.into())
}

struct WholeBody(Option<Bytes>);

impl Body for WholeBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.0.take().map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.as_ref().is_none_or(Bytes::is_empty)
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.0.as_ref().map_or(0, |bytes| bytes.len() as u64))
    }
}
