//! A publish endpoint on topics and a journal in memory.

use std::{
    collections::BTreeMap,
    ops::ControlFlow,
    sync::{Arc, OnceLock, Weak, mpsc},
    time::Duration,
};

use actix_web::web;
use bytes::Bytes;
use gridhook::{
    clock::{Clock, ManualClock},
    compute::Compute,
    config::Config,
    control::registry::{Registry, RegistryRules, StartQueue},
    deliver::{AddressRules, ClientOptions, bodies::BodyBudget, trust::TlsTrust},
    event::{
        Event, Name, PartitionId, Schema, Seq, Timestamp,
        chunk::{Chunk, end_of},
    },
    fanout::CHECK_INTERVAL,
    journal::{self, Journal},
    publish::{
        PublishLimits,
        auth::{AuthRules as Door, Authenticator},
        http::Publisher,
    },
    record::{
        ingress::{IngressSettings, InputSchemaMapping, MappedField, MappedFieldOrDefault},
        topic::{AccessKeys, ArmScope, DomainTopics, StoredTopicProperties, TopicRecord},
    },
    store::{Family, Store, keys},
    subscription::{DeliveryContext, ReadBudget, SubscriptionContext},
    supervision::actor_factory::{self, ActorHosts},
};

use crate::support::memory_store::{MemoryStore, WriteFault};

pub(crate) const KEY: &str = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=";
pub(crate) const KEY2: &str = "++++++++++++++++++++++++++++++++++++++++++8=";

/// The topics that one domain may have here.
pub(crate) const DOMAIN_TOPICS: usize = 5;

/// A topic as the control plane would make it.
pub(crate) fn topic(name: &str, input_schema: Schema) -> TopicRecord {
    TopicRecord {
        name: Name::new(name),
        scope: ArmScope {
            subscription: "s".to_owned(),
            resource_group: "g".to_owned(),
        },
        partitions: vec![PartitionId(1)],
        input_schema,
        keys: AccessKeys {
            key1: KEY.to_owned(),
            key2: KEY2.to_owned(),
        },
        ingress: IngressSettings::default(),
        edition: "current".to_owned(),
        location: String::new(),
        tags: BTreeMap::new(),
        domain: None,
        namespace: None,
        partition_count: 1,
        metric_resource_id: String::new(),
        azure_properties: StoredTopicProperties::default(),
        system_data: None,
    }
}

/// A domain as the control plane would make it.
pub(crate) fn domain(name: &str, input_schema: Schema) -> TopicRecord {
    TopicRecord {
        domain: Some(DomainTopics {
            auto_create: true,
            auto_delete: true,
        }),
        ..topic(name, input_schema)
    }
}

/// The rules of a server with the defaults.
pub(crate) fn rules() -> RegistryRules {
    let config = Config::load(&gridhook::config::SettingSources::default())
        .expect("the defaults are a configuration");
    let edition = |name: &str| {
        config
            .policy
            .editions
            .get(name)
            .expect("the edition is built in")
    };
    let current = edition("current");
    let namespace = edition("namespace");
    RegistryRules {
        editions: BTreeMap::from([
            ("current".to_owned(), Arc::clone(&current)),
            ("namespace".to_owned(), namespace),
            ("short".to_owned(), current),
        ]),
        delivery: DeliveryContext {
            addresses: AddressRules::loopback(),
            response_timeout: Duration::from_secs(30),
            late_timeout: Duration::from_secs(180),
            hold_after_failing: None,
            reconnect_interval: Duration::ZERO,
            concurrency_max: 16,
            leases_max: 100,
            ordered_events_max: 100_000,
            connections: gridhook::deliver::resource::Connections::default(),
            client_certificates: gridhook::deliver::ClientCertificates::default(),
            named_stores: config.dead_letter.named_stores.clone(),
            waits: Arc::default(),
        },
        domain_topics_max: DOMAIN_TOPICS,
        topics_max: 100,
        subscriptions_max: 100,
    }
}

/// A journal in memory whose time stands still.
pub(crate) fn journal(store: &MemoryStore) -> (Journal, Clock, ManualClock) {
    journal_with(store, |_, _| {})
}

/// The same, with a callback for appended events.
fn journal_with(
    store: &(impl Store + Clone),
    on_append: impl Fn(PartitionId, Vec<Chunk>) + Send + Sync + 'static,
) -> (Journal, Clock, ManualClock) {
    // 2021-03-10T21:02:56Z
    let (clock, hand) = Clock::new_manual(Timestamp(1_615_410_176_000_000));
    let options = journal::JournalOptions {
        outcome_delay: Duration::ZERO,
        group_bytes: 1024 * 1024,
        shards: journal::Shards::default(),
        limits: journal::BacklogLimits::default(),
    };
    let store: Arc<dyn Store> = Arc::new(store.clone());
    let (journal, _writer) = Journal::start(
        store,
        clock.clone(),
        options,
        Box::new(on_append),
        Box::new(|_| {}),
    )
    .expect("an empty store");
    (journal, clock, hand)
}

/// A registry on `store` whose actors run on the arbiter of the test.
pub(crate) fn running_registry(store: &MemoryStore) -> (Arc<Registry>, Clock, ManualClock) {
    registry_with_check_interval(store, CHECK_INTERVAL)
}

/// Makes a registry whose topics check their subscriptions in this interval.
pub(crate) fn registry_with_check_interval(
    store: &(impl Store + Clone),
    check_interval: Duration,
) -> (Arc<Registry>, Clock, ManualClock) {
    let (registry, _journal, clock, hand) = journaled_registry(store, check_interval);
    (registry, clock, hand)
}

/// Makes a registry whose topics check their subscriptions in this interval, and returns its
/// journal, too.
pub(crate) fn journaled_registry(
    store: &(impl Store + Clone),
    check_interval: Duration,
) -> (Arc<Registry>, Journal, Clock, ManualClock) {
    computing_registry(
        store,
        check_interval,
        Compute::default(),
        BodyBudget::default(),
    )
}

/// Makes a registry whose subscriptions compute on these threads and have this budget of bodies.
pub(crate) fn computing_registry(
    store: &(impl Store + Clone),
    check_interval: Duration,
    compute: Compute,
    bodies: BodyBudget,
) -> (Arc<Registry>, Journal, Clock, ManualClock) {
    let appended_to = Arc::new(OnceLock::<Weak<Registry>>::new());
    let known = Arc::clone(&appended_to);
    let (journal, clock, hand) = journal_with(store, move |partition, chunks| {
        if let Some(registry) = known.get().and_then(Weak::upgrade) {
            registry.pass_on_chunks(partition, chunks);
        }
    });
    let (registry, starts) =
        Registry::load_from_journal(journal.clone(), rules(), 1024 * 1024).expect("an empty store");
    let registry = Arc::new(registry);
    appended_to
        .set(Arc::downgrade(&registry))
        .expect("it is set once");
    let client = ClientOptions::new(
        AddressRules::loopback(),
        TlsTrust::load(None).expect("certificates"),
    );
    let client = ClientOptions { bodies, ..client };
    let context = SubscriptionContext {
        journal: journal.clone(),
        clock: clock.clone(),
        client,
        on_dead_letter: Arc::new(|_, _| {}),
        response_faults: Arc::default(),
        tracer: Default::default(),
        feed: Arc::default(),
        read_budget: ReadBudget::new(16 << 20),
        compute,
    };
    let arbiters = Arc::new(vec![actix::Arbiter::current()]);
    let hosts = ActorHosts {
        arbiters,
        context: Arc::new(context),
        check_interval,
    };
    actix_rt::spawn(actor_factory::run(starts, hosts));
    (registry, journal, clock, hand)
}

/// The mapping of the topic `custom`.
pub(crate) fn mapping() -> InputSchemaMapping {
    let source = |name: &str| {
        Some(MappedField {
            source_field: Some(name.to_owned()),
        })
    };
    let or = |name: &str, default: &str| {
        Some(MappedFieldOrDefault {
            source_field: Some(name.to_owned()),
            default_value: Some(default.to_owned()),
        })
    };
    InputSchemaMapping {
        id: source("eventId"),
        topic: source("t"),
        event_time: source("when"),
        event_type: or("myEventTypeField", "CustomType"),
        subject: or("path", "Default\"Subject"),
        data_version: Some(MappedFieldOrDefault {
            source_field: Some("ver".to_owned()),
            default_value: None,
        }),
    }
}

/// An endpoint with the topics `orders` (Event Grid schema), `clouds` (CloudEvents) and `custom`
/// ([`mapping`]), domains of the same names, and a domain `shop`.
pub(crate) struct Endpoint {
    pub(crate) publisher: web::Data<Publisher>,
    pub(crate) registry: Arc<Registry>,
    pub(crate) hand: ManualClock,
    store: MemoryStore,
    _starts: StartQueue,
}

impl Endpoint {
    pub(crate) fn new(limits: PublishLimits) -> Self {
        Self::with(limits, Door::default(), &IngressSettings::default())
    }

    /// An endpoint behind this door, whose topics all ask this of their publishers.
    pub(crate) fn with(limits: PublishLimits, door: Door, ingress: &IngressSettings) -> Self {
        let store = MemoryStore::new();
        let (journal, clock, hand) = journal(&store);
        let (registry, starts) = Registry::load_from_journal(journal.clone(), rules(), 1024 * 1024)
            .expect("an empty store");
        let registry = Arc::new(registry);
        let (done, finished) = mpsc::channel();
        let making = Arc::clone(&registry);
        let ingress = ingress.clone();
        // A runtime of its own: the test's is busy waiting for this.
        std::thread::spawn(move || {
            actix_rt::System::new().block_on(async {
                let topics = [
                    ("orders", Schema::EventGrid),
                    ("clouds", Schema::CloudEvents),
                    ("custom", Schema::Custom),
                ];
                for (name, schema) in topics {
                    let mapping = (schema == Schema::Custom).then(mapping);
                    let ingress = IngressSettings {
                        mapping,
                        ..ingress.clone()
                    };
                    let topic = TopicRecord {
                        ingress: ingress.clone(),
                        ..topic(name, schema)
                    };
                    making.put_topic(topic).await.expect("a topic");
                    making
                        .put_topic(TopicRecord {
                            ingress,
                            ..domain(name, schema)
                        })
                        .await
                        .expect("a domain");
                }
                let lone = TopicRecord {
                    ingress,
                    ..domain("shop", Schema::EventGrid)
                };
                making.put_topic(lone).await.expect("a domain");
            });
            done.send(()).expect("the test waits");
        });
        finished.recv().expect("the topics are made");
        let publisher = Publisher::new(
            Arc::clone(&registry),
            journal,
            clock,
            limits,
            Authenticator::new(door),
        );
        Self {
            publisher: web::Data::new(publisher),
            registry,
            hand,
            store,
            _starts: starts,
        }
    }

    /// The disk is full from now on.
    pub(crate) fn fill(&self) {
        self.store
            .fail(self.store.writes()..u64::MAX, WriteFault::Full);
    }

    /// The store fails from now on, and the journal ends.
    pub(crate) fn break_down(&self) {
        self.store
            .fail(self.store.writes()..u64::MAX, WriteFault::Failed);
    }

    /// The events that the journal has.
    pub(crate) fn events(&self) -> Vec<Event> {
        let range = keys::family_range(Family::Log);
        let mut events = Vec::new();
        let mut read = |key: &[u8], value: &[u8]| {
            let (_, first) = keys::parse_log(key).expect("a key of the log");
            let chunk = Chunk::decode(first, Bytes::copy_from_slice(value)).expect("a chunk");
            events.extend(chunk.decode_events().expect("a chunk's events"));
            ControlFlow::Continue(())
        };
        self.store
            .scan(Family::Log, &range.start, &range.end, &mut read)
            .expect("memory can be read");
        events
    }

    /// The number of events in the journal.
    pub(crate) fn stored(&self) -> u64 {
        let range = keys::family_range(Family::Log);
        let mut events = 0;
        let mut count = |key: &[u8], value: &[u8]| {
            let (_, first) = keys::parse_log(key).expect("a key of the log");
            let end: Seq = end_of(first, value).expect("a chunk");
            events += end.0 - first.0;
            ControlFlow::Continue(())
        };
        self.store
            .scan(Family::Log, &range.start, &range.end, &mut count)
            .expect("memory can be read");
        events
    }
}
