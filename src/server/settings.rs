//! What the operator wrote, in the words of the parts that it is for.

use std::{collections::BTreeMap, io, net::SocketAddr, path::Path, sync::Arc};

use super::descriptors::Budget;
use crate::{
    admin::{
        auth::Token,
        metrics::{Bounds, Exposition, Readers, Sources, Spans},
        model,
    },
    config::{self, BacklogFull, Config},
    dead_letter::{Sink, sink},
    deliver::{
        self, AddressRules, Identities, Sockets, Trust,
        names::Resolver,
        trust::{self, Roots, Version},
    },
    event::Timestamp,
    journal,
    policy::{
        edition::{self, Edition},
        place,
        validation::Times,
    },
    publish::{
        self,
        auth::strangers::{Patience, Strangers},
    },
    subscription::{Delivery, greeter::Manners},
    telemetry::trace::{Counts, Tracer},
    topic::registry::Rules,
};

/// The server's own limits on a subscription, which no edition changes. Without batching a request has one event.
const EVENTS_PER_BATCH: model::Range = model::Range { min: 1, max: 5000, default: 1 };

pub(super) fn journal_options(config: &Config) -> journal::Options {
    journal::Options {
        outcome_wait: config.journal.outcome_wait,
        group_bytes: config.journal.group_bytes,
        limits: journal::Limits {
            retention: config.journal.retention,
            backlog: Some(journal::Bound {
                bytes: config.journal.backlog_max,
                when_full: match config.journal.backlog_full {
                    BacklogFull::Refuse => journal::WhenFull::Refuse,
                    BacklogFull::Expire => journal::WhenFull::Expire,
                },
            }),
        },
    }
}

pub(super) fn rules(config: &Config, identities: &Identities, own: &[SocketAddr]) -> Rules {
    let editions: BTreeMap<String, Arc<Edition>> = known_editions(config);
    let delivery = Delivery {
        addresses: addresses(config, own),
        response_wait: config.delivery.response_wait,
        late_wait: config.delivery.late_wait,
        reconnect_wait: config.delivery.reconnect_wait,
        concurrency_max: u32::try_from(config.delivery.concurrency).unwrap_or(u32::MAX),
        client_certificates: identities.clone(),
        places: config.dead_letter.places.clone(),
        leases_max: config.limits.leases_per_subscription,
    };
    Rules {
        editions,
        delivery,
        domain_topics_max: config.topic.domain_topics,
        topics_max: config.limits.topics,
        subscriptions_max: config.limits.subscriptions_per_topic,
    }
}

/// The stores of dead letters, by name. Blocks: a folder is made.
pub(super) fn sinks(config: &Config) -> Result<Vec<(String, Sink)>, super::Error> {
    let open = |(name, store): (&String, &config::Store)| {
        let config::Store { address, endpoint, region, allow_http, credentials } = store;
        let sink = match address.kind {
            place::Kind::Folder => Sink::local(&Path::new("/").join(address.path.join("/"))),
            place::Kind::S3 | place::Kind::Azure | place::Kind::Google => Sink::cloud(sink::Settings {
                address: address.clone(),
                endpoint: endpoint.clone(),
                region: region.clone(),
                allow_http: *allow_http,
                credentials: credentials.iter().map(|(name, value)| (*name, value.expose().to_owned())).collect(),
            }),
        };
        Ok((name.clone(), sink.map_err(|error| super::Error::Sink(name.clone(), error))?))
    };
    config.dead_letter.stores.iter().map(open).collect()
}

fn addresses(config: &Config, own: &[SocketAddr]) -> AddressRules {
    let config::Delivery { allow_http, allow_networks, .. } = &config.delivery;
    AddressRules { allow_http: *allow_http, allow_networks: allow_networks.clone(), own: own.to_vec() }
}

/// How those are treated who show what is no good.
pub(super) fn strangers(config: &Config) -> Strangers {
    let patience = Patience {
        free: config.limits.failed_keys,
        wait_max: config.limits.failed_keys_wait,
        addresses_max: config.limits.failed_keys_addresses,
        waiting_max: config.limits.failed_keys_held,
        ..Patience::default()
    };
    Strangers::new(patience, config.auth.trusted_proxies.clone())
}

fn known_editions(config: &Config) -> BTreeMap<String, Arc<Edition>> {
    let editions = &config.policy.editions;
    editions.names().filter_map(|name| Some((name.to_owned(), editions.get(name)?))).collect()
}

pub(super) fn editions(config: &Config) -> model::Editions {
    let range = |range: edition::Range| model::Range { min: range.min, max: range.max, default: range.default };
    let config::Delivery { batch_events, batch_kilobytes, .. } = config.delivery;
    let known = known_editions(config).into_iter().map(|(name, edition)| {
        let ranges = model::Ranges {
            attempts: range(edition.attempts),
            time_to_live_minutes: range(edition.time_to_live_minutes),
            events_per_batch: EVENTS_PER_BATCH,
            events_where_only_kilobytes: batch_events,
            kilobytes_per_batch: model::Range { min: 1, max: 1024, default: batch_kilobytes },
            filter_text_max: config.limits.filter_text,
            event_types_max: config.limits.event_types,
            advanced_filters_max: config.limits.advanced_filters,
            advanced_values_max: config.limits.advanced_values,
            retry_period_days_max: edition.dead_letter.retry_period_days_max,
        };
        (name, ranges)
    });
    model::Editions { default: config.policy.edition.clone(), known: known.collect() }
}

pub(super) fn publish_limits(config: &Config) -> publish::Limits {
    publish::Limits {
        request_bytes_max: config.publish.request_bytes,
        event_bytes_max: config.publish.event_bytes,
        events_max: config.publish.events_per_request,
        namespace_events_max: config.publish.namespace_events_per_request,
        admitted_bytes_max: config.publish.bytes_in_flight,
        body_wait: config.publish.body_wait,
        body_bytes_per_second: config.publish.body_bytes_per_second,
        rates: publish::rate::Rates {
            events_per_second: config.publish.events_per_second,
            bytes_per_second: config.publish.bytes_per_second,
        },
        depth_max: config.limits.event_depth,
        ..publish::Limits::default()
    }
}

pub(super) fn version(version: config::TlsVersion) -> Version {
    match version {
        config::TlsVersion::Tls12 => Version::Tls12,
        config::TlsVersion::Tls13 => Version::Tls13,
    }
}

/// How endpoints are called.
pub(super) fn client(config: &Config, own: &[SocketAddr], budget: &Budget) -> Result<deliver::Options, trust::Error> {
    let config::Delivery { tls_roots, tls_minimum_version, client_certificates_dir, .. } = &config.delivery;
    let roots = tls_roots.iter().map(|roots| match roots {
        config::Roots::System => Roots::System,
        config::Roots::File(path) => Roots::File(path.clone()),
    });
    let trust = Trust::of(&roots.collect::<Vec<_>>(), version(*tls_minimum_version))?;
    let identities = match client_certificates_dir {
        Some(folder) => Identities::load(folder, &trust)?,
        None => Identities::default(),
    };
    let options = deliver::Options::new(addresses(config, own), trust);
    let (keep_alive, lingering_max) = (config.delivery.idle_connection_wait, config.limits.lingering);
    let names = Arc::new(Resolver::new(config.delivery.name_servers.clone()));
    let sockets = Sockets::new(budget.outbound, budget.idle);
    Ok(deliver::Options { identities, names, keep_alive, lingering_max, sockets, ..options })
}

/// Whose figures are told, and to whom.
pub(super) fn exposition(config: &Config, sources: Sources, started: Timestamp) -> io::Result<Exposition> {
    let config::Metrics { public: _, token: _, subscriptions, subscriptions_per_topic, topics } = &config.metrics;
    let readers = readers(config)?;
    let bounds =
        Bounds { subscriptions: *subscriptions, subscriptions_per_topic: *subscriptions_per_topic, topics: *topics };
    Ok(Exposition::new(sources, bounds, readers, started))
}

/// Who may read figures.
pub(super) fn readers(config: &Config) -> io::Result<Readers> {
    let config::Metrics { public, token, .. } = &config.metrics;
    let token = token.as_ref().map(|token| Token::given(token.expose())).transpose()?;
    Ok(if *public { Readers::All } else { Readers::Token(token) })
}

/// What is told of spans; [`None`] where none are recorded.
pub(super) fn spans(tracer: Tracer) -> Option<Spans> {
    tracer.counts()?;
    Some(Box::new(move || {
        let Counts { exported, dropped, failed } = tracer.counts().unwrap_or_default();
        [("exported", exported), ("dropped", dropped), ("failed", failed)]
    }))
}

/// How endpoints are asked whether they may be.
pub(super) fn manners(config: &Config, public_url: String) -> Manners {
    let config::Validate { enabled, wait, pause, window, request_rate } = config.delivery.validate;
    Manners { validate: enabled, times: Times { answer: wait, pause, window }, rate: request_rate, public_url }
}
