//! The HTTP services of a listener, and what they do with every request and response.

use std::{
    cell::RefCell,
    net::SocketAddr,
    rc::{Rc, Weak},
    sync::Arc,
};

use actix_http::{HttpService, Request, error::DispatchError};
use actix_server::GracefulShutdownSignal;
use actix_service::{
    IntoServiceFactory as _, Service, ServiceFactory, ServiceFactoryExt as _, fn_factory,
    fn_service, map_config,
};
use actix_web::{
    App, HttpResponse,
    dev::{AppConfig, ServiceRequest, ServiceResponse},
    http::header::HeaderValue,
    web,
};
use futures_util::future::{Either, FutureExt as _, TryFutureExt as _, ready};
use uuid::Uuid;

use super::{
    ConfigureServices, HeadTimeouts,
    admission::REFUSAL_WAIT,
    client_stream::{ClientStream, connection_below},
    connection::{RequestStage, TrackedBody},
    hop,
    request_heads::{RequestHeads, defer_continue},
    served_shards::RunTasks,
    write_stall::{find_write_stall, refuse_stalled, unless_stalled},
};
use gridhook_admin::request_id;
use gridhook_dashboard::{session::adopt_session, shorten_json};
use gridhook_metrics::ListenerCounters;
use gridhook_publish as publish;
use gridhook_publish::{auth::host::LocalAddress, http::Publisher};

/// The HTTP services of a listener.
#[derive(Clone)]
pub(super) struct ListenerServices {
    pub(super) address: SocketAddr,
    pub(super) timeouts: HeadTimeouts,
    pub(super) signal: GracefulShutdownSignal,
    pub(super) counters: Arc<ListenerCounters>,
    pub(super) configure: ConfigureServices,
    /// Whether its requests are forwarded ones.
    pub(super) is_hop: bool,
}

impl ListenerServices {
    /// Serves the requests of each connection. `secure`: whether they have TLS.
    pub(super) fn connection_service(
        self,
        secure: bool,
    ) -> impl ServiceFactory<ClientStream, Config = (), Response = (), Error = (), InitError = ()>
    {
        let Self {
            address,
            timeouts,
            signal,
            counters,
            configure,
            is_hop,
        } = self;
        let app = App::new()
            .configure(|config| configure(config))
            .wrap_fn(move |request, service| {
                handle_request(request, service, Arc::clone(&counters), is_hop)
            })
            .into_factory()
            .map_err(|error: actix_web::Error| error.error_response());
        let app = map_config(app, |()| AppConfig::default());
        let http = HttpOptions {
            address,
            secure,
            timeouts,
            signal,
        };
        fn_service(|stream: ClientStream| {
            let peer = connection_below(&stream).peer();
            ready(Ok((RequestHeads::new(stream), Some(peer))))
        })
        .and_then(fn_factory(move || {
            let http = http.clone();
            app.new_service(()).map_ok(move |app| {
                let app = Rc::new(app);
                serve_while_connected(move || http.clone().serve_app(Rc::clone(&app)))
            })
        }))
    }
}

/// A connection, and the address of its peer.
type AcceptedConnection = (RequestHeads, Option<SocketAddr>);

/// What the HTTP library needs for the connections of a listener.
#[derive(Clone)]
struct HttpOptions {
    address: SocketAddr,
    secure: bool,
    timeouts: HeadTimeouts,
    signal: GracefulShutdownSignal,
}

impl HttpOptions {
    fn serve_app<S>(
        self,
        app: Rc<S>,
    ) -> impl ServiceFactory<AcceptedConnection, Config = (), Response = (), Error = (), InitError = ()>
    where
        S: Service<
                Request,
                Response = ServiceResponse<TrackedBody>,
                Error = HttpResponse,
                Future: 'static,
            > + 'static,
    {
        let Self {
            address,
            secure,
            timeouts,
            signal,
        } = self;
        HttpService::build()
            .graceful_shutdown_signal(move || {
                let signal = signal.clone();
                async move { signal.notified().await }
            })
            .keep_alive(timeouts.idle)
            .client_request_timeout(timeouts.head)
            .client_disconnect_timeout(REFUSAL_WAIT)
            .local_addr(address)
            .on_connect_ext(move |stream: &RequestHeads, extensions| {
                let connection = connection_below(stream.get_ref());
                let stage = connection.stage();
                extensions.insert(stage.peer().clone());
                extensions.insert(stage);
                extensions.insert(LocalAddress {
                    address: connection.local().unwrap_or(address),
                    secure,
                });
            })
            .h1(fn_factory(move || ready(Ok::<_, ()>(Rc::clone(&app)))))
            .map_err(|_: DispatchError| ())
    }
}

/// Passes a request to the services of the app, or refuses it before.
fn handle_request<S>(
    mut request: ServiceRequest,
    service: &S,
    counters: Arc<ListenerCounters>,
    is_hop: bool,
) -> impl Future<Output = actix_web::Result<ServiceResponse<TrackedBody>>> + use<S>
where
    S: Service<ServiceRequest, Response = ServiceResponse, Error = actix_web::Error>,
{
    let stage = begin_request(&mut request, is_hop);
    let id = request_id::new();
    let open_request = OpenRequest {
        stage,
        id,
        correlation_id: request_id::correlation_id(request.request()),
        counters,
        is_hop,
    };
    let stall = find_write_stall(&request);
    let publisher = request.app_data::<web::Data<Publisher>>();
    let host = publisher.map(|publisher| publisher.check_host(request.request()));
    let early_response = match (publisher, &host) {
        (Some(publisher), Some(Err(refusal))) => Some(publisher.respond_refused(refusal)),
        _ => refuse_stalled(stall.as_ref()),
    };
    let response = match early_response {
        Some(refusal) => Either::Left(ready(Ok(request.into_response(refusal)))),
        None => {
            let authority = host.and_then(Result::ok);
            let direct = authority.filter(|_| publish::http::route_directly(&mut request));
            let response = match direct {
                Some(authority) => Either::Left(Box::pin(publish::http::publish_directly(
                    request, authority,
                ))),
                None => Either::Right(service.call(request)),
            };
            Either::Right(unless_stalled(response, stall))
        }
    };
    // Not an async block: it would have the future of the response twice.
    request_id::with_id(id, response).map(move |result| match result {
        Ok(response) => Ok(open_request.finish(response)),
        Err(error) => Err(open_request.fail(error)),
    })
}

/// Notes that the head of a request has come, and prepares the request for the services of the app.
fn begin_request(request: &mut ServiceRequest, is_hop: bool) -> Option<Rc<RequestStage>> {
    if is_hop {
        hop::adopt_client(request);
    }
    let stage = request.conn_data::<Rc<RequestStage>>().cloned();
    if let Some(stage) = &stage {
        if let Some(shard) = stage.shard() {
            request.add_data_container(Rc::clone(&shard.data));
        }
        if let Some(shards) = stage.pulled_shards() {
            hop::adopt_receive(request, shards);
        }
        stage.request_started();
        defer_continue(request, stage);
    }
    adopt_session(request);
    stage
}

/// A request without a response yet.
struct OpenRequest {
    stage: Option<Rc<RequestStage>>,
    id: Uuid,
    correlation_id: Option<HeaderValue>,
    counters: Arc<ListenerCounters>,
    is_hop: bool,
}

impl OpenRequest {
    fn finish(self, mut response: ServiceResponse) -> ServiceResponse<TrackedBody> {
        if let Some(stage) = &self.stage {
            stage.response_started();
        }
        request_id::add(response.headers_mut(), self.id, self.correlation_id);
        self.counters.count_response(response.status().as_u16());
        // At a hop, the node that the client called drops the body, after the parts of several
        // shards were joined.
        if !self.is_hop {
            response = drop_body_of_head(response);
        }
        response.map_body(|_, body| TrackedBody::new(body, self.stage))
    }

    fn fail(self, error: actix_web::Error) -> actix_web::Error {
        let status = error.as_response_error().status_code();
        self.counters.count_response(status.as_u16());
        if let Some(stage) = &self.stage {
            stage.response_started();
            stage.end();
        }
        error
    }
}

fn drop_body_of_head(response: ServiceResponse) -> ServiceResponse {
    let (request, response) = response.into_parts();
    let response = shorten_json(&request, response);
    ServiceResponse::new(request, response)
}

/// Makes an HTTP service for the first connection of a thread, and drops it with the last one.
/// actix-http renews its clock twice a second while the service exists, and would wake each thread
/// of an idle server.
///
/// The requests of other nodes are served among the tasks of their shard's run. The task of the
/// clock is not one of them: the connections for all shards share the service.
fn serve_while_connected<Factory>(
    new_http: impl Fn() -> Factory + 'static,
) -> impl Service<AcceptedConnection, Response = (), Error = ()>
where
    Factory: ServiceFactory<AcceptedConnection, Config = (), Response = (), Error = (), InitError = ()>
        + 'static,
{
    let new_http = Rc::new(new_http);
    let shared: Rc<RefCell<Weak<Factory::Service>>> = Rc::default();
    let run_tasks = Rc::new(RunTasks::default());
    fn_service(move |connection: AcceptedConnection| {
        let new_http = Rc::clone(&new_http);
        let shared = Rc::clone(&shared);
        let run_tasks = Rc::clone(&run_tasks);
        async move {
            let open_http = shared.borrow().upgrade();
            let http = match open_http {
                Some(http) => http,
                None => {
                    let http = Rc::new(new_http().new_service(()).await?);
                    shared.replace(Rc::downgrade(&http));
                    http
                }
            };
            let stage = connection_below(connection.0.get_ref()).stage();
            match stage.shard() {
                None => http.call(connection).await,
                Some(shard) => {
                    let serving = async move { http.call(connection).await };
                    let served = run_tasks.spawn(&shard.run, serving).await;
                    served.unwrap_or(Err(()))
                }
            }
        }
    })
}
