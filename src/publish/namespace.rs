//! Topics of namespaces, as publishers and consumers address them.
//!
//! A client that has an endpoint ending in the namespace's name calls
//! `/namespaces/{namespace}/topics/{topic}:publish`. As in Azure, `/topics/{topic}:publish` works
//! at a host whose first label is the namespace's name. A server with exactly one namespace needs
//! no name.
//!
//! The keys of a namespace, and those of its topic, are valid for publishing and for consuming.

use std::sync::Arc;

use actix_web::{
    HttpMessage as _, HttpRequest, HttpResponse, body::MessageBody, http::Method, web,
};
use uuid::Uuid;

use super::{
    OneOfShards, Refusal,
    http::{Publisher, RefusedResponse, check_version, method_not_allowed, pattern, unknown_topic},
};
use gridhook_engine::control::registry::TopicHandle;
use gridhook_record::{namespace::NamespaceRecord, topic::key_in_namespace};

/// The method of a publish request.
pub const METHOD: Method = Method::POST;

/// The suffix of a publish path.
const PUBLISH: &str = ":publish";

/// The paths of a publish request.
pub fn publish_paths() -> [String; 2] {
    paths_below_topic(PUBLISH)
}

/// The two paths of an operation on a topic of a namespace.
pub fn paths_below_topic(below: &str) -> [String; 2] {
    ["", "/namespaces/{namespace}"].map(|above| format!("{above}/topics/{{topic}}{below}"))
}

pub(super) fn configure(config: &mut web::ServiceConfig) {
    for path in publish_paths() {
        let resource = web::resource(pattern(&path))
            .route(web::method(METHOD).to(publish_to_namespace))
            .default_service(web::to(method_not_allowed));
        config.service(resource);
    }
}

/// The topic that a request matched.
pub struct PublishRoute {
    pub namespace: Arc<NamespaceRecord>,
    pub topic: Arc<TopicHandle>,
}

/// Finds the topic of a request.
pub(super) fn find_route(
    publisher: &Publisher,
    request: &HttpRequest,
) -> Result<PublishRoute, Refusal> {
    check_version(publisher, request)?;
    let registry = &publisher.registry;
    let names = request.match_info();
    let topic = names
        .get("topic")
        .ok_or_else(|| unknown_topic(publisher, request))?;
    let namespace = match names.get("namespace") {
        Some(name) => registry.find_namespace(name),
        None => {
            let authority = publisher.called_authority(request)?;
            let namespace_of_host = authority
                .first_label()
                .and_then(|label| registry.find_namespace(label));
            if namespace_of_host.is_none() && !request.extensions().contains::<OneOfShards>() {
                registry.sole_namespace()
            } else {
                namespace_of_host
            }
        }
    };
    let namespace = namespace.ok_or(Refusal::NoNamespace)?;
    let name = namespace.name.as_str();
    match registry.find_topic(&key_in_namespace(name, topic)) {
        Some(topic) => Ok(PublishRoute { namespace, topic }),
        None => {
            let topic = Refusal::shorten_name(topic).to_owned();
            Err(Refusal::NoTopic {
                namespace: name.to_owned(),
                topic,
            })
        }
    }
}

async fn publish_to_namespace(
    publisher: web::Data<Publisher>,
    request: HttpRequest,
    mut body: web::Payload,
) -> HttpResponse {
    match publisher.publish_in_namespace(&request, &mut body).await {
        Ok(()) => HttpResponse::Ok()
            .insert_header(("x-ms-request-id", Uuid::new_v4().to_string()))
            .json(serde_json::Map::new()),
        Err(refusal) => publisher.refuse_in_namespace(&refusal).map_body(|_, text| {
            RefusedResponse {
                text,
                _unread: body,
            }
            .boxed()
        }),
    }
}
