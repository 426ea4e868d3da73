//! The control plane.

mod account;
mod admin_token;
mod advanced;
mod attributes;
mod audit;
mod bodies;
mod chaos;
mod control;
mod destination;
mod domain;
mod enumerations;
mod expiration;
mod follow;
mod fuzz;
mod health;
mod history;
mod http;
mod list;
mod namespace;
mod namespace_form;
mod namespace_subscription;
mod odata;
mod openapi;
mod path;
mod precondition;
mod provider;
mod resource_groups;
mod resources;
mod routes;
mod session;
mod shards;
mod subscription;
mod tail;
mod test_filter;
mod tolerance;
mod top;
mod topic;
mod trace;
mod validate;

use std::{collections::BTreeMap, sync::LazyLock};

use gridhook::{
    admin::model::{EditionRanges, Editions, ValueRange},
    config::{Config, SettingSources},
    event::{Name, Schema},
    record::{
        ingress::IngressSettings,
        topic::{AccessKeys, ArmScope, StoredTopicProperties, TopicRecord},
    },
};

/// The limits of an edition as a server with default settings has them.
fn ranges_of(edition: &str) -> EditionRanges {
    static EDITIONS: LazyLock<Editions> = LazyLock::new(|| {
        let config = Config::load(&SettingSources::default()).expect("the default settings");
        gridhook::server::editions(&config)
    });
    *EDITIONS
        .edition_ranges(edition)
        .expect("an edition of the server")
}

/// The limits of the current edition.
fn ranges() -> EditionRanges {
    ranges_of("current")
}

fn editions() -> Editions {
    let short = EditionRanges {
        attempts: ValueRange {
            min: 1,
            max: 5,
            default: 5,
        },
        ..ranges()
    };
    Editions {
        default: "current".to_owned(),
        known: BTreeMap::from([
            ("current".to_owned(), ranges()),
            ("namespace".to_owned(), ranges_of("namespace")),
            ("short".to_owned(), short),
        ]),
    }
}

fn scope() -> ArmScope {
    ArmScope {
        subscription: "S-1".to_owned(),
        resource_group: "rg".to_owned(),
    }
}

fn topic_record(input_schema: Schema) -> TopicRecord {
    TopicRecord {
        name: Name::new("orders"),
        scope: scope(),
        partitions: Vec::new(),
        input_schema,
        keys: AccessKeys {
            key1: "first secret".to_owned(),
            key2: "second secret".to_owned(),
        },
        ingress: IngressSettings::default(),
        edition: "current".to_owned(),
        location: "local".to_owned(),
        tags: BTreeMap::new(),
        domain: None,
        namespace: None,
        partition_count: 1,
        metric_resource_id: "0-0".to_owned(),
        azure_properties: StoredTopicProperties::default(),
        system_data: None,
    }
}

fn pretty(value: &impl serde::Serialize) -> String {
    serde_json::to_string_pretty(value).expect("it is JSON")
}
