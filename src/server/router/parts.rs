//! One request to each shard, and the responses as one.

use std::{rc::Rc, time::Duration};

use actix_web::{
    HttpRequest, HttpResponse,
    body::MessageBody as _,
    http::{Method, StatusCode, header},
    web::Bytes,
};
use futures_util::future::join_all;
use hyper::{
    HeaderMap,
    header::{CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE},
};
use tokio::time::timeout;

use super::{Routed, ThreadRouter, merged_response, not_forwarded, target_at, target_of};
use crate::{
    forward::{self, Hops, OwnerResponse, unavailable_response},
    forward_error::ForwardError,
    front::hop::{self, ListenerSide},
};
use gridhook_admin::{
    Merge,
    merge::{PartRequest, PartsMerge, ShardAnswer, SpreadShards, merge_expositions},
};

/// The maximum size of a response that is merged.
const ANSWER_BYTES_MAX: usize = 64 * 1024 * 1024;

/// How long a response that needs all shards waits for one.
pub(super) const ANSWER_MAX: Duration = Duration::from_secs(30);

/// How long a response waits for a shard that it can do without.
const PART_MAX: Duration = Duration::from_secs(3);

/// How long a request waits for the owner of a shard that the response needs.
const OWNER_WAIT: Duration = Duration::from_secs(5);

/// How long a request waits for the owner of a shard whose part the response can lack.
const PART_OWNER_WAIT: Duration = Duration::from_millis(500);

/// The whole response of a shard.
pub(super) struct Part {
    pub(super) shard: usize,
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

impl Part {
    /// The response for a client, unchanged.
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

/// Marks a request that goes to several shards, or to one that it names: `part` is a value of
/// [`hop::PART_NAME`].
pub(super) fn mark_part(headers: &mut HeaderMap, part: &'static str) {
    headers.insert(
        HeaderName::from_static(hop::PART_NAME),
        HeaderValue::from_static(part),
    );
}

/// A request to several shards, and the shard that records it.
#[derive(Clone, Copy)]
pub(super) struct Asked<'a> {
    pub(super) request: &'a HttpRequest,
    pub(super) side: ListenerSide,
    /// The shard that records the request; [`None`] because nothing is changed.
    pub(super) recorder: Option<usize>,
    pub(super) others: &'static str,
}

impl<'a> Asked<'a> {
    /// Makes `recorder` record the request in the audit trail, and no other shard.
    pub(super) fn recorded_by(
        request: &'a HttpRequest,
        side: ListenerSide,
        recorder: Option<usize>,
    ) -> Self {
        Self {
            request,
            side,
            recorder,
            others: hop::UNRECORDED_PART,
        }
    }
}

/// The head and the whole body of a response of the owner that `hops` call.
pub(super) async fn collect_body(
    hops: &Rc<Hops>,
    answered: OwnerResponse,
) -> Result<(HeaderMap, Bytes), ForwardError> {
    let (head, mut body) = hops.response_body(answered, None);
    let mut all = Vec::new();
    loop {
        let read = std::future::poll_fn(|cx| std::pin::Pin::new(&mut body).poll_next(cx)).await;
        let Some(read) = read else {
            return Ok((head.headers, all.into()));
        };
        let bytes = read.map_err(|_| ForwardError::CutOff)?;
        if all.len() + bytes.len() > ANSWER_BYTES_MAX {
            return Err(ForwardError::TooLarge);
        }
        all.extend_from_slice(&bytes);
    }
}

impl ThreadRouter {
    /// Chooses the shard that records the request: one of those asked that has an owner, as this
    /// node sees it.
    pub(super) fn recording_shard(
        &self,
        mut asked: impl Iterator<Item = usize> + Clone,
    ) -> Option<usize> {
        let has_owner = |shard: &usize| self.shards[*shard].forwarder().has_owner();
        asked.clone().find(has_owner).or_else(|| asked.next())
    }

    /// Sends the request to a shard, with this target and a whole body.
    pub(super) async fn send_part(
        &self,
        shard: usize,
        Asked {
            request,
            side,
            recorder,
            others,
        }: Asked<'_>,
        target: &str,
        body: Bytes,
        wait: Duration,
    ) -> Result<OwnerResponse, ForwardError> {
        let mut outgoing =
            forward::outgoing_whole(request, target, body).ok_or(ForwardError::Unforwardable)?;
        // The body of each part is read here. actix sends none of the whole.
        if *outgoing.method() == hyper::Method::HEAD {
            *outgoing.method_mut() = hyper::Method::GET;
        }
        mark_part(
            outgoing.headers_mut(),
            if recorder == Some(shard) {
                hop::RECORDED_PART
            } else {
                others
            },
        );
        // The router reads the body, so it must not be compressed.
        outgoing
            .headers_mut()
            .remove(hyper::header::ACCEPT_ENCODING);
        if shard != self.control() {
            self.identities
                .identify_caller(outgoing.headers_mut())
                .await?;
        }
        self.shards[shard].send_to_owner(outgoing, side, wait).await
    }

    async fn ask_shard(
        &self,
        shard: usize,
        asked: Asked<'_>,
        target: &str,
        body: Bytes,
        needs_all: bool,
    ) -> Result<Part, ForwardError> {
        let (wait, most) = if needs_all {
            (OWNER_WAIT, ANSWER_MAX)
        } else {
            (PART_OWNER_WAIT, PART_MAX)
        };
        let answered = async {
            let answered = self.send_part(shard, asked, target, body, wait).await?;
            let status = StatusCode::from_u16(answered.response.status().as_u16());
            let (headers, body) = collect_body(&self.shards[shard], answered).await?;
            let status = status.unwrap_or(StatusCode::BAD_GATEWAY);
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
        timeout(most, answered)
            .await
            .unwrap_or(Err(ForwardError::Late))
    }

    pub(super) async fn merge_json(
        self: Rc<Self>,
        merge: Merge,
        request: &HttpRequest,
        body: &Bytes,
        side: ListenerSide,
    ) -> Routed<HttpResponse> {
        let query = request.query_string();
        let targets = self.shards_to_merge(merge).filter_map(|shard| {
            Some((
                shard,
                target_at(request.path(), &merge.query_of_shard(query, shard)?),
            ))
        });
        let asked: Vec<(usize, String)> = targets.collect();
        let needs_all = merge.needs_all();
        let of_all = Asked::recorded_by(
            request,
            side,
            self.recording_shard(asked.iter().map(|(shard, _)| *shard)),
        );
        let asks = asked
            .iter()
            .map(|(shard, target)| self.ask_shard(*shard, of_all, target, body.clone(), needs_all));
        let mut answers = Vec::new();
        let mut missing = Vec::new();
        for ((shard, _), answered) in asked.iter().zip(join_all(asks).await) {
            match answered {
                Ok(part) if part.status == StatusCode::OK => answers.push(ShardAnswer {
                    shard: part.shard,
                    body: part.body,
                }),
                Ok(refused) => return Ok(refused.into_response()),
                Err(why) => missing.push((*shard, why)),
            }
        }
        if let Some((shard, why)) = missing.first().filter(|_| needs_all || answers.is_empty()) {
            return Err(no_answer(*shard, *why));
        }
        let missing: Vec<usize> = missing.into_iter().map(|(shard, _)| shard).collect();
        match merge.merge_answers(query, &answers, &missing) {
            Ok(merged) => Ok(merged_response("application/json", merged.to_string())),
            Err(error) => {
                tracing::warn!(%error, path = request.path(), "the responses of the shards cannot be \
                    merged");
                Err(unavailable_response(
                    "the owners have other versions, whose answers cannot be merged",
                ))
            }
        }
    }

    /// Asks each shard of a spread topic for its part of a response, and merges the parts. A shard
    /// that has nothing to do refuses the request.
    pub(super) async fn merge_parts(
        &self,
        merge: PartsMerge,
        leader: usize,
        request: &HttpRequest,
        body: Bytes,
        side: ListenerSide,
    ) -> Routed<HttpResponse> {
        let shards = SpreadShards {
            leader,
            count: self.control(),
        };
        let needs_all = merge.needs_all();
        let path = request.path().to_owned();
        let query = request.query_string().to_owned();
        let asked = PartRequest { path, query, body };
        let requests = (0..shards.count)
            .filter_map(|shard| Some((shard, merge.request_of(shard, shards, &asked)?)));
        let requests: Vec<(usize, String, Bytes)> = requests
            .map(|(shard, part)| (shard, target_at(&part.path, &part.query), part.body))
            .collect();
        let of_all = Asked::recorded_by(
            request,
            side,
            self.recording_shard(requests.iter().map(|(shard, ..)| *shard)),
        );
        let asks = requests.iter().map(|(shard, target, body)| {
            self.ask_shard(*shard, of_all, target, body.clone(), needs_all)
        });
        let mut parts = Vec::new();
        let mut refused = None::<Part>;
        let mut missing = Vec::new();
        for ((shard, ..), answered) in requests.iter().zip(join_all(asks).await) {
            match answered {
                Ok(part) if part.status.is_success() => parts.push(part),
                Ok(part) => {
                    let is_better = |known: &Part| known.status == StatusCode::NOT_FOUND;
                    if refused.as_ref().is_none_or(is_better) {
                        refused = Some(part);
                    }
                }
                Err(why) => missing.push((*shard, why)),
            }
        }
        if let Some((shard, why)) = missing.first().filter(|_| needs_all) {
            return Err(no_answer(*shard, *why));
        }
        let Some(first) = parts.first() else {
            let missing = missing.first().map(|(shard, why)| no_answer(*shard, *why));
            return Err(refused
                .map(Part::into_response)
                .or(missing)
                .unwrap_or_else(not_forwarded));
        };
        let status = first.status;
        let content_type = first
            .headers
            .get(CONTENT_TYPE)
            .and_then(|of| of.to_str().ok());
        if let Some(text) = content_type.filter(|of| !of.starts_with("application/json")) {
            let texts: Vec<(usize, &str)> = parts
                .iter()
                .map(|part| {
                    (
                        part.shard,
                        std::str::from_utf8(&part.body).unwrap_or_default(),
                    )
                })
                .collect();
            return Ok(merged_response(text, merge_expositions(&texts)));
        }
        let answers: Vec<ShardAnswer> = parts
            .iter()
            .map(|part| ShardAnswer {
                shard: part.shard,
                body: part.body.clone(),
            })
            .collect();
        let missing: Vec<usize> = missing.into_iter().map(|(shard, _)| shard).collect();
        match merge.merge_parts(shards, &asked, &answers, &missing) {
            Ok(merged) => {
                let mut response = merged_response("application/json", merged.to_string());
                *response.status_mut() = status;
                Ok(response)
            }
            Err(error) => {
                tracing::warn!(%error, path = asked.path, "the responses of the shards cannot be \
                    merged");
                Err(unavailable_response(
                    "the owners have other versions, whose answers cannot be merged",
                ))
            }
        }
    }

    /// The response of the shard that has what the request is about.
    pub(super) async fn find_response(
        &self,
        request: &HttpRequest,
        body: &Bytes,
        side: ListenerSide,
    ) -> Routed<HttpResponse> {
        // A fault that may hit any shard hits a random one.
        let first = if [Method::GET, Method::HEAD].contains(request.method()) {
            0
        } else {
            fastrand::usize(self.topic_shards())
        };
        let mut refused = None::<Part>;
        let mut missing = None;
        let count = self.control();
        let shards = (0..count).map(|next| (first + next) % count);
        // The one that does it records it, or the last one that all refuse.
        let recorder = self.recording_shard(shards.clone().rev());
        let asked = Asked {
            request,
            side,
            recorder,
            others: hop::RECORDED_IF_DONE_PART,
        };
        for shard in shards {
            match self
                .ask_shard(shard, asked, target_of(request), body.clone(), true)
                .await
            {
                Ok(part) if part.status.is_success() => return Ok(part.into_response()),
                Ok(part) => {
                    let is_better = part.status != StatusCode::NOT_FOUND || refused.is_none();
                    if is_better
                        && refused
                            .as_ref()
                            .is_none_or(|known| known.status == StatusCode::NOT_FOUND)
                    {
                        refused = Some(part);
                    }
                }
                Err(why) => missing = Some((shard, why)),
            }
        }
        match (refused, missing) {
            (Some(part), None) => Ok(part.into_response()),
            (Some(part), Some(_)) if part.status != StatusCode::NOT_FOUND => {
                Ok(part.into_response())
            }
            (_, Some((shard, why))) => Err(no_answer(shard, why)),
            (None, None) => Err(not_forwarded()),
        }
    }

    pub(super) async fn do_on_each(
        &self,
        request: &HttpRequest,
        body: &Bytes,
        side: ListenerSide,
    ) -> Routed<HttpResponse> {
        let all = self.topic_shards();
        let target = target_of(request);
        let asked = Asked::recorded_by(request, side, self.recording_shard(all.clone()));
        let asks = all.map(|shard| self.ask_shard(shard, asked, target, body.clone(), true));
        let mut first = None::<Part>;
        let mut missing = None;
        for (shard, answered) in join_all(asks).await.into_iter().enumerate() {
            match answered {
                Ok(part) if !part.status.is_success() => return Ok(part.into_response()),
                Ok(part) => first = first.or(Some(part)),
                Err(why) => missing = missing.or(Some((shard, why))),
            }
        }
        match (first, missing) {
            (_, Some((shard, why))) => Err(no_answer(shard, why)),
            (Some(part), None) => Ok(part.into_response()),
            (None, None) => Err(not_forwarded()),
        }
    }

    /// The metrics of the shards that this node owns.
    pub(super) async fn merge_metrics(
        &self,
        request: &HttpRequest,
        side: ListenerSide,
    ) -> Routed<HttpResponse> {
        let own = self
            .topic_shards()
            .filter(|shard| self.shards[*shard].forwarder().is_owner());
        let asked = Asked::recorded_by(request, side, None);
        let target = target_of(request);
        let asks = own.map(|shard| self.ask_shard(shard, asked, target, Bytes::new(), false));
        let mut parts = Vec::new();
        let mut missing = None;
        for answered in join_all(asks).await {
            match answered {
                Ok(part) if part.status == StatusCode::OK => parts.push(part),
                Ok(refused) => return Ok(refused.into_response()),
                Err(why) => missing = missing.or(Some(why)),
            }
        }
        let texts = parts.iter().map(|part| {
            (
                part.shard,
                std::str::from_utf8(&part.body).unwrap_or_default(),
            )
        });
        let texts: Vec<(usize, &str)> = texts.collect();
        let content_type = parts
            .first()
            .and_then(|part| part.headers.get(CONTENT_TYPE)?.to_str().ok());
        match content_type {
            Some(content_type) => Ok(merged_response(content_type, merge_expositions(&texts))),
            None => Err(unavailable_response(
                missing.unwrap_or(ForwardError::NoShard),
            )),
        }
    }
}

pub(super) fn no_answer(shard: usize, why: ForwardError) -> HttpResponse {
    unavailable_response(format_args!("shard {shard}: {why}"))
}
