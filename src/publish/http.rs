//! The publishers' endpoint: `POST /topics/{topic}/api/events`.
//!
//! The order is the point. Topic, key and the sizes that the head announces are looked at first, at no cost. Then a permit
//! for the body's bytes is taken, before the first of them is read, and it travels with the events into the journal: what
//! publishers can make the server hold is bounded, and where it runs out they are told to come back. A body has a limit and
//! a deadline of its own, because actix-web has neither for a body that trickles in.
//!
//! A publisher that goes away while the journal works has published: it was not told, and sends again. That is what "at
//! least once" means.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
};

use actix_web::{
    HttpRequest, HttpResponse,
    body::{BodySize, BoxBody, MessageBody},
    http::{
        Method,
        header::{ALLOW, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HeaderMap},
    },
    web,
};
use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use url::form_urlencoded;
use uuid::Uuid;

use super::{
    Limits, Refusal, auth, refusal,
    schema::{self, Content, Target},
};
use crate::{
    clock::Clock,
    journal::{self, Journal},
    topic::{
        record::TopicRecord,
        registry::{Registry, Topic},
    },
};

/// Any case, and a slash at the end or none, as in Azure.
const PATH: &str = "/{topics:(?i)topics}/{topic}/{api:(?i)api}/{events:(?i)events}{slash:/?}";

/// One permit is a kibibyte: fine enough for small requests, and a semaphore of them counts to terabytes.
const PERMIT_BYTES: usize = 1024;

/// The attributes that every CloudEvent in binary mode has.
const ATTRIBUTES: [&str; 4] = ["ce-specversion", "ce-id", "ce-source", "ce-type"];

/// Takes what publishers send. One for the whole server, in the `app_data` of every worker.
pub struct Publisher {
    registry: Arc<Registry>,
    journal: Journal,
    clock: Clock,
    limits: Limits,
    room: Arc<Semaphore>,
    closed: AtomicBool,
}

/// Adds the publishers' endpoint to an app that has a `web::Data<Publisher>`.
pub fn configure(config: &mut web::ServiceConfig) {
    let events = web::resource(PATH)
        .route(web::post().to(publish))
        .route(web::method(Method::OPTIONS).to(options))
        .route(web::head().to(not_found))
        .default_service(web::to(method_not_allowed));
    config.service(events);
}

/// The answer to every path that nobody serves.
pub async fn not_found(publisher: web::Data<Publisher>, request: HttpRequest) -> HttpResponse {
    publisher.refuse(&unknown(&request))
}

impl Publisher {
    /// Publishes to the topics of `registry` through `journal`.
    pub fn new(registry: Arc<Registry>, journal: Journal, clock: Clock, limits: Limits) -> Self {
        let room = Arc::new(Semaphore::new(permits(limits.admitted_bytes_max) as usize));
        Self { registry, journal, clock, limits, room, closed: AtomicBool::new(false) }
    }

    /// Refuses every request from now on. What is with the journal already is still answered.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Release);
    }

    async fn publish(&self, request: &HttpRequest, body: &mut web::Payload) -> Result<(), Refusal> {
        if self.closed.load(Ordering::Acquire) {
            return Err(Refusal::Closing);
        }
        let (topic, record) = self.topic(request)?;
        auth::check(request, &record.keys)?;
        let headers = request.headers();
        refuse_encoded(headers)?;
        let announced = self.announced(headers)?;
        let mut permit = self.admit(announced)?;
        let body = self.receive(body, announced).await?;
        // What was announced is not always what came; a body without a length announced the most there can be.
        let spare = permit.num_permits().saturating_sub(permits(body.len()) as usize);
        drop(permit.split(spare));
        let draft = schema::read(&Target::of(&record), content(headers), &body, &self.limits)?;
        drop(body);
        match self.journal.publish(topic.partition(), draft.into_chunks(), Some(permit)).await {
            Ok(_) => Ok(()),
            Err(error) => {
                if let journal::Error::Damaged(what) = &error {
                    tracing::error!(topic = %record.name, what, "publish failed: the journal is damaged");
                }
                Err(error.into())
            }
        }
    }

    fn topic(&self, request: &HttpRequest) -> Result<(Arc<Topic>, Arc<TopicRecord>), Refusal> {
        let topic = self.registry.topic(request.match_info().query("topic")).ok_or_else(|| unknown(request))?;
        let record = topic.record();
        Ok((topic, record))
    }

    /// How many bytes the head says will come; the limit where it does not say. A lie is found out while reading.
    fn announced(&self, headers: &HeaderMap) -> Result<usize, Refusal> {
        let bytes_max = self.limits.request_bytes_max;
        let Some(length) = headers.get(CONTENT_LENGTH) else { return Ok(bytes_max) };
        match length.to_str().ok().and_then(|length| length.parse::<usize>().ok()) {
            Some(length) if length <= bytes_max => Ok(length),
            Some(_) => Err(Refusal::TooLarge { bytes_max }),
            None => Err(Refusal::Broken),
        }
    }

    fn admit(&self, bytes: usize) -> Result<OwnedSemaphorePermit, Refusal> {
        self.room.clone().try_acquire_many_owned(permits(bytes)).map_err(|_| Refusal::NoRoom)
    }

    async fn receive(&self, body: &mut web::Payload, announced: usize) -> Result<Bytes, Refusal> {
        let bytes_max = self.limits.request_bytes_max;
        // The permit is for what was announced, so no more than that is read.
        let too_much = || if announced < bytes_max { Refusal::Broken } else { Refusal::TooLarge { bytes_max } };
        // To announce a length costs nothing: beyond 64 KiB memory is taken as the bytes come.
        let mut received = BytesMut::with_capacity(announced.min(64 * 1024));
        let reading = async {
            while let Some(part) = body.next().await {
                let part = part.map_err(|_| Refusal::Broken)?;
                if received.len() + part.len() > announced {
                    return Err(too_much());
                }
                received.extend_from_slice(&part);
            }
            Ok(received.freeze())
        };
        match tokio::time::timeout(self.limits.body_wait, reading).await {
            Ok(read) => read,
            Err(_) => Err(Refusal::Slow { seconds: self.limits.body_wait.as_secs() }),
        }
    }

    fn refuse(&self, refusal: &Refusal) -> HttpResponse {
        refusal.respond(Uuid::new_v4(), self.clock.now())
    }
}

async fn publish(publisher: web::Data<Publisher>, request: HttpRequest, mut body: web::Payload) -> HttpResponse {
    match publisher.publish(&request, &mut body).await {
        Ok(()) => HttpResponse::Ok().insert_header(("x-ms-request-id", Uuid::new_v4().to_string())).finish(),
        Err(refusal) => publisher.refuse(&refusal).map_body(|_, text| Refused { text, _unread: body }.boxed()),
    }
}

/// An answer that holds on to what was not read of the request. When a chunked body is let go before the answer is out,
/// actix-http reads and discards it to its end, which a stranger need not ever send; so held, the connection is closed
/// behind the answer, after the server's disconnect timeout.
struct Refused {
    text: BoxBody,
    _unread: web::Payload,
}

impl MessageBody for Refused {
    type Error = Box<dyn std::error::Error>;

    fn size(&self) -> BodySize {
        self.text.size()
    }

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, Self::Error>>> {
        Pin::new(&mut self.text).poll_next(context)
    }
}

async fn options(publisher: web::Data<Publisher>, request: HttpRequest) -> HttpResponse {
    match publisher.topic(&request) {
        Ok((_, record)) => HttpResponse::Ok()
            .insert_header((ALLOW, "POST, OPTIONS"))
            .insert_header(("aeg-input-event-schema", refusal::name(&record.input_schema)))
            .insert_header(("x-ms-request-id", Uuid::new_v4().to_string()))
            .finish(),
        Err(refusal) => publisher.refuse(&refusal),
    }
}

async fn method_not_allowed(publisher: web::Data<Publisher>) -> HttpResponse {
    publisher.refuse(&Refusal::Method)
}

fn unknown(request: &HttpRequest) -> Refusal {
    let uri = {
        let connection = request.connection_info();
        format!("{}://{}{}", connection.scheme(), connection.host(), request.path())
    };
    Refusal::NotFound { uri: form_urlencoded::byte_serialize(uri.as_bytes()).collect() }
}

fn refuse_encoded(headers: &HeaderMap) -> Result<(), Refusal> {
    let plain = |encoding: &[u8]| encoding.trim_ascii().is_empty() || encoding.eq_ignore_ascii_case(b"identity");
    if headers.get_all(CONTENT_ENCODING).all(|encoding| plain(encoding.as_bytes())) {
        return Ok(());
    }
    Err(Refusal::ContentEncoding)
}

fn content(headers: &HeaderMap) -> Content<'_> {
    Content {
        content_type: headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()),
        has_attributes: ATTRIBUTES.iter().any(|name| headers.contains_key(*name)),
    }
}

/// How many permits so many bytes take; an empty body has one, too.
fn permits(bytes: usize) -> u32 {
    u32::try_from(bytes.div_ceil(PERMIT_BYTES).max(1)).unwrap_or(u32::MAX)
}
