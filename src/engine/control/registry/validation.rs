//! Endpoint validation.
//!
//! An endpoint is validated when a subscription is created, and when its address or delivery schema
//! changes. The current subscription stays in force until validation succeeds. No lock is held
//! meanwhile, because the endpoint may respond late.

use std::{collections::BTreeSet, num::NonZeroU32, sync::Arc, time::Duration};

use super::{
    Error, Registry, TopicHandle,
    change::{ValidationPermission, run_detached, to_json},
    domain, refused_plan,
};
use crate::control::{
    audit::write_changes,
    validation::{ConfirmationMethod, EndpointValidator},
};
use gridhook_deliver::test_endpoint::is_test_address;
use gridhook_event::Timestamp;
use gridhook_journal::MetaChange;
use gridhook_policy::validation::{
    Handshake, ValidationFailure, ValidationResult, is_over, parse_rate,
};
use gridhook_record::{
    proposal::{Proposal, Provisioned},
    subscription::SubscriptionRecord,
};
use gridhook_store::keys::MetaKind;
use gridhook_subscription::DeliveryPlan;

/// A confirmation may arrive before the handshake's own response is processed. It waits in steps of
/// this time.
const EARLY_POLL: Duration = Duration::from_millis(20);

/// The maximum number of these steps. A confirmation is then rejected as too early.
const EARLY_POLLS: u32 = 250;

/// Details of a failed validation.
#[derive(Clone, Debug)]
pub struct ValidationRefusal {
    /// The endpoint's URL without secrets.
    pub endpoint: String,
    pub handshake: Handshake,
    /// The HTTP status, if there was a response.
    pub status: Option<u16>,
    pub cause: ValidationFailure,
    pub at: Timestamp,
    /// The id of this failure in the log.
    pub activity: String,
}

/// The result of a confirmation.
#[derive(Clone, Debug)]
pub enum ValidationOutcome {
    /// The subscription is in force.
    Confirmed(Arc<SubscriptionRecord>),
    /// The endpoint has not responded to its handshake yet.
    Early,
    /// No proposal waits for this code, or the token is wrong.
    Unknown,
    /// The code has expired at this time.
    Late(Timestamp),
}

/// The state in which a subscription must still be when its change is stored.
#[derive(Clone, Debug)]
pub enum ChangeBasis {
    /// Anything: the last change is in force.
    Any,
    Record(Arc<SubscriptionRecord>),
    /// No subscription of this name exists.
    Missing,
}

impl Registry {
    /// Sets how endpoints are validated and notified of deletions.
    ///
    /// # Panics
    /// If it is called twice.
    pub fn set_validator(&self, validator: EndpointValidator) {
        assert!(
            self.validator.set(Arc::new(validator)).is_ok(),
            "the validator is set once"
        );
    }

    /// Whether the endpoint must be validated before `record` can be in force.
    pub fn needs_validation(&self, topic: &str, record: &SubscriptionRecord) -> bool {
        let before = self
            .find_topic(topic)
            .and_then(|topic| topic.find_subscription(&record.key()));
        self.active_validator().is_some()
            && has_handshake(record)
            && !before.is_some_and(|before| is_same_endpoint(&before, record))
    }

    fn active_validator(&self) -> Option<&Arc<EndpointValidator>> {
        self.validator
            .get()
            .filter(|validator| validator.is_enabled())
    }

    /// Validates the endpoint of `record`. On success the subscription is in force; otherwise it
    /// may wait for a manual confirmation.
    ///
    /// # Errors
    /// [`Error::Validation`] if the endpoint failed validation; nothing was changed.
    /// [`Error::Stale`] if the subscription is no longer `basis`.
    pub async fn validate_endpoint(
        self: &Arc<Self>,
        topic: &str,
        record: SubscriptionRecord,
        basis: ChangeBasis,
    ) -> Result<Provisioned, Error> {
        let Some(validator) = self
            .active_validator()
            .filter(|_| has_handshake(&record))
            .cloned()
        else {
            let record = self.put_subscription(topic, record, basis).await?;
            return Ok(
                Provisioned::from_parts(Some(record), None, Timestamp::default())
                    .expect("it is in force"),
            );
        };
        let handle = self.require_topic(topic)?;
        let record = Arc::new(record);
        self.auto_created_topic(&handle, &record)?;
        self.check_subscription_limit(&handle, &record.key())?;
        let plan = self.new_plan(&handle.record(), Arc::clone(&record))?;
        plan.check_connection(&self.rules.delivery)
            .map_err(refused_plan)?;
        let confirmation = match handle.record().namespace {
            Some(_) => ConfirmationMethod::Immediate,
            None => ConfirmationMethod::Deferred,
        };
        if record.resource.is_some() {
            plan.check_rules(&self.rules.delivery)
                .map_err(refused_plan)?;
            validator.check_reachable(&plan).await.map_err(|why| {
                let destination = record.destination_name();
                Error::Refused(format!("{destination} cannot be reached: {why}"))
            })?;
        }
        let (result, _in_progress) = validator
            .validate_endpoint(&plan, &source_resource(&handle, &record), confirmation)
            .await;
        let permission = match result.verdict {
            ValidationResult::Granted(rate) => ValidationPermission::Granted(rate),
            ValidationResult::Manual => {
                let proposal = Proposal {
                    ticket: result.code,
                    record,
                };
                return self.store_proposal(topic, proposal, basis).await;
            }
            ValidationResult::Refused(cause) => {
                return Err(validation_refused(
                    &plan,
                    result.status,
                    cause,
                    validator.now(),
                ));
            }
        };
        let registry = Arc::clone(self);
        let topic = topic.to_owned();
        let subscription = run_detached(async move {
            registry
                .make_subscription(
                    &topic,
                    SubscriptionRecord::clone(&record),
                    permission,
                    basis,
                )
                .await
        })
        .await?;
        Ok(
            Provisioned::from_parts(Some(subscription), None, validator.now())
                .expect("it is in force"),
        )
    }

    async fn store_proposal(
        self: &Arc<Self>,
        topic: &str,
        proposal: Proposal,
        basis: ChangeBasis,
    ) -> Result<Provisioned, Error> {
        let registry = Arc::clone(self);
        let topic = topic.to_owned();
        run_detached(async move {
            let _guard = registry.numbers.lock().await;
            let topic = registry.require_topic(&topic)?;
            let key = proposal.record.key();
            registry.check_basis(&topic, &key, &basis)?;
            let domain_topic = registry.auto_created_topic(&topic, &proposal.record)?;
            let mut changes = vec![MetaChange::Put(
                MetaKind::Proposal,
                proposal_key(&topic, &key),
                to_json(&proposal),
            )];
            changes.extend(
                domain_topic
                    .iter()
                    .map(|first| domain::put_change(&topic, first)),
            );
            write_changes(&registry.journal, changes).await?;
            let until = proposal.ticket.expiry();
            tracing::info!(topic = topic.record().key(), subscription = key, %until, "waiting for \
                endpoint validation");
            if let Some(first) = domain_topic {
                topic.set_domain_topic(first);
            }
            let expires = proposal.record.expires;
            topic.set_proposal(Some(Arc::new(proposal)), &key);
            if expires.is_some() {
                registry.expiry.notify_one();
            }
            registry
                .find_provisioned(&topic, &key)
                .ok_or_else(|| Error::Unknown("it was deleted".to_owned()))
        })
        .await
    }

    /// Confirms the proposal with the validation code `id`. A code is valid once.
    ///
    /// # Errors
    /// If the subscription cannot be put in force. The code stays valid.
    pub async fn confirm_proposal(
        self: &Arc<Self>,
        id: &str,
        token: &str,
        allowed: Option<&str>,
    ) -> Result<ValidationOutcome, Error> {
        let Some(validator) = self.validator.get() else {
            return Ok(ValidationOutcome::Unknown);
        };
        for _ in 0..EARLY_POLLS {
            if !validator.is_in_progress(id) {
                break;
            }
            tokio::time::sleep(EARLY_POLL).await;
        }
        if validator.is_in_progress(id) {
            return Ok(ValidationOutcome::Early);
        }
        let Some((topic, proposal)) = self.find_by_code(id, token) else {
            return Ok(ValidationOutcome::Unknown);
        };
        let until = proposal.ticket.expiry();
        if is_over(until, validator.now()) {
            return Ok(ValidationOutcome::Late(until));
        }
        let rate = parse_rate(allowed).map_err(|cause| Error::Refused(cause.to_string()))?;
        let registry = Arc::clone(self);
        let result = run_detached(async move {
            let key = topic.record().key();
            let record = SubscriptionRecord::clone(&proposal.record);
            let basis = ChangeBasis::Record(Arc::clone(&proposal.record));
            registry
                .make_subscription(&key, record, ValidationPermission::Granted(rate), basis)
                .await
        });
        match result.await {
            Ok(result) => Ok(ValidationOutcome::Confirmed(result)),
            // The code was used twice at once, or the subscription was changed meanwhile.
            Err(Error::Stale(_)) => Ok(ValidationOutcome::Unknown),
            Err(error) => Err(error),
        }
    }

    fn find_by_code(&self, id: &str, token: &str) -> Option<(Arc<TopicHandle>, Arc<Proposal>)> {
        for topic in self.list_topics() {
            for proposal in topic.list_proposals() {
                if proposal.ticket.id == id && proposal.ticket.is_token(token) {
                    return Some((topic, proposal));
                }
            }
        }
        None
    }

    /// A subscription as clients see it, by the key of its record.
    pub fn find_provisioned(&self, topic: &TopicHandle, name: &str) -> Option<Provisioned> {
        // First, because it ends when the subscription is in force.
        let proposal = topic.find_proposal(name);
        Provisioned::from_parts(
            topic.find_subscription(name),
            proposal.as_deref(),
            self.now(),
        )
    }

    /// All subscriptions of a topic, or of a domain and its topics, as clients see them, by key.
    pub fn all_provisioned(&self, topic: &TopicHandle) -> Vec<Provisioned> {
        let proposal_keys = topic
            .list_proposals()
            .into_iter()
            .map(|proposal| proposal.record.key());
        let mut keys: BTreeSet<String> = proposal_keys.collect();
        keys.extend(
            topic
                .list_subscriptions()
                .into_iter()
                .map(|record| record.key()),
        );
        keys.iter()
            .filter_map(|key| self.find_provisioned(topic, key))
            .collect()
    }

    /// The time of the validator's clock; any time without one, because there are no deadlines then.
    fn now(&self) -> Timestamp {
        self.validator
            .get()
            .map_or(Timestamp::default(), |validator| validator.now())
    }

    /// Checks that a subscription is still `basis`.
    pub(super) fn check_basis(
        &self,
        topic: &TopicHandle,
        name: &str,
        basis: &ChangeBasis,
    ) -> Result<(), Error> {
        match (basis, self.find_provisioned(topic, name)) {
            (ChangeBasis::Any, _) | (ChangeBasis::Missing, None) => Ok(()),
            (ChangeBasis::Record(basis), Some(now)) if Arc::ptr_eq(&now.record, basis) => Ok(()),
            (ChangeBasis::Record(_) | ChangeBasis::Missing, _) => Err(Error::Stale(format!(
                "the event subscription '{name}' was changed while its endpoint was validated; \
                 this request changed nothing"
            ))),
        }
    }

    /// Notifies the endpoint of a deleted subscription.
    pub(super) fn notify_deleted(&self, topic: &TopicHandle, plan: &Arc<DeliveryPlan>) {
        self.report_change(
            "Microsoft.EventGrid.SubscriptionDeleted",
            topic,
            &plan.record,
        );
        if let Some(validator) = self.validator.get() {
            let topic = source_resource(topic, &plan.record);
            let subscription = format!("{topic}/eventSubscriptions/{}", plan.record.name);
            validator.notify_deleted(plan, &topic, subscription);
        }
    }

    /// Reads the proposals from the store.
    pub(super) fn recover_proposals(&self) -> Result<(), Error> {
        for record in self.journal.reader_pool().all_meta(MetaKind::Proposal) {
            let (name, value) = record?;
            let proposal: Proposal = super::parse_record(&name, &value)?;
            let key = proposal.record.key();
            self.owner_of(&name)?
                .set_proposal(Some(Arc::new(proposal)), &key);
        }
        Ok(())
    }
}

impl TopicHandle {
    /// The proposals of the topic's subscriptions.
    pub fn list_proposals(&self) -> Vec<Arc<Proposal>> {
        self.proposals.read().values().cloned().collect()
    }

    /// The proposal of one subscription, by the key of its record.
    pub(super) fn find_proposal(&self, name: &str) -> Option<Arc<Proposal>> {
        self.proposals
            .read()
            .get(&name.to_ascii_lowercase())
            .cloned()
    }

    pub(super) fn set_proposal(&self, proposal: Option<Arc<Proposal>>, name: &str) {
        let mut proposals = self.proposals.write();
        match proposal {
            Some(proposal) => proposals.insert(name.to_ascii_lowercase(), proposal),
            None => proposals.remove(&name.to_ascii_lowercase()),
        };
    }

    /// The change that deletes a proposal, if there is one.
    pub(super) fn withdrawal_change(&self, name: &str) -> Option<MetaChange> {
        self.find_proposal(name)
            .map(|_| MetaChange::Delete(MetaKind::Proposal, proposal_key(self, name)))
    }
}

fn proposal_key(topic: &TopicHandle, key: &str) -> String {
    format!("{}/{}", topic.record().key(), key.to_ascii_lowercase())
}

/// The `topic` in requests to the endpoint: the resource that the subscription belongs to.
fn source_resource(topic: &TopicHandle, subscription: &SubscriptionRecord) -> String {
    topic
        .record()
        .resource_id_of(subscription.filter.domain_topic.as_deref())
}

/// Whether the endpoint of the subscription is validated by a handshake.
fn has_handshake(record: &SubscriptionRecord) -> bool {
    !record.is_pulled() && !is_test_address(&record.webhook.endpoint_url)
}

/// Whether a validation of `before` is valid for `after`.
pub(super) fn is_same_endpoint(before: &SubscriptionRecord, after: &SubscriptionRecord) -> bool {
    before.webhook.endpoint_url == after.webhook.endpoint_url
        && before.resource == after.resource
        && before.delivery_schema == after.delivery_schema
}

/// The rate that the endpoint allowed, if `after` has the same endpoint.
pub(super) fn inherited_rate(
    before: Option<&SubscriptionRecord>,
    after: &SubscriptionRecord,
) -> Option<NonZeroU32> {
    before
        .filter(|before| is_same_endpoint(before, after))?
        .webhook
        .allowed_rate
}

fn validation_refused(
    plan: &DeliveryPlan,
    status: Option<u16>,
    cause: ValidationFailure,
    at: Timestamp,
) -> Error {
    let refusal = ValidationRefusal {
        endpoint: plan.record.destination_name(),
        handshake: Handshake::for_schema(plan.record.delivery_schema),
        status,
        cause,
        at,
        activity: uuid::Uuid::new_v4().to_string(),
    };
    let ValidationRefusal {
        endpoint,
        cause,
        activity,
        ..
    } = &refusal;
    tracing::warn!(endpoint, %cause, activity, "endpoint validation failed");
    Error::Validation(Box::new(refusal))
}
