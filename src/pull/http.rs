//! The routes of pull delivery: `POST …/topics/{topic}/eventsubscriptions/{subscription}:receive`,
//! and four like it.

use std::{convert::Infallible, sync::Arc, time::Duration};

use actix_web::{
    HttpMessage as _, HttpRequest, HttpResponse, Route,
    body::MessageBody,
    http::{Method, header::CONTENT_TYPE},
    web,
};
use futures_util::stream;
use tokio::time::{Instant, timeout};
use uuid::Uuid;

use super::{
    LockTokenSealer, NodePolls, NodeReceive, Peer,
    body::{InvalidParameter, LockTokensBody, ReceiveQuery, SettleResponse, write_received},
};
use gridhook_engine::control::{registry::TopicHandle, tokens::Token};
use gridhook_policy::record::lease::{Lease, LeaseAction, LeaseResult};
use gridhook_publish::{
    Refusal,
    auth::has_access_token,
    http::{Publisher, method_not_allowed, pattern},
    namespace::paths_below_topic,
    refusal::SasProblem,
};
use gridhook_subscription::SharedState;

/// The method of all operations.
pub const METHOD: Method = Method::POST;

/// The operations, as suffixes of the subscription's name.
pub const OPERATIONS: [&str; 5] = ["receive", "acknowledge", "release", "reject", "renewLock"];

/// How long a receive waits for another node that only checks whether there are events.
const LOOK_MAX: Duration = Duration::from_millis(250);

/// The duration of a wait after which the client's key may have been replaced.
const KEY_RECHECK_AFTER: Duration = Duration::from_secs(1);

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

/// Adds the operations to an app that has a `web::Data` of [`Publisher`], [`LockTokenSealer`] and
/// [`NodePolls`].
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
struct PullRequest {
    topic: Arc<TopicHandle>,
    shared: Arc<SharedState>,
    token: Option<Arc<Token>>,
}

impl PullRequest {
    /// Authenticates the request and finds its subscription.
    async fn authenticate(publisher: &Publisher, request: &HttpRequest) -> Result<Self, Refusal> {
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
fn deleted_subscription(topic: &TopicHandle, shared: &SharedState) -> Refusal {
    no_subscription(topic, shared.record().name.as_str())
}

async fn receive_events(
    publisher: web::Data<Publisher>,
    tokens: web::Data<LockTokenSealer>,
    polls: web::Data<NodePolls>,
    request: HttpRequest,
) -> HttpResponse {
    match begin_receive(&publisher, tokens, polls, &request).await {
        Ok(response) => response,
        Err(refusal) => publisher.refuse_in_namespace(&refusal),
    }
}

async fn begin_receive(
    publisher: &web::Data<Publisher>,
    tokens: web::Data<LockTokenSealer>,
    polls: web::Data<NodePolls>,
    request: &HttpRequest,
) -> Result<HttpResponse, Refusal> {
    let pull = PullRequest::authenticate(publisher, request).await?;
    let query = ReceiveQuery::new(request.query_string());
    let parameters = query
        .max_events()
        .and_then(|events| Ok((events, query.max_wait()?)));
    let (events_max, wait) = parameters?;
    let of_node = request.extensions().get::<NodeReceive>().copied();
    let may_have_events = pull.shared.may_have_events(publisher.now());
    let poll = Poll {
        request: request.clone(),
        publisher: publisher.clone(),
        tokens,
        polls,
        pull,
        peer: request.conn_data::<Peer>().cloned().unwrap_or_default(),
        of_node,
        events_max,
    };
    let longest = match of_node {
        Some(NodeReceive::Wait { longest, .. }) => longest,
        Some(NodeReceive::Look) if may_have_events => LOOK_MAX,
        Some(NodeReceive::Look) => return Ok(success_response(write_received(&[]))),
        None => wait,
    };
    let mut received = Box::pin(poll.receive_events(longest));
    if !matches!(of_node, Some(NodeReceive::Wait { .. })) {
        return Ok(success_response(received.await?));
    }
    let at_hand = if may_have_events {
        timeout(LOOK_MAX, received.as_mut()).await.ok()
    } else {
        None
    };
    Ok(match at_hand {
        Some(body) => success_response(body?),
        // The node learns that nothing is at hand, and reads on. The status is sent by then, so a
        // later refusal is a list without events; the next receive of the client is refused.
        None => HttpResponse::Accepted().streaming(stream::once(async move {
            let body = received.await.unwrap_or_else(|_| write_received(&[]));
            Ok::<_, Infallible>(body.into())
        })),
    })
}

/// Whether the access key is none of the resource's keys, or is not allowed.
fn is_without_key(refusal: &Refusal) -> bool {
    matches!(
        refusal,
        Refusal::NotAuthorized { .. }
            | Refusal::Sas {
                problem: SasProblem::Signature,
                ..
            }
    )
}

/// A client that waits for events.
struct Poll {
    request: HttpRequest,
    publisher: web::Data<Publisher>,
    tokens: web::Data<LockTokenSealer>,
    polls: web::Data<NodePolls>,
    pull: PullRequest,
    peer: Peer,
    of_node: Option<NodeReceive>,
    events_max: u32,
}

impl Poll {
    /// The body of the response.
    async fn receive_events(self, longest: Duration) -> Result<Vec<u8>, Refusal> {
        let Self {
            request,
            publisher,
            tokens,
            polls,
            pull:
                PullRequest {
                    topic,
                    shared,
                    token,
                },
            peer,
            of_node,
            events_max,
        } = self;
        let began = Instant::now();
        let poll = polls.begin_poll(of_node);
        let mut waiting = shared.receive_events(events_max);
        topic.ensure_actor(&shared);
        // At a stop, and when the token is revoked, long polls return the events at hand.
        let polling = async {
            tokio::select! {
                biased;
                events = waiting.next_events() => events,
                () = poll.called_off() => Vec::new(),
                () = publisher.wait_for_end_of_polls() => Vec::new(),
                () = peer.wait_until_gone() => Vec::new(),
                () = publisher.wait_for_token_end(token.as_deref()) => Vec::new(),
            }
        };
        let events = timeout(longest, polling).await.unwrap_or_default();
        if events.is_empty() && shared.is_deleted() {
            return Err(deleted_subscription(&topic, &shared));
        }
        if !events.is_empty() {
            let leases: Vec<Lease> = events.iter().map(|(lease, _)| *lease).collect();
            let topic = Arc::clone(&topic);
            let shared = Arc::clone(&shared);
            peer.unless_written(move || {
                shared.take_back_leases(leases);
                topic.ensure_actor(&shared);
            });
        }
        // An access token may expire while its client waits.
        let has_waited = began.elapsed() >= KEY_RECHECK_AFTER;
        if !events.is_empty() && has_waited && !has_access_token(&request) {
            let result = publisher.authenticate_consumer(&request).await;
            if let Err(refusal) = result
                && is_without_key(&refusal)
            {
                // Once only: if the connection failed meanwhile, another client may have them.
                peer.run_undo();
                return Err(refusal);
            }
        }
        let is_spread = topic.record().is_spread();
        let mut received = Vec::with_capacity(events.len());
        for (lease, event) in events {
            let token = tokens.seal_lease(shared.subscription_key, lease, is_spread);
            received.push((token, lease.attempt, event));
        }
        Ok(write_received(&received))
    }
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
