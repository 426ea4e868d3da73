//! The publishers' endpoint: `POST /topics/{topic}/api/events`, `POST /domains/{domain}/api/events`, or `POST /api/events`
//! at a host whose first label is the name of the topic or of the domain, as in Azure (`orders.example.com`).
//!
//! What becomes of a request is decided by the [`Publisher`]; here are the paths, the methods and the answers.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use actix_web::{
    HttpRequest, HttpResponse,
    body::{BodySize, BoxBody, MessageBody},
    http::{Method, header::ALLOW},
    web,
};
use bytes::Bytes;
use jiff::civil::Date;
use url::form_urlencoded;

pub use super::publisher::Publisher;
use super::{Refusal, auth::RequestAuthority, namespace, refusal};
use crate::control::{
    record::topic::{TopicKind, key},
    registry::TopicHandle,
};

/// Where events come in. The router and `/openapi.json` are made of it.
pub const PATHS: [&str; 3] = ["/topics/{topic}/api/events", "/domains/{domain}/api/events", "/api/events"];

/// How it can be asked there: events are published, or it is asked what is taken.
pub const METHODS: [Method; 2] = [Method::POST, Method::OPTIONS];

/// What an `api-version` is written like, as a regular expression.
pub const VERSION: &str = "^[0-9]{4}-[0-9]{2}-[0-9]{2}(-[0-9A-Za-z]+)?$";

/// Adds the publishers' endpoint to an app that has a `web::Data<Publisher>`.
pub fn configure(config: &mut web::ServiceConfig) {
    let [publishing, asking] = METHODS;
    for path in PATHS {
        let events = web::resource(pattern(path))
            .route(web::method(publishing.clone()).to(publish))
            .route(web::method(asking.clone()).to(options))
            .route(web::head().to(not_found))
            .default_service(web::to(method_not_allowed));
        config.service(events);
    }
    namespace::configure(config);
}

/// The router's form of a path: words in any case, and a slash at the end or none, as in Azure.
pub(crate) fn pattern(path: &str) -> String {
    let mut pattern = String::new();
    for part in path.split('/').skip(1) {
        if part.starts_with('{') {
            pattern.push_str(&format!("/{part}"));
        } else {
            pattern.push_str(&format!("/{{word_{part}:(?i){part}}}"));
        }
    }
    pattern + "{slash:/?}"
}

/// The answer to every path that nobody serves.
pub async fn not_found(publisher: web::Data<Publisher>, request: HttpRequest) -> HttpResponse {
    publisher.refuse(&unknown(&publisher, &request))
}

async fn publish(publisher: web::Data<Publisher>, request: HttpRequest, mut body: web::Payload) -> HttpResponse {
    match publisher.publish(&request, &mut body).await {
        Ok(()) => HttpResponse::Ok().insert_header(("x-ms-request-id", request_id())).finish(),
        Err(refusal) => publisher.refuse(&refusal).map_body(|_, text| RefusedResponse { text, _unread: body }.boxed()),
    }
}

/// A number for whoever asks what became of a request. Nobody is let in by it, so it costs no system call.
fn request_id() -> String {
    uuid::Builder::from_random_bytes(fastrand::u128(..).to_ne_bytes()).into_uuid().to_string()
}

/// An answer that holds on to what was not read of the request. When a chunked body is let go before the answer is out,
/// actix-http reads and discards it to its end, which a stranger need not ever send; so held, the connection is closed
/// behind the answer, after the server's disconnect timeout.
pub(super) struct RefusedResponse {
    pub(super) text: BoxBody,
    pub(super) _unread: web::Payload,
}

impl MessageBody for RefusedResponse {
    type Error = Box<dyn std::error::Error>;

    fn size(&self) -> BodySize {
        self.text.size()
    }

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, Self::Error>>> {
        Pin::new(&mut self.text).poll_next(context)
    }
}

async fn options(publisher: web::Data<Publisher>, request: HttpRequest) -> HttpResponse {
    match find_topic(&publisher, &request) {
        Ok(topic) => HttpResponse::Ok()
            .insert_header((ALLOW, "POST, OPTIONS"))
            .insert_header(("aeg-input-event-schema", refusal::name(&topic.record().input_schema)))
            .insert_header(("x-ms-request-id", request_id()))
            .finish(),
        Err(refusal) => publisher.refuse(&refusal),
    }
}

pub(crate) async fn method_not_allowed(publisher: web::Data<Publisher>) -> HttpResponse {
    publisher.refuse(&Refusal::Method)
}

/// The topic or the domain that the request is for, by its path or its host.
pub(super) fn find_topic(publisher: &Publisher, request: &HttpRequest) -> Result<Arc<TopicHandle>, Refusal> {
    let names = request.match_info();
    let find = |kind, name| publisher.registry.topic(&key(kind, name));
    let found = match (names.get("topic"), names.get("domain")) {
        (Some(name), _) => find(TopicKind::Topic, name),
        (None, Some(name)) => find(TopicKind::Domain, name),
        (None, None) => {
            let called = publisher.called(request)?;
            // Of a topic and a domain of one name, the topic is meant.
            called.label().and_then(|label| find(TopicKind::Topic, label).or_else(|| find(TopicKind::Domain, label)))
        }
    };
    let topic = found.ok_or_else(|| unknown(publisher, request))?;
    check_version(publisher, request)?;
    Ok(topic)
}

/// An `api-version` may be left out. Any version is taken that is written like one: what a client sends does not differ
/// between those that there are, and the next client library has another.
pub(super) fn check_version(publisher: &Publisher, request: &HttpRequest) -> Result<(), Refusal> {
    let mut query = form_urlencoded::parse(request.query_string().as_bytes());
    match query.find(|(name, _)| name.eq_ignore_ascii_case("api-version")) {
        Some((_, version)) if !version.is_empty() && !is_version(&version) => {
            let version = Refusal::shortened(&version).to_owned();
            match publisher.called(request) {
                Ok(called) => Err(Refusal::ApiVersion { uri: uri(&called, request), version }),
                Err(refusal) => Err(refusal),
            }
        }
        Some(_) | None => Ok(()),
    }
}

/// A day, and perhaps a word behind it: `2018-01-01`, `2023-06-01-preview`.
fn is_version(text: &str) -> bool {
    let Some((day, word)) = text.split_at_checked("2018-01-01".len()) else { return false };
    let is_day = day.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-') && day.parse::<Date>().is_ok();
    let is_word = |word: &str| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_alphanumeric());
    is_day && (word.is_empty() || word.strip_prefix('-').is_some_and(is_word))
}

pub(super) fn unknown(publisher: &Publisher, request: &HttpRequest) -> Refusal {
    match publisher.called(request) {
        Ok(called) => Refusal::NotFound { uri: uri(&called, request) },
        Err(refusal) => refusal,
    }
}

/// The address that was called, percent-encoded as a whole, without its query: a key may be in that.
fn uri(called: &RequestAuthority, request: &HttpRequest) -> String {
    form_urlencoded::byte_serialize(called.at(request.path()).as_bytes()).collect()
}
