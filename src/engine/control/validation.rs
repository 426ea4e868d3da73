//! Validates endpoints by a handshake, and notifies them of deleted subscriptions.
//!
//! Invariants:
//! - A validation always ends: an endpoint gets [`TRIES`] requests, each with a timeout.
//! - A [`ValidationCode`] stores a hash of its token. Only the endpoint receives the token, in the
//!   validation URL.
//! - A deletion notice is best effort: nothing waits for it, its response is ignored, and at most
//!   `DELETION_NOTICES_MAX` are in flight.
//!
//! The registry decides what a result means for the subscription.

use std::{collections::HashSet, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::sync::Semaphore;
use uuid::Uuid;

use gridhook_clock::Clock;
use gridhook_deliver as deliver;
use gridhook_deliver::{
    RequestTimeouts, clients,
    error::UnreachableError,
    handshake::{EventEnvelope, deletion_notice, permission_request, validation_request},
    request::ORIGIN,
};
use gridhook_event::{Timestamp, WallTime};
use gridhook_policy::{
    outcome::{Failure, Outcome},
    validation::{
        self, Handshake, HandshakeTimes, TRIES, ValidationFailure, ValidationResponse,
        ValidationResult,
    },
};
use gridhook_record::proposal::ValidationCode;
use gridhook_subscription::plan::DeliveryPlan;

/// Maximum deletion notices in flight. Beyond it, endpoints are not notified.
const DELETION_NOTICES_MAX: usize = 64;

const DELETION_NOTICE_TIMEOUT: Duration = Duration::from_secs(10);

/// `apiVersion` in the validation URL: the version of Azure's interface that the URL resembles.
const API_VERSION: &str = "2025-02-15";

#[derive(Clone, Debug)]
pub struct ValidationSettings {
    pub validate: bool,
    pub times: HandshakeTimes,
    /// Requests per minute that a CloudEvents endpoint is asked to allow.
    pub rate: u32,
    /// Public URL of this server, for manual validation.
    pub public_url: String,
}

pub struct EndpointValidator {
    client: deliver::ClientOptions,
    clock: Clock,
    validation: ValidationSettings,
    deletion_notices: Arc<Semaphore>,
    /// Ids of codes whose handshake is in progress.
    in_progress: Mutex<HashSet<String>>,
}

/// How an endpoint may confirm its validation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfirmationMethod {
    /// The endpoint confirms in its response, or later by the validation URL.
    Deferred,
    /// The endpoint confirms only in its response, as in namespaces, which also request no rate.
    Immediate,
}

/// The result of a handshake.
#[derive(Clone, Debug)]
pub struct ValidationAnswer {
    pub verdict: ValidationResult,
    /// The HTTP status, if there was a response.
    pub status: Option<u16>,
    /// The code for a manual confirmation.
    pub code: ValidationCode,
}

/// A handshake in progress. Dropping it ends it, also if the client disconnects.
pub struct ValidationInProgress<'a> {
    validator: &'a EndpointValidator,
    id: String,
}

impl Drop for ValidationInProgress<'_> {
    fn drop(&mut self) {
        self.validator.in_progress.lock().remove(&self.id);
    }
}

impl EndpointValidator {
    /// A validator that sends requests like deliveries.
    pub fn new(
        client: deliver::ClientOptions,
        clock: Clock,
        validation: ValidationSettings,
    ) -> Self {
        let deletion_notices = Arc::new(Semaphore::new(DELETION_NOTICES_MAX));
        Self {
            client,
            clock,
            validation,
            deletion_notices,
            in_progress: Mutex::default(),
        }
    }

    pub fn is_enabled(&self) -> bool {
        self.validation.validate
    }

    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Whether the handshake of this code is in progress.
    pub fn is_in_progress(&self, code: &str) -> bool {
        self.in_progress.lock().contains(code)
    }

    /// Validates the endpoint of `plan`, a subscription of the topic with resource id `topic`. Hold
    /// the returned guard until the result is in force: until then an early confirmation is
    /// distinguished from a wrong one.
    pub async fn validate_endpoint(
        &self,
        plan: &DeliveryPlan,
        topic: &str,
        confirmation: ConfirmationMethod,
    ) -> (ValidationAnswer, ValidationInProgress<'_>) {
        let id = Uuid::new_v4();
        let token = format!("{}{}", Uuid::new_v4().simple(), Uuid::new_v4().simple());
        let code = id.to_string().to_uppercase();
        let wall = self.clock.wall_time();
        let url = self.validation_url(plan, &id, wall, &token);
        let in_progress = ValidationInProgress {
            validator: self,
            id: id.to_string(),
        };
        self.in_progress.lock().insert(in_progress.id.clone());
        let event_id = Uuid::new_v4().to_string();
        let envelope = EventEnvelope {
            id: &event_id,
            topic,
            wall,
        };
        let (verdict, status) = match self
            .send_validation(plan, &envelope, &code, &url, confirmation)
            .await
        {
            Err(cause) => (ValidationResult::Refused(cause), None),
            // Destinations other than webhooks have no handshake.
            Ok(None) => (ValidationResult::Granted(None), None),
            Ok(Some((handshake, response))) => {
                let verdict = match (handshake, confirmation) {
                    (Handshake::EventGrid, _) => validation::judge_code(&code, &response),
                    (Handshake::CloudEvents, ConfirmationMethod::Deferred) => {
                        validation::judge_permission(ORIGIN, &response)
                    }
                    (Handshake::CloudEvents, ConfirmationMethod::Immediate) => {
                        validation::judge_at_once(ORIGIN, &response)
                    }
                };
                (verdict, Some(response.status))
            }
        };
        let until = self.clock.now().after(self.validation.times.window).0;
        let code = ValidationCode::new(in_progress.id.clone(), &token, until);
        (
            ValidationAnswer {
                verdict,
                status,
                code,
            },
            in_progress,
        )
    }

    /// Checks that the destination of `plan` can be reached, if it has no handshake.
    ///
    /// # Errors
    /// If not: the reason.
    pub async fn check_reachable(&self, plan: &DeliveryPlan) -> Result<(), UnreachableError> {
        let wait = self.validation.times.answer;
        let sender = plan.new_sender(&self.client)?;
        match tokio::time::timeout(wait, sender.check_reachable(self.clock.wall_time())).await {
            Ok(reached) => reached,
            Err(_) => Err(UnreachableError::Timeout(wait)),
        }
    }

    /// Sends the handshake. A request that times out is repeated after a pause.
    async fn send_validation(
        &self,
        plan: &DeliveryPlan,
        envelope: &EventEnvelope<'_>,
        code: &str,
        url: &str,
        confirmation: ConfirmationMethod,
    ) -> Result<Option<(Handshake, ValidationResponse)>, ValidationFailure> {
        let Some(destination) = plan.webhook() else {
            return Ok(None);
        };
        let handshake = Handshake::for_schema(destination.schema());
        let mut outgoing = match handshake {
            Handshake::EventGrid => validation_request(destination, envelope, code, url),
            Handshake::CloudEvents => {
                let later = (confirmation == ConfirmationMethod::Deferred)
                    .then_some((url, self.validation.rate));
                permission_request(destination, later)
            }
        };
        let HandshakeTimes {
            answer,
            pause,
            window: _,
        } = self.validation.times;
        let client = clients::shared_client(&self.client, plan.record.webhook.client_spec())
            .map_err(|missing| ValidationFailure::Unanswered {
                outcome: Outcome::Failed(Failure::SocketError),
                detail: missing.to_string(),
            })?;
        let tokens = plan
            .token_source(&self.client)
            .map_err(|problem| no_token_error(problem.to_string()))?;
        if let Some(tokens) = tokens {
            let (token, _) = tokens
                .get_token(None, self.clock.wall_time())
                .await
                .map_err(|problem| no_token_error(problem.to_string()))?;
            token.add_to_request(&mut outgoing);
        }
        let _permit = client.sockets().take_permit();
        // Each attempt has a timestamp of its own, because receivers reject old ones.
        let sign = || {
            let mut outgoing = outgoing.clone();
            plan.sign_notice(&mut outgoing, envelope.id, self.clock.wall_time());
            outgoing
        };
        let mut response = client
            .send_handshake(handshake, destination, &sign(), answer)
            .await;
        for _ in 1..TRIES {
            if !matches!(
                &response,
                Err(ValidationFailure::Unanswered {
                    outcome: Outcome::Failed(Failure::TimedOut),
                    ..
                })
            ) {
                break;
            }
            tokio::time::sleep(pause).await;
            response = client
                .send_handshake(handshake, destination, &sign(), answer)
                .await;
        }
        response.map(|response| Some((handshake, response)))
    }

    fn validation_url(
        &self,
        plan: &DeliveryPlan,
        id: &Uuid,
        wall: WallTime,
        token: &str,
    ) -> String {
        let ValidationSettings { public_url, .. } = &self.validation;
        let name = plan.record.name.as_str();
        format!(
            "{public_url}/eventsubscriptions/{name}/validate?id={id}&t={wall}&apiVersion={API_VERSION}&token={token}"
        )
    }

    /// Sends a deletion notice to the endpoint of `plan`, in a task of its own.
    pub fn notify_deleted(&self, plan: &Arc<DeliveryPlan>, topic: &str, subscription_id: String) {
        let name = plan.record.name.clone();
        if !plan.has_handshake() {
            return;
        }
        let Ok(permit) = Arc::clone(&self.deletion_notices).try_acquire_owned() else {
            tracing::debug!(topic, subscription = %name, "too many deletion notices; endpoint not \
                notified");
            return;
        };
        let Ok(client) = clients::shared_client(&self.client, plan.record.webhook.client_spec())
        else {
            return;
        };
        let tokens = plan.token_source(&self.client);
        let plan = Arc::clone(plan);
        let topic = topic.to_owned();
        let wall = self.clock.wall_time();
        actix_rt::spawn(async move {
            let id = Uuid::new_v4().to_string();
            let envelope = EventEnvelope {
                id: &id,
                topic: &topic,
                wall,
            };
            let Some(destination) = plan.webhook() else {
                return;
            };
            let mut outgoing = deletion_notice(destination, &envelope, &subscription_id);
            plan.sign_notice(&mut outgoing, &id, wall);
            match tokens {
                Ok(None) => {}
                Ok(Some(tokens)) => match tokens.get_token(None, wall).await {
                    Ok((token, _)) => token.add_to_request(&mut outgoing),
                    Err(problem) => {
                        return tracing::debug!(topic, subscription = %name, %problem, "endpoint \
                            not notified");
                    }
                },
                Err(problem) => {
                    return tracing::debug!(topic, subscription = %name, %problem, "endpoint not \
                        notified");
                }
            }
            let waits = RequestTimeouts {
                response: DELETION_NOTICE_TIMEOUT,
            };
            let _permit = client.sockets().take_permit();
            let answer = client
                .send_within_limit(destination, outgoing, &waits, wall)
                .await;
            tracing::debug!(topic, subscription = %name, outcome = %answer.outcome, "deletion \
                notice sent");
            drop(permit);
        });
    }
}

fn no_token_error(detail: String) -> ValidationFailure {
    ValidationFailure::Unanswered {
        outcome: Outcome::Failed(Failure::GenericError),
        detail,
    }
}
