//! The requests that the core of a shard sends to those of other shards.
//!
//! - The topics of namespaces, as destinations: what an event subscription delivers to one is
//!   published by its owner. An attempt fails if there is none, and is repeated as any other.
//! - To follow the control plane up to a change.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use hyper::StatusCode;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use url::form_urlencoded;

use super::{
    ShardRouter,
    owner::{FOLLOWED, OWNER_RESPONSE_MAX, TOPICS, node_request},
};
use crate::{
    forward::{Hops, OWNER_WAIT},
    forward_error::ForwardError,
    front::hop::ListenerSide,
};
use gridhook_admin::FollowDelay;
use gridhook_cluster::shard_of;
use gridhook_deliver::resource::PublishFailure;

/// The maximum size of the reason why events were refused.
const REASON_BYTES: usize = 64 * 1024;

/// The longest time until a shard has followed a change.
const FOLLOW_MAX: Duration = Duration::from_secs(10);

/// The pause before a shard is asked again.
const RETRY_PAUSE: Duration = Duration::from_millis(100);

/// Sends requests of one core to the owners of the other shards. Clones share the connections.
#[derive(Clone)]
pub(crate) struct OtherShards {
    shards: Arc<[Hops<String>]>,
    pub own: usize,
}

impl OtherShards {
    /// All shards except `own`.
    pub(crate) fn new(router: &ShardRouter, own: usize) -> Self {
        let shards = Hops::new_for_shards(&router.shards, ListenerSide::Operators).collect();
        Self { shards, own }
    }

    /// The number of shards with topics.
    pub(crate) fn shards(&self) -> usize {
        self.shards.len() - 1
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
        let body = String::from_utf8(json_array(events)).map_err(|error| PublishFailure {
            status: 400,
            reason: error.to_string(),
        })?;
        let target = request_target(resource_id);
        match self.send_request(shard, "POST", &target, body).await {
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
        let exchange = self.send_request(shard, "GET", &target, String::new());
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
            let has_owner = self.shards[shard].forwarder().is_owned();
            if !has_owner && !needs_owner {
                return Ok(());
            }
            let request = self.send_request(shard, "GET", &target, String::new());
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
        body: String,
    ) -> Result<(StatusCode, Bytes), ForwardError> {
        let request = node_request(method, target, body)?;
        self.shards[shard]
            .call_owner(request, OWNER_WAIT, REASON_BYTES)
            .await
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
