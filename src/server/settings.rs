//! What the operator wrote, in the words of the parts that it is for.

use std::{collections::BTreeMap, sync::Arc};

use crate::{
    admin::model,
    config::Config,
    deliver::AddressRules,
    journal,
    policy::edition::{self, Edition},
    publish,
    subscription::Delivery,
    topic::registry::Rules,
};

/// The server's own limits on a subscription, which no edition changes.
const EVENTS_PER_BATCH: model::Range = model::Range { min: 1, max: 5000, default: 1 };

/// Kilobytes of a batch, likewise.
const KILOBYTES_PER_BATCH: model::Range = model::Range { min: 1, max: 1024, default: 64 };

pub(super) fn journal_options(config: &Config) -> journal::Options {
    journal::Options {
        outcome_wait: config.journal.outcome_wait,
        group_bytes: config.journal.group_bytes,
        limits: journal::Limits { retention: config.journal.retention },
    }
}

pub(super) fn rules(config: &Config) -> Rules {
    let editions: BTreeMap<String, Arc<Edition>> = known_editions(config);
    let addresses =
        AddressRules { allow_http: config.delivery.allow_http, allow_networks: config.delivery.allow_networks.clone() };
    let delivery = Delivery {
        addresses,
        response_wait: config.delivery.response_wait,
        late_wait: config.delivery.late_wait,
        concurrency_max: u32::try_from(config.delivery.concurrency).unwrap_or(u32::MAX),
    };
    Rules { editions, delivery }
}

fn known_editions(config: &Config) -> BTreeMap<String, Arc<Edition>> {
    let editions = &config.policy.editions;
    editions.names().filter_map(|name| Some((name.to_owned(), editions.get(name)?))).collect()
}

pub(super) fn editions(config: &Config) -> model::Editions {
    let range = |range: edition::Range| model::Range { min: range.min, max: range.max, default: range.default };
    let known = known_editions(config).into_iter().map(|(name, edition)| {
        let ranges = model::Ranges {
            attempts: range(edition.attempts),
            time_to_live_minutes: range(edition.time_to_live_minutes),
            events_per_batch: EVENTS_PER_BATCH,
            kilobytes_per_batch: KILOBYTES_PER_BATCH,
            filter_text_max: 512,
            event_types_max: 25,
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
        admitted_bytes_max: config.publish.bytes_in_flight,
        body_wait: config.publish.body_wait,
        rates: publish::rate::Rates {
            events_per_second: config.publish.events_per_second,
            bytes_per_second: config.publish.bytes_per_second,
        },
        ..publish::Limits::default()
    }
}
