//! A fixture: a control plane on a registry in memory, called over HTTP.

use std::{path::Path, sync::Arc, time::Duration};

use actix_web::{
    App, HttpMessage as _,
    body::MessageBody,
    dev::{Service, ServiceResponse},
    http::{Method, header::HeaderMap},
    test, web,
};
use gridhook::{
    admin::{
        self, ChaosMode, Control, ListenerRole, admin_token, health::ServerHealth,
        metrics::MetricsAccess,
    },
    clock::{Clock, ManualClock},
    control::{
        audit::{AuditLimits, AuditTrail},
        registry::Registry,
    },
    dead_letter::{
        self, DeadLetterStores, Redrives, Sink, SubscriptionDirectory, event::DeadLetterEvent,
    },
    event::{Lane, SubscriptionKey, chunk::SealedChunk},
    journal,
    policy::record::{RedrivePage, job::Job},
    publish::{OneOfShards, auth::bearer::TokenIssuer},
};
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::editions;
use crate::support::{
    memory_store::MemoryStore,
    publisher::{journal, journaled_registry, running_registry},
};

pub(super) const TOKEN: &str = "swordfish";
pub(super) const RG: &str = "/subscriptions/S-1/resourceGroups/rg/providers/Microsoft.EventGrid";

pub(super) struct ControlFixture {
    pub(super) store: MemoryStore,
    pub(super) hand: ManualClock,
    pub(super) clock: Clock,
    pub(super) registry: Arc<Registry>,
    pub(super) vitals: web::Data<ServerHealth>,
    pub(super) state: Arc<Mutex<journal::JournalState>>,
    control: web::Data<Control>,
    token: web::Data<admin_token::AdminToken>,
    chaos: ChaosMode,
}

pub(super) struct Response {
    pub(super) status: u16,
    pub(super) headers: HeaderMap,
    pub(super) text: String,
}

impl Response {
    pub(super) fn json(&self) -> Value {
        serde_json::from_str(&self.text).expect("it is JSON")
    }

    pub(super) fn brief(&self) -> String {
        format!("{} {}", self.status, self.text)
    }
}

impl ControlFixture {
    pub(super) fn new(chaos: ChaosMode) -> Self {
        let store = MemoryStore::new();
        let (registry, clock, hand) = running_registry(&store);
        Self::over(store, registry, clock, hand, chaos)
    }

    pub(super) fn over(
        store: MemoryStore,
        registry: Arc<Registry>,
        clock: Clock,
        hand: ManualClock,
        chaos: ChaosMode,
    ) -> Self {
        let state = Arc::new(Mutex::new(journal::JournalState::Writable));
        let reported = Arc::clone(&state);
        let token = admin_token::load_or_create(Some(TOKEN), std::path::Path::new("/nowhere"))
            .expect("it is taken");
        Self {
            control: web::Data::new(
                Control::new(
                    Arc::clone(&registry),
                    clock.clone(),
                    editions(),
                    "http://here".to_owned(),
                )
                .with_dead_letters(no_letters()),
            ),
            vitals: web::Data::new(ServerHealth::new(move || *reported.lock())),
            token: web::Data::new(token),
            store,
            hand,
            clock,
            registry,
            state,
            chaos,
        }
    }

    /// A fixture with an audit trail of so many changes.
    pub(super) fn audited(records: usize) -> Self {
        Self::audited_over(MemoryStore::new(), records)
    }

    /// The same over a store that may have a trail.
    pub(super) fn audited_over(store: MemoryStore, records: usize) -> Self {
        let (registry, journal, clock, hand) = journaled_registry(&store, Duration::from_secs(1));
        let limits = AuditLimits {
            records,
            retention: Duration::from_secs(24 * 60 * 60),
        };
        let trail = AuditTrail::recover(journal, limits, None).expect("a trail");
        let control = Control::new(
            Arc::clone(&registry),
            clock.clone(),
            editions(),
            "http://here".to_owned(),
        );
        let fixture = Self::over(store, registry, clock, hand, ChaosMode::Disabled);
        Self {
            control: web::Data::new(control.with_audit_trail(trail)),
            ..fixture
        }
    }

    /// The same with `server.dashboard = false`.
    pub(super) fn without_dashboard(self) -> Self {
        let control = Control::new(
            Arc::clone(&self.registry),
            self.clock.clone(),
            editions(),
            "http://here".to_owned(),
        );
        Self {
            control: web::Data::new(control.with_dashboard(false)),
            ..self
        }
    }

    /// Continues the history of this file.
    pub(super) fn with_history_file(self, path: &Path) -> Self {
        let control = Control::new(
            Arc::clone(&self.registry),
            self.clock.clone(),
            editions(),
            "http://here".to_owned(),
        );
        Self {
            control: web::Data::new(control.with_history_file(path.to_owned())),
            ..self
        }
    }

    pub(super) fn save_history(&self) {
        self.control.save_history();
    }

    /// Adds the present figures to the windows and the history.
    pub(super) fn record_figures(&self) {
        self.control.record_figures();
    }

    /// The recorder of the history, which a server runs until it ends.
    pub(super) fn recorder(&self) -> impl Future<Output = ()> {
        admin::record_history(self.control.clone())
    }

    /// The same with access tokens of this issuer.
    pub(super) fn with_issuer(self, issuer: TokenIssuer) -> Self {
        let mut control = Control::new(
            Arc::clone(&self.registry),
            self.clock.clone(),
            editions(),
            "http://here".to_owned(),
        );
        control.operators = Some(issuer);
        Self {
            control: web::Data::new(control),
            ..self
        }
    }

    pub(super) async fn send(&self, request: test::TestRequest) -> Response {
        finish(self.respond(request).await).await
    }

    fn configure(&self, cfg: &mut web::ServiceConfig) {
        cfg.app_data(self.control.clone())
            .app_data(self.token.clone())
            .app_data(self.vitals.clone());
        gridhook::admin::configure(cfg, self.chaos, ListenerRole::Both);
    }

    /// The response, with its body unread.
    pub(super) async fn respond(
        &self,
        request: test::TestRequest,
    ) -> Result<ServiceResponse, actix_web::Error> {
        let app = test::init_service(App::new().configure(|cfg| self.configure(cfg))).await;
        app.call(request.to_request()).await
    }

    /// The response to a node that asks each shard of a cluster.
    pub(super) async fn part(&self, path: &str) -> Response {
        let app = test::init_service(App::new().configure(|cfg| self.configure(cfg))).await;
        let request = test::TestRequest::with_uri(path)
            .insert_header(("Authorization", format!("Bearer {TOKEN}")));
        let request = request.to_request();
        request.extensions_mut().insert(OneOfShards);
        finish(app.call(request).await).await
    }

    /// Lets the holder of this token read the metrics of the server.
    pub(super) fn let_read_metrics(&self, token: &str) {
        let token =
            admin_token::AdminToken::from_setting("metrics.token", token).expect("it is taken");
        self.control
            .set_metrics_access(MetricsAccess::Token(Some(token)));
    }

    /// Puts these bytes, whatever they are.
    pub(super) async fn put_bytes(&self, path: &str, body: &[u8]) -> Response {
        let request = test::TestRequest::with_uri(path).method(Method::PUT);
        let request = request.insert_header(("Authorization", format!("Bearer {TOKEN}")));
        self.send(request.set_payload(body.to_vec())).await
    }

    pub(super) async fn call(&self, method: &str, path: &str, body: Value) -> Response {
        self.call_if(method, path, &[], body).await
    }

    pub(super) async fn call_if(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Value,
    ) -> Response {
        let method = Method::from_bytes(method.as_bytes()).expect("a method");
        let mut request = test::TestRequest::with_uri(path)
            .method(method)
            .insert_header(("Authorization", format!("Bearer {TOKEN}")));
        for header in headers {
            request = request.append_header(*header);
        }
        if !body.is_null() {
            request = request.set_payload(body.to_string());
        }
        self.send(request).await
    }

    pub(super) async fn with_topic(self) -> Self {
        assert_eq!(
            self.call("PUT", &format!("{RG}/topics/orders"), json!({}))
                .await
                .status,
            201
        );
        self
    }

    pub(super) async fn with_subscription(self) -> Self {
        let control = self.with_topic().await;
        let response = control
            .call(
                "PUT",
                &format!("{RG}/topics/orders/eventSubscriptions/to-shop"),
                hook(),
            )
            .await;
        assert_eq!(response.status, 201, "{}", response.text);
        control
    }
}

/// Nothing was ever given up.
fn no_letters() -> Redrives {
    let (journal, clock, _) = journal(&MemoryStore::new());
    let sink = Sink::over_store(Arc::new(object_store::memory::InMemory::new()));
    let aim: dead_letter::TargetLookup = Box::new(|_| None);
    let stores = [("folder".to_owned(), sink)];
    let stores = DeadLetterStores::new(
        &journal,
        &clock,
        stores,
        aim,
        None,
        dead_letter::WriterOptions::default(),
    );
    Redrives::new(journal, clock, stores, Arc::new(Nobody))
}

/// No event subscription has dead letters.
struct Nobody;

impl SubscriptionDirectory for Nobody {
    fn running_redrives(&self) -> Vec<(SubscriptionKey, Lane)> {
        Vec::new()
    }

    fn namesakes(&self, _: SubscriptionKey) -> Vec<SubscriptionKey> {
        Vec::new()
    }

    fn is_custom(&self, _: SubscriptionKey) -> Option<bool> {
        None
    }

    fn running_job(&self, _: SubscriptionKey, _: Lane) -> Option<Job> {
        None
    }

    fn convert_dead_letter(
        &self,
        _: SubscriptionKey,
        _: &DeadLetterEvent,
    ) -> Result<SealedChunk, String> {
        Err("there is none".to_owned())
    }

    fn redrive_page(
        &self,
        _: SubscriptionKey,
        _: RedrivePage,
    ) -> std::pin::Pin<Box<dyn Future<Output = bool> + Send>> {
        Box::pin(std::future::ready(false))
    }
}

async fn finish<B: MessageBody + 'static>(
    response: Result<ServiceResponse<B>, actix_web::Error>,
) -> Response {
    let response = match response {
        Ok(response) => response.map_into_boxed_body().into_parts().1,
        Err(error) => error.error_response(),
    };
    let status = response.status().as_u16();
    let headers = response.headers().clone();
    let body = actix_web::body::to_bytes(response.into_body())
        .await
        .expect("a body");
    Response {
        status,
        headers,
        text: String::from_utf8(body.to_vec()).expect("it is text"),
    }
}

pub(super) fn hook() -> Value {
    json!({"properties": {"destination": {"endpointType": "WebHook",
        "properties": {"endpointUrl": "http://127.0.0.1:9000/hook?code=secret"}}}})
}
