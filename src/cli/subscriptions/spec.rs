//! The properties of an event subscription, from flags to the control plane's JSON.

use std::path::PathBuf;

use clap::Args;
use serde_json::{Value, json};

use crate::{
    client::{ClientError, ResourceNameKind, body_of, set},
    time::{future, past},
    value::{minutes, seconds, whole},
};

/// The properties to set.
#[derive(Debug, Args)]
pub(super) struct SubscriptionSpecArgs {
    /// URL of the endpoint
    #[arg(long, value_name = "URL", help_heading = "Settings")]
    pub(super) endpoint: Option<String>,
    /// Deliver only events of this type; repeatable
    #[arg(long = "event-type", value_name = "TYPE", help_heading = "Settings")]
    event_types: Vec<String>,
    /// Deliver only events whose subject begins with this text
    #[arg(long, value_name = "TEXT", help_heading = "Settings")]
    subject_begins_with: Option<String>,
    /// Deliver only events whose subject ends with this text
    #[arg(long, value_name = "TEXT", help_heading = "Settings")]
    subject_ends_with: Option<String>,
    /// Use pull delivery: clients receive the events (namespaces only)
    #[arg(long, conflicts_with = "endpoint", help_heading = "Settings")]
    pull: bool,
    /// Lock duration of received events, such as 60s (with --pull)
    #[arg(long, value_name = "DURATION", value_parser = seconds, help_heading = "Settings")]
    lock: Option<u64>,
    /// Delivery schema, such as CloudEventSchemaV1_0
    #[arg(long, value_name = "SCHEMA", help_heading = "Settings")]
    delivery_schema: Option<String>,
    /// Maximum delivery attempts of an event
    #[arg(long, value_name = "N", value_parser = whole::<u32>(1..), help_heading = "Settings")]
    max_attempts: Option<u32>,
    /// Time to live of an event, in whole minutes, such as 90m or 24h
    #[arg(long, value_name = "DURATION", value_parser = minutes, help_heading = "Settings")]
    time_to_live: Option<u64>,
    /// Maximum events in one request
    #[arg(long, value_name = "N", value_parser = whole::<u32>(1..), help_heading = "Settings")]
    batch_events: Option<u32>,
    /// Preferred kilobytes in one request
    #[arg(long, value_name = "N", value_parser = whole::<u32>(1..), help_heading = "Settings")]
    batch_kilobytes: Option<u32>,
    /// JMESPath expression of the body that is delivered instead of an event
    #[arg(long, value_name = "EXPRESSION", help_heading = "Settings")]
    transform: Option<String>,
    /// Maximum requests per second
    #[arg(long, value_name = "N", value_parser = whole::<u32>(1..), help_heading = "Settings")]
    max_requests_per_second: Option<u32>,
    /// Time within which the endpoint must begin its response, in whole seconds, such as 5s
    #[arg(long, value_name = "DURATION", value_parser = seconds, help_heading = "Settings")]
    response_timeout: Option<u64>,
    /// Egress proxy: the name of a table of delivery.resources, or none for a direct connection
    #[arg(long, value_name = "NAME", help_heading = "Settings")]
    proxy: Option<String>,
    /// Key of the order: events with the same value are delivered one after the other, such as
    /// subject or data.order.id
    #[arg(long, value_name = "KEY", help_heading = "Settings")]
    ordering_key: Option<String>,
    /// What an event that is given up means for the later ones of its order key: skip (go on) or
    /// block (wait for unblock)
    #[arg(long, value_name = "ACTION", help_heading = "Settings")]
    on_failure: Option<String>,
    /// Dead-letter destination: resource id of a storage account, or a URL such as
    /// s3://bucket/prefix
    #[arg(long, value_name = "ID_OR_URL", help_heading = "Settings")]
    dead_letters: Option<String>,
    /// Blob container of the dead-letter destination
    #[arg(
        long,
        value_name = "NAME",
        requires = "dead_letters",
        help_heading = "Settings"
    )]
    container: Option<String>,
    /// Label; repeatable
    #[arg(long = "label", value_name = "TEXT", help_heading = "Settings")]
    labels: Vec<String>,
    /// Expiration time, such as 2040-01-01T00:00:00Z or 30d; the event subscription is then deleted
    #[arg(long, value_name = "TIME", value_parser = future, help_heading = "Settings")]
    expires: Option<String>,
    /// Start with events published at or after this time, such as 2h (new event subscriptions only)
    #[arg(long, value_name = "TIME", value_parser = past, help_heading = "Settings")]
    starts_from: Option<String>,
    /// File with the ARM JSON for all other properties; - is standard input; flags take precedence
    #[arg(long, value_name = "FILE", help_heading = "Settings")]
    body: Option<PathBuf>,
}

impl SubscriptionSpecArgs {
    /// The body of a PUT.
    pub(super) fn body(&self, kind: ResourceNameKind) -> Result<Value, ClientError> {
        self.with_flags(body_of(self.body.as_deref())?, kind, None)
    }

    /// Sets the properties that flags name. `existing` is the current resource in an update.
    fn with_flags(
        &self,
        mut body: Value,
        kind: ResourceNameKind,
        existing: Option<&Value>,
    ) -> Result<Value, ClientError> {
        let given = match kind {
            ResourceNameKind::NamespaceTopic => self.in_namespace(&body, existing)?,
            ResourceNameKind::Topic
            | ResourceNameKind::DomainTopic
            | ResourceNameKind::Namespace => self.of_topic(&body, existing)?,
        };
        for (at, value) in given {
            if let Some(value) = value {
                let path: Vec<&str> = std::iter::once("properties").chain(at.split('.')).collect();
                set(&mut body, &path, value)?;
            }
        }
        Ok(body)
    }

    /// The properties of an event subscription of a topic or a domain.
    fn of_topic(
        &self,
        body: &Value,
        existing: Option<&Value>,
    ) -> Result<Vec<(String, Option<Value>)>, ClientError> {
        if self.pull || self.lock.is_some() {
            let text = "--pull and --lock are allowed only for topics of namespaces \
                (namespaces/NAME/topics/NAME)";
            return Err(ClientError::Input(text.to_owned()));
        }
        let has_destination = |body: &Value| !body["destination"].is_null();
        if existing.is_none() && self.is_new_without(has_destination, body) {
            let text = "no endpoint; name it with --endpoint URL";
            return Err(ClientError::Input(text.to_owned()));
        }
        let kind = |given: &Option<String>, kind: &str| given.as_ref().map(|_| Value::from(kind));
        let mut properties = self.webhook("", existing);
        properties.extend([
            (
                "filter.includedEventTypes".to_owned(),
                list(&self.event_types),
            ),
            (
                "filter.subjectBeginsWith".to_owned(),
                text(&self.subject_begins_with),
            ),
            (
                "filter.subjectEndsWith".to_owned(),
                text(&self.subject_ends_with),
            ),
            (
                "eventDeliverySchema".to_owned(),
                text(&self.delivery_schema),
            ),
            ("transform.body".to_owned(), text(&self.transform)),
            (
                "retryPolicy.maxDeliveryAttempts".to_owned(),
                self.max_attempts.map(Value::from),
            ),
            (
                "retryPolicy.eventTimeToLiveInMinutes".to_owned(),
                self.time_to_live.map(Value::from),
            ),
            (
                "deadLetterDestination.endpointType".to_owned(),
                kind(&self.dead_letters, "StorageBlob"),
            ),
            (
                "deadLetterDestination.properties.resourceId".to_owned(),
                text(&self.dead_letters),
            ),
            (
                "deadLetterDestination.properties.blobContainerName".to_owned(),
                text(&self.container),
            ),
            ("labels".to_owned(), list(&self.labels)),
            ("expirationTimeUtc".to_owned(), text(&self.expires)),
            ("ordering.key".to_owned(), text(&self.ordering_key)),
            ("ordering.onFailure".to_owned(), text(&self.on_failure)),
            ("startsFrom".to_owned(), text(&self.starts_from)),
        ]);
        Ok(properties)
    }

    /// The properties of the webhook below `at`. `endpointType` is left out where it stays: with
    /// it, the server replaces a destination together with its identity.
    fn webhook(&self, at: &str, existing: Option<&Value>) -> Vec<(String, Option<Value>)> {
        let is_webhook = ["destination", "deliveryWithResourceIdentity.destination"]
            .iter()
            .any(|form| {
                let pointer = format!("/properties/{at}{form}/endpointType").replace('.', "/");
                existing
                    .and_then(|existing| existing.pointer(&pointer))
                    .is_some_and(|kind| kind == "WebHook")
            });
        let kind = self
            .endpoint
            .as_ref()
            .filter(|_| !is_webhook)
            .map(|_| Value::from("WebHook"));
        let at = format!("{at}destination");
        let limits = [
            ("maxEventsPerBatch", self.batch_events.map(Value::from)),
            (
                "preferredBatchSizeInKilobytes",
                self.batch_kilobytes.map(Value::from),
            ),
            (
                "maxRequestsPerSecond",
                self.max_requests_per_second.map(Value::from),
            ),
            (
                "responseTimeoutInSeconds",
                self.response_timeout.map(Value::from),
            ),
            ("proxy", text(&self.proxy)),
        ];
        let mut properties = vec![
            (format!("{at}.endpointType"), kind),
            (format!("{at}.properties.endpointUrl"), text(&self.endpoint)),
        ];
        properties.extend(limits.map(|(key, value)| (format!("{at}.properties.{key}"), value)));
        properties
    }

    /// The properties of an event subscription of a namespace topic; the JSON form differs.
    fn in_namespace(
        &self,
        body: &Value,
        existing: Option<&Value>,
    ) -> Result<Vec<(String, Option<Value>)>, ClientError> {
        let mode = "deliveryConfiguration.deliveryMode";
        let there = |value: &Value| {
            let properties = if value["properties"].is_null() {
                value
            } else {
                &value["properties"]
            };
            properties["deliveryConfiguration"]["deliveryMode"]
                .as_str()
                .map(str::to_owned)
        };
        let known = there(body).or_else(|| existing.and_then(there));
        let is_pulled = match (self.pull, &self.endpoint, known.as_deref()) {
            (true, ..) => true,
            (false, Some(_), _) => false,
            (false, None, Some(mode)) => mode.eq_ignore_ascii_case("Queue"),
            (false, None, None) => {
                let text = "no delivery mode; use --endpoint URL for push delivery or --pull for \
                    pull delivery";
                return Err(ClientError::Input(text.to_owned()));
            }
        };
        if is_pulled && self.transform.is_some() {
            return Err(ClientError::Input(
                "--transform is not allowed with pull delivery".to_owned(),
            ));
        }
        if !self.labels.is_empty() {
            return Err(ClientError::Input(
                "--label is not allowed for event subscriptions of namespaces".to_owned(),
            ));
        }
        if is_pulled
            && self
                .webhook("", None)
                .iter()
                .any(|(_, value)| value.is_some())
        {
            let text = "--batch-events, --batch-kilobytes, --max-requests-per-second, \
                --response-timeout and --proxy are not allowed with pull delivery; each receive \
                request sets its batch size and waiting time";
            return Err(ClientError::Input(text.to_owned()));
        }
        if !is_pulled && self.lock.is_some() {
            return Err(ClientError::Input(
                "--lock is allowed only with pull delivery (--pull)".to_owned(),
            ));
        }
        let part = if is_pulled {
            "deliveryConfiguration.queue"
        } else {
            "deliveryConfiguration.push"
        };
        let dead_letter =
            format!("{part}.deadLetterDestinationWithResourceIdentity.deadLetterDestination");
        let kind = |given: &Option<String>, kind: &str| given.as_ref().map(|_| Value::from(kind));
        let wanted = if is_pulled { "Queue" } else { "Push" };
        let has_mode = (self.pull || self.endpoint.is_some())
            && !existing
                .and_then(there)
                .is_some_and(|known| known.eq_ignore_ascii_case(wanted));
        let mut properties = self.webhook(&format!("{part}."), existing);
        properties.extend([
            (mode.to_owned(), has_mode.then(|| Value::from(wanted))),
            (
                format!("{part}.receiveLockDurationInSeconds"),
                self.lock.map(Value::from),
            ),
            (
                format!("{part}.maxDeliveryCount"),
                self.max_attempts.map(Value::from),
            ),
            (
                format!("{part}.eventTimeToLive"),
                self.time_to_live
                    .map(|minutes| format!("PT{minutes}M").into()),
            ),
            (
                format!("{dead_letter}.endpointType"),
                kind(&self.dead_letters, "StorageBlob"),
            ),
            (
                format!("{dead_letter}.properties.resourceId"),
                text(&self.dead_letters),
            ),
            (
                format!("{dead_letter}.properties.blobContainerName"),
                text(&self.container),
            ),
            (
                "eventDeliverySchema".to_owned(),
                text(&self.delivery_schema),
            ),
            (
                "filtersConfiguration.includedEventTypes".to_owned(),
                list(&self.event_types),
            ),
            (
                "filtersConfiguration.filters".to_owned(),
                self.namespace_filters(body, existing),
            ),
            ("transform.body".to_owned(), text(&self.transform)),
            ("expirationTimeUtc".to_owned(), text(&self.expires)),
            ("ordering.key".to_owned(), text(&self.ordering_key)),
            ("ordering.onFailure".to_owned(), text(&self.on_failure)),
            ("startsFrom".to_owned(), text(&self.starts_from)),
        ]);
        Ok(properties)
    }

    /// The filters of an event subscription of a namespace topic, if a flag sets one. They are one
    /// list, of which a flag replaces its own: the others of the file, or else of the current
    /// resource, stay.
    fn namespace_filters(&self, body: &Value, existing: Option<&Value>) -> Option<Value> {
        let of_flags = [
            ("StringBeginsWith", &self.subject_begins_with),
            ("StringEndsWith", &self.subject_ends_with),
        ];
        let of_flags = of_flags
            .into_iter()
            .filter_map(|(operator, text)| Some((operator, text.as_ref()?)));
        let of_flags: Vec<(&str, &String)> = of_flags.collect();
        if of_flags.is_empty() {
            return None;
        }
        let current = |resource: &Value| {
            resource["properties"]["filtersConfiguration"]["filters"]
                .as_array()
                .cloned()
        };
        let mut filters = current(body)
            .or_else(|| existing.and_then(current))
            .unwrap_or_default();
        for (operator, text) in of_flags {
            let has_operator = |filter: &Value| {
                filter["operatorType"]
                    .as_str()
                    .is_some_and(|of| of.eq_ignore_ascii_case(operator))
            };
            filters.retain(|filter| filter["key"] != "subject" || !has_operator(filter));
            filters.push(json!({"operatorType": operator, "key": "subject", "values": [text]}));
        }
        Some(filters.into())
    }

    /// Whether neither a flag nor the body names a destination.
    fn is_new_without(&self, has_destination: impl Fn(&Value) -> bool, body: &Value) -> bool {
        let in_file = has_destination(body)
            || has_destination(&body["properties"])
            || !body["properties"]["deliveryWithResourceIdentity"].is_null();
        self.endpoint.is_none() && !in_file
    }

    /// The body of a PATCH. Only for namespace topics it is wrapped in `properties`; a file may
    /// have either form.
    pub(super) fn change(
        &self,
        kind: ResourceNameKind,
        existing: Option<&Value>,
    ) -> Result<Value, ClientError> {
        let mut body = body_of(self.body.as_deref())?;
        let mut properties = body.get_mut("properties").map_or(Value::Null, Value::take);
        for (key, value) in body
            .as_object()
            .into_iter()
            .flatten()
            .filter(|(key, _)| *key != "properties")
        {
            set(&mut properties, &[key], value.clone())?;
        }
        let mut change = self.with_flags(
            json!({ "properties": properties }),
            kind,
            existing.or(Some(&Value::Null)),
        )?;
        let properties = change["properties"].take();
        if properties.is_null() {
            return Err(ClientError::Input(
                "no properties to change; --help lists them".to_owned(),
            ));
        }
        let is_wrapped = kind == ResourceNameKind::NamespaceTopic;
        Ok(if is_wrapped {
            json!({ "properties": properties })
        } else {
            properties
        })
    }
}

fn text(given: &Option<String>) -> Option<Value> {
    given.clone().map(Value::from)
}

fn list(given: &[String]) -> Option<Value> {
    (!given.is_empty()).then(|| Value::from(given.to_vec()))
}
