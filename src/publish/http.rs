//! The publish endpoint: `POST /topics/{topic}/api/events`, `POST /domains/{domain}/api/events`, or
//! `POST /api/events` at a host whose first label is the name of the topic or domain, as in Azure
//! (`orders.example.com`).
//!
//! This file has routes, methods and responses; [`Publisher`] decides about a request.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use actix_web::{
    FromRequest as _, HttpRequest, HttpResponse,
    body::{BodySize, BoxBody, MessageBody},
    dev::{ServiceRequest, ServiceResponse},
    http::{
        Method,
        header::{ALLOW, HeaderName, HeaderValue},
    },
    web,
};
use bytes::Bytes;
use jiff::civil::Date;
use url::form_urlencoded;
use uuid::Uuid;

pub use super::publisher::Publisher;
use super::{Refusal, auth::RequestAuthority, namespace, refusal};
use gridhook_engine::control::registry::TopicHandle;
use gridhook_record::topic::{TopicKind, key};

/// The paths of publish requests, for the router and `/openapi.json`.
pub const PATHS: [&str; 3] = [
    "/topics/{topic}/api/events",
    "/domains/{domain}/api/events",
    "/api/events",
];

/// The header of a request's id.
const REQUEST_ID: HeaderName = HeaderName::from_static("x-ms-request-id");

/// The methods of [`PATHS`]: POST publishes, OPTIONS responds to the CloudEvents validation
/// handshake.
pub const METHODS: [Method; 2] = [Method::POST, Method::OPTIONS];

/// The form of an `api-version`, as a regular expression.
pub const VERSION: &str = "^[0-9]{4}-[0-9]{2}-[0-9]{2}(-[0-9A-Za-z]+)?$";

/// Adds the publish endpoint to an app that has a `web::Data<Publisher>`.
pub fn configure(config: &mut web::ServiceConfig) {
    let [publishing, asking] = METHODS;
    for pattern in PATHS.map(pattern) {
        let events = web::resource(pattern)
            .route(web::method(publishing.clone()).to(publish))
            .route(web::method(asking.clone()).to(respond_to_options))
            .route(web::head().to(not_found))
            .default_service(web::to(method_not_allowed));
        config.service(events);
    }
    config.app_data(PublishRoutes);
    namespace::configure(config);
}

/// Marks an app that has the publish endpoint.
#[derive(Clone, Copy, Debug)]
struct PublishRoutes;

/// Routes a publish request whose path is written as in [`PATHS`], as nearly every client writes
/// it, without the router and its regular expressions. False for any other request; true:
/// [`publish_directly`] handles it as the router would.
pub fn route_directly(request: &mut ServiceRequest) -> bool {
    if request.method() != Method::POST || request.app_data::<PublishRoutes>().is_none() {
        return false;
    }
    let Some(above) = request.path().strip_suffix("/api/events") else {
        return false;
    };
    if above.is_empty() {
        return true;
    }
    let (kind, name) = if let Some(name) = above.strip_prefix("/topics/") {
        ("topic", name)
    } else if let Some(name) = above.strip_prefix("/domains/") {
        ("domain", name)
    } else {
        return false;
    };
    if !is_usual_name(name) {
        return false;
    }
    let name = name.to_owned();
    request.match_info_mut().add_static(kind, name);
    true
}

/// Whether the router would take `name` as it is, with nothing in it to decode.
fn is_usual_name(name: &str) -> bool {
    let mut bytes = name.bytes();
    !name.is_empty() && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

/// Handles a request that [`route_directly`] has routed. The caller adds the id of the request to
/// the response.
pub async fn publish_directly(
    request: ServiceRequest,
    called: RequestAuthority,
) -> actix_web::Result<ServiceResponse> {
    let (request, mut payload) = request.into_parts();
    let mut body = web::Payload::from_request(&request, &mut payload).await?;
    let publisher = web::Data::<Publisher>::extract(&request).await?;
    let response = match publisher.publish(&request, &mut body, Some(called)).await {
        Ok(()) => HttpResponse::Ok().finish(),
        Err(refusal) => respond_refused(&publisher, &refusal, body),
    };
    Ok(ServiceResponse::new(request, response))
}

/// The router's pattern of a path. As in Azure, case and a final slash do not matter.
pub fn pattern(path: &str) -> String {
    let mut pattern = String::new();
    for part in path.split('/').skip(1) {
        if let Some((name, verb)) = part.split_once("}:") {
            pattern.push_str(&format!("/{name}}}{{verb:(?i):{verb}}}"));
        } else if part.starts_with('{') {
            pattern.push_str(&format!("/{part}"));
        } else {
            pattern.push_str(&format!("/{{word_{part}:(?i){part}}}"));
        }
    }
    pattern + "{slash:/?}"
}

/// The response to an unknown path.
pub async fn not_found(publisher: web::Data<Publisher>, request: HttpRequest) -> HttpResponse {
    publisher.respond_refused(&unknown_topic(&publisher, &request))
}

async fn publish(
    publisher: web::Data<Publisher>,
    request: HttpRequest,
    mut body: web::Payload,
) -> HttpResponse {
    match publisher.publish(&request, &mut body, None).await {
        Ok(()) => HttpResponse::Ok().insert_header(request_id()).finish(),
        Err(refusal) => respond_refused(&publisher, &refusal, body),
    }
}

fn respond_refused(publisher: &Publisher, refusal: &Refusal, body: web::Payload) -> HttpResponse {
    publisher.respond_refused(refusal).map_body(|_, text| {
        RefusedResponse {
            text,
            _unread: body,
        }
        .boxed()
    })
}

/// Makes an id for support. It is not a secret, so it costs no system call.
fn request_id() -> (HeaderName, HeaderValue) {
    let id = uuid::Builder::from_random_bytes(fastrand::u128(..).to_ne_bytes()).into_uuid();
    let digits = HeaderValue::from_str(id.hyphenated().encode_lower(&mut Uuid::encode_buffer()));
    (
        REQUEST_ID,
        digits.expect("hexadecimal digits are a header's value"),
    )
}

/// A response that keeps the unread rest of the request. When a chunked body is dropped before the
/// response is sent, actix-http reads it to its end, which a client may never send. Kept, the
/// connection is closed after the response and the server's disconnect timeout.
pub(super) struct RefusedResponse {
    pub(super) text: BoxBody,
    pub(super) _unread: web::Payload,
}

impl MessageBody for RefusedResponse {
    type Error = Box<dyn std::error::Error>;

    fn size(&self) -> BodySize {
        self.text.size()
    }

    fn poll_next(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, Self::Error>>> {
        Pin::new(&mut self.text).poll_next(context)
    }
}

async fn respond_to_options(publisher: web::Data<Publisher>, request: HttpRequest) -> HttpResponse {
    match find_topic(&publisher, &request) {
        Ok(topic) => HttpResponse::Ok()
            .insert_header((ALLOW, "POST, OPTIONS"))
            .insert_header((
                "aeg-input-event-schema",
                refusal::name(&topic.record().input_schema),
            ))
            .insert_header(request_id())
            .finish(),
        Err(refusal) => publisher.respond_refused(&refusal),
    }
}

pub async fn method_not_allowed(publisher: web::Data<Publisher>) -> HttpResponse {
    publisher.respond_refused(&Refusal::Method)
}

/// The topic or domain of a request, by its path or its host.
pub(super) fn find_topic(
    publisher: &Publisher,
    request: &HttpRequest,
) -> Result<Arc<TopicHandle>, Refusal> {
    let names = request.match_info();
    let find = |kind, name| publisher.registry.find_topic(&key(kind, name));
    let candidate = match (names.get("topic"), names.get("domain")) {
        (Some(name), _) => find(TopicKind::Topic, name),
        (None, Some(name)) => find(TopicKind::Domain, name),
        (None, None) => {
            let authority = publisher.called_authority(request)?;
            // A topic takes precedence over a domain of the same name.
            authority.first_label().and_then(|label| {
                find(TopicKind::Topic, label).or_else(|| find(TopicKind::Domain, label))
            })
        }
    };
    let topic = candidate.ok_or_else(|| unknown_topic(publisher, request))?;
    check_version(publisher, request)?;
    Ok(topic)
}

/// `api-version` is optional. Any version in the right form is accepted: the request is the same in
/// all versions, and new client libraries send new ones.
pub(super) fn check_version(publisher: &Publisher, request: &HttpRequest) -> Result<(), Refusal> {
    let mut query = form_urlencoded::parse(request.query_string().as_bytes());
    match query.find(|(name, _)| name.eq_ignore_ascii_case("api-version")) {
        Some((_, version)) if !version.is_empty() && !is_version(&version) => {
            let version = Refusal::shorten_name(&version).to_owned();
            match publisher.called_authority(request) {
                Ok(called) => Err(Refusal::ApiVersion {
                    uri: called_uri(&called, request),
                    version,
                }),
                Err(refusal) => Err(refusal),
            }
        }
        Some(_) | None => Ok(()),
    }
}

/// Whether the text is a date with an optional word behind it: `2018-01-01`, `2023-06-01-preview`.
fn is_version(text: &str) -> bool {
    let Some((day, word)) = text.split_at_checked("2018-01-01".len()) else {
        return false;
    };
    let is_day = day
        .bytes()
        .all(|byte| byte.is_ascii_digit() || byte == b'-')
        && day.parse::<Date>().is_ok();
    let is_word =
        |word: &str| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_alphanumeric());
    is_day && (word.is_empty() || word.strip_prefix('-').is_some_and(is_word))
}

pub(super) fn unknown_topic(publisher: &Publisher, request: &HttpRequest) -> Refusal {
    match publisher.called_authority(request) {
        Ok(called) => Refusal::NotFound {
            uri: called_uri(&called, request),
        },
        Err(refusal) => refusal,
    }
}

/// The called URL, percent-encoded as a whole, without its query, which may contain a key.
fn called_uri(called: &RequestAuthority, request: &HttpRequest) -> String {
    form_urlencoded::byte_serialize(called.url_of_path(request.path()).as_bytes()).collect()
}
