//! The control plane.

mod account;
mod advanced;
mod attributes;
mod auth;
mod bodies;
mod chaos;
mod control;
mod destination;
mod domain;
mod enumerations;
mod expiration;
mod fuzz;
mod health;
mod history;
mod http;
mod list;
mod namespace;
mod namespace_subscription;
mod odata;
mod openapi;
mod path;
mod provider;
mod resources;
mod routes;
mod session;
mod subscription;
mod test_filter;
mod top;
mod topic;
mod validate;

use std::collections::BTreeMap;

use gridhook::{
    admin::model::{EditionRanges, Editions, ValueRange},
    control::record::{
        ingress::IngressSettings,
        topic::{AccessKeys, ArmScope, StoredTopicProperties, TopicRecord},
    },
    event::{Name, Schema},
};

/// The numbers of the current edition.
fn ranges() -> EditionRanges {
    EditionRanges {
        attempts: ValueRange { min: 1, max: 30, default: 30 },
        time_to_live_minutes: ValueRange { min: 1, max: 1440, default: 1440 },
        events_per_batch: ValueRange { min: 1, max: 5000, default: 1 },
        events_where_only_kilobytes: 5000,
        kilobytes_per_batch: ValueRange { min: 1, max: 1024, default: 64 },
        filter_text_max: 512,
        event_types_max: 25,
        advanced_filters_max: 25,
        advanced_values_max: 25,
        retry_period_days_max: 0,
    }
}

fn editions() -> Editions {
    let short = EditionRanges { attempts: ValueRange { min: 1, max: 5, default: 5 }, ..ranges() };
    let namespace = EditionRanges {
        attempts: ValueRange { min: 1, max: 10, default: 10 },
        time_to_live_minutes: ValueRange { min: 1, max: 10_080, default: 1440 },
        retry_period_days_max: 2,
        ..ranges()
    };
    Editions {
        default: "current".to_owned(),
        known: BTreeMap::from([
            ("current".to_owned(), ranges()),
            ("namespace".to_owned(), namespace),
            ("short".to_owned(), short),
        ]),
    }
}

fn scope() -> ArmScope {
    ArmScope { subscription: "S-1".to_owned(), resource_group: "rg".to_owned() }
}

fn topic_record(input_schema: Schema) -> TopicRecord {
    TopicRecord {
        name: Name::new("orders"),
        scope: scope(),
        partitions: Vec::new(),
        input_schema,
        keys: AccessKeys { key1: "first secret".to_owned(), key2: "second secret".to_owned() },
        ingress: IngressSettings::default(),
        edition: "current".to_owned(),
        location: "local".to_owned(),
        tags: BTreeMap::new(),
        domain: None,
        namespace: None,
        metric_resource_id: "0-0".to_owned(),
        kept: StoredTopicProperties::default(),
        system_data: None,
    }
}

fn pretty(value: &impl serde::Serialize) -> String {
    serde_json::to_string_pretty(value).expect("it is JSON")
}
