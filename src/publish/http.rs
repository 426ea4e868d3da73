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
use url::form_urlencoded;

pub use super::publisher::Publisher;
use super::{Refusal, namespace, refusal};
use crate::topic::{
    record::{Kind, key},
    registry::{Registry, Topic},
};

/// Where events come in. The router and `/openapi.json` are made of it.
pub const PATHS: [&str; 3] = ["/topics/{topic}/api/events", "/domains/{domain}/api/events", "/api/events"];

/// How it can be asked there: events are published, or it is asked what is taken.
pub const METHODS: [Method; 2] = [Method::POST, Method::OPTIONS];

/// The versions that there are of the publishers' API: of topics, and of namespaces, whose clients come here, too.
pub const VERSIONS: [&str; 5] = ["2018-01-01", "2023-06-01-preview", "2023-10-01-preview", "2023-11-01", "2024-06-01"];

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
    publisher.refuse(&unknown(&request))
}

async fn publish(publisher: web::Data<Publisher>, request: HttpRequest, mut body: web::Payload) -> HttpResponse {
    match publisher.publish(&request, &mut body).await {
        Ok(()) => HttpResponse::Ok().insert_header(("x-ms-request-id", request_id())).finish(),
        Err(refusal) => publisher.refuse(&refusal).map_body(|_, text| Refused { text, _unread: body }.boxed()),
    }
}

/// A number for whoever asks what became of a request. Nobody is let in by it, so it costs no system call.
fn request_id() -> String {
    uuid::Builder::from_random_bytes(fastrand::u128(..).to_ne_bytes()).into_uuid().to_string()
}

/// An answer that holds on to what was not read of the request. When a chunked body is let go before the answer is out,
/// actix-http reads and discards it to its end, which a stranger need not ever send; so held, the connection is closed
/// behind the answer, after the server's disconnect timeout.
pub(super) struct Refused {
    pub(super) text: BoxBody,
    pub(super) _unread: web::Payload,
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
    match find_topic(&publisher.registry, &request) {
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
pub(super) fn find_topic(registry: &Registry, request: &HttpRequest) -> Result<Arc<Topic>, Refusal> {
    let names = request.match_info();
    let find = |kind, name| registry.topic(&key(kind, name));
    let found = match (names.get("topic"), names.get("domain")) {
        (Some(name), _) => find(Kind::Topic, name),
        (None, Some(name)) => find(Kind::Domain, name),
        (None, None) => {
            let connection = request.connection_info();
            // A name alone is a machine's, not a topic's. Of a topic and a domain of one name, the topic is meant.
            let label = connection.host().split_once('.').map(|(label, _)| label);
            label.and_then(|label| find(Kind::Topic, label).or_else(|| find(Kind::Domain, label)))
        }
    };
    let topic = found.ok_or_else(|| unknown(request))?;
    check_version(request)?;
    Ok(topic)
}

/// An `api-version` may be left out, but not made up.
pub(super) fn check_version(request: &HttpRequest) -> Result<(), Refusal> {
    let mut query = form_urlencoded::parse(request.query_string().as_bytes());
    match query.find(|(name, _)| name.eq_ignore_ascii_case("api-version")) {
        Some((_, version))
            if !version.is_empty() && !VERSIONS.iter().any(|known| known.eq_ignore_ascii_case(&version)) =>
        {
            let version = Refusal::shortened(&version).to_owned();
            Err(Refusal::ApiVersion { uri: uri(request), version, supported: VERSIONS.join(", ") })
        }
        Some(_) | None => Ok(()),
    }
}

pub(super) fn unknown(request: &HttpRequest) -> Refusal {
    Refusal::NotFound { uri: uri(request) }
}

/// The address that was called, percent-encoded as a whole, without its query: a key may be in that.
fn uri(request: &HttpRequest) -> String {
    let connection = request.connection_info();
    let uri = format!("{}://{}{}", connection.scheme(), connection.host(), request.path());
    form_urlencoded::byte_serialize(uri.as_bytes()).collect()
}
