//! Lines of JSON of all shards as one stream: as they come, or of one shard after the other.

use std::{rc::Rc, time::Duration};

use actix_web::{
    HttpRequest, HttpResponse,
    body::MessageBody as _,
    web::{Bytes, BytesMut},
};
use futures_util::{future::join_all, stream};
use hyper::StatusCode;
use serde_json::{Value, json};
use tokio::{
    sync::{Notify, mpsc},
    time::{sleep, timeout},
};

use super::{
    Routed, ThreadRouter,
    parts::{ClientRequest, MERGED_BYTES_MAX, PART_MAX, PART_OWNER_WAIT, no_response},
    target_of,
};
use crate::{
    forward::{OWNER_WAIT, OwnerResponse, ResponseBody},
    forward_error::ForwardError,
};
use gridhook_admin::merge::add_work;
use gridhook_api::{resource::ErrorResponse, store::ProgressLine};

const LINES: &str = "application/x-ndjson";

/// The pause before a shard is followed again whose stream has ended, because its owner changes.
const RETRY_PAUSE: Duration = Duration::from_millis(500);

/// The most pieces of text that wait for a slow reader. Then the owner's lines wait, and are lost
/// there.
const WAITING_MAX: usize = 16;

/// Whole lines out of the body of a response.
struct LineReader {
    body: std::pin::Pin<Box<ResponseBody>>,
    rest: BytesMut,
}

impl LineReader {
    /// The next lines; [`None`] at the end.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            let read = std::future::poll_fn(|cx| self.body.as_mut().poll_next(cx)).await;
            let Some(Ok(bytes)) = read else { return None };
            self.rest.extend_from_slice(&bytes);
            if let Some(end) = self.rest.iter().rposition(|byte| *byte == b'\n') {
                return Some(self.rest.split_to(end + 1).freeze());
            }
        }
    }
}

impl ThreadRouter {
    async fn open(
        &self,
        shard: usize,
        request: &HttpRequest,
        body: Bytes,
        owner_wait: Duration,
    ) -> Result<OwnerResponse, ForwardError> {
        let client_request = ClientRequest::recorded_by(request, Some(0));
        self.send_part(shard, client_request, target_of(request), body, owner_wait)
            .await
    }

    /// Opens a shard's lines that the response can do without: gives up after [`PART_MAX`].
    async fn open_lines(
        &self,
        shard: usize,
        request: &HttpRequest,
    ) -> Result<OwnerResponse, ForwardError> {
        let response = self.open(shard, request, Bytes::new(), PART_OWNER_WAIT);
        timeout(PART_MAX, response)
            .await
            .unwrap_or(Err(ForwardError::Late))
    }

    fn read_lines(&self, shard: usize, response: OwnerResponse) -> LineReader {
        let (_, body) = self.shards[shard].response_body(response, None);
        LineReader {
            body: Box::pin(body),
            rest: BytesMut::new(),
        }
    }

    /// The lines of all shards as they come. A shard whose owner changes is missing meanwhile.
    pub(super) async fn stream_lines(self: Rc<Self>, request: HttpRequest) -> Routed<HttpResponse> {
        let exchanges = self
            .topic_shards()
            .map(|shard| self.open_lines(shard, &request));
        let mut readers = Vec::new();
        let mut missing = None;
        for (shard, result) in join_all(exchanges).await.into_iter().enumerate() {
            match result {
                Ok(response) if response.response.status() == StatusCode::OK => {
                    readers.push((shard, Some(self.read_lines(shard, response))));
                }
                Ok(refusal) if refusal.response.status() != StatusCode::SERVICE_UNAVAILABLE => {
                    return Ok(self.shards[shard].relay_response(refusal, None));
                }
                Ok(_) => readers.push((shard, None)),
                Err(error) => {
                    missing = missing.or(Some((shard, error)));
                    readers.push((shard, None));
                }
            }
        }
        if readers.iter().all(|(_, reader)| reader.is_none()) {
            let (shard, error) = missing.unwrap_or((0, ForwardError::Unready));
            return Err(no_response(shard, error));
        }
        let (sender, receiver) = mpsc::channel(WAITING_MAX);
        let refusal = Rc::new(Notify::new());
        for (shard, reader) in readers {
            let router = Rc::clone(&self);
            let request = request.clone();
            let sender = sender.clone();
            let refusal = Rc::clone(&refusal);
            actix_rt::spawn(async move {
                tokio::select! {
                    () = sender.closed() => {}
                    () = router.follow_shard((shard, reader), &request, &sender) => refusal.notify_one(),
                }
            });
        }
        let revocation = self.identities.watch_caller(&request);
        let text = stream::unfold(
            (receiver, refusal, revocation),
            |(mut receiver, refusal, mut revocation)| async move {
                let text: Option<Bytes> = tokio::select! {
                    text = receiver.recv() => text,
                    () = refusal.notified() => None,
                    _ = &mut revocation => None,
                };
                Some((
                    Ok::<_, actix_web::Error>(text?),
                    (receiver, refusal, revocation),
                ))
            },
        );
        Ok(HttpResponse::Ok()
            .content_type(LINES)
            .streaming(Box::pin(text)))
    }

    /// Sends the lines of a shard, of one owner after the other, until one refuses the caller.
    async fn follow_shard(
        &self,
        (shard, mut lines): (usize, Option<LineReader>),
        request: &HttpRequest,
        to: &mpsc::Sender<Bytes>,
    ) {
        loop {
            if let Some(lines) = &mut lines {
                while let Some(text) = lines.next().await {
                    if to.send(text).await.is_err() {
                        return;
                    }
                }
            }
            sleep(RETRY_PAUSE).await;
            lines = match self.open_lines(shard, request).await {
                Ok(response) if response.response.status().is_success() => {
                    Some(self.read_lines(shard, response))
                }
                Ok(refusal) if refusal.response.status().is_client_error() => return,
                Ok(_) | Err(_) => None,
            };
        }
    }

    /// The work of one shard after the other, with the sums of what they report at the end.
    pub(super) async fn in_turn(
        self: Rc<Self>,
        request: HttpRequest,
        body: Bytes,
    ) -> Routed<HttpResponse> {
        let first = self
            .open(0, &request, body.clone(), OWNER_WAIT)
            .await
            .map_err(|why| no_response(0, why))?;
        if !first.response.status().is_success() {
            return Ok(self.shards[0].relay_response(first, None));
        }
        let lines = Some(self.read_lines(0, first));
        let work = Work {
            router: self,
            request,
            body,
            shard: 0,
            lines,
            ends: ProgressLine::default(),
            is_over: false,
        };
        let text = stream::unfold(work, |mut work| async move {
            let text = work.next().await?;
            Some((Ok::<_, actix_web::Error>(text), work))
        });
        Ok(HttpResponse::Ok()
            .content_type(LINES)
            .streaming(Box::pin(text)))
    }
}

/// Work that each shard does, one after the other.
struct Work {
    router: Rc<ThreadRouter>,
    request: HttpRequest,
    body: Bytes,
    shard: usize,
    lines: Option<LineReader>,
    /// The totals that the shards have reported so far.
    ends: ProgressLine,
    is_over: bool,
}

impl Work {
    async fn next(&mut self) -> Option<Bytes> {
        if self.is_over {
            return None;
        }
        loop {
            let Some(text) = self.lines.as_mut()?.next().await else {
                self.shard += 1;
                if self.shard == self.router.shards.len() {
                    self.is_over = true;
                    return Some(json_line(&json!(self.ends)));
                }
                let shard = self.shard;
                let body = self.body.clone();
                match self
                    .router
                    .open(shard, &self.request, body, OWNER_WAIT)
                    .await
                {
                    Ok(response) if response.response.status().is_success() => {
                        self.lines = Some(self.router.read_lines(shard, response));
                        continue;
                    }
                    Ok(refusal) => {
                        let reason = self.explain_refusal(refusal).await;
                        return self.failure_line(&reason);
                    }
                    Err(error) => return self.failure_line(&error.to_string()),
                }
            };
            let mut shown = BytesMut::new();
            for read in text
                .split(|byte| *byte == b'\n')
                .filter(|line| !line.is_empty())
            {
                let Ok(mut read) = serde_json::from_slice::<ProgressLine>(read) else {
                    continue;
                };
                if let Some(error) = &read.error {
                    return self.failure_line(error);
                }
                if let Some(progress) = read.progress.take() {
                    let progress = format!("shard {}: {progress}", self.shard);
                    shown.extend_from_slice(&json_line(&json!({"progress": progress})));
                }
                if let Err(error) = add_work(&mut self.ends, self.shard, read) {
                    return self.failure_line(&error.to_string());
                }
            }
            if !shown.is_empty() {
                return Some(shown.freeze());
            }
        }
    }

    /// The reason with which the owner of the shard refuses a request.
    async fn explain_refusal(&self, refusal: OwnerResponse) -> String {
        let status = refusal.response.status();
        let body = self.router.shards[self.shard].read_whole(refusal, MERGED_BYTES_MAX);
        let whole_body = timeout(PART_MAX, body).await.ok();
        let error = whole_body
            .and_then(Result::ok)
            .and_then(|(_, body)| serde_json::from_slice::<ErrorResponse>(&body).ok());
        error.map_or_else(
            || format!("its owner answers {status}"),
            |response| response.error.message,
        )
    }

    fn failure_line(&mut self, reason: &str) -> Option<Bytes> {
        self.is_over = true;
        Some(json_line(
            &json!({"error": format!("shard {}: {reason}", self.shard)}),
        ))
    }
}

fn json_line(value: &Value) -> Bytes {
    format!("{value}\n").into()
}
