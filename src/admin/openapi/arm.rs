//! OpenAPI descriptions of ARM's paths.

mod account;
mod dead_letters;
mod namespaces;

use actix_web::http::Method;
use serde_json::{Value, json};

use super::draft::{OperationBuilder, SchemaRegistry, list_of};
use crate::{
    admin::{
        arm::{
            path::{ReplayAction, SubscriptionAction, TopicAction},
            routes::{ResourceType, Route, SubscriptionParent},
        },
        error::ErrorResponse,
        metrics,
        model::{
            domain_topic::{self, DomainTopicBody},
            namespace,
            provider::{EventType, ProviderOperation, TopicType},
            subscription::{self, PathForm, attribute::AttributeMappingBody as Attribute},
            topic::{self, RegenerateKeyBody},
        },
    },
    api::{
        explain,
        filter_test::FilterTestReport,
        ledger, replay,
        resource::{FullUrl, SharedAccessKeys},
        status, trace,
        what_if::Difference,
    },
    control::record::topic::TopicKind,
    policy::record::Command,
};

/// Errors of all operations.
const ALWAYS: [(u16, &str); 4] = [
    (400, "Invalid body or query"),
    (404, "No such resource"),
    (408, "Body not received in time"),
    (413, "Body too large"),
];

/// Errors of operations that read the store.
const READING: [(u16, &str); 2] = [(500, "Damaged store"), (503, "Store temporarily unreadable")];

/// Errors of changes.
const CHANGING: [(u16, &str); 3] = [
    (409, "Name taken under another scope, or a concurrent change"),
    (500, "Unknown whether the change was made"),
    (503, "Store temporarily unwritable"),
];

/// 404 of [`SubscriptionAction::Explain`].
const NOWHERE: &str = "No such resource, or no such event in the searched part of the log";

/// Describes one method of a route.
pub(super) fn describe(route: &Route, method: &Method, schemas: &mut SchemaRegistry) -> OperationBuilder {
    let error = schemas.of::<ErrorResponse<'static>>();
    let draft = match route.subject {
        ResourceType::Tenants
        | ResourceType::AzureSubscriptions
        | ResourceType::AzureSubscription
        | ResourceType::ResourceGroups
        | ResourceType::ResourceGroup
        | ResourceType::Providers
        | ResourceType::Provider
        | ResourceType::Locations => account::describe(route, schemas),
        ResourceType::Operations => list(
            draft(route, "listOperations", "List the operations of the provider"),
            schemas.of::<ProviderOperation>(),
        ),
        ResourceType::TopicTypes => list(draft(route, "listTopicTypes", "List topic types"), schemas.of::<TopicType>()),
        ResourceType::TopicType => {
            draft(route, "getTopicType", "Get a topic type").answer(200, "The topic type", &schemas.of::<TopicType>())
        }
        ResourceType::EventTypesOf => list(
            draft(route, "listEventTypes", "List the event types of a topic type (always empty)"),
            schemas.of::<EventType>(),
        ),
        ResourceType::UnsupportedAll(resource_type) => list(
            draft(route, "list", &format!("List {resource_type}, which are not supported (always empty)")),
            json!({"type": "object"}),
        ),
        ResourceType::Unsupported(resource_type) => unsupported(route, resource_type, method, &error),
        ResourceType::Topics(kind) => {
            paged(draft(route, "list", &format!("List {}", kind.path_segment())), schemas.of::<topic::TopicView>())
        }
        ResourceType::Namespaces => {
            paged(draft(route, "list", "List namespaces"), schemas.of::<namespace::NamespaceView>())
        }
        ResourceType::Namespace(verb) => namespaces::describe(route, verb, method, schemas, &error),
        ResourceType::NamespaceTopics => paged(
            draft(route, "list", "List the topics of a namespace"),
            schemas.of::<namespace::topic::NamespaceTopicView>(),
        ),
        ResourceType::Topic(TopicKind::NamespaceTopic, TopicAction::Itself) => {
            namespaces::topic(route, method, schemas, &error)
        }
        ResourceType::Topic(kind, TopicAction::Itself) => topic_itself(route, kind, method, schemas, &error),
        ResourceType::Topic(_, verb) => topic_verb(route, verb, schemas, &error),
        ResourceType::DomainTopics => {
            paged(draft(route, "list", "List the topics of a domain"), schemas.of::<domain_topic::DomainTopicView>())
        }
        ResourceType::DomainTopic => domain_topic(route, method, schemas, &error),
        ResourceType::Subscriptions(SubscriptionParent::Whole(TopicKind::NamespaceTopic), _) => paged(
            draft(route, "list", "List the event subscriptions of a topic of a namespace"),
            namespaces::subscription_view(schemas),
        ),
        ResourceType::Subscriptions(..) => paged(
            draft(route, "list", "List the event subscriptions of a topic, a domain or a domain topic"),
            schemas.of::<subscription::SubscriptionView>(),
        ),
        ResourceType::AllSubscriptions => paged(
            draft(route, "list", "List event subscriptions by subscription, resource group, location or topic type"),
            schemas.of::<subscription::SubscriptionView>(),
        ),
        ResourceType::Subscription(
            SubscriptionParent::Whole(TopicKind::NamespaceTopic),
            _,
            SubscriptionAction::Itself,
        ) => namespaces::subscription(route, method, schemas, &error),
        ResourceType::Subscription(_, _, SubscriptionAction::Itself) => itself(route, method, schemas, &error),
        ResourceType::Subscription(_, _, verb) => subscription_verb(route, verb, method, schemas, &error),
    };
    draft
        .query("api-version", "API version; every version is accepted", &json!({"type": "string"}))
        .otherwise(&ALWAYS, &error)
}

/// An operation whose id has the resource type, because ids are unique.
fn draft(route: &Route, id: &str, summary: &str) -> OperationBuilder {
    let id = format!("{id}{}", of(route));
    OperationBuilder::new(tag(route.subject), &id, summary)
}

fn tag(subject: ResourceType) -> &'static str {
    match subject {
        ResourceType::Tenants
        | ResourceType::AzureSubscriptions
        | ResourceType::AzureSubscription
        | ResourceType::ResourceGroups
        | ResourceType::ResourceGroup
        | ResourceType::Providers
        | ResourceType::Provider
        | ResourceType::Locations => "account",
        ResourceType::Operations | ResourceType::TopicTypes | ResourceType::TopicType | ResourceType::EventTypesOf => {
            "provider"
        }
        ResourceType::Topics(TopicKind::Topic) | ResourceType::Topic(TopicKind::Topic, _) => "topics",
        ResourceType::Topics(TopicKind::Domain) | ResourceType::Topic(TopicKind::Domain, _) => "domains",
        ResourceType::DomainTopics | ResourceType::DomainTopic => "domain topics",
        ResourceType::Namespaces | ResourceType::Namespace(_) => "namespaces",
        ResourceType::NamespaceTopics
        | ResourceType::Topics(TopicKind::NamespaceTopic)
        | ResourceType::Topic(TopicKind::NamespaceTopic, _) => "namespace topics",
        ResourceType::Subscriptions(..) | ResourceType::Subscription(..) | ResourceType::AllSubscriptions => {
            "event subscriptions"
        }
        ResourceType::UnsupportedAll(_) | ResourceType::Unsupported(_) => "not supported",
    }
}

/// Suffix of an operation id: resource type, parent and path form.
fn of(route: &Route) -> String {
    let kind = |kind| match kind {
        TopicKind::Topic => "Topic",
        TopicKind::Domain => "Domain",
        TopicKind::NamespaceTopic => "NamespaceTopic",
    };
    let hung = |source, form| {
        let source = match source {
            SubscriptionParent::Whole(whole) => kind(whole),
            SubscriptionParent::DomainTopic => "DomainTopic",
        };
        let form = match form {
            PathForm::Nested => "",
            PathForm::Scoped => "ByScope",
        };
        format!("Of{source}{form}")
    };
    let has = |name: &str, word: &'static str| if route.template.contains(name) { word } else { "" };
    let place = has("{resourceGroupName}", "OfGroup");
    match route.subject {
        ResourceType::Tenants
        | ResourceType::AzureSubscriptions
        | ResourceType::AzureSubscription
        | ResourceType::ResourceGroups
        | ResourceType::ResourceGroup
        | ResourceType::Providers
        | ResourceType::Provider
        | ResourceType::Locations => String::new(),
        ResourceType::Operations | ResourceType::TopicTypes | ResourceType::TopicType | ResourceType::EventTypesOf => {
            String::new()
        }
        ResourceType::Topics(of) => format!("{}s{place}", kind(of)),
        ResourceType::Topic(of, _) => kind(of).to_owned(),
        ResourceType::Namespaces => format!("Namespaces{place}"),
        ResourceType::Namespace(_) => "Namespace".to_owned(),
        ResourceType::NamespaceTopics => "NamespaceTopics".to_owned(),
        ResourceType::DomainTopics => "DomainTopics".to_owned(),
        ResourceType::DomainTopic => "DomainTopic".to_owned(),
        ResourceType::Subscriptions(source, form) => format!("Subscriptions{}", hung(source, form)),
        ResourceType::Subscription(source, form, _) => format!("Subscription{}", hung(source, form)),
        ResourceType::UnsupportedAll(resource_type) => format!("Unsupported{resource_type}{place}"),
        ResourceType::Unsupported(resource_type) => format!("One{resource_type}"),
        ResourceType::AllSubscriptions => {
            let (location, topic_type) = (has("{location}", "OfLocation"), has("{topicTypeName}", "OfType"));
            format!("AllSubscriptions{place}{location}{topic_type}")
        }
    }
}

/// A resource of an unsupported type.
fn unsupported(route: &Route, resource_type: &str, method: &Method, error: &Value) -> OperationBuilder {
    let object = json!({"type": "object"});
    match *method {
        Method::GET => {
            draft(route, "get", &format!("Get one of {resource_type}, which are not supported (always 404)"))
        }
        Method::PUT => draft(
            route,
            "put",
            &format!("Refuse to create or change {resource_type}, which are not supported"),
        )
        .body(false, &object, json!({})),
        Method::PATCH => draft(
            route,
            "patch",
            &format!("Refuse to create or change {resource_type}, which are not supported"),
        )
        .body(false, &object, json!({})),
        _ => {
            return deleted(
                draft(route, "delete", &format!("Delete one of {resource_type}, which are not supported (no effect)")),
                error,
            );
        }
    }
    .errors(&CHANGING, error)
}

fn list(draft: OperationBuilder, item: Value) -> OperationBuilder {
    draft.answer(200, "The whole list", &list_of(item))
}

fn paged(draft: OperationBuilder, item: Value) -> OperationBuilder {
    draft
        .query(
            "$filter",
            "Filter by name: `contains(name, 'text')`, `name eq 'text'`, `and`, `or`, `not`",
            &json!({"type": "string"}),
        )
        .query("$top", "Maximum items in a page", &json!({"type": "integer", "minimum": 1, "maximum": 100}))
        .query("$skipToken", "Start of the page, taken from `nextLink`", &json!({"type": "string"}))
        .answer(200, "A page of the list, with the link to the next page", &list_of(item))
}

fn topic_itself(
    route: &Route,
    kind: TopicKind,
    method: &Method,
    schemas: &mut SchemaRegistry,
    error: &Value,
) -> OperationBuilder {
    let (body, view) = (schemas.of::<topic::TopicBody>(), schemas.of::<topic::TopicView>());
    let example = json!({"location": "local", "tags": {"team": "shop"}});
    let word = match kind {
        TopicKind::Topic | TopicKind::NamespaceTopic => "topic",
        TopicKind::Domain => "domain",
    };
    match *method {
        Method::GET => {
            draft(route, "get", &format!("Get a {word}")).answer(200, "The resource, without its keys", &view)
        }
        Method::PUT => what_if(draft(route, "put", &format!("Create or replace a {word}")), schemas)
            .body(false, &body, example)
            .answer(201, "The created or changed resource", &view)
            .errors(&CHANGING, error),
        Method::PATCH => draft(route, "patch", &format!("Change a {word} with a JSON merge patch"))
            .body(false, &body, example)
            .answer(201, "The changed resource", &view)
            .errors(&CHANGING, error),
        _ => {
            deleted(draft(route, "delete", &format!("Delete a {word}, its events and its event subscriptions")), error)
        }
    }
}

/// Adds the parameter `whatIf` of a PUT.
fn what_if(draft: OperationBuilder, schemas: &mut SchemaRegistry) -> OperationBuilder {
    draft.query("whatIf", "Whether to report the changes without making them", &json!({"type": "boolean"})).answer(
        200,
        "The changes that would be made; only with `whatIf`",
        &schemas.of::<Difference>(),
    )
}

fn deleted(draft: OperationBuilder, error: &Value) -> OperationBuilder {
    draft.done(204, "The resource does not exist any more").errors(&CHANGING, error)
}

fn topic_verb(route: &Route, verb: TopicAction, schemas: &mut SchemaRegistry, error: &Value) -> OperationBuilder {
    match verb {
        TopicAction::Itself | TopicAction::ListKeys => {
            let keys = schemas.of::<SharedAccessKeys>();
            draft(route, "listKeys", "List the access keys").answer(200, "Both access keys", &keys)
        }
        TopicAction::RegenerateKey => {
            let (body, keys) = (schemas.of::<RegenerateKeyBody>(), schemas.of::<SharedAccessKeys>());
            draft(route, "regenerateKey", "Replace one of the access keys")
                .body(true, &body, json!({"keyName": "key1"}))
                .answer(200, "Both access keys", &keys)
                .errors(&CHANGING, error)
        }
        TopicAction::Status => draft(
            route,
            "status",
            "Get the backlog of a topic and the event subscriptions that lag",
        )
        .answer(200, "The status of the topic", &schemas.of::<status::TopicStatusView>()),
        TopicAction::Trace => {
            paging(draft(route, "trace", "Trace an event through all event subscriptions, by id or sequence number"))
                .query("id", "Id of the event", &json!({"type": "string", "minLength": 1}))
                .query(
                    "sequence",
                    "Sequence number of the event, instead of its id",
                    &json!({"type": "integer", "minimum": 1}),
                )
                .answer(200, "The history of the event", &schemas.of::<trace::TraceView>())
                .errors(&READING, error)
        }
        TopicAction::EventTypes => {
            list(draft(route, "eventTypes", "List the event types that a topic declares"), schemas.of::<EventType>())
        }
        TopicAction::PrivateEndpointConnections => list(
            draft(route, "privateEndpointConnections", "List private endpoint connections (always empty)"),
            json!({"type": "object"}),
        ),
    }
}

fn domain_topic(route: &Route, method: &Method, schemas: &mut SchemaRegistry, error: &Value) -> OperationBuilder {
    let view = schemas.of::<domain_topic::DomainTopicView>();
    match *method {
        Method::GET => draft(route, "get", "Get a topic of a domain").answer(200, "The domain topic", &view),
        Method::PUT => what_if(draft(route, "put", "Create a topic of a domain"), schemas)
            .body(false, &schemas.of::<DomainTopicBody>(), json!({}))
            .answer(201, "The created or existing domain topic", &view)
            .errors(&CHANGING, error),
        _ => deleted(draft(route, "delete", "Delete a topic of a domain and its event subscriptions"), error),
    }
}

fn itself(route: &Route, method: &Method, schemas: &mut SchemaRegistry, error: &Value) -> OperationBuilder {
    let view = schemas.of::<subscription::SubscriptionView>();
    let destination = json!({"endpointType": "WebHook", "properties": {"endpointUrl": "http://127.0.0.1:9/orders"}});
    match *method {
        Method::GET => draft(route, "get", "Get an event subscription").answer(
            200,
            "The event subscription, without secrets",
            &view,
        ),
        Method::PUT => what_if(draft(route, "put", "Create or replace an event subscription"), schemas)
            .body(
                true,
                &schemas.of::<subscription::SubscriptionBody>(),
                json!({"properties": {"destination": destination}}),
            )
            .answer(
                201,
                "The created or changed event subscription; `provisioningState` says whether it is in force",
                &view,
            )
            .errors(&CHANGING, error),
        Method::PATCH => {
            // A merge patch has no required properties.
            let body = schemas.made::<subscription::SubscriptionBodyProperties>("EventSubscriptionPatch", |schema| {
                schema["required"] = json!([]);
            });
            draft(route, "patch", "Change the properties of an event subscription with a JSON merge patch")
                .body(false, &body, json!({"labels": ["shop"]}))
                .answer(201, "The changed resource", &view)
                .errors(&CHANGING, error)
        }
        _ => deleted(draft(route, "delete", "Delete an event subscription and its pending deliveries"), error),
    }
}

fn subscription_verb(
    route: &Route,
    verb: SubscriptionAction,
    method: &Method,
    schemas: &mut SchemaRegistry,
    error: &Value,
) -> OperationBuilder {
    match verb {
        SubscriptionAction::Itself | SubscriptionAction::GetFullUrl => {
            let url = schemas.of::<FullUrl>();
            draft(route, "getFullUrl", "Get the endpoint URL with its query").answer(200, "The endpoint URL", &url)
        }
        SubscriptionAction::GetDeliveryAttributes => list(
            draft(route, "getDeliveryAttributes", "List the delivery properties with their secrets"),
            schemas.of::<Attribute>(),
        ),
        SubscriptionAction::TestFilter => test_filter(route, schemas).errors(&READING, error),
        SubscriptionAction::Status => {
            draft(route, "status", "Get the health, the counters and the backlog of an event subscription")
                .answer(200, "The status of the event subscription", &schemas.of::<status::SubscriptionStatusView>())
                .errors(&READING, error)
        }
        SubscriptionAction::Metrics => {
            let text = json!({"schema": {"type": "string"}});
            let contents = json!({
                "application/json": {"schema": schemas.of::<metrics::MetricsView>()},
                "text/plain": text,
                "application/openmetrics-text": text,
            });
            draft(route, "metrics", "Get the metrics of an event subscription, as JSON, Prometheus text or OpenMetrics")
                .contents(200, "The metrics of the event subscription", contents)
                .errors(&READING, error)
        }
        SubscriptionAction::Explain => {
            let nowhere = json!({"anyOf": [error, schemas.of::<explain::NotFoundView>()]});
            draft(route, "explain", "Explain why an event waits and when it is tried next, by id or sequence number")
                .query("id", "Id of the event", &json!({"type": "string", "minLength": 1}))
                .query(
                    "sequence",
                    "Sequence number of the event, instead of its id",
                    &json!({"type": "integer", "minimum": 1}),
                )
                .answer(200, "The state of the event and its obstacles", &schemas.of::<explain::ExplainView>())
                .errors(&READING, error)
                .answer(404, NOWHERE, &nowhere)
        }
        SubscriptionAction::DeadLetters
        | SubscriptionAction::DeadLetter
        | SubscriptionAction::RedriveDeadLetters
        | SubscriptionAction::PurgeDeadLetters => dead_letters::describe(route, verb, schemas, error),
        SubscriptionAction::Ledger => {
            let time = json!({"type": "string", "format": "date-time"});
            paging(draft(route, "ledger", "List the ledger of outcomes in order of time"))
                .query("from", "Earliest time of a line; default: an hour before `to`", &time)
                .query("to", "Time before which lines end; default: now", &time)
                .query("outcome", "Kind of line, or outcome of an attempt", &json!({"type": "string"}))
                .answer(
                    200,
                    "A page of lines, with the token of the next page",
                    &schemas.of::<ledger::LedgerPageView>(),
                )
                .errors(&READING, error)
        }
        SubscriptionAction::Replay(verb) => replay_verb(route, verb, method, schemas, error),
        SubscriptionAction::Command(command) => {
            let (name, sentence) = match command {
                Command::Hold => ("hold", "Hold delivery until `resume`; attempts in flight finish"),
                Command::Resume => ("resume", "Resume delivery after `hold`"),
                Command::Probe => ("probe", "Probe a suspended endpoint now; 409 if it is not suspended"),
                Command::Job(_) => ("job", "Control a job of the event subscription"),
                Command::Release => ("release", "Release a suspended endpoint as healthy; 409 if it is healthy"),
            };
            draft(route, name, sentence)
                .answer(200, "The status after the command", &schemas.of::<status::SubscriptionStatusView>())
                .errors(&CHANGING, error)
        }
    }
}

fn replay_verb(
    route: &Route,
    verb: ReplayAction,
    method: &Method,
    schemas: &mut SchemaRegistry,
    error: &Value,
) -> OperationBuilder {
    let view = schemas.of::<replay::JobView>();
    let (id, sentence) = match verb {
        ReplayAction::All if *method == Method::POST => {
            let (body, dry_run) = (schemas.of::<replay::ReplayBody>(), schemas.of::<replay::DryRun>());
            return draft(route, "startReplay", "Replay stored events, or count them with `dryRun`")
                .body(false, &body, json!({"from": "2026-01-01T00:00:00Z", "dryRun": true}))
                .answer(200, "The count of a dry run", &dry_run)
                .answer(201, "The replay that began", &view)
                .errors(&CHANGING, error);
        }
        ReplayAction::All => {
            let all = draft(route, "listReplays", "List running and recently ended replays");
            return list(all, view).errors(&READING, error);
        }
        ReplayAction::One => {
            return draft(route, "getReplay", "Get the progress and the outcomes of a replay")
                .answer(200, "The replay", &view)
                .errors(&READING, error);
        }
        ReplayAction::Pause => ("pauseReplay", "Pause a replay; attempts in flight finish"),
        ReplayAction::Resume => ("resumeReplay", "Resume a paused replay"),
        ReplayAction::Cancel => ("cancelReplay", "Cancel a replay; delivered events stay delivered"),
    };
    draft(route, id, sentence).answer(200, "The replay after the command", &view).errors(&CHANGING, error)
}

fn paging(draft: OperationBuilder) -> OperationBuilder {
    draft
        .query("top", "Maximum lines in a page", &json!({"type": "integer", "minimum": 1, "maximum": trace::TOP_MAX}))
        .query("continue", "Start of the page, taken from the page before", &json!({"type": "string"}))
}

fn test_filter(route: &Route, schemas: &mut SchemaRegistry) -> OperationBuilder {
    let filter = schemas.of::<subscription::FilterBody>();
    let events = json!({"description": "One event, or a list of events, in the input schema of the topic"});
    let asked = json!({
        "description": "Filter and events to test; a body without these keys is an event or a list of events",
        "type": "object",
        "properties": {
            "filter": {"description": "Filter to test instead of the stored one", "allOf": [filter]},
            "events": events,
            "last": {"description": "Number of stored events to test, newest first", "type": "integer", "minimum": 1, "maximum": 1000},
        },
    });
    let body = json!({"anyOf": [asked, {"type": "array", "items": {"type": "object"}}]});
    draft(route, "testFilter", "Test which events match a filter, and why others do not")
        .body(true, &body, json!({"last": 100}))
        .answer(200, "The result for each event", &schemas.of::<FilterTestReport>())
}
