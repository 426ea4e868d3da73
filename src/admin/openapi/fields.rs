//! Descriptions of fields without a description in their type; most names have one meaning
//! everywhere.

use serde_json::Value;

/// Minimum number of words of a description.
const WORDS_MIN: usize = 3;

/// Description of fields by name, sorted by name.
const FIELDS: &[(&str, &str)] = &[
    ("StorageBlob", "Container of the dead letters"),
    ("active", "Active faults, oldest first"),
    (
        "actor",
        "Incarnations and restarts of the actor of the event subscription",
    ),
    ("actorsStalled", "Number of stalled actors"),
    (
        "advancedFilters",
        "Conditions on the fields of events, all of which must hold; at most \
         `limits.advanced_filters`, default none",
    ),
    ("after", "Value after the change"),
    (
        "aggregation",
        "Kind of aggregation, as Azure Monitor names it",
    ),
    ("at", "Time at which the line was written"),
    ("attempt", "Number of the attempt, from 1"),
    ("attempts", "Number of attempts made so far"),
    (
        "autoCreateTopicWithFirstSubscription",
        "Whether a domain topic is created with its first event subscription; default true",
    ),
    (
        "autoDeleteTopicWithLastSubscription",
        "Whether a domain topic is deleted with its last event subscription; default true",
    ),
    (
        "autoScaleConfiguration",
        "Limits of throughput units, stored and returned; no effect",
    ),
    ("backlog", "Number of events behind the newest one"),
    (
        "backlogAgeSeconds",
        "Age of the oldest event of the backlog, in seconds",
    ),
    ("backup", "Backup that was made"),
    ("batchEvents", "Distribution of the events in a request"),
    ("behind", "Number of events ahead in the backlog"),
    (
        "blobContainerName",
        "Name of the container for dead letters",
    ),
    (
        "blockedKeys",
        "Number of order keys that are blocked by an event until `unblock`",
    ),
    ("by", "Originator of the hold"),
    ("bytes", "Size of the event in bytes"),
    ("canceled", "Number of canceled events"),
    ("cause", "Cause of the state"),
    ("changed", "Time of the last change"),
    ("clientCertificate", "Name of the client certificate"),
    ("clockSteps", "Number of steps of the wall clock"),
    ("code", "Machine-readable code of the error"),
    ("concurrency", "Limit of concurrent requests"),
    ("concurrencyLimit", "Limit of concurrent requests"),
    (
        "consecutiveSuspensions",
        "Number of consecutive suspensions",
    ),
    ("count", "Number of values that were counted"),
    ("counters", "Counters of outcomes"),
    ("counts", "Counters of events and requests"),
    (
        "createdByType",
        "Kind of the identity that created the resource",
    ),
    ("data", "Payload of the event"),
    (
        "dataResidencyBoundary",
        "Data residency, stored and returned",
    ),
    ("dataVersion", "Version of the schema of the payload"),
    ("data_base64", "Binary payload of the event, in base64"),
    ("datacontenttype", "Media type of the payload"),
    ("dataschema", "URI of the schema of the payload"),
    ("deadLetterDestination", "Destination of dead letters"),
    (
        "deadLetterDestinationWithResourceIdentity",
        "Destination of dead letters, with an identity",
    ),
    (
        "deadLetterInProbation",
        "Whether due events are dead-lettered at once while the endpoint is suspended for a client \
         error; default false",
    ),
    ("deadLetterReason", "Reason why delivery was given up"),
    (
        "deadLetterWithResourceIdentity",
        "Destination of dead letters with an identity, in place of `deadLetterDestination`",
    ),
    ("deadLettered", "Number of dead-lettered events"),
    ("deadLetters", "Counters of dead letters"),
    ("deadLettersKilled", "Number of kills of dead-letter actors"),
    (
        "deadLettersWaiting",
        "Number of dead letters that wait for their file",
    ),
    ("deadline", "Time after which delivery is given up"),
    (
        "debugSetting",
        "What of requests is kept for debugging, stored and returned",
    ),
    ("defaultValue", "Value if the field is missing"),
    ("deleted", "Whether the event subscription is deleted"),
    ("delivered", "Number of delivered events"),
    ("deliveredPerSecond", "Delivered events for each second"),
    ("deliveriesKilled", "Number of kills of delivery actors"),
    ("deliveryAttempts", "Number of delivery attempts"),
    (
        "deliveryAttributeMappings",
        "HTTP headers of delivery requests",
    ),
    ("deliveryConfiguration", "Mode and settings of delivery"),
    (
        "deliveryCount",
        "Number of times that the event was received",
    ),
    (
        "deliverySeconds",
        "Distribution of the time from publish to delivery",
    ),
    (
        "deliveryWithResourceIdentity",
        "Endpoint with the identity that it is called with, in place of `destination`",
    ),
    ("description", "Explanation for people"),
    ("destination", "Endpoint that receives the events"),
    ("details", "Further causes of the error"),
    ("dimensions", "Dimensions of the series, by name"),
    (
        "disableLocalAuth",
        "Whether access keys and SAS tokens are refused; default false",
    ),
    ("display", "Names of the operation for people"),
    ("displayName", "Name for people"),
    ("domainTopic", "Name of the topic of the domain"),
    ("dropped", "Number of dropped events"),
    ("dryRun", "Whether to count without a change"),
    (
        "duplicateDetectionHistoryTimeWindow",
        "Window of duplicate detection in ISO 8601, `PT20S` to `P7D`: an event whose id was \
         accepted within it is acknowledged and not stored; default off",
    ),
    (
        "duplicates",
        "How often the event was published again within the window of duplicate detection, as far \
         as kept",
    ),
    (
        "edition",
        "Edition of the delivery policy, such as `current`; default `policy.edition`, for \
         namespaces `namespace`",
    ),
    (
        "enableAdvancedFilteringOnArrays",
        "Whether conditions look into arrays; default false",
    ),
    ("end", "End of the forecast"),
    (
        "endpointType",
        "Type of the endpoint, such as `WebHook` or `StorageBlob`",
    ),
    ("endpointUrl", "URL of the endpoint"),
    ("ends", "Ends of incarnations by cause"),
    ("error", "Error of the request, or of one lock token"),
    (
        "eventDeliverySchema",
        "Schema of delivered events: `EventGridSchema`, `CloudEventSchemaV1_0` or \
         `CustomInputSchema`",
    ),
    ("eventId", "Id of the event"),
    (
        "eventRetentionInDays",
        "Days for which undelivered events are kept, 1 to 7; default 1",
    ),
    (
        "eventTime",
        "Time at which the event happened, in RFC 3339 and UTC",
    ),
    (
        "eventTimeToLiveInMinutes",
        "Minutes after which delivery is given up, 1 to 1440; default 1440",
    ),
    ("eventType", "Type of the event"),
    ("eventTypeInfo", "Declared event types"),
    ("events", "Events that were found, each with its history"),
    ("eventsInFlight", "Number of searched events in flight"),
    ("eventsPending", "Number of searched pending deliveries"),
    ("eventsPerRequest", "Current number of events in a request"),
    ("eventsPerSecond", "Rate limit in events for each second"),
    ("eventsPoisoned", "Number of poisoned events"),
    (
        "expirationTimeUtc",
        "Time at which the event subscription is deleted",
    ),
    ("extendedLocation", "Extended location, stored and returned"),
    ("failedPerSecond", "Failed requests for each second"),
    ("failures", "Number of consecutive failures"),
    ("fault", "Kind of the fault"),
    ("fileDue", "Time at which the dead-letter file is due"),
    ("files", "Number of dead-letter files"),
    ("filter", "Filter of events or dead letters"),
    ("filtered", "Number of events that the filter rejected"),
    ("filters", "Conditions on the fields of events"),
    ("filtersConfiguration", "Filters of the event subscription"),
    (
        "firstBlockingSequence",
        "Sequence of the first event that blocks its order key",
    ),
    ("firstSequence", "Sequence number of the first event"),
    ("forecast", "Expected attempts if each of them fails"),
    ("fromSequence", "First sequence number of the range"),
    ("health", "Health of the endpoint"),
    (
        "healthyRate",
        "Requests for each second that the endpoint last sustained",
    ),
    ("held", "Whether delivery is held"),
    (
        "heldBackEvents",
        "Number of events that wait for an earlier event of their order key",
    ),
    ("heldBy", "Originator of the hold, if there is one"),
    ("histograms", "Distributions of durations and sizes"),
    ("holdingKeys", "Number of order keys that hold back events"),
    ("id", "Resource id, as Azure Resource Manager writes it"),
    ("identity", "Managed identity, stored and returned"),
    (
        "ifEachFailsWith",
        "Outcome that the forecast assumes for each attempt",
    ),
    ("inFlight", "Number of requests in flight"),
    (
        "inboundIpRules",
        "Addresses that publishers may use; default all",
    ),
    ("incarnation", "Number of the current incarnation"),
    (
        "includedEventTypes",
        "Event types to deliver, at most `limits.event_types`; default all",
    ),
    ("index", "Position in the file or in the list"),
    ("injected", "Counts of what the faults did"),
    (
        "inputSchema",
        "Schema of published events: `EventGridSchema`, `CloudEventSchemaV1_0` or \
         `CustomEventSchema`; default `EventGridSchema`",
    ),
    (
        "inputSchemaMapping",
        "Mapping of custom events to the fields of Event Grid",
    ),
    (
        "inputSchemaMappingType",
        "Kind of the mapping, always `Json`",
    ),
    ("ipMask", "Addresses in CIDR notation"),
    (
        "isDataAction",
        "Whether the operation is on data, not on resources",
    ),
    (
        "isInDefaultSet",
        "Whether the type is included where no type is named",
    ),
    (
        "isSubjectCaseSensitive",
        "Whether the subject is compared with case; default false",
    ),
    (
        "isZoneRedundant",
        "Zone redundancy, stored and returned; no effect",
    ),
    (
        "jitterSeconds",
        "Longest random delay after `notBefore`, in seconds",
    ),
    ("job", "Number of the job"),
    ("journalStalls", "Number of stalls of the journal"),
    ("key", "Key of the dead letter, for further requests"),
    ("key1", "First access key"),
    ("key2", "Second access key"),
    ("killed", "Number of kills by fault injection"),
    ("kind", "Kind, which decides the other fields"),
    ("labels", "Labels of the event subscription; default none"),
    ("lane", "Lane of delivery that made the line"),
    (
        "largestBacklog",
        "Largest backlog of an event subscription of the topic; missing if it is far below \
         `journal.backlog_max`",
    ),
    ("last", "Most recent recovery, in milliseconds"),
    ("lastAttempt", "Time of the last attempt"),
    (
        "lastDeliveryAttemptTime",
        "Time of the last delivery attempt",
    ),
    (
        "lastDeliveryOutcome",
        "Outcome of the last delivery attempt",
    ),
    (
        "lastDuplicate",
        "When the event was last published again within the window of duplicate detection",
    ),
    ("lastEnd", "Time of the last end"),
    (
        "lastHttpStatusCode",
        "HTTP status of the last delivery attempt",
    ),
    (
        "lastModifiedByType",
        "Kind of the identity that last changed the resource",
    ),
    ("lastOutcome", "Outcome of the last attempt"),
    ("lastReceived", "Time of the last receive"),
    ("lastSequence", "Sequence number of the last event"),
    ("lastStatus", "HTTP status of the last attempt"),
    ("late", "Number of events delivered by a late response"),
    (
        "lateRequests",
        "Number of requests that wait for a late response",
    ),
    ("le", "Upper bound of the bucket; missing for the last one"),
    ("limit", "Maximum number of pending events"),
    ("lines", "Lines in order of time"),
    (
        "location",
        "Location of the resource, stored and returned; default `local`",
    ),
    ("lockedUntil", "Time at which the lock ends"),
    (
        "logBeforeSequence",
        "Sequence number before which the searched log ends",
    ),
    (
        "logFromSequence",
        "First searched sequence number of the log",
    ),
    ("longest", "Longest recovery, in milliseconds"),
    (
        "lost",
        "Number of dead letters that were lost because the store was unreachable for too long",
    ),
    ("matched", "Number of matching events"),
    ("matches", "Whether the event matches the filter"),
    ("matching", "Number of matching events"),
    (
        "maxDeliveryAttempts",
        "Maximum number of delivery attempts, 1 to 30; default 30",
    ),
    (
        "maxDeliveryCount",
        "Maximum number of delivery attempts, 1 to 10; default 10",
    ),
    (
        "maxEventsPerBatch",
        "Maximum events in a request, 1 to 5000; default 1, or `delivery.batch_events` where only \
         the size is set",
    ),
    ("message", "Explanation of the error for people"),
    ("metadataVersion", "Version of the schema of the event"),
    ("metricResourceId", "Id of the resource in metrics"),
    ("milliseconds", "Duration of the request, in milliseconds"),
    (
        "minimumTlsVersionAllowed",
        "Lowest TLS version, stored and returned; the server follows `server.tls_minimum_version`",
    ),
    ("name", "Name of the resource"),
    (
        "next",
        "Value of `after` for the next request; missing at the end",
    ),
    ("nextAttempt", "Time of the next attempt"),
    ("nextDue", "Time of the next due event"),
    ("nextLink", "Address of the next page"),
    ("nextProbe", "Time of the next probe"),
    ("notBefore", "Earliest time of the attempt"),
    ("now", "Current time of the server"),
    ("number", "Number of the attempt, from 1"),
    ("obstacles", "Obstacles that hold the event back"),
    ("oldestUnread", "Publish time of the oldest unread event"),
    (
        "oldestUnreadAgeSeconds",
        "Age of the oldest unread event in seconds",
    ),
    (
        "onGone",
        "Action when the endpoint answers 410: `retry` or `disable`; default `retry`",
    ),
    ("operation", "Name of the operation, such as `Write Topic`"),
    (
        "order",
        "What the order by key holds back; only with `ordering`",
    ),
    (
        "orderedEvents",
        "Number of events in flight, waiting for a retry or held back",
    ),
    (
        "orderedEventsMax",
        "Maximum of `orderedEvents`; at the limit the event subscription reads no further",
    ),
    (
        "ordering",
        "Order by key: events with the same value are delivered one after the other",
    ),
    ("origin", "Callers of the operation"),
    ("orphaned", "Number of ends because the owner ended"),
    ("outcome", "Outcome of the attempt"),
    ("p50", "Median of the newest recoveries, in milliseconds"),
    (
        "p99",
        "99th percentile of the newest recoveries, in milliseconds",
    ),
    ("panicked", "Number of ends by a panic"),
    (
        "partitionCount",
        "Partitions: 1, or the number of shards of the cluster for a topic of which each has a \
         part",
    ),
    ("passed", "Number of passed events"),
    ("pending", "Number of pending events"),
    (
        "preferredBatchSizeInKilobytes",
        "Preferred size of a request in kilobytes, 1 to 1024; default 64",
    ),
    ("problems", "Problems that were found"),
    ("progress", "Progress of the job"),
    ("properties", "Properties of the resource"),
    ("provider", "Name of the resource provider"),
    ("provisioningState", "Provisioning state of the resource"),
    (
        "publicNetworkAccess",
        "`Enabled`, or `Disabled` for loopback and private addresses only; default `Enabled`",
    ),
    ("publishTime", "Time at which the event was published"),
    ("published", "Time at which the event was published"),
    ("publisherType", "Kind of the publisher, always `Custom`"),
    ("purged", "Number of purged dead letters"),
    ("push", "Settings of push delivery"),
    ("quarantined", "Events set aside because they ended actors"),
    ("queue", "Settings of pull delivery"),
    (
        "queueWaitSeconds",
        "Distribution of the time before the first attempt",
    ),
    ("rate", "Maximum requests for each second"),
    ("reason", "Reason of the outcome"),
    (
        "receiveLockDurationInSeconds",
        "Seconds for which a received event is locked, 60 to 300; default 60",
    ),
    ("received", "Time of the current receive"),
    ("recovery", "Times between end and restart"),
    ("redriven", "Number of redriven dead letters"),
    ("renewableUntil", "Time until which the lock can be renewed"),
    ("replayed", "Counters of replayed events"),
    ("report", "Findings of the check"),
    ("requests", "Number of requests"),
    ("requestsFailed", "Number of failed requests"),
    ("requestsPerSecond", "Current rate of requests"),
    ("resource", "Name of the resource type"),
    ("resourceRegionType", "Region type of the resource"),
    ("resourceType", "Type of the resource"),
    (
        "response",
        "Beginning of the response, or the error instead of one",
    ),
    ("responseSeconds", "Distribution of the response times"),
    ("responses", "Number of affected responses"),
    ("responsesCorrupted", "Number of corrupted responses"),
    ("responsesDelayed", "Number of delayed responses"),
    ("responsesDropped", "Number of dropped responses"),
    ("restarts", "Number of restarts"),
    ("results", "Results for the tested events"),
    ("retryPolicy", "Limits of delivery attempts"),
    (
        "schedule",
        "Waits between attempts, or the edition that has them; default the schedule of the topic's \
         edition",
    ),
    ("schema", "Schema of the event"),
    ("schemaUrl", "Address of the schema of the payload"),
    (
        "schemaValidation",
        "Whether the data of events is checked against the schemas of `eventTypeInfo`; default \
         `off`",
    ),
    ("searched", "Range that was searched"),
    ("sequence", "Sequence number of the event in the log"),
    ("signing", "Signature of delivery requests"),
    ("since", "Time of the beginning"),
    ("sku", "Pricing tier, stored and returned; no effect"),
    ("sourceField", "Name of the field of the event"),
    (
        "sourceResourceFormat",
        "Format of the resource ids of sources",
    ),
    ("specversion", "Version of CloudEvents, always `1.0`"),
    (
        "stage",
        "`waiting` until the dead letter is in a file, then `written`",
    ),
    ("started", "Time of the start"),
    ("state", "State of the event"),
    ("status", "HTTP status of the response"),
    ("statusMessage", "How the operation ended, with its error"),
    ("stopped", "Number of regular ends"),
    ("stoppedBy", "Condition that the event does not meet"),
    ("store", "Name of the dead-letter store"),
    ("stored", "Number of stored events"),
    (
        "subject",
        "Subject of the event in the context of its source",
    ),
    ("subscription", "Name of the event subscription"),
    (
        "subscriptions",
        "Histories of the event, one for each event subscription",
    ),
    (
        "subscriptionsKilled",
        "Number of kills of subscription actors",
    ),
    (
        "successShare",
        "Share of successful requests in the window, from 0 to 1",
    ),
    (
        "sum",
        "Sum of the values, in seconds or events as the name of the histogram says",
    ),
    (
        "supportedScopesForSource",
        "Scopes at which a source can be",
    ),
    ("suspended", "Number of suspended event subscriptions"),
    (
        "systemData",
        "Identities and times of creation and last change",
    ),
    ("tags", "Tags of the resource; default none"),
    (
        "target",
        "Key or part of the request that the error is about",
    ),
    ("targetResource", "Resource that the operation changes"),
    ("tenantId", "Id of the tenant, always the nil UUID"),
    ("tested", "Number of tested events"),
    ("text", "Text of the response"),
    ("timeToLiveSeconds", "Time to live of events, in seconds"),
    ("times", "Number of repetitions"),
    (
        "timeseries",
        "Series of the metric, one for each combination of dimensions",
    ),
    ("toSequence", "Last sequence number of the range"),
    ("top", "Event subscriptions in the asked order"),
    (
        "topic",
        "Resource id of the topic, or name of the field that has it",
    ),
    (
        "topicsConfiguration",
        "Settings of the topics of the namespace",
    ),
    ("topicsKilled", "Number of kills of topic actors"),
    (
        "total",
        "Number of events that the job has to pass, if it is known",
    ),
    (
        "transform",
        "What is delivered instead of an event, made of it by JMESPath expressions; default the \
         event",
    ),
    (
        "transformed",
        "What the present transformation makes of the event",
    ),
    ("type", "Type of the resource"),
    ("unit", "Unit of the values, as Azure Monitor names it"),
    ("until", "Time of the end"),
    ("value", "Items of the list"),
    ("whatIfSettings", "Form of the preview"),
    ("writesFailed", "Number of failed writes"),
    ("writesStalled", "Number of stalled writes"),
    ("written", "Number of written dead letters"),
];

/// Describes the properties of a schema and of its inner schemas: with the comment of the field,
/// else by its name.
pub(super) fn describe_fields(schema: &mut Value) {
    match schema {
        Value::Object(members) => {
            if let Some(Value::String(text)) = members.get_mut("description") {
                *text = comment_to_description(text);
            }
            // A short text only repeats the name of the schema.
            if members
                .get("description")
                .and_then(Value::as_str)
                .is_some_and(is_short)
            {
                drop(members.remove("description"));
            }
            if let Some(Value::Object(properties)) = members.get_mut("properties") {
                for (field, property) in properties {
                    let own = property.get("description").and_then(Value::as_str);
                    if let Some(known) =
                        known_description(field).filter(|_| own.is_none_or(is_short))
                    {
                        property["description"] = known.into();
                    }
                }
            }
            for (key, value) in members {
                match (key.as_str(), value) {
                    // The keys are names of properties, and one may be "properties".
                    ("properties", Value::Object(properties)) => {
                        properties.values_mut().for_each(describe_fields);
                    }
                    ("example" | "examples" | "default" | "enum", _) => {}
                    (_, value) => describe_fields(value),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(describe_fields),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// A comment as a description: on one line, without the full stop.
fn comment_to_description(comment: &str) -> String {
    let line = comment.split_whitespace().collect::<Vec<_>>().join(" ");
    line.strip_suffix('.').map_or(line.clone(), str::to_owned)
}

fn known_description(field: &str) -> Option<&'static str> {
    FIELDS
        .binary_search_by_key(&field, |(known, _)| known)
        .ok()
        .map(|at| FIELDS[at].1)
}

fn is_short(text: &str) -> bool {
    text.split_whitespace().count() < WORDS_MIN
}
