//! Event subscriptions have one form in the program, and another one in namespaces on the wire.
//! Nothing is lost between the two.

use gridhook::api::subscription::{
    DeadLetterDestination, DeadLetterProperties, DeadLetterWithIdentity, DeliveryWithIdentity,
    Destination, EventFilter, Ordering, PullSettings, RetryPolicyBody, SubscriptionProperties,
    namespace::{NamespaceSubscriptionProperties, translate_path},
};
use gridhook::record::subscription::{ResourceIdentity, ResourceIdentityKind};
use proptest::{option, prelude::*};
use serde_json::{Value, json};

use crate::support::fuzz::cases;

fn identity() -> Option<ResourceIdentity> {
    Some(ResourceIdentity {
        kind: ResourceIdentityKind::SystemAssigned,
        user_assigned_identity: None,
    })
}

fn destination(url: String) -> Destination {
    let properties = json!({"endpointUrl": url, "maxEventsPerBatch": 1});
    Destination {
        endpoint_type: "WebHook".to_owned(),
        properties: properties.as_object().expect("an object").clone(),
    }
}

/// The properties of both delivery modes, without the destinations.
fn terms() -> impl Strategy<Value = SubscriptionProperties> {
    let types = option::of(prop::collection::vec("[a-z]{1,4}", 0..3));
    let filters = option::of(prop::collection::vec(any::<i64>(), 1..3));
    let text = || option::of("[a-z]{1,6}");
    let texts = (
        option::of(prop::collection::vec("[a-z]{1,4}", 1..3)),
        text(),
        text(),
        text(),
    );
    let ordering = option::of(("[a-z]{1,6}", text()));
    let retry = (option::of(0..100_i64), option::of(0..20_000_i64));
    (types, filters, texts, ordering, retry).prop_map(
        |(types, filters, (labels, schema, expires, starts), ordering, (attempts, minutes))| {
            let filters = filters.map(|numbers| {
                let number = |number| json!({"operatorType": "NumberIn", "values": [number]});
                numbers.into_iter().map(number).collect()
            });
            SubscriptionProperties {
                filter: Some(EventFilter {
                    included_event_types: types,
                    advanced_filters: filters,
                    ..EventFilter::default()
                }),
                labels,
                event_delivery_schema: schema,
                expiration_time_utc: expires,
                starts_from: starts,
                ordering: ordering.map(|(key, on_failure)| Ordering { key, on_failure }),
                retry_policy: Some(RetryPolicyBody {
                    max_delivery_attempts: attempts,
                    event_time_to_live_in_minutes: minutes,
                    schedule: None,
                }),
                provisioning_state: "Succeeded".to_owned().into(),
                ..SubscriptionProperties::default()
            }
        },
    )
}

fn properties() -> impl Strategy<Value = SubscriptionProperties> {
    let mode = (any::<bool>(), option::of(0..1_000_i64), any::<bool>());
    let dead_letter = option::of(("[a-z/]{1,9}", option::of("[a-z]{3,9}"), any::<bool>()));
    (terms(), mode, "[a-z]{1,9}", dead_letter).prop_map(
        |(mut properties, (is_pulled, seconds, is_identified), url, dead_letter)| {
            if is_pulled {
                properties.queue = Some(PullSettings {
                    receive_lock_duration_in_seconds: seconds,
                });
            } else if is_identified {
                properties.delivery_with_resource_identity = Some(DeliveryWithIdentity {
                    identity: identity(),
                    destination: destination(url),
                });
            } else {
                properties.destination = Some(destination(url));
            }
            if let Some((resource_id, blob_container_name, is_identified)) = dead_letter {
                let destination = DeadLetterDestination {
                    endpoint_type: "StorageBlob".to_owned(),
                    delivery_retry_period_in_days: seconds,
                    properties: DeadLetterProperties {
                        resource_id,
                        blob_container_name,
                    },
                };
                if is_identified {
                    properties.dead_letter_with_resource_identity = Some(DeadLetterWithIdentity {
                        identity: identity(),
                        dead_letter_destination: destination,
                    });
                } else {
                    properties.dead_letter_destination = Some(destination);
                }
            }
            properties
        },
    )
}

fn json_of(value: &impl serde::Serialize) -> Value {
    serde_json::to_value(value).expect("JSON")
}

/// The leaves of a value, with their paths.
fn leaves(at: &str, value: &Value, all: &mut Vec<(String, Value)>) {
    match value {
        Value::Object(members) => {
            for (key, value) in members {
                let path = if at.is_empty() {
                    key.clone()
                } else {
                    format!("{at}.{key}")
                };
                leaves(&path, value, all);
            }
        }
        value => all.push((at.to_owned(), value.clone())),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(256)))]

    #[test]
    fn the_form_of_namespaces_is_another_form_of_the_same(properties in properties()) {
        let namespaced = NamespaceSubscriptionProperties::from(properties.clone());
        let wire: NamespaceSubscriptionProperties =
            serde_json::from_value(json_of(&namespaced)).expect("what is written is read");
        prop_assert_eq!(json_of(&wire), json_of(&namespaced));
        let returned = SubscriptionProperties::try_from(wire).expect("it is translated");
        prop_assert_eq!(json_of(&returned), json_of(&properties));
        prop_assert_eq!(returned.queue, properties.queue);
    }

    #[test]
    fn each_property_is_where_the_table_of_paths_has_it(properties in properties()) {
        let is_pulled = properties.queue.is_some();
        let mut given = Vec::new();
        leaves("", &json_of(&properties), &mut given);
        let namespaced = json_of(&NamespaceSubscriptionProperties::from(properties));
        // A time to live is text in a namespace, and identities have objects of their own.
        let has_path = |(path, value): &(String, Value)| {
            !path.contains("TimeToLive") && !path.contains("Identity") && !value.is_null()
                && !path.contains("RetryPeriod") && !path.starts_with("filter.is")
        };
        for (path, value) in given.into_iter().filter(has_path) {
            let pointer = format!("/{}", translate_path(&path, is_pulled).replace('.', "/"));
            prop_assert_eq!(namespaced.pointer(&pointer), Some(&value), "{} {}", path, pointer);
        }
    }
}
