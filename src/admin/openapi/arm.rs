//! ARM's paths, described.

mod account;
mod dead_letters;
mod namespaces;

use actix_web::http::Method;
use serde_json::{Value, json};

use super::draft::{Draft, Schemas, list_of};
use crate::{
    admin::{
        arm::{
            path::{ReplayVerb, SubscriptionVerb, TopicVerb},
            routes::{Route, Source, Subject},
            subscriptions::FullUrl,
            topics::SharedAccessKeys,
        },
        error::Envelope,
        explain, ledger, metrics,
        model::{
            difference::Difference,
            domain_topic::{self, Body as DomainTopicBody},
            namespace,
            provider::{EventType, Operation, TopicType},
            subscription::{self, Form, attribute::Body as Attribute},
            topic::{self, WhichKey},
        },
        operate, replay,
        test_filter::Report,
        trace,
    },
    policy::record::Command,
    topic::record::Kind,
};

/// What can be said to everybody.
const ALWAYS: [(u16, &str); 6] = [
    (400, "Invalid body or query"),
    (401, "Missing or wrong token"),
    (403, "Access token without the admin role"),
    (404, "No such resource"),
    (408, "Body not received in time"),
    (413, "Body too large"),
];

/// What can be said to whoever reads what is on the disk.
const READING: [(u16, &str); 2] = [(500, "Damaged store"), (503, "Store temporarily unreadable")];

/// What can be said to whoever changes something.
const CHANGING: [(u16, &str); 3] = [
    (409, "Name taken under another scope, or a concurrent change"),
    (500, "Unknown whether the change was made"),
    (503, "Store temporarily unwritable"),
];

/// Of [`SubscriptionVerb::Explain`].
const NOWHERE: &str = "No such resource, or no such event in the searched part of the log";

/// One of the paths, asked with one of its methods.
pub(super) fn describe(route: &Route, method: &Method, schemas: &mut Schemas) -> Draft {
    let error = schemas.of::<Envelope<'static>>();
    let draft = match route.subject {
        Subject::Tenants
        | Subject::AzureSubscriptions
        | Subject::AzureSubscription
        | Subject::ResourceGroups
        | Subject::ResourceGroup
        | Subject::Providers
        | Subject::Provider
        | Subject::Locations => account::describe(route, schemas),
        Subject::Operations => {
            list(draft(route, "listOperations", "List the operations of the provider"), schemas.of::<Operation>())
        }
        Subject::TopicTypes => list(draft(route, "listTopicTypes", "List topic types"), schemas.of::<TopicType>()),
        Subject::TopicType => {
            draft(route, "getTopicType", "Get a topic type").answer(200, "The topic type", &schemas.of::<TopicType>())
        }
        Subject::EventTypesOf => list(
            draft(route, "listEventTypes", "List the event types of a topic type (always empty)"),
            schemas.of::<EventType>(),
        ),
        Subject::UnsupportedAll(resource_type) => list(
            draft(route, "list", &format!("List {resource_type}, of which this server has none")),
            json!({"type": "object"}),
        ),
        Subject::Unsupported(resource_type) => unsupported(route, resource_type, method, &error),
        Subject::Topics(kind) => {
            paged(draft(route, "list", &format!("List {}", kind.word())), schemas.of::<topic::View>())
        }
        Subject::Namespaces => paged(draft(route, "list", "List namespaces"), schemas.of::<namespace::View>()),
        Subject::Namespace(verb) => namespaces::describe(route, verb, method, schemas, &error),
        Subject::NamespaceTopics => {
            paged(draft(route, "list", "List the topics of a namespace"), schemas.of::<namespace::topic::View>())
        }
        Subject::Topic(Kind::NamespaceTopic, TopicVerb::Itself) => namespaces::topic(route, method, schemas, &error),
        Subject::Topic(kind, TopicVerb::Itself) => topic_itself(route, kind, method, schemas, &error),
        Subject::Topic(_, verb) => topic_verb(route, verb, schemas, &error),
        Subject::DomainTopics => {
            paged(draft(route, "list", "List the topics of a domain"), schemas.of::<domain_topic::View>())
        }
        Subject::DomainTopic => domain_topic(route, method, schemas, &error),
        Subject::Subscriptions(Source::Whole(Kind::NamespaceTopic), _) => paged(
            draft(route, "list", "List the event subscriptions of a topic of a namespace"),
            namespaces::subscription_view(schemas),
        ),
        Subject::Subscriptions(..) => paged(
            draft(route, "list", "List the event subscriptions of a topic, a domain or a domain topic"),
            schemas.of::<subscription::View>(),
        ),
        Subject::AllSubscriptions => paged(
            draft(route, "list", "List event subscriptions by subscription, resource group, location or topic type"),
            schemas.of::<subscription::View>(),
        ),
        Subject::Subscription(Source::Whole(Kind::NamespaceTopic), _, SubscriptionVerb::Itself) => {
            namespaces::subscription(route, method, schemas, &error)
        }
        Subject::Subscription(_, _, SubscriptionVerb::Itself) => itself(route, method, schemas, &error),
        Subject::Subscription(_, _, verb) => subscription_verb(route, verb, method, schemas, &error),
    };
    draft
        .secured(&["admin"])
        .query("api-version", "API version; every version is accepted", &json!({"type": "string"}))
        .otherwise(&ALWAYS, &error)
}

/// An operation whose id says what it is done with: ids are unique, and the same things can be said of many resources.
fn draft(route: &Route, id: &str, summary: &str) -> Draft {
    let id = format!("{id}{}", of(route));
    Draft::new(tag(route.subject), &id, summary)
}

fn tag(subject: Subject) -> &'static str {
    match subject {
        Subject::Tenants
        | Subject::AzureSubscriptions
        | Subject::AzureSubscription
        | Subject::ResourceGroups
        | Subject::ResourceGroup
        | Subject::Providers
        | Subject::Provider
        | Subject::Locations => "account",
        Subject::Operations | Subject::TopicTypes | Subject::TopicType | Subject::EventTypesOf => "provider",
        Subject::Topics(Kind::Topic) | Subject::Topic(Kind::Topic, _) => "topics",
        Subject::Topics(Kind::Domain) | Subject::Topic(Kind::Domain, _) => "domains",
        Subject::DomainTopics | Subject::DomainTopic => "domain topics",
        Subject::Namespaces | Subject::Namespace(_) => "namespaces",
        Subject::NamespaceTopics | Subject::Topics(Kind::NamespaceTopic) | Subject::Topic(Kind::NamespaceTopic, _) => {
            "namespace topics"
        }
        Subject::Subscriptions(..) | Subject::Subscription(..) | Subject::AllSubscriptions => "event subscriptions",
        Subject::UnsupportedAll(_) | Subject::Unsupported(_) => "not supported",
    }
}

/// With what: the kind of a resource, on what it hangs, and by which of its paths it is spoken of.
fn of(route: &Route) -> String {
    let kind = |kind| match kind {
        Kind::Topic => "Topic",
        Kind::Domain => "Domain",
        Kind::NamespaceTopic => "NamespaceTopic",
    };
    let hung = |source, form| {
        let source = match source {
            Source::Whole(whole) => kind(whole),
            Source::DomainTopic => "DomainTopic",
        };
        let form = match form {
            Form::Nested => "",
            Form::Scoped => "ByScope",
        };
        format!("Of{source}{form}")
    };
    let has = |name: &str, word: &'static str| if route.template.contains(name) { word } else { "" };
    let place = has("{resourceGroupName}", "OfGroup");
    match route.subject {
        Subject::Tenants
        | Subject::AzureSubscriptions
        | Subject::AzureSubscription
        | Subject::ResourceGroups
        | Subject::ResourceGroup
        | Subject::Providers
        | Subject::Provider
        | Subject::Locations => String::new(),
        Subject::Operations | Subject::TopicTypes | Subject::TopicType | Subject::EventTypesOf => String::new(),
        Subject::Topics(of) => format!("{}s{place}", kind(of)),
        Subject::Topic(of, _) => kind(of).to_owned(),
        Subject::Namespaces => format!("Namespaces{place}"),
        Subject::Namespace(_) => "Namespace".to_owned(),
        Subject::NamespaceTopics => "NamespaceTopics".to_owned(),
        Subject::DomainTopics => "DomainTopics".to_owned(),
        Subject::DomainTopic => "DomainTopic".to_owned(),
        Subject::Subscriptions(source, form) => format!("Subscriptions{}", hung(source, form)),
        Subject::Subscription(source, form, _) => format!("Subscription{}", hung(source, form)),
        Subject::UnsupportedAll(resource_type) => format!("Unsupported{resource_type}{place}"),
        Subject::Unsupported(resource_type) => format!("One{resource_type}"),
        Subject::AllSubscriptions => {
            let (location, topic_type) = (has("{location}", "OfLocation"), has("{topicTypeName}", "OfType"));
            format!("AllSubscriptions{place}{location}{topic_type}")
        }
    }
}

/// A resource of a type that the server does not have.
fn unsupported(route: &Route, resource_type: &str, method: &Method, error: &Value) -> Draft {
    let object = json!({"type": "object"});
    match *method {
        Method::GET => draft(route, "get", &format!("Look for one of {resource_type}, of which there is none")),
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
                draft(route, "delete", &format!("Delete one of {resource_type}, of which there is none")),
                error,
            );
        }
    }
    .errors(&CHANGING, error)
}

fn list(draft: Draft, item: Value) -> Draft {
    draft.answer(200, "The whole list", &list_of(item))
}

fn paged(draft: Draft, item: Value) -> Draft {
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

fn topic_itself(route: &Route, kind: Kind, method: &Method, schemas: &mut Schemas, error: &Value) -> Draft {
    let (body, view) = (schemas.of::<topic::Body>(), schemas.of::<topic::View>());
    let example = json!({"location": "local", "tags": {"team": "shop"}});
    let word = match kind {
        Kind::Topic | Kind::NamespaceTopic => "topic",
        Kind::Domain => "domain",
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

/// A PUT can be asked for what it would change.
fn what_if(draft: Draft, schemas: &mut Schemas) -> Draft {
    draft.query("whatIf", "Whether to report the changes without making them", &json!({"type": "boolean"})).answer(
        200,
        "The changes that would be made; only with `whatIf`",
        &schemas.of::<Difference>(),
    )
}

fn deleted(draft: Draft, error: &Value) -> Draft {
    draft.done(204, "The resource does not exist any more").errors(&CHANGING, error)
}

fn topic_verb(route: &Route, verb: TopicVerb, schemas: &mut Schemas, error: &Value) -> Draft {
    match verb {
        TopicVerb::Itself | TopicVerb::ListKeys => {
            let keys = schemas.of::<SharedAccessKeys<'static>>();
            draft(route, "listKeys", "List the access keys").answer(200, "Both access keys", &keys)
        }
        TopicVerb::RegenerateKey => {
            let (body, keys) = (schemas.of::<WhichKey>(), schemas.of::<SharedAccessKeys<'static>>());
            draft(route, "regenerateKey", "Replace one of the access keys")
                .body(true, &body, json!({"keyName": "key1"}))
                .answer(200, "Both access keys", &keys)
                .errors(&CHANGING, error)
        }
        TopicVerb::Status => draft(route, "status", "Get the backlog of a topic and the event subscriptions that lag")
            .answer(200, "The status of the topic", &schemas.of::<operate::TopicView>()),
        TopicVerb::Trace => {
            paging(draft(route, "trace", "Trace an event through all event subscriptions, by id or sequence number"))
                .query("id", "Id of the event", &json!({"type": "string", "minLength": 1}))
                .query(
                    "sequence",
                    "Sequence number of the event, instead of its id",
                    &json!({"type": "integer", "minimum": 1}),
                )
                .answer(200, "The history of the event", &schemas.of::<trace::View>())
                .errors(&READING, error)
        }
        TopicVerb::EventTypes => {
            list(draft(route, "eventTypes", "List the event types that a topic declares"), schemas.of::<EventType>())
        }
        TopicVerb::PrivateEndpointConnections => list(
            draft(route, "privateEndpointConnections", "List private endpoint connections (always empty)"),
            json!({"type": "object"}),
        ),
    }
}

fn domain_topic(route: &Route, method: &Method, schemas: &mut Schemas, error: &Value) -> Draft {
    let view = schemas.of::<domain_topic::View>();
    match *method {
        Method::GET => draft(route, "get", "Get a topic of a domain").answer(200, "The domain topic", &view),
        Method::PUT => what_if(draft(route, "put", "Create a topic of a domain"), schemas)
            .body(false, &schemas.of::<DomainTopicBody>(), json!({}))
            .answer(201, "The created or existing domain topic", &view)
            .errors(&CHANGING, error),
        _ => deleted(draft(route, "delete", "Delete a topic of a domain and its event subscriptions"), error),
    }
}

fn itself(route: &Route, method: &Method, schemas: &mut Schemas, error: &Value) -> Draft {
    let view = schemas.of::<subscription::View>();
    let destination = json!({"endpointType": "WebHook", "properties": {"endpointUrl": "http://127.0.0.1:9/orders"}});
    match *method {
        Method::GET => draft(route, "get", "Get an event subscription").answer(
            200,
            "The event subscription, without secrets",
            &view,
        ),
        Method::PUT => what_if(draft(route, "put", "Create or replace an event subscription"), schemas)
            .body(true, &schemas.of::<subscription::Body>(), json!({"properties": {"destination": destination}}))
            .answer(
                201,
                "The created or changed event subscription; `provisioningState` says whether it is in force",
                &view,
            )
            .errors(&CHANGING, error),
        Method::PATCH => {
            // Of a merge patch nothing is required.
            let body = schemas.made::<subscription::Properties>("EventSubscriptionPatch", |schema| {
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
    verb: SubscriptionVerb,
    method: &Method,
    schemas: &mut Schemas,
    error: &Value,
) -> Draft {
    match verb {
        SubscriptionVerb::Itself | SubscriptionVerb::GetFullUrl => {
            let url = schemas.of::<FullUrl<'static>>();
            draft(route, "getFullUrl", "Get the endpoint URL with its query").answer(200, "The endpoint URL", &url)
        }
        SubscriptionVerb::GetDeliveryAttributes => list(
            draft(route, "getDeliveryAttributes", "List the delivery properties with their secrets"),
            schemas.of::<Attribute>(),
        ),
        SubscriptionVerb::TestFilter => test_filter(route, schemas).errors(&READING, error),
        SubscriptionVerb::Status => {
            draft(route, "status", "Get the health, the counters and the backlog of an event subscription")
                .answer(200, "The status of the event subscription", &schemas.of::<operate::View>())
                .errors(&READING, error)
        }
        SubscriptionVerb::Metrics => {
            let text = json!({"schema": {"type": "string"}});
            let contents = json!({
                "application/json": {"schema": schemas.of::<metrics::View>()},
                "text/plain": text,
                "application/openmetrics-text": text,
            });
            draft(route, "metrics", "Get the metrics of an event subscription, as JSON, Prometheus text or OpenMetrics")
                .contents(200, "The metrics of the event subscription", contents)
                .errors(&READING, error)
        }
        SubscriptionVerb::Explain => {
            let nowhere = json!({"anyOf": [error, schemas.of::<explain::NotFoundView>()]});
            draft(route, "explain", "Explain why an event waits and when it is tried next, by id or sequence number")
                .query("id", "Id of the event", &json!({"type": "string", "minLength": 1}))
                .query(
                    "sequence",
                    "Sequence number of the event, instead of its id",
                    &json!({"type": "integer", "minimum": 1}),
                )
                .answer(200, "The state of the event and its obstacles", &schemas.of::<explain::View>())
                .errors(&READING, error)
                .answer(404, NOWHERE, &nowhere)
        }
        SubscriptionVerb::DeadLetters
        | SubscriptionVerb::DeadLetter
        | SubscriptionVerb::RedriveDeadLetters
        | SubscriptionVerb::PurgeDeadLetters => dead_letters::describe(route, verb, schemas, error),
        SubscriptionVerb::Ledger => {
            let time = json!({"type": "string", "format": "date-time"});
            paging(draft(route, "ledger", "List the ledger of outcomes in order of time"))
                .query("from", "Earliest time of a line; default: an hour before `to`", &time)
                .query("to", "Time before which lines end; default: now", &time)
                .query("outcome", "Kind of line, or outcome of an attempt", &json!({"type": "string"}))
                .answer(200, "A page of lines, with the token of the next page", &schemas.of::<ledger::View>())
                .errors(&READING, error)
        }
        SubscriptionVerb::Replay(verb) => replay_verb(route, verb, method, schemas, error),
        SubscriptionVerb::Command(command) => {
            let (name, sentence) = match command {
                Command::Hold => ("hold", "Hold delivery until `resume`; attempts in flight finish"),
                Command::Resume => ("resume", "Resume delivery after `hold`"),
                Command::Probe => ("probe", "Probe a suspended endpoint now; 409 if it is not suspended"),
                Command::Job(_) => ("job", "Control a job of the event subscription"),
                Command::Release => ("release", "Release a suspended endpoint as healthy; 409 if it is healthy"),
            };
            draft(route, name, sentence)
                .answer(200, "The status after the command", &schemas.of::<operate::View>())
                .errors(&CHANGING, error)
        }
    }
}

fn replay_verb(route: &Route, verb: ReplayVerb, method: &Method, schemas: &mut Schemas, error: &Value) -> Draft {
    let view = schemas.of::<replay::View>();
    let (id, sentence) = match verb {
        ReplayVerb::All if *method == Method::POST => {
            let (body, dry_run) = (schemas.of::<replay::Body>(), schemas.of::<replay::DryRun>());
            return draft(route, "startReplay", "Replay stored events, or count them with `dryRun`")
                .body(false, &body, json!({"from": "2026-01-01T00:00:00Z", "dryRun": true}))
                .answer(200, "The count of a dry run", &dry_run)
                .answer(201, "The replay that began", &view)
                .errors(&CHANGING, error);
        }
        ReplayVerb::All => {
            let all = draft(route, "listReplays", "List running and recently ended replays");
            return list(all, view).errors(&READING, error);
        }
        ReplayVerb::One => {
            return draft(route, "getReplay", "Get the progress and the outcomes of a replay")
                .answer(200, "The replay", &view)
                .errors(&READING, error);
        }
        ReplayVerb::Pause => ("pauseReplay", "Pause a replay; attempts in flight finish"),
        ReplayVerb::Resume => ("resumeReplay", "Resume a paused replay"),
        ReplayVerb::Cancel => ("cancelReplay", "Cancel a replay; delivered events stay delivered"),
    };
    draft(route, id, sentence).answer(200, "The replay after the command", &view).errors(&CHANGING, error)
}

fn paging(draft: Draft) -> Draft {
    draft
        .query("top", "Maximum lines in a page", &json!({"type": "integer", "minimum": 1, "maximum": trace::TOP_MAX}))
        .query("continue", "Start of the page, taken from the page before", &json!({"type": "string"}))
}

fn test_filter(route: &Route, schemas: &mut Schemas) -> Draft {
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
        .answer(200, "The result for each event", &schemas.of::<Report>())
}
