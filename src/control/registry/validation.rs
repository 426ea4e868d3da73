//! Endpoints agree before they are called.
//!
//! An endpoint is asked when a subscription is made, and when its address or the schema of its deliveries changes: the
//! handshake is one of address and schema. What is in force stays in force until the answer is a yes. While an endpoint is
//! asked nothing is locked, because it takes as long as the endpoint likes.

use std::{
    collections::BTreeSet,
    num::NonZeroU32,
    sync::{Arc, PoisonError},
    time::Duration,
};

use super::{
    Error, Registry, TopicHandle,
    change::{ValidationPermission, json, to_its_end},
    domain,
};
use crate::{
    control::{
        record::{
            proposal::{Proposal, Provisioned},
            subscription::SubscriptionRecord,
        },
        validation::ConfirmationMethod,
    },
    event::Timestamp,
    journal::MetaChange,
    policy::validation::{Handshake, ValidationFailure, ValidationResult, is_over, rate},
    store::keys::MetaKind,
    subscription::{DeliveryPlan, EndpointValidator},
};

/// An endpoint's word may come before its own answer is in force. It is held back …
const EARLY_POLL: Duration = Duration::from_millis(20);

/// … so many times at the most, and then told to come again.
const EARLY_POLLS: u32 = 250;

/// An endpoint said no, or nothing.
#[derive(Clone, Debug)]
pub struct ValidationRefusal {
    /// Where it is, without what may be secret.
    pub endpoint: String,
    /// How it was asked.
    pub handshake: Handshake,
    /// The status, if there was an answer.
    pub status: Option<u16>,
    /// What happened.
    pub cause: ValidationFailure,
    /// When.
    pub at: Timestamp,
    /// Under which name the log has it.
    pub activity: String,
}

/// What became of an endpoint's word.
#[derive(Clone, Debug)]
pub enum ValidationOutcome {
    /// The subscription is in force.
    Taken(Arc<SubscriptionRecord>),
    /// The endpoint has not answered its handshake yet.
    Early,
    /// There is nothing that waits for it, or its token is another.
    Unknown,
    /// It waited until then.
    Late(Timestamp),
}

impl Registry {
    /// Asks endpoints from now on, and tells them of deletions.
    ///
    /// # Panics
    /// At the second call: there is one way of asking.
    pub fn greet_with(&self, validator: EndpointValidator) {
        assert!(self.validator.set(Arc::new(validator)).is_ok(), "endpoints are asked in one way");
    }

    /// Whether the endpoint must agree before `record` can be in force.
    pub fn must_ask(&self, topic: &str, record: &SubscriptionRecord) -> bool {
        let before = self.topic(topic).and_then(|topic| topic.subscription(&record.key()));
        self.asker().is_some() && !record.is_pulled() && !before.is_some_and(|before| is_same_endpoint(&before, record))
    }

    fn asker(&self) -> Option<&Arc<EndpointValidator>> {
        self.validator.get().filter(|validator| validator.validates())
    }

    /// Asks the endpoint of `record` and does what follows: it is in force, or waits for the endpoint's word.
    ///
    /// # Errors
    /// [`Error::Validation`] where the endpoint may not be called; then nothing was changed. [`Error::Stale`] where `basis`
    /// is given and is no longer what the subscription is.
    pub async fn validate(
        self: &Arc<Self>,
        topic: &str,
        record: SubscriptionRecord,
        basis: Option<Arc<SubscriptionRecord>>,
    ) -> Result<Provisioned, Error> {
        let Some(validator) = self.asker().filter(|_| !record.is_pulled()).cloned() else {
            let record = self.put_subscription(topic, record).await?;
            return Ok(Provisioned::of(Some(record), None, Timestamp::default()).expect("it is in force"));
        };
        let (known, record) = (self.known(topic)?, Arc::new(record));
        self.first_of(&known, &record)?;
        self.check_room(&known, &record.key())?;
        let plan = self.plan(&known.record(), Arc::clone(&record))?;
        plan.check_certificate(&self.rules.delivery).map_err(|error| Error::Refused(error.to_string()))?;
        let answering = match known.record().namespace {
            Some(_) => ConfirmationMethod::AtOnce,
            None => ConfirmationMethod::AtLeisure,
        };
        let (greeted, _asking) = validator.validate(&plan, &source(&known, &record), answering).await;
        let permission = match greeted.verdict {
            ValidationResult::Granted(rate) => ValidationPermission::Granted(rate),
            ValidationResult::Manual => {
                let proposal = Proposal { ticket: greeted.ticket, record };
                return self.propose(topic, proposal, basis).await;
            }
            ValidationResult::Refused(cause) => return Err(refused(&plan, greeted.status, cause, validator.now())),
        };
        let (registry, topic) = (Arc::clone(self), topic.to_owned());
        let saved = to_its_end(async move {
            registry.make_subscription(&topic, SubscriptionRecord::clone(&record), permission, basis).await
        })
        .await?;
        Ok(Provisioned::of(Some(saved), None, validator.now()).expect("it is in force"))
    }

    async fn propose(
        self: &Arc<Self>,
        topic: &str,
        proposal: Proposal,
        basis: Option<Arc<SubscriptionRecord>>,
    ) -> Result<Provisioned, Error> {
        let (registry, topic) = (Arc::clone(self), topic.to_owned());
        to_its_end(async move {
            let _turn = registry.numbers.lock().await;
            let topic = registry.known(&topic)?;
            let key = proposal.record.key();
            registry.check_basis(&topic, &key, basis.as_ref())?;
            let domain_topic = registry.first_of(&topic, &proposal.record)?;
            let mut changes = vec![MetaChange::Put(MetaKind::Proposal, proposal_key(&topic, &key), json(&proposal))];
            changes.extend(domain_topic.iter().map(|first| domain::put(&topic, first)));
            registry.journal.change(changes).await?;
            let until = proposal.ticket.until();
            tracing::info!(topic = topic.record().key(), subscription = key, %until, "the endpoint's word is waited for");
            if let Some(first) = domain_topic {
                topic.set_domain_topic(first);
            }
            let expires = proposal.record.expires;
            topic.set_proposal(Some(Arc::new(proposal)), &key);
            if expires.is_some() {
                registry.expiry.notify_one();
            }
            registry.provisioned(&topic, &key).ok_or_else(|| Error::Unknown("it was deleted".to_owned()))
        })
        .await
    }

    /// An endpoint, or somebody for it, gives its word for the ticket `id`. It counts once.
    ///
    /// # Errors
    /// Where the subscription cannot be put in force; the word may be given again.
    pub async fn confirm(
        self: &Arc<Self>,
        id: &str,
        token: &str,
        allowed: Option<&str>,
    ) -> Result<ValidationOutcome, Error> {
        let Some(validator) = self.validator.get() else { return Ok(ValidationOutcome::Unknown) };
        for _ in 0..EARLY_POLLS {
            if !validator.is_in_progress(id) {
                break;
            }
            tokio::time::sleep(EARLY_POLL).await;
        }
        if validator.is_in_progress(id) {
            return Ok(ValidationOutcome::Early);
        }
        let Some((topic, proposal)) = self.proposed(id, token) else { return Ok(ValidationOutcome::Unknown) };
        let until = proposal.ticket.until();
        if is_over(until, validator.now()) {
            return Ok(ValidationOutcome::Late(until));
        }
        let rate = rate(allowed).map_err(|cause| Error::Refused(cause.to_string()))?;
        let registry = Arc::clone(self);
        let saved = to_its_end(async move {
            let (key, record) = (topic.record().key(), SubscriptionRecord::clone(&proposal.record));
            let basis = Some(Arc::clone(&proposal.record));
            registry.make_subscription(&key, record, ValidationPermission::Granted(rate), basis).await
        });
        match saved.await {
            Ok(saved) => Ok(ValidationOutcome::Taken(saved)),
            // The same word twice at once, or another wish meanwhile.
            Err(Error::Stale(_)) => Ok(ValidationOutcome::Unknown),
            Err(error) => Err(error),
        }
    }

    fn proposed(&self, id: &str, token: &str) -> Option<(Arc<TopicHandle>, Arc<Proposal>)> {
        let good = |proposal: &Proposal| proposal.ticket.id == id && proposal.ticket.is(token);
        self.topics().into_iter().find_map(|topic| {
            let found = topic.proposals().into_iter().find(|proposal| good(proposal))?;
            Some((topic, found))
        })
    }

    /// A subscription as a client sees it, by the key of its record: in force, awaiting, or failed.
    pub fn provisioned(&self, topic: &TopicHandle, name: &str) -> Option<Provisioned> {
        Provisioned::of(topic.subscription(name), topic.proposal(name).as_deref(), self.now())
    }

    /// All subscriptions of a topic, or of a domain and its topics, as a client sees them, by key.
    pub fn all_provisioned(&self, topic: &TopicHandle) -> Vec<Provisioned> {
        let in_force = topic.subscriptions().into_iter().map(|record| record.key());
        let proposed = topic.proposals().into_iter().map(|proposal| proposal.record.key());
        let keys: BTreeSet<String> = in_force.chain(proposed).collect();
        keys.iter().filter_map(|key| self.provisioned(topic, key)).collect()
    }

    /// Where nobody asks, nothing is waited for.
    fn now(&self) -> Timestamp {
        self.validator.get().map_or(Timestamp::default(), |validator| validator.now())
    }

    /// Whether a subscription is still what a change was made from.
    pub(super) fn check_basis(
        &self,
        topic: &TopicHandle,
        name: &str,
        basis: Option<&Arc<SubscriptionRecord>>,
    ) -> Result<(), Error> {
        let Some(basis) = basis else { return Ok(()) };
        match self.provisioned(topic, name) {
            Some(now) if Arc::ptr_eq(&now.record, basis) => Ok(()),
            Some(_) | None => Err(Error::Stale(format!(
                "the event subscription '{name}' was changed while its endpoint was asked; nothing was changed by this"
            ))),
        }
    }

    /// Tells the endpoint of a subscription that was deleted.
    pub(super) fn bid_farewell(&self, topic: &TopicHandle, plan: &Arc<DeliveryPlan>) {
        if let Some(validator) = self.validator.get() {
            let topic = source(topic, &plan.record);
            let subscription = format!("{topic}/eventSubscriptions/{}", plan.record.name);
            validator.bid_farewell(plan, &topic, subscription);
        }
    }

    /// The proposals that the store has.
    pub(super) fn recover_proposals(&self) -> Result<(), Error> {
        for (name, value) in self.journal.reads().all_meta(MetaKind::Proposal)? {
            let proposal: Proposal = super::parse(&name, &value)?;
            let key = proposal.record.key();
            self.owner_of(&name)?.set_proposal(Some(Arc::new(proposal)), &key);
        }
        Ok(())
    }
}

impl TopicHandle {
    /// What is proposed for its subscriptions.
    pub(crate) fn proposals(&self) -> Vec<Arc<Proposal>> {
        self.proposals.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    /// What is proposed for one of them, by the key of its record.
    pub(super) fn proposal(&self, name: &str) -> Option<Arc<Proposal>> {
        self.proposals.read().unwrap_or_else(PoisonError::into_inner).get(&name.to_ascii_lowercase()).cloned()
    }

    pub(super) fn set_proposal(&self, proposal: Option<Arc<Proposal>>, name: &str) {
        let mut proposals = self.proposals.write().unwrap_or_else(PoisonError::into_inner);
        match proposal {
            Some(proposal) => proposals.insert(name.to_ascii_lowercase(), proposal),
            None => proposals.remove(&name.to_ascii_lowercase()),
        };
    }

    /// The change that takes a proposal away, if there is one.
    pub(super) fn withdraw(&self, name: &str) -> Option<MetaChange> {
        self.proposal(name).map(|_| MetaChange::Delete(MetaKind::Proposal, proposal_key(self, name)))
    }
}

fn proposal_key(topic: &TopicHandle, key: &str) -> String {
    format!("{}/{}", topic.record().key(), key.to_ascii_lowercase())
}

/// What the endpoint of a subscription is told as the topic: the resource that it is a subscription of.
fn source(topic: &TopicHandle, subscription: &SubscriptionRecord) -> String {
    topic.record().resource_id_of(subscription.filter.domain_topic.as_deref())
}

/// Whether what an endpoint agreed to for `before` holds for `after`.
pub(super) fn is_same_endpoint(before: &SubscriptionRecord, after: &SubscriptionRecord) -> bool {
    before.webhook.endpoint_url == after.webhook.endpoint_url && before.delivery_schema == after.delivery_schema
}

/// What `after` may do at an endpoint that agreed to `before`.
pub(super) fn kept_rate(before: Option<&SubscriptionRecord>, after: &SubscriptionRecord) -> Option<NonZeroU32> {
    before.filter(|before| is_same_endpoint(before, after))?.webhook.allowed_rate
}

fn refused(plan: &DeliveryPlan, status: Option<u16>, cause: ValidationFailure, at: Timestamp) -> Error {
    let refusal = ValidationRefusal {
        endpoint: plan.record.webhook.base_url(),
        handshake: Handshake::of(plan.record.delivery_schema),
        status,
        cause,
        at,
        activity: uuid::Uuid::new_v4().to_string(),
    };
    let ValidationRefusal { endpoint, cause, activity, .. } = &refusal;
    tracing::warn!(endpoint, %cause, activity, "an endpoint did not agree to be called");
    Error::Validation(Box::new(refusal))
}
