//! One request to each shard, and the responses as one.

use std::{rc::Rc, time::Duration};

use actix_web::{
    HttpRequest, HttpResponse,
    http::{Method, StatusCode, header},
    web::Bytes,
};
use futures_util::future::join_all;
use hyper::{
    HeaderMap,
    header::{CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE},
    http::response::Parts,
};
use tokio::time::timeout;

use super::{Routed, ThreadRouter, merged_response, target_at, target_of};
use crate::{
    forward::{OWNER_WAIT, OwnerResponse, unavailable_response},
    forward_error::ForwardError,
    front::hop,
};
use gridhook_admin::{
    ResponseMerge,
    merge::{JsonMerge, PartRequest, ShardResponse, SpreadMerge, SpreadShards, merge_expositions},
};

/// The maximum size of a response that is merged.
pub(super) const MERGED_BYTES_MAX: usize = 64 * 1024 * 1024;

/// How long a response that needs all shards waits for one.
pub(super) const RESPONSE_WAIT_MAX: Duration = Duration::from_secs(30);

/// How long a response waits for a shard that it can do without.
pub(super) const PART_MAX: Duration = Duration::from_secs(3);

/// How long a request waits for the owner of a shard whose part the response can lack.
pub(super) const PART_OWNER_WAIT: Duration = Duration::from_millis(500);

/// The whole response of a shard.
pub(super) struct Part {
    pub(super) shard: usize,
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

impl Part {
    fn content_type(&self) -> Option<&str> {
        self.headers.get(CONTENT_TYPE)?.to_str().ok()
    }

    /// The response as it is, for a client.
    fn into_response(self) -> HttpResponse {
        let mut response = HttpResponse::build(self.status);
        for name in [CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE] {
            if let Some(value) = self.headers.get(&name) {
                response.insert_header((name.as_str(), value.as_bytes()));
            }
        }
        response
            .insert_header((header::CACHE_CONTROL, "no-store"))
            .body(self.body)
    }
}

impl From<Part> for ShardResponse {
    fn from(Part { shard, body, .. }: Part) -> Self {
        Self { shard, body }
    }
}

/// What the shards of a spread topic responded.
#[derive(Default)]
struct PartResults {
    parts: Vec<Part>,
    /// The most telling refusal ([`prefer_refusal`]).
    refusal: Option<Part>,
    /// The shards without a response.
    missing: Vec<(usize, ForwardError)>,
}

/// Marks a request that goes to several shards, or to one that it names: `part` is a value of
/// [`hop::PART_NAME`].
pub(super) fn mark_part(headers: &mut HeaderMap, part: &'static str) {
    headers.insert(
        HeaderName::from_static(hop::PART_NAME),
        HeaderValue::from_static(part),
    );
}

/// The request of a client that goes to several shards, and the shard that records it.
#[derive(Clone, Copy)]
pub(super) struct ClientRequest<'a> {
    pub(super) request: &'a HttpRequest,
    /// The shard that records the request; [`None`] because nothing is changed.
    pub(super) recorder: Option<usize>,
    /// The mark of the parts that the other shards receive ([`mark_part`]).
    pub(super) others_mark: &'static str,
}

impl<'a> ClientRequest<'a> {
    /// One of the shards records it.
    pub(super) fn recorded_by(request: &'a HttpRequest, recorder: Option<usize>) -> Self {
        Self {
            request,
            recorder,
            others_mark: hop::UNRECORDED_PART,
        }
    }
}

impl ThreadRouter {
    /// The one of `shards` that records the request: the first that has an owner, as far as this
    /// node can tell.
    pub(super) fn recording_shard(
        &self,
        mut shards: impl Iterator<Item = usize> + Clone,
    ) -> Option<usize> {
        let has_owner = |shard: &usize| self.shards[*shard].forwarder().has_owner();
        shards.clone().find(has_owner).or_else(|| shards.next())
    }

    /// Sends the request to a shard, with this target and a whole body.
    pub(super) async fn send_part(
        &self,
        shard: usize,
        ClientRequest {
            request,
            recorder,
            others_mark,
        }: ClientRequest<'_>,
        target: &str,
        body: Bytes,
        wait: Duration,
    ) -> Result<OwnerResponse, ForwardError> {
        let (mut outgoing, _) = self.build_readable(shard, request, target, body).await?;
        // The body of each part is read here. actix sends none of the whole.
        if *outgoing.method() == hyper::Method::HEAD {
            *outgoing.method_mut() = hyper::Method::GET;
        }
        let mark = if recorder == Some(shard) {
            hop::RECORDED_PART
        } else {
            others_mark
        };
        mark_part(outgoing.headers_mut(), mark);
        self.shards[shard].send_to_owner(outgoing, wait).await
    }

    /// Sends the request to a shard, and reads the whole response.
    async fn request_part(
        &self,
        shard: usize,
        client_request: ClientRequest<'_>,
        target: &str,
        body: Bytes,
        needs_all: bool,
    ) -> Result<Part, ForwardError> {
        let (owner_wait, response_wait) = if needs_all {
            (OWNER_WAIT, RESPONSE_WAIT_MAX)
        } else {
            (PART_OWNER_WAIT, PART_MAX)
        };
        let exchange = async {
            let response = self
                .send_part(shard, client_request, target, body, owner_wait)
                .await?;
            let whole = self.shards[shard].read_whole(response, MERGED_BYTES_MAX);
            let (
                Parts {
                    status, headers, ..
                },
                body,
            ) = whole.await?;
            let status = StatusCode::from_u16(status.as_u16()).unwrap_or(StatusCode::BAD_GATEWAY);
            if status == StatusCode::SERVICE_UNAVAILABLE {
                return Err(ForwardError::Unready);
            }
            Ok(Part {
                shard,
                status,
                headers,
                body,
            })
        };
        timeout(response_wait, exchange)
            .await
            .unwrap_or(Err(ForwardError::Late))
    }

    /// The responses of all shards as one JSON document.
    pub(super) async fn merge_json(
        self: Rc<Self>,
        merge: JsonMerge,
        request: &HttpRequest,
        body: &Bytes,
    ) -> Routed<HttpResponse> {
        let query = request.query_string();
        let mut targets = Vec::new();
        for shard in self.shards_to_merge(ResponseMerge::Json(merge)) {
            if let Some(query) = merge.query_for_shard(query, shard) {
                targets.push((shard, target_at(request.path(), &query)));
            }
        }
        let needs_all = merge.needs_all();
        let recorder = self.recording_shard(targets.iter().map(|(shard, _)| *shard));
        let client_request = ClientRequest::recorded_by(request, recorder);
        let exchanges = targets.iter().map(|(shard, target)| {
            self.request_part(*shard, client_request, target, body.clone(), needs_all)
        });
        let mut responses = Vec::new();
        let mut missing = Vec::new();
        for ((shard, _), result) in targets.iter().zip(join_all(exchanges).await) {
            match result {
                Ok(part) if part.status == StatusCode::OK => responses.push(part.into()),
                Ok(refusal) => return Ok(refusal.into_response()),
                Err(error) => missing.push((*shard, error)),
            }
        }
        if let Some((shard, error)) = missing
            .first()
            .filter(|_| needs_all || responses.is_empty())
        {
            return Err(no_response(*shard, *error));
        }
        let missing: Vec<usize> = missing.into_iter().map(|(shard, _)| shard).collect();
        match merge.merge_responses(query, &responses, &missing) {
            Ok(merged) => Ok(merged_response("application/json", merged.to_string())),
            Err(error) => Err(not_mergeable(&error, request.path())),
        }
    }

    /// The parts of a response that the shards of a spread topic have, or of a change that they
    /// make, as one. A shard that has no part refuses the request.
    pub(super) async fn merge_parts(
        &self,
        merge: SpreadMerge,
        leader: usize,
        request: &HttpRequest,
        body: Bytes,
    ) -> Routed<HttpResponse> {
        let shards = SpreadShards {
            leader,
            count: self.control(),
        };
        let part_request = PartRequest {
            path: request.path().to_owned(),
            query: request.query_string().to_owned(),
            body,
        };
        let PartResults {
            parts,
            refusal,
            missing,
        } = self
            .request_parts(merge, shards, &part_request, request)
            .await;
        if let Some((shard, error)) = missing.first().filter(|_| merge.needs_all()) {
            return Err(no_response(*shard, *error));
        }
        let Some(first) = parts.first() else {
            let missing = missing
                .first()
                .map(|(shard, error)| no_response(*shard, *error));
            return Err(refusal
                .map(Part::into_response)
                .or(missing)
                .unwrap_or_else(|| ForwardError::Unforwardable.into()));
        };
        let status = first.status;
        let content_type = first.content_type();
        if let Some(text_type) = content_type.filter(|name| !name.starts_with("application/json")) {
            return Ok(merged_response(
                text_type,
                merge_expositions(&exposition_texts(&parts)),
            ));
        }
        let responses: Vec<ShardResponse> = parts.into_iter().map(ShardResponse::from).collect();
        let missing: Vec<usize> = missing.into_iter().map(|(shard, _)| shard).collect();
        match merge.merge_parts(shards, &part_request, &responses, &missing) {
            Ok(merged) => {
                let mut response = merged_response("application/json", merged.to_string());
                *response.status_mut() = status;
                Ok(response)
            }
            Err(error) => Err(not_mergeable(&error, &part_request.path)),
        }
    }

    /// Sends a request to each shard of a spread topic that may have a part of the response.
    async fn request_parts(
        &self,
        merge: SpreadMerge,
        shards: SpreadShards,
        part_request: &PartRequest,
        request: &HttpRequest,
    ) -> PartResults {
        let mut targets = Vec::new();
        for shard in 0..shards.count {
            if let Some(part) = merge.request_for_shard(shard, shards, part_request) {
                targets.push((shard, target_at(&part.path, &part.query), part.body));
            }
        }
        let recorder = self.recording_shard(targets.iter().map(|(shard, ..)| *shard));
        let client_request = ClientRequest::recorded_by(request, recorder);
        let needs_all = merge.needs_all();
        let exchanges = targets.iter().map(|(shard, target, body)| {
            self.request_part(*shard, client_request, target, body.clone(), needs_all)
        });
        let mut results = PartResults::default();
        for ((shard, ..), result) in targets.iter().zip(join_all(exchanges).await) {
            match result {
                Ok(part) if part.status.is_success() => results.parts.push(part),
                Ok(refusal) => prefer_refusal(&mut results.refusal, refusal),
                Err(error) => results.missing.push((*shard, error)),
            }
        }
        results
    }

    /// The response of the shard that has what the request is about.
    pub(super) async fn find_response(
        &self,
        request: &HttpRequest,
        body: &Bytes,
    ) -> Routed<HttpResponse> {
        // A fault that may hit any shard hits a random one.
        let first = if [Method::GET, Method::HEAD].contains(request.method()) {
            0
        } else {
            fastrand::usize(self.topic_shards())
        };
        let mut refusal = None::<Part>;
        let mut missing = None;
        let count = self.control();
        let shards = (0..count).map(|next| (first + next) % count);
        // The shard that succeeds records the request; if all refuse it, the last one does.
        let recorder = self.recording_shard(shards.clone().rev());
        let client_request = ClientRequest {
            request,
            recorder,
            others_mark: hop::RECORDED_IF_DONE_PART,
        };
        for shard in shards {
            match self
                .request_part(
                    shard,
                    client_request,
                    target_of(request),
                    body.clone(),
                    true,
                )
                .await
            {
                Ok(part) if part.status.is_success() => return Ok(part.into_response()),
                // Of shards that do not have it, the response of the first one is as good.
                Ok(part) if part.status == StatusCode::NOT_FOUND && refusal.is_some() => {}
                Ok(part) => prefer_refusal(&mut refusal, part),
                Err(error) => missing = Some((shard, error)),
            }
        }
        match (refusal, missing) {
            (Some(part), None) => Ok(part.into_response()),
            (Some(part), Some(_)) if part.status != StatusCode::NOT_FOUND => {
                Ok(part.into_response())
            }
            (_, Some((shard, error))) => Err(no_response(shard, error)),
            (None, None) => Err(ForwardError::Unforwardable.into()),
        }
    }

    /// Sends the request to every shard with topics. The response is that of the first one.
    pub(super) async fn do_on_each(
        &self,
        request: &HttpRequest,
        body: &Bytes,
    ) -> Routed<HttpResponse> {
        let shards = self.topic_shards();
        let target = target_of(request);
        let recorder = self.recording_shard(shards.clone());
        let client_request = ClientRequest::recorded_by(request, recorder);
        let exchanges = shards
            .map(|shard| self.request_part(shard, client_request, target, body.clone(), true));
        let mut first = None::<Part>;
        let mut missing = None;
        for (shard, result) in join_all(exchanges).await.into_iter().enumerate() {
            match result {
                Ok(part) if !part.status.is_success() => return Ok(part.into_response()),
                Ok(part) => first = first.or(Some(part)),
                Err(error) => missing = missing.or(Some((shard, error))),
            }
        }
        match (first, missing) {
            (_, Some((shard, error))) => Err(no_response(shard, error)),
            (Some(part), None) => Ok(part.into_response()),
            (None, None) => Err(ForwardError::Unforwardable.into()),
        }
    }

    /// The metrics of the shards that this node owns.
    pub(super) async fn merge_metrics(&self, request: &HttpRequest) -> Routed<HttpResponse> {
        let shards = self
            .topic_shards()
            .filter(|shard| self.shards[*shard].forwarder().is_owner());
        let client_request = ClientRequest::recorded_by(request, None);
        let target = target_of(request);
        let exchanges = shards
            .map(|shard| self.request_part(shard, client_request, target, Bytes::new(), false));
        let mut parts = Vec::new();
        let mut missing = None;
        for result in join_all(exchanges).await {
            match result {
                Ok(part) if part.status == StatusCode::OK => parts.push(part),
                Ok(refusal) => return Ok(refusal.into_response()),
                Err(error) => missing = missing.or(Some(error)),
            }
        }
        match parts.first().and_then(Part::content_type) {
            Some(content_type) => Ok(merged_response(
                content_type,
                merge_expositions(&exposition_texts(&parts)),
            )),
            None => Err(missing.unwrap_or(ForwardError::NoShard).into()),
        }
    }
}

/// Keeps a refusal unless it says only that a shard does not have what the request is about, and
/// there is another.
fn prefer_refusal(refusal: &mut Option<Part>, part: Part) {
    if refusal
        .as_ref()
        .is_none_or(|earlier| earlier.status == StatusCode::NOT_FOUND)
    {
        *refusal = Some(part);
    }
}

/// The metrics of each shard, in the format of Prometheus.
fn exposition_texts(parts: &[Part]) -> Vec<(usize, &str)> {
    parts
        .iter()
        .map(|part| (part.shard, str::from_utf8(&part.body).unwrap_or_default()))
        .collect()
}

fn not_mergeable(error: &serde_json::Error, path: &str) -> HttpResponse {
    tracing::warn!(%error, path, "the responses of the shards cannot be merged");
    unavailable_response("the owners have other versions, whose responses cannot be merged")
}

pub(super) fn no_response(shard: usize, why: ForwardError) -> HttpResponse {
    unavailable_response(format_args!("shard {shard}: {why}"))
}
