//! Converts the operator's settings into the settings of each module.

use std::{collections::BTreeMap, io, net::SocketAddr, sync::Arc};

use super::descriptors::DescriptorBudget;
use gridhook_admin::{
    EditionTables,
    admin_token::AdminToken,
    metrics::{Exposition, MetricSources, MetricsAccess, SeriesLimits, Spans},
    model,
};
use gridhook_api::server::SettingView;
use gridhook_compute::ComputeLimits;
use gridhook_config as config;
use gridhook_config::{BacklogFull, Config};
use gridhook_dead_letter::Sink;
use gridhook_deliver as deliver;
use gridhook_deliver::{
    AddressRules, ClientCertificates, Sockets, TlsTrust,
    assertion::IdentityCertificate,
    bodies::BodyBudget,
    identity::{IdentityProof, ServerIdentity},
    resolver::Resolver,
    resource::{Connection, Connections, Credential},
    trust::{self, MinimumTlsVersion, TrustRoots},
};
use gridhook_engine::control::{registry::RegistryRules, validation::ValidationSettings};
use gridhook_event::Timestamp;
use gridhook_journal as journal;
use gridhook_policy::{
    edition::{self, Edition},
    validation::HandshakeTimes,
};
use gridhook_publish as publish;
use gridhook_publish::auth::failed_auth::{FailedAuthLimiter, FailedAuthLimits};
use gridhook_storage::destination::open_sink;
use gridhook_subscription::DeliveryContext;
use gridhook_telemetry::trace::{SpanCounts, Tracer};

/// The server's own limits, which no edition changes. Without batching a request has one event.
const EVENTS_PER_BATCH: model::ValueRange = model::ValueRange {
    min: 1,
    max: 5000,
    default: 1,
};

pub(super) fn journal_options(config: &Config) -> journal::JournalOptions {
    journal::JournalOptions {
        outcome_delay: config.journal.outcome_delay,
        group_bytes: config.journal.group_bytes,
        shards: journal::Shards::new(config.journal.shards),
        limits: journal::BacklogLimits {
            retention: config.journal.retention,
            backlog: Some(journal::BacklogBound {
                bytes: config.journal.backlog_max,
                when_full: match config.journal.backlog_full {
                    BacklogFull::Refuse => journal::BacklogFullPolicy::Refuse,
                    BacklogFull::Expire => journal::BacklogFullPolicy::Expire,
                },
            }),
        },
    }
}

pub(super) fn compute_limits(config: &Config) -> ComputeLimits {
    let limits = &config.limits;
    ComputeLimits {
        threads: limits.compute_threads,
        time_max: limits.compute_time,
        bytes_max: limits.compute_bytes,
    }
}

pub(super) fn registry_rules(
    config: &Config,
    client: &deliver::ClientOptions,
    own: &[SocketAddr],
) -> RegistryRules {
    let editions: BTreeMap<String, Arc<Edition>> = known_editions(config);
    let delivery = DeliveryContext {
        addresses: address_rules(config, own),
        response_timeout: config.delivery.response_timeout,
        late_timeout: config.delivery.late_timeout,
        reconnect_interval: config.delivery.reconnect_interval,
        hold_after_failing: config.delivery.hold_after_failing,
        concurrency_max: u32::try_from(config.delivery.concurrency).unwrap_or(u32::MAX),
        client_certificates: client.identities.clone(),
        named_stores: config.dead_letter.named_stores.clone(),
        leases_max: config.limits.leases_per_subscription,
        ordered_events_max: config.limits.ordered_events_per_subscription,
        waits: Arc::default(),
        connections: client.connections.clone(),
    };
    RegistryRules {
        editions,
        delivery,
        domain_topics_max: config.topic.domain_topics,
        topics_max: config.limits.topics,
        subscriptions_max: config.limits.subscriptions_per_topic,
    }
}

/// Opens the dead-letter stores. Blocks, because it creates folders.
pub(super) fn open_sinks(config: &Config) -> Result<Vec<(String, Sink)>, super::ServerError> {
    let mut sinks = Vec::new();
    for (name, store) in &config.dead_letter.stores {
        let sink = open_sink(store);
        let sink = sink.map_err(|error| super::ServerError::Sink(name.clone(), error))?;
        sinks.push((name.clone(), sink));
    }
    Ok(sinks)
}

fn address_rules(config: &Config, own: &[SocketAddr]) -> AddressRules {
    let config::Delivery {
        allow_http,
        allow_networks,
        test_endpoint,
        ..
    } = &config.delivery;
    AddressRules {
        allow_http: *allow_http,
        allow_networks: allow_networks.clone(),
        own: own.to_vec(),
        test_endpoint: *test_endpoint,
    }
}

pub(super) fn failed_auth_limiter(config: &Config) -> FailedAuthLimiter {
    let limits = FailedAuthLimits {
        free: config.limits.failed_keys,
        wait_max: config.limits.failed_keys_delay,
        addresses_max: config.limits.failed_keys_addresses,
        waiting_max: config.limits.failed_keys_held,
        ..FailedAuthLimits::default()
    };
    FailedAuthLimiter::new(limits, config.auth.trusted_proxies.clone())
}

fn known_editions(config: &Config) -> BTreeMap<String, Arc<Edition>> {
    let editions = &config.policy.editions;
    editions
        .names()
        .filter_map(|name| Some((name.to_owned(), editions.get(name)?)))
        .collect()
}

/// The editions as tables, and what a simulation takes from the settings.
pub(super) fn edition_tables(config: &Config) -> EditionTables {
    EditionTables {
        by_name: known_editions(config),
        response_timeout: config.delivery.response_timeout,
        outcome_delay: config.journal.outcome_delay,
        concurrency: u32::try_from(config.delivery.concurrency).unwrap_or(u32::MAX),
    }
}

/// The settings among `all` that differ from the defaults.
pub(super) fn changed_settings(all: &[config::Setting]) -> Vec<SettingView> {
    all.iter()
        .filter(|setting| setting.is_changed)
        .map(|setting| SettingView {
            key: setting.key.clone(),
            value: setting.value.clone(),
            origin: setting.origin.to_string(),
        })
        .collect()
}

fn value_range(range: edition::SettingRange) -> model::ValueRange {
    model::ValueRange {
        min: range.min,
        max: range.max,
        default: range.default,
    }
}

/// The editions as the control plane needs them.
pub fn editions(config: &Config) -> model::Editions {
    let config::Delivery {
        batch_events,
        batch_kilobytes,
        ..
    } = config.delivery;
    let by_name = known_editions(config).into_iter().map(|(name, edition)| {
        let ranges = model::EditionRanges {
            attempts: value_range(edition.attempts),
            time_to_live_minutes: value_range(edition.time_to_live_minutes),
            events_per_batch: EVENTS_PER_BATCH,
            events_where_only_kilobytes: batch_events,
            kilobytes_per_batch: model::ValueRange {
                min: 1,
                max: 1024,
                default: batch_kilobytes,
            },
            filter_text_max: config.limits.filter_text,
            event_types_max: config.limits.event_types,
            advanced_filters_max: config.limits.advanced_filters,
            advanced_values_max: config.limits.advanced_values,
            retry_period_days_max: edition.dead_letter.retry_period_days_max,
            webhook_wait_min: edition.webhook.otherwise,
            resource_wait_min: edition.resource.otherwise,
        };
        (name, ranges)
    });
    model::Editions {
        default: config.policy.edition.clone(),
        known: by_name.collect(),
    }
}

pub(super) fn publish_limits(config: &Config) -> publish::PublishLimits {
    publish::PublishLimits {
        request_bytes_max: config.publish.request_bytes,
        event_bytes_max: config.publish.event_bytes,
        events_max: config.publish.events_per_request,
        namespace_events_max: config.publish.namespace_events_per_request,
        admitted_bytes_max: config.publish.bytes_in_flight,
        body_timeout: config.publish.body_timeout,
        body_bytes_per_second: config.publish.body_bytes_per_second,
        rates: publish::rate::TopicRates {
            events_per_second: config.publish.events_per_second,
            bytes_per_second: config.publish.bytes_per_second,
        },
        depth_max: config.limits.event_depth,
        ..publish::PublishLimits::default()
    }
}

pub(super) fn minimum_tls_version(version: config::TlsVersion) -> MinimumTlsVersion {
    match version {
        config::TlsVersion::Tls12 => MinimumTlsVersion::Tls12,
        config::TlsVersion::Tls13 => MinimumTlsVersion::Tls13,
    }
}

/// The authorities that clients of this server trust.
pub(super) fn tls_trust(config: &Config) -> Result<TlsTrust, trust::TrustError> {
    let config::Delivery {
        tls_roots,
        tls_minimum_version,
        ..
    } = &config.delivery;
    let roots = tls_roots.iter().map(|roots| match roots {
        config::TrustRoots::System => TrustRoots::System,
        config::TrustRoots::File(path) => TrustRoots::File(path.clone()),
    });
    TlsTrust::load_roots(
        &roots.collect::<Vec<_>>(),
        minimum_tls_version(*tls_minimum_version),
    )
}

/// The options of the HTTP client for endpoints.
pub(super) fn client_options(
    config: &Config,
    own: &[SocketAddr],
    budget: &DescriptorBudget,
) -> Result<deliver::ClientOptions, trust::TrustError> {
    let trust = tls_trust(config)?;
    let identities = match &config.delivery.client_certificates_dir {
        Some(folder) => ClientCertificates::load(folder, &trust)?,
        None => ClientCertificates::default(),
    };
    let options = deliver::ClientOptions::new(address_rules(config, own), trust);
    let keep_alive = config.delivery.idle_connection_timeout;
    let late_requests_max = config.limits.late_requests;
    let names = Arc::new(Resolver::new(config.delivery.name_servers.clone()));
    let sockets = Sockets::new(budget.outbound, budget.idle);
    let connections = service_connections(config)?;
    let proxy = config
        .delivery
        .proxy
        .as_deref()
        .and_then(|name| connections.find_proxy(name));
    Ok(deliver::ClientOptions {
        identities,
        names,
        proxy,
        keep_alive,
        late_requests_max,
        sockets,
        bodies: BodyBudget::new(config.delivery.bytes_in_flight),
        connections,
        ..options
    })
}

fn service_connection(service: &config::ResourceConfig) -> Connection {
    let credentials = service.credentials.iter();
    Connection {
        name: service.name.clone(),
        url: service.url.clone(),
        resource_ids: service.resource_ids.clone(),
        credentials: credentials
            .map(|(name, secret)| (*name, Credential::new(secret.expose())))
            .collect(),
    }
}

/// The identity of the server; its certificate is read once, to find out whether it can be.
fn server_identity(identity: &config::IdentityConfig) -> Result<ServerIdentity, trust::TrustError> {
    let proof = match &identity.proof {
        config::IdentityProofConfig::Secret(file) => IdentityProof::Secret(file.clone()),
        config::IdentityProofConfig::Certificate { certificate, key } => {
            let proof = IdentityCertificate {
                certificate: certificate.clone(),
                key: key.clone(),
            };
            proof.end_entity()?;
            IdentityProof::Certificate(proof)
        }
    };
    Ok(ServerIdentity::new(
        &identity.token_url,
        &identity.client_id,
        proof,
    ))
}

/// The services that event subscriptions deliver to besides webhooks.
fn service_connections(config: &Config) -> Result<Connections, trust::TrustError> {
    let services = config.delivery.resources.iter();
    let all: Vec<Connection> = services.map(service_connection).collect();
    if let Some(proxy) = &config.delivery.proxy {
        for Connection { name, url, .. } in all.iter().filter(|one| !one.is_proxied()) {
            tracing::warn!(resource = name, url = %url, proxy, "a service is connected without the \
                proxy");
        }
    }
    let identity = config
        .delivery
        .identity
        .as_ref()
        .map(server_identity)
        .transpose()?;
    Ok(Connections::new(
        all,
        identity,
        config.delivery.proxy_bypass.clone(),
    ))
}

pub(super) fn metrics_exposition(
    config: &Config,
    sources: MetricSources,
    started: Timestamp,
) -> io::Result<Exposition> {
    let config::Metrics {
        public: _,
        token: _,
        subscriptions,
        subscriptions_per_topic,
        topics,
    } = &config.metrics;
    let readers = metrics_access(config)?;
    let bounds = SeriesLimits {
        subscriptions: *subscriptions,
        subscriptions_per_topic: *subscriptions_per_topic,
        topics: *topics,
    };
    Ok(Exposition::new(sources, bounds, readers, started))
}

/// The read access to metrics.
pub(super) fn metrics_access(config: &Config) -> io::Result<MetricsAccess> {
    let config::Metrics { public, token, .. } = &config.metrics;
    let token = token
        .as_ref()
        .map(|token| AdminToken::from_setting("metrics.token", token.expose()))
        .transpose()?;
    Ok(if *public {
        MetricsAccess::All
    } else {
        MetricsAccess::Token(token)
    })
}

/// The counts of exported spans, if traces are recorded.
pub(super) fn span_counts(tracer: Tracer) -> Option<Spans> {
    tracer.span_counts()?;
    Some(Box::new(move || {
        let SpanCounts {
            exported,
            dropped,
            failed,
        } = tracer.span_counts().unwrap_or_default();
        [
            ("exported", exported),
            ("dropped", dropped),
            ("failed", failed),
        ]
    }))
}

/// The settings of endpoint validation.
pub(super) fn validation_settings(config: &Config, public_url: String) -> ValidationSettings {
    let config::ValidationMode {
        enabled,
        wait,
        pause,
        window,
        request_rate,
    } = config.delivery.validate;
    ValidationSettings {
        validate: enabled,
        times: HandshakeTimes {
            answer: wait,
            pause,
            window,
        },
        rate: request_rate,
        public_url,
    }
}
