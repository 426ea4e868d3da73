//! The registry of topics and subscriptions: the control plane changes them
//! ([`Registry::put_topic`] and others), all modules look them up.

mod change;
mod chaos;
mod counts;
mod domain;
mod events;
mod follow;
mod namespace;
mod replay;
mod topic;
mod trace;
mod validation;

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, OnceLock},
};

use parking_lot::RwLock;
use serde::Deserialize;
use tokio::sync::{Notify, mpsc};

pub use self::change::to_json;
pub use self::{
    chaos::{ChaosVictim, TaskKill},
    counts::{FailureCounts, SubscriptionCensus, SubscriptionSnapshot},
    events::EventPage,
    follow::ShardTopics,
    replay::{ReplayContent, ReplayPoint, ReplayRange},
    topic::{SubscriptionHandle, SubscriptionStatus, TopicHandle, TopicMessage},
    trace::{EventOccurrence, IdMatches, LedgerPeriod, TraceResult, TraceToken},
    validation::{ChangeBasis, ValidationOutcome, ValidationRefusal},
};
use crate::control::{
    audit, deployments::Deployments, resource_groups::ResourceGroups, sessions::Sessions,
    system_events::SystemEvents, tokens::Tokens, validation::EndpointValidator,
};
use gridhook_event::{PartitionId, Seq, SubscriptionKey, chunk::Chunk};
use gridhook_journal as journal;
use gridhook_journal::Journal;
use gridhook_policy::{
    edition::{Edition, EndpointKind},
    record::{Command, CommandRefused, Cursor, RedrivePage, RetryRequest},
    retry::{LongerWaits, longer_waits},
};
use gridhook_record::{
    namespace::NamespaceRecord,
    numbers::NextNumbers,
    subscription::{RetryScheduleSpec, SubscriptionRecord},
    topic::TopicRecord,
};
use gridhook_store::keys::MetaKind;
use gridhook_subscription::{
    CommandResult, DeliveryContext, DeliveryPlan, PlanError, SharedState,
    event_feed::{EventFeed, FeedEvent},
    recent_events::RecentBudget,
};

/// Why a change was not made.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The resource does not exist.
    #[error("{0}")]
    Unknown(String),
    #[error("{0}")]
    Refused(String),
    /// The event subscription cannot be delivered with these properties.
    #[error(transparent)]
    Plan(Box<PlanError>),
    #[error("{}", .0.cause)]
    Validation(Box<ValidationRefusal>),
    /// The subscription was changed in the meantime.
    #[error("{0}")]
    Stale(String),
    /// The command is not valid in the subscription's current state. Nothing was changed.
    #[error("{0}")]
    CommandRefused(CommandRefused),
    #[error("{0}")]
    Full(String),
    /// The change could not be made durable.
    #[error(transparent)]
    Journal(#[from] journal::Error),
    /// A record of the store cannot be read.
    #[error("cannot read the record {name} in the store: {reason}")]
    Unreadable { name: String, reason: String },
}

#[derive(Clone)]
pub struct RegistryRules {
    /// Editions of the delivery policy, by name.
    pub editions: BTreeMap<String, Arc<Edition>>,
    pub delivery: DeliveryContext,
    pub domain_topics_max: usize,
    pub topics_max: usize,
    /// Maximum event subscriptions of a topic or a domain.
    pub subscriptions_max: usize,
}

/// All topics, domains and topics of namespaces.
pub struct Registry {
    journal: Journal,
    rules: RegistryRules,
    budget: Arc<RecentBudget>,
    topics: RwLock<HashMap<String, Arc<TopicHandle>>>,
    partitions: RwLock<HashMap<PartitionId, Arc<TopicHandle>>>,
    /// The namespaces by their names in lower case.
    namespaces: RwLock<BTreeMap<String, Arc<NamespaceRecord>>>,
    numbers: tokio::sync::Mutex<NextNumbers>,
    /// The records that a shard of a cluster with several shards has followed, once it has.
    followed: tokio::sync::Mutex<Option<follow::Followed>>,
    /// Validates endpoints. Set once the server's own address is known.
    validator: OnceLock<Arc<EndpointValidator>>,
    system_events: OnceLock<Arc<SystemEvents>>,
    starts: mpsc::UnboundedSender<Arc<TopicHandle>>,
    expiry: Notify,
    feed: Arc<EventFeed>,
    sessions: Sessions,
    tokens: Arc<Tokens>,
    resource_groups: ResourceGroups,
    deployments: Arc<Deployments>,
}

/// Topics whose actor must be started, for
/// [`actor_factory::run`](crate::supervision::actor_factory::run).
pub type StartQueue = mpsc::UnboundedReceiver<Arc<TopicHandle>>;

impl Registry {
    /// Reads all records from the store. Blocks; for the start.
    pub fn load_from_journal(
        journal: Journal,
        rules: RegistryRules,
        tail_bytes: usize,
    ) -> Result<(Self, StartQueue), Error> {
        let (starts, started) = mpsc::unbounded_channel();
        let reads = journal.reader_pool();
        let numbers = match reads.all_meta(MetaKind::Numbers).next().transpose()? {
            Some((name, value)) => parse_record(&name, &value)?,
            None => NextNumbers::default(),
        };
        let mut cursors: HashMap<SubscriptionKey, Cursor> =
            reads.all_cursors()?.into_iter().collect();
        let (partition, subscription) = reads.largest_numbers()?;
        let subscription = cursors
            .keys()
            .map(|key| key.subscription)
            .fold(subscription, Ord::max);
        let mut registry = Self {
            journal: journal.clone(),
            rules,
            budget: Arc::new(RecentBudget::new(tail_bytes)),
            topics: RwLock::default(),
            partitions: RwLock::default(),
            namespaces: RwLock::default(),
            numbers: tokio::sync::Mutex::new(numbers.at_least(partition, subscription)),
            followed: tokio::sync::Mutex::default(),
            validator: OnceLock::new(),
            system_events: OnceLock::new(),
            starts,
            expiry: Notify::new(),
            feed: Arc::default(),
            sessions: Sessions::load_from_journal(journal.clone())?,
            tokens: Arc::new(Tokens::load_from_journal(journal.clone())?),
            resource_groups: ResourceGroups::load_from_journal(journal.clone())?,
            deployments: Arc::new(Deployments::load_from_journal(journal.clone())?),
        };
        for record in reads.all_meta(MetaKind::Namespace) {
            let (name, value) = record?;
            registry.insert_namespace(parse_record::<NamespaceRecord>(&name, &value)?);
        }
        for record in reads.all_meta(MetaKind::Topic) {
            let (name, value) = record?;
            let record: TopicRecord = parse_record(&name, &value)?;
            registry.insert(registry.new_topic(record)?);
        }
        for record in reads.all_meta(MetaKind::DomainTopic) {
            let (name, value) = record?;
            registry
                .owner_of(&name)?
                .set_domain_topic(parse_record(&name, &value)?);
        }
        for record in reads.all_meta(MetaKind::Subscription) {
            let (name, value) = record?;
            let record: SubscriptionRecord = parse_record(&name, &value)?;
            let topic = registry.owner_of(&name)?;
            let subscription_key = SubscriptionKey {
                partition: topic.partition(),
                subscription: record.number,
            };
            let cursor = cursors
                .remove(&subscription_key)
                .ok_or_else(|| Error::Unreadable {
                    name: name.clone(),
                    reason: "its cursor is missing".to_owned(),
                })?;
            topic.add_child(
                registry.new_plan(&topic.record(), Arc::new(record))?,
                Some(cursor),
            );
        }
        registry.discard_unnamed(cursors.into_keys());
        registry.recover_proposals()?;
        for topic in registry.list_topics() {
            let end = topic.log_end().unwrap_or(Seq::FIRST);
            if topic
                .list_children()
                .iter()
                .any(|child| !child.shared.is_idle(end))
            {
                topic.ensure_running();
            }
        }
        Ok((registry, started))
    }

    /// The topic or the domain of a record, by the record's name.
    fn owner_of(&self, name: &str) -> Result<Arc<TopicHandle>, Error> {
        let topic = name
            .split_once('/')
            .and_then(|(topic, _)| self.find_topic(topic));
        topic.ok_or_else(|| Error::Unreadable {
            name: name.to_owned(),
            reason: "its topic is missing".to_owned(),
        })
    }

    /// A topic by its name, or a domain by the [key](gridhook_record::topic::key) of its name, in
    /// any case.
    pub fn find_topic(&self, name: &str) -> Option<Arc<TopicHandle>> {
        self.topics.read().get(&name.to_ascii_lowercase()).cloned()
    }

    /// All topics, domains and topics of namespaces, by key.
    pub fn list_topics(&self) -> Vec<Arc<TopicHandle>> {
        let topics = self.topics.read();
        let mut topics: Vec<(&String, &Arc<TopicHandle>)> = topics.iter().collect();
        topics.sort_unstable_by_key(|(name, _)| *name);
        topics
            .into_iter()
            .map(|(_, topic)| Arc::clone(topic))
            .collect()
    }

    pub fn topic_of_partition(&self, partition: PartitionId) -> Option<Arc<TopicHandle>> {
        self.partitions.read().get(&partition).cloned()
    }

    /// Passes durable chunks on to the topic and the feed.
    pub fn pass_on_chunks(&self, partition: PartitionId, chunks: Vec<Chunk>) {
        for chunk in &chunks {
            self.feed
                .publish_item(|| FeedEvent::Published(partition, chunk.clone()));
        }
        // The topic may have been deleted.
        if let Some(topic) = self.topic_of_partition(partition) {
            topic.add_chunks(chunks);
        }
    }

    /// The shared state of a subscription, by number.
    pub fn shared_state(
        &self,
        SubscriptionKey {
            partition,
            subscription,
        }: SubscriptionKey,
    ) -> Option<Arc<SharedState>> {
        Some(Arc::clone(
            &self
                .topic_of_partition(partition)?
                .find_child(subscription)?
                .shared,
        ))
    }

    /// Passes a command to a subscription. It is durable when this returns.
    pub async fn send_command(
        &self,
        topic: &str,
        subscription: &str,
        command: Command,
    ) -> Result<CommandResult, Error> {
        let topic = self.require_topic(topic)?;
        let child = known_child(&topic, subscription)?;
        audit::record_intent().await;
        let outcome = child.shared.submit_command(command);
        topic.notify_changed();
        outcome
            .await
            .map_err(|_| lost_result_error(&child))?
            .map_err(Error::CommandRefused)
    }

    /// Brings retries of a subscription forward. Returns their number once they are durably due.
    ///
    /// # Errors
    /// Like [`Self::send_command`].
    pub async fn send_retry(
        &self,
        topic: &str,
        subscription: &str,
        request: RetryRequest,
    ) -> Result<u64, Error> {
        let topic = self.require_topic(topic)?;
        let child = known_child(&topic, subscription)?;
        audit::record_intent().await;
        let outcome = child.shared.submit_retry(request);
        topic.notify_changed();
        let result = outcome
            .await
            .map_err(|_| lost_result_error(&child))?
            .map_err(Error::CommandRefused)?;
        Ok(result.events)
    }

    /// Passes dead letters to a redrive job of a subscription. They are durably pending when the
    /// future completes.
    pub fn redrive_page(
        &self,
        subscription_key: SubscriptionKey,
        page: RedrivePage,
    ) -> impl Future<Output = Result<CommandResult, Error>> + Send + use<> {
        let pending_outcome = self
            .topic_of_partition(subscription_key.partition)
            .zip(self.shared_state(subscription_key))
            .map(|(topic, shared)| {
                let outcome = shared.redrive_page(page);
                topic.notify_changed();
                outcome
            });
        async move {
            let unknown_subscription =
                || Error::Unknown("there is no such event subscription".to_owned());
            let outcome = pending_outcome.ok_or_else(unknown_subscription)?;
            outcome
                .await
                .map_err(|_| journal::Error::Closed)?
                .map_err(Error::CommandRefused)
        }
    }

    /// Reports created, changed and deleted subscriptions to `events`.
    pub fn report_changes_to(&self, events: Arc<SystemEvents>) {
        self.system_events.get_or_init(|| events);
    }

    fn report_change(
        &self,
        event_type: &'static str,
        topic: &TopicHandle,
        subscription: &SubscriptionRecord,
    ) {
        if let Some(events) = self.system_events.get() {
            events.report_subscription(
                event_type,
                &topic.record(),
                subscription,
                serde_json::json!({}),
            );
        }
    }

    /// The resource groups that were created by themselves.
    pub fn resource_groups(&self) -> &ResourceGroups {
        &self.resource_groups
    }

    pub fn deployments(&self) -> &Arc<Deployments> {
        &self.deployments
    }

    /// The sessions of signed-in browsers.
    pub fn sessions(&self) -> &Sessions {
        &self.sessions
    }

    pub fn tokens(&self) -> &Arc<Tokens> {
        &self.tokens
    }

    /// The feed of events and outcomes.
    pub fn feed(&self) -> &Arc<EventFeed> {
        &self.feed
    }

    /// Stops all sending: the server stops.
    pub fn close(&self) {
        self.feed.close();
        for child in self
            .list_topics()
            .iter()
            .flat_map(|topic| topic.list_children())
        {
            child.shared.close();
        }
    }

    /// The number of requests that are in flight, or ended and not yet durable.
    pub fn in_flight(&self) -> usize {
        self.list_topics()
            .iter()
            .flat_map(|topic| topic.list_children())
            .map(|child| child.shared.in_flight())
            .sum()
    }

    /// The settings for all topics.
    pub fn rules(&self) -> &RegistryRules {
        &self.rules
    }

    fn require_topic(&self, name: &str) -> Result<Arc<TopicHandle>, Error> {
        self.find_topic(name)
            .ok_or_else(|| Error::Unknown(format!("there is no topic '{name}'")))
    }

    fn require_edition(&self, name: &str) -> Result<Arc<Edition>, Error> {
        self.rules.editions.get(name).cloned().ok_or_else(|| {
            let names = self
                .rules
                .editions
                .keys()
                .map(String::as_str)
                .collect::<Vec<_>>()
                .join(", ");
            Error::Refused(format!(
                "the edition '{}' does not exist; expected one of {names}",
                name.escape_debug()
            ))
        })
    }

    /// The edition of the topic, with the subscription's own schedule if it has one.
    fn edition_for(
        &self,
        topic: &TopicRecord,
        record: &SubscriptionRecord,
    ) -> Result<Arc<Edition>, Error> {
        let edition = self.require_edition(&topic.edition)?;
        let retry = match record.retry_schedule.as_deref() {
            None => return Ok(edition),
            Some(RetryScheduleSpec::Edition(name)) => self.require_edition(name)?.retry.clone(),
            Some(RetryScheduleSpec::Waits(waits)) => edition
                .retry
                .with_waits(waits)
                .map_err(|invalid| Error::Refused(invalid.to_string()))?,
        };
        Ok(Arc::new(Edition {
            retry,
            ..Edition::clone(&edition)
        }))
    }

    /// The waits of the subscription's own schedule that the edition of its topic makes longer.
    ///
    /// # Errors
    /// If the schedule or the edition cannot be used.
    pub fn longer_waits(
        &self,
        topic: &TopicRecord,
        record: &SubscriptionRecord,
    ) -> Result<Vec<LongerWaits>, Error> {
        if record.retry_schedule.is_none() {
            return Ok(Vec::new());
        }
        let edition = self.edition_for(topic, record)?;
        let kind = if record.resource.is_some() {
            EndpointKind::Resource
        } else {
            EndpointKind::Webhook
        };
        let terms = edition
            .rules_for(kind)
            .terms_for(record.dead_letter.is_some());
        Ok(longer_waits(&edition.retry, terms))
    }

    /// Whether event subscriptions may deliver to the test endpoint.
    pub fn has_test_endpoint(&self) -> bool {
        self.rules.delivery.addresses.test_endpoint
    }

    /// The delivery plan of a subscription.
    fn new_plan(
        &self,
        topic: &TopicRecord,
        record: Arc<SubscriptionRecord>,
    ) -> Result<Arc<DeliveryPlan>, Error> {
        let edition = self.edition_for(topic, &record)?;
        let plan = DeliveryPlan::new(record, topic.input_schema, edition, &self.rules.delivery)
            .map_err(refused_plan)?;
        Ok(Arc::new(plan.divide_limits(topic.partition_count)))
    }

    fn new_topic(&self, record: TopicRecord) -> Result<Arc<TopicHandle>, Error> {
        let budget = Arc::clone(&self.budget);
        let journal = self.journal.clone();
        Ok(Arc::new(TopicHandle::new(
            Arc::new(record),
            budget,
            journal,
            self.starts.clone(),
        )?))
    }

    fn insert(&self, topic: Arc<TopicHandle>) {
        let key = topic.record().key();
        self.partitions
            .write()
            .insert(topic.partition(), Arc::clone(&topic));
        self.topics.write().insert(key, topic);
    }
}

pub(super) fn refused_plan(error: PlanError) -> Error {
    Error::Plan(Box::new(error))
}

fn known_child(topic: &TopicHandle, name: &str) -> Result<Arc<SubscriptionHandle>, Error> {
    topic
        .find_child_named(name)
        .ok_or_else(|| no_child_error(name))
}

fn no_child_error(name: &str) -> Error {
    Error::Unknown(format!("there is no event subscription '{name}'"))
}

/// Why a subscription has not replied to a command.
fn lost_result_error(child: &SubscriptionHandle) -> Error {
    if child.shared.is_deleted() {
        no_child_error(child.shared.record().name.as_str())
    } else {
        journal::Error::Closed.into()
    }
}

pub(in crate::control) fn parse_record<T: for<'de> Deserialize<'de>>(
    name: &str,
    value: &[u8],
) -> Result<T, Error> {
    serde_json::from_slice(value).map_err(|error| {
        let mut reason = error.to_string();
        // The next change of the record would lose the unknown field.
        if reason.contains("unknown field") {
            reason += ". A newer gridhook wrote it: run that version, or restore a backup made by \
                this version";
        }
        Error::Unreadable {
            name: name.to_owned(),
            reason,
        }
    })
}
