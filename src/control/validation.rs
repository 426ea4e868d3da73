//! Asks endpoints whether they may be called, and tells them that a subscription is gone.
//!
//! Invariants:
//! - A question always ends: an endpoint is asked [`TRIES`] times, each time within its wait.
//! - A [`ValidationCode`] keeps a hash of its token. The token itself is only in the address that the endpoint was told.
//! - A farewell is best effort: it holds up nobody, its answer means nothing, and there are never more than
//!   `FAREWELLS_MAX` on their way.
//!
//! Absent on purpose: what a yes or a no does to a subscription. That is the registry's.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use tokio::sync::Semaphore;
use uuid::Uuid;

use crate::{
    clock::Clock,
    deliver::{
        self, RequestTimeouts,
        handshake::{ValidationEventKind, farewell, permission_request, validation_request},
        request::ORIGIN,
    },
    event::Timestamp,
    policy::{
        outcome::Outcome,
        validation::{self, Handshake, HandshakeTimes, TRIES, ValidationFailure, ValidationResponse, ValidationResult},
    },
    subscription::{clients, plan::DeliveryPlan},
};

/// Farewells on their way at the same time. A topic with more subscriptions is deleted seldom, and the rest of them hear
/// nothing.
const FAREWELLS_MAX: usize = 64;

/// So long a farewell may take: nobody waits for it.
const FAREWELL_WAIT: Duration = Duration::from_secs(10);

/// How the manual way is addressed: the version of Azure's interface that it looks like.
const API_VERSION: &str = "2025-02-15";

/// How endpoints are asked.
#[derive(Clone, Debug)]
pub struct ValidationSettings {
    /// Whether they are asked at all.
    pub validate: bool,
    /// How that is timed.
    pub times: HandshakeTimes,
    /// How many requests a minute a CloudEvents endpoint is asked for.
    pub rate: u32,
    /// The address that the server is reached at, for the manual way.
    pub public_url: String,
}

/// Asks, and takes leave.
pub struct EndpointValidator {
    client: deliver::ClientOptions,
    clock: Clock,
    validation: ValidationSettings,
    farewells: Arc<Semaphore>,
    /// The tickets of questions that have no answer yet.
    asking: Mutex<HashSet<String>>,
}

/// By which an endpoint may give its word later.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ValidationCode {
    /// Which one it is.
    pub id: String,
    /// The hash of its token.
    token: [u8; 32],
    /// Until when it is good, in microseconds.
    until: u64,
}

impl ValidationCode {
    /// Whether `token` is its token. How long it takes tells nothing of where they differ.
    pub fn is(&self, token: &str) -> bool {
        let given: [u8; 32] = Sha256::digest(token).into();
        given.ct_eq(&self.token).into()
    }

    /// Until when it is good.
    pub fn until(&self) -> Timestamp {
        Timestamp(self.until)
    }
}

/// How an endpoint may say yes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfirmationMethod {
    /// In its answer, or later.
    AtLeisure,
    /// In its answer, or not at all: so it is in namespaces, which also ask for no rate.
    AtOnce,
}

/// What an endpoint said.
#[derive(Clone, Debug)]
pub struct ValidationAnswer {
    /// What follows from it.
    pub verdict: ValidationResult,
    /// The status, if there was an answer.
    pub status: Option<u16>,
    /// By which it may say more.
    pub ticket: ValidationCode,
}

/// A question under way. It ends with this, whatever becomes of whoever asked.
pub struct ValidationInProgress<'a> {
    validator: &'a EndpointValidator,
    id: String,
}

impl Drop for ValidationInProgress<'_> {
    fn drop(&mut self) {
        self.validator.in_progress().remove(&self.id);
    }
}

impl EndpointValidator {
    /// A greeter that calls like a delivery does.
    pub fn new(client: deliver::ClientOptions, clock: Clock, validation: ValidationSettings) -> Self {
        let farewells = Arc::new(Semaphore::new(FAREWELLS_MAX));
        Self { client, clock, validation, farewells, asking: Mutex::default() }
    }

    /// Whether endpoints are asked at all.
    pub fn validates(&self) -> bool {
        self.validation.validate
    }

    /// What time it is.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Whether the question of this ticket is still under way.
    pub fn is_in_progress(&self, ticket: &str) -> bool {
        self.in_progress().contains(ticket)
    }

    /// Asks the endpoint of `plan`, a subscription of the topic with the resource id `topic`. What is returned beside the
    /// answer is to be held until the answer is in force: meanwhile the ticket is known to be early, not wrong.
    pub async fn validate(
        &self,
        plan: &DeliveryPlan,
        topic: &str,
        answering: ConfirmationMethod,
    ) -> (ValidationAnswer, ValidationInProgress<'_>) {
        let (id, token) = (Uuid::new_v4(), format!("{}{}", Uuid::new_v4().simple(), Uuid::new_v4().simple()));
        let (now, code) = (self.clock.now(), id.to_string().to_uppercase());
        let url = self.validation_url(plan, &id, now, &token);
        let asking = ValidationInProgress { validator: self, id: id.to_string() };
        self.in_progress().insert(asking.id.clone());
        let event_id = Uuid::new_v4().to_string();
        let occasion = ValidationEventKind { id: &event_id, topic, now };
        let (verdict, status) = match self.send_validation(plan, &occasion, &code, &url, answering).await {
            Err(cause) => (ValidationResult::Refused(cause), None),
            // Nobody is called whose events are pulled.
            Ok(None) => (ValidationResult::Granted(None), None),
            Ok(Some((handshake, heard))) => {
                let verdict = match (handshake, answering) {
                    (Handshake::EventGrid, _) => validation::judge_code(&code, &heard),
                    (Handshake::CloudEvents, ConfirmationMethod::AtLeisure) => {
                        validation::judge_permission(ORIGIN, &heard)
                    }
                    (Handshake::CloudEvents, ConfirmationMethod::AtOnce) => validation::judge_at_once(ORIGIN, &heard),
                };
                (verdict, Some(heard.status))
            }
        };
        let until = self.clock.now().after(self.validation.times.window).0;
        let ticket = ValidationCode { id: asking.id.clone(), token: Sha256::digest(token).into(), until };
        (ValidationAnswer { verdict, status, ticket }, asking)
    }

    /// Asks; an endpoint that is silent is asked again after a pause.
    async fn send_validation(
        &self,
        plan: &DeliveryPlan,
        occasion: &ValidationEventKind<'_>,
        code: &str,
        url: &str,
        answering: ConfirmationMethod,
    ) -> Result<Option<(Handshake, ValidationResponse)>, ValidationFailure> {
        let Some(destination) = &plan.destination else { return Ok(None) };
        let handshake = Handshake::of(destination.schema());
        let outgoing = match handshake {
            Handshake::EventGrid => validation_request(destination, occasion, code, url),
            Handshake::CloudEvents => {
                let later = (answering == ConfirmationMethod::AtLeisure).then_some((url, self.validation.rate));
                permission_request(destination, later)
            }
        };
        let HandshakeTimes { answer, pause, window: _ } = self.validation.times;
        let client =
            clients::client(&self.client, plan.record.webhook.client_certificate.as_deref()).map_err(|missing| {
                ValidationFailure::Unanswered { outcome: Outcome::SocketError, detail: missing.to_string() }
            })?;
        let _place = client.sockets().take();
        let mut said = client.send_handshake(handshake, destination, &outgoing, answer).await;
        for _ in 1..TRIES {
            if !matches!(&said, Err(ValidationFailure::Unanswered { outcome: Outcome::TimedOut, .. })) {
                break;
            }
            tokio::time::sleep(pause).await;
            said = client.send_handshake(handshake, destination, &outgoing, answer).await;
        }
        said.map(|heard| Some((handshake, heard)))
    }

    fn validation_url(&self, plan: &DeliveryPlan, id: &Uuid, now: Timestamp, token: &str) -> String {
        let ValidationSettings { public_url, .. } = &self.validation;
        let name = plan.record.name.as_str();
        format!(
            "{public_url}/eventsubscriptions/{name}/validate?id={id}&t={now}&apiVersion={API_VERSION}&token={token}"
        )
    }

    /// Tells the endpoint of `plan` that the subscription is gone, in a task of its own.
    pub fn bid_farewell(&self, plan: &Arc<DeliveryPlan>, topic: &str, subscription_id: String) {
        let name = plan.record.name.clone();
        if plan.record.is_pulled() {
            return;
        }
        let Ok(place) = Arc::clone(&self.farewells).try_acquire_owned() else {
            tracing::debug!(topic, subscription = %name, "too many farewells at once: this endpoint is not told");
            return;
        };
        let Ok(client) = clients::client(&self.client, plan.record.webhook.client_certificate.as_deref()) else {
            return;
        };
        let (plan, topic, now) = (Arc::clone(plan), topic.to_owned(), self.clock.now());
        actix_rt::spawn(async move {
            let id = Uuid::new_v4().to_string();
            let occasion = ValidationEventKind { id: &id, topic: &topic, now };
            let Some(destination) = &plan.destination else { return };
            let outgoing = farewell(destination, &occasion, &subscription_id);
            let (waits, _place) = (RequestTimeouts { response: FAREWELL_WAIT }, client.sockets().take());
            let answer = client.post(destination, outgoing, &waits, now).await;
            tracing::debug!(topic, subscription = %name, outcome = %answer.outcome, "the endpoint was told of the deletion");
            drop(place);
        });
    }

    fn in_progress(&self) -> MutexGuard<'_, HashSet<String>> {
        self.asking.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
