//! The routes of pull delivery: `POST …/topics/{topic}/eventsubscriptions/{subscription}:receive`,
//! and four like it.

use std::{future::pending, sync::Arc};

use actix_web::{
    HttpRequest, HttpResponse, Route,
    body::MessageBody,
    http::{Method, header::CONTENT_TYPE},
    web,
};
use uuid::Uuid;

use super::{
    LockTokenSealer,
    body::{InvalidParameter, LockTokensBody, ReceiveQuery, SettleResponse},
    poll::{LongPoll, PartPoll},
};
use gridhook_engine::control::{registry::TopicHandle, tokens::Token};
use gridhook_policy::record::lease::{Lease, LeaseAction, LeaseResult};
use gridhook_publish::{
    Refusal,
    http::{Publisher, method_not_allowed, pattern},
    namespace::paths_below_topic,
};
use gridhook_subscription::SharedState;

/// The method of all operations.
pub const METHOD: Method = Method::POST;

/// The operations, as suffixes of the subscription's name.
pub const OPERATIONS: [&str; 5] = ["receive", "acknowledge", "release", "reject", "renewLock"];

/// The maximum size of a list of lock tokens.
const BODY_BYTES: usize = 64 * 1024;

/// The operation that receives events.
pub const RECEIVE: &str = OPERATIONS[0];

pub fn operation_paths(operation: &str) -> [String; 2] {
    paths_below_topic(&format!("/eventsubscriptions/{{subscription}}:{operation}"))
}

/// All operations, each with its paths in each spelling: the first preview of the API used lower
/// case.
pub fn spelled_paths() -> impl Iterator<Item = (&'static str, String)> {
    OPERATIONS.into_iter().flat_map(|operation| {
        let lower = operation.to_ascii_lowercase();
        let spellings = [
            Some(operation.to_owned()),
            Some(lower).filter(|lower| lower != operation),
        ];
        spellings
            .into_iter()
            .flatten()
            .flat_map(|spelling| operation_paths(&spelling))
            .map(move |path| (operation, path))
    })
}

/// Adds the operations to an app that has a `web::Data` of [`Publisher`] and [`LockTokenSealer`].
pub fn configure(config: &mut web::ServiceConfig) {
    for (operation, path) in spelled_paths() {
        let resource = web::resource(pattern(&path)).default_service(web::to(method_not_allowed));
        let route = web::method(METHOD);
        config.service(resource.route(match operation {
            RECEIVE => route.to(receive_events),
            "acknowledge" => settle_route(route, |_| Ok(LeaseAction::Acknowledge)),
            "release" => settle_route(route, |query| {
                query.release_delay().map(LeaseAction::Release)
            }),
            "reject" => settle_route(route, |_| Ok(LeaseAction::Reject)),
            _ => settle_route(route, |_| Ok(LeaseAction::Renew)),
        }));
    }
}

/// The subscription of a request.
pub(super) struct PullRequest {
    pub(super) topic: Arc<TopicHandle>,
    pub(super) shared: Arc<SharedState>,
    pub(super) token: Option<Arc<Token>>,
}

impl PullRequest {
    /// Authenticates the request and finds its subscription.
    pub(super) async fn authenticate(
        publisher: &Publisher,
        request: &HttpRequest,
    ) -> Result<Self, Refusal> {
        let (entered, token) = publisher.authenticate_consumer(request).await?;
        let name = request.match_info().get("subscription").unwrap_or_default();
        let Some(state) = entered.topic.find_shared_state(name) else {
            return Err(no_subscription(&entered.topic, name));
        };
        if !state.plan().record.is_pulled() {
            return Err(Refusal::Parameter {
                why: "The event subscription has push delivery; expected deliveryMode Queue"
                    .to_owned(),
            });
        }
        Ok(Self {
            topic: entered.topic,
            shared: state,
            token,
        })
    }
}

fn no_subscription(topic: &TopicHandle, name: &str) -> Refusal {
    let topic = topic.record();
    let membership = topic.namespace.as_ref();
    Refusal::NoSubscription {
        namespace: membership.map_or(String::new(), |namespace| namespace.name.to_string()),
        topic: topic.name.to_string(),
        subscription: Refusal::shorten_name(name).to_owned(),
    }
}

/// The refusal of a request whose subscription was deleted in the meantime.
pub(super) fn deleted_subscription(topic: &TopicHandle, shared: &SharedState) -> Refusal {
    no_subscription(topic, shared.record().name.as_str())
}

async fn receive_events(
    publisher: web::Data<Publisher>,
    tokens: web::Data<LockTokenSealer>,
    request: HttpRequest,
) -> HttpResponse {
    match wait_for_events(&publisher, tokens, &request).await {
        Ok(body) => success_response(body),
        Err(refusal) => publisher.refuse_in_namespace(&refusal),
    }
}

/// The body of the response to a client that receives events.
async fn wait_for_events(
    publisher: &web::Data<Publisher>,
    tokens: web::Data<LockTokenSealer>,
    request: &HttpRequest,
) -> Result<Vec<u8>, Refusal> {
    let pull = PullRequest::authenticate(publisher, request).await?;
    let query = ReceiveQuery::new(request.query_string());
    let events_max = query.max_events()?;
    let longest = query.max_wait()?;
    let part = PartPoll::new(publisher.clone(), tokens, pull, pending());
    let mut poll = LongPoll::new(request, events_max, vec![part]);
    poll.begin();
    poll.wait_at_most(longest).await;
    poll.finish().await
}

/// What an operation does to the leases that it names.
type ActionOf = fn(&ReceiveQuery<'_>) -> Result<LeaseAction, InvalidParameter>;

/// The route of an operation on leases.
fn settle_route(route: Route, action: ActionOf) -> Route {
    route.to(
        move |publisher: web::Data<Publisher>,
              tokens: web::Data<LockTokenSealer>,
              request: HttpRequest,
              body: web::Payload| async move {
            settle_events(&publisher, &tokens, &request, body, action).await
        },
    )
}

async fn settle_events(
    publisher: &Publisher,
    tokens: &LockTokenSealer,
    request: &HttpRequest,
    mut body: web::Payload,
    action: ActionOf,
) -> HttpResponse {
    let work = async {
        let PullRequest { topic, shared, .. } =
            PullRequest::authenticate(publisher, request).await?;
        let query = ReceiveQuery::new(request.query_string());
        let action = action(&query)?;
        let body = publisher
            .read_body(request, &topic, &mut body, BODY_BYTES)
            .await?;
        let tokens_given = LockTokensBody::read(&body)?;
        let response = settle_all(&topic, &shared, tokens, action, tokens_given).await?;
        Ok(if query.has_2023_fields() {
            response.with_2023_fields()
        } else {
            response
        })
    };
    match work.await {
        Ok(response) => {
            success_response(serde_json::to_string(&response).expect("strings are always written"))
        }
        Err(refusal) => publisher.refuse_in_namespace(&refusal),
    }
}

async fn settle_all(
    topic: &Arc<TopicHandle>,
    shared: &SharedState,
    tokens: &LockTokenSealer,
    verb: LeaseAction,
    given: LockTokensBody,
) -> Result<SettleResponse, Refusal> {
    let tokens_by_validity = given
        .lock_tokens
        .into_iter()
        .map(|token| (tokens.open(shared.subscription_key, &token), token));
    let (good, bad): (Vec<_>, Vec<_>) = tokens_by_validity.partition(|(lease, _)| lease.is_some());
    let leases: Vec<Lease> = good.iter().filter_map(|(lease, _)| *lease).collect();
    let mut response = SettleResponse::default();
    let verdicts: Vec<LeaseResult> = if leases.is_empty() {
        Vec::new()
    } else {
        let answer = shared.claim_leases(verb, leases);
        topic.ensure_actor(shared);
        match answer.await {
            Ok(verdicts) => verdicts,
            Err(_) if shared.is_deleted() => return Err(deleted_subscription(topic, shared)),
            // The actor ended meanwhile: the result is unknown.
            Err(_) => Vec::new(),
        }
    };
    for (index, (_, token)) in good.into_iter().enumerate() {
        response.add(token, verdicts.get(index).copied());
    }
    for (_, token) in bad {
        response.add_bad(token);
    }
    Ok(response)
}

/// The response to a request that succeeded.
pub fn success_response(body: impl MessageBody + 'static) -> HttpResponse {
    HttpResponse::Ok()
        .insert_header(("x-ms-request-id", Uuid::new_v4().to_string()))
        .insert_header((CONTENT_TYPE, "application/json; charset=utf-8"))
        .body(body)
}
