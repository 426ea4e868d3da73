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
const ALWAYS: [(u16, &str); 5] = [
    (400, "The body or the query is not what is allowed, or its end did not come."),
    (401, "The admin token is missing, or another."),
    (404, "There is no such resource."),
    (408, "The body did not come in time."),
    (413, "The body is too large."),
];

/// What can be said to whoever reads what is on the disk.
const READING: [(u16, &str); 2] = [(500, "The store is damaged."), (503, "The store cannot be read now.")];

/// What can be said to whoever changes something.
const CHANGING: [(u16, &str); 3] = [
    (409, "The name is taken in another place, or it was changed by somebody else meanwhile."),
    (500, "It is not known whether the change was made."),
    (503, "The store takes no changes now."),
];

/// Of [`SubscriptionVerb::Explain`].
const NOWHERE: &str = "There is no such resource; or no such event where it was looked for.";

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
            list(draft(route, "listOperations", "What the provider can do."), schemas.of::<Operation>())
        }
        Subject::TopicTypes => list(draft(route, "listTopicTypes", "All types of topics."), schemas.of::<TopicType>()),
        Subject::TopicType => {
            draft(route, "getTopicType", "A type of topics.").answer(200, "It.", &schemas.of::<TopicType>())
        }
        Subject::EventTypesOf => list(
            draft(route, "listEventTypes", "The event types of a type of topics: none is declared for all."),
            schemas.of::<EventType>(),
        ),
        Subject::UnsupportedAll(resource_type) => list(
            draft(route, "list", &format!("List {resource_type}. This server has none.")),
            json!({"type": "object"}),
        ),
        Subject::Unsupported(resource_type) => unsupported(route, resource_type, method, &error),
        Subject::Topics(kind) => {
            paged(draft(route, "list", &format!("All {}.", kind.word())), schemas.of::<topic::View>())
        }
        Subject::Namespaces => paged(draft(route, "list", "All namespaces."), schemas.of::<namespace::View>()),
        Subject::Namespace(verb) => namespaces::describe(route, verb, method, schemas, &error),
        Subject::NamespaceTopics => {
            paged(draft(route, "list", "All topics of a namespace."), schemas.of::<namespace::topic::View>())
        }
        Subject::Topic(Kind::NamespaceTopic, TopicVerb::Itself) => namespaces::topic(route, method, schemas, &error),
        Subject::Topic(kind, TopicVerb::Itself) => topic_itself(route, kind, method, schemas, &error),
        Subject::Topic(_, verb) => topic_verb(route, verb, schemas, &error),
        Subject::DomainTopics => {
            paged(draft(route, "list", "All topics of a domain."), schemas.of::<domain_topic::View>())
        }
        Subject::DomainTopic => domain_topic(route, method, schemas, &error),
        Subject::Subscriptions(Source::Whole(Kind::NamespaceTopic), _) => paged(
            draft(route, "list", "All event subscriptions of a topic of a namespace."),
            namespaces::subscription_view(schemas),
        ),
        Subject::Subscriptions(..) => paged(
            draft(route, "list", "All event subscriptions of a topic, a domain or a topic of a domain."),
            schemas.of::<subscription::View>(),
        ),
        Subject::AllSubscriptions => paged(
            draft(route, "list", "All event subscriptions of a place, or those of topics in a location or of a type."),
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
        .query("api-version", "Any, or none.", &json!({"type": "string"}))
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
        Method::GET => draft(route, "get", &format!("Get one of {resource_type}: always 404.")),
        Method::PUT => {
            draft(route, "put", &format!("Refused: {resource_type} are not supported.")).body(false, &object, json!({}))
        }
        Method::PATCH => draft(route, "patch", &format!("Refused: {resource_type} are not supported.")).body(
            false,
            &object,
            json!({}),
        ),
        _ => return deleted(draft(route, "delete", &format!("Delete one of {resource_type}: there is none.")), error),
    }
    .errors(&CHANGING, error)
}

fn list(draft: Draft, item: Value) -> Draft {
    draft.answer(200, "All of them.", &list_of(item))
}

fn paged(draft: Draft, item: Value) -> Draft {
    draft
        .query(
            "$filter",
            "By name: `contains(name, 'text')`, `name eq 'text'`, `and`, `or`, `not`.",
            &json!({"type": "string"}),
        )
        .query("$top", "How many a page has.", &json!({"type": "integer", "minimum": 1, "maximum": 100}))
        .query("$skipToken", "Where the page begins, as `nextLink` has it.", &json!({"type": "string"}))
        .answer(200, "A page of them, and where the next one is.", &list_of(item))
}

fn topic_itself(route: &Route, kind: Kind, method: &Method, schemas: &mut Schemas, error: &Value) -> Draft {
    let (body, view) = (schemas.of::<topic::Body>(), schemas.of::<topic::View>());
    let example = json!({"location": "local", "tags": {"team": "shop"}});
    let word = match kind {
        Kind::Topic | Kind::NamespaceTopic => "topic",
        Kind::Domain => "domain",
    };
    match *method {
        Method::GET => draft(route, "get", &format!("A {word}.")).answer(200, "It, without its keys.", &view),
        Method::PUT => what_if(draft(route, "put", &format!("Makes a {word}, or sets it anew.")), schemas)
            .body(false, &body, example)
            .answer(201, "It is made, or changed.", &view)
            .errors(&CHANGING, error),
        Method::PATCH => draft(route, "patch", &format!("Changes some of a {word}: a JSON merge patch."))
            .body(false, &body, example)
            .answer(201, "It is changed.", &view)
            .errors(&CHANGING, error),
        _ => deleted(draft(route, "delete", &format!("Deletes a {word}, its events and its subscriptions.")), error),
    }
}

/// A PUT can be asked for what it would change.
fn what_if(draft: Draft, schemas: &mut Schemas) -> Draft {
    draft.query("whatIf", "`true`: what would be changed is told, and nothing is.", &json!({"type": "boolean"})).answer(
        200,
        "What would be changed: only where `whatIf` asks for it.",
        &schemas.of::<Difference>(),
    )
}

fn deleted(draft: Draft, error: &Value) -> Draft {
    draft.done(204, "It is not there any more, or never was.").errors(&CHANGING, error)
}

fn topic_verb(route: &Route, verb: TopicVerb, schemas: &mut Schemas, error: &Value) -> Draft {
    match verb {
        TopicVerb::Itself | TopicVerb::ListKeys => {
            let keys = schemas.of::<SharedAccessKeys<'static>>();
            draft(route, "listKeys", "Both access keys.").answer(200, "They.", &keys)
        }
        TopicVerb::RegenerateKey => {
            let (body, keys) = (schemas.of::<WhichKey>(), schemas.of::<SharedAccessKeys<'static>>());
            draft(route, "regenerateKey", "Makes one of the access keys anew.")
                .body(true, &body, json!({"keyName": "key1"}))
                .answer(200, "Both keys.", &keys)
                .errors(&CHANGING, error)
        }
        TopicVerb::Status => draft(route, "status", "How it is: whether its backlog is at its bound, and who lags.")
            .answer(200, "So it is.", &schemas.of::<operate::TopicView>()),
        TopicVerb::Trace => paging(draft(
            route,
            "trace",
            "The whole story of an event, for everybody who subscribes: by its id or its sequence.",
        ))
        .query("id", "Of the event.", &json!({"type": "string", "minLength": 1}))
        .query("sequence", "Of the event, instead of its id.", &json!({"type": "integer", "minimum": 1}))
        .answer(200, "So it went.", &schemas.of::<trace::View>())
        .errors(&READING, error),
        TopicVerb::EventTypes => {
            list(draft(route, "eventTypes", "The event types that it says it publishes."), schemas.of::<EventType>())
        }
        TopicVerb::PrivateEndpointConnections => list(
            draft(route, "privateEndpointConnections", "None: the address that is listened on decides who comes in."),
            json!({"type": "object"}),
        ),
    }
}

fn domain_topic(route: &Route, method: &Method, schemas: &mut Schemas, error: &Value) -> Draft {
    let view = schemas.of::<domain_topic::View>();
    match *method {
        Method::GET => draft(route, "get", "A topic of a domain.").answer(200, "It.", &view),
        Method::PUT => what_if(draft(route, "put", "Makes a topic of a domain."), schemas)
            .body(false, &schemas.of::<DomainTopicBody>(), json!({}))
            .answer(201, "It is made, or was there.", &view)
            .errors(&CHANGING, error),
        _ => deleted(draft(route, "delete", "Deletes a topic of a domain and its subscriptions."), error),
    }
}

fn itself(route: &Route, method: &Method, schemas: &mut Schemas, error: &Value) -> Draft {
    let view = schemas.of::<subscription::View>();
    let destination = json!({"endpointType": "WebHook", "properties": {"endpointUrl": "http://127.0.0.1:9/orders"}});
    match *method {
        Method::GET => {
            draft(route, "get", "An event subscription.").answer(200, "It, without what may be secret.", &view)
        }
        Method::PUT => what_if(draft(route, "put", "Makes an event subscription, or sets it anew."), schemas)
            .body(true, &schemas.of::<subscription::Body>(), json!({"properties": {"destination": destination}}))
            .answer(201, "It is made, or changed; `provisioningState` says whether it is in force.", &view)
            .errors(&CHANGING, error),
        Method::PATCH => {
            // Of a merge patch nothing is required.
            let body = schemas.made::<subscription::Properties>("EventSubscriptionPatch", |schema| {
                schema["required"] = json!([]);
            });
            draft(route, "patch", "Changes some of an event subscription: a JSON merge patch of its properties.")
                .body(false, &body, json!({"labels": ["shop"]}))
                .answer(201, "It is changed.", &view)
                .errors(&CHANGING, error)
        }
        _ => deleted(draft(route, "delete", "Deletes an event subscription, and what it owes."), error),
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
            draft(route, "getFullUrl", "The whole address of its endpoint.").answer(200, "It.", &url)
        }
        SubscriptionVerb::GetDeliveryAttributes => list(
            draft(route, "getDeliveryAttributes", "Its delivery properties, with their secrets."),
            schemas.of::<Attribute>(),
        ),
        SubscriptionVerb::TestFilter => test_filter(route, schemas).errors(&READING, error),
        SubscriptionVerb::Status => draft(route, "status", "How it is: health, counters, backlog, what is next.")
            .answer(200, "So it is.", &schemas.of::<operate::View>())
            .errors(&READING, error),
        SubscriptionVerb::Metrics => {
            let text = json!({"schema": {"type": "string"}});
            let contents = json!({
                "application/json": {"schema": schemas.of::<metrics::View>()},
                "text/plain": text,
                "application/openmetrics-text": text,
            });
            draft(route, "metrics", "Its figures, under Azure Monitor's names and as series: JSON, or as asked for.")
                .contents(200, "They.", contents)
                .errors(&READING, error)
        }
        SubscriptionVerb::Explain => {
            let nowhere = json!({"anyOf": [error, schemas.of::<explain::NotFoundView>()]});
            draft(route, "explain", "Why an event waits, and when it is tried next: by its id or by its sequence.")
                .query("id", "Of the event.", &json!({"type": "string", "minLength": 1}))
                .query("sequence", "Of the event, instead of its id.", &json!({"type": "integer", "minimum": 1}))
                .answer(200, "So it is.", &schemas.of::<explain::View>())
                .errors(&READING, error)
                .answer(404, NOWHERE, &nowhere)
        }
        SubscriptionVerb::DeadLetters
        | SubscriptionVerb::DeadLetter
        | SubscriptionVerb::RedriveDeadLetters
        | SubscriptionVerb::PurgeDeadLetters => dead_letters::describe(route, verb, schemas, error),
        SubscriptionVerb::Ledger => {
            let time = json!({"type": "string", "format": "date-time"});
            paging(draft(route, "ledger", "What became of events, line by line, in the order of time."))
                .query("from", "Lines from then on; an hour before `to`, if it is not said.", &time)
                .query("to", "Lines before then; now, if it is not said.", &time)
                .query("outcome", "Only lines of this kind, or attempts with this outcome.", &json!({"type": "string"}))
                .answer(200, "A part of them, and where the next one is.", &schemas.of::<ledger::View>())
                .errors(&READING, error)
        }
        SubscriptionVerb::Replay(verb) => replay_verb(route, verb, method, schemas, error),
        SubscriptionVerb::Command(command) => {
            let (name, sentence) = match command {
                Command::Hold => ("hold", "Sends nothing until `resume`; what is in flight is finished."),
                Command::Resume => ("resume", "Sends again."),
                Command::Probe => ("probe", "Probes a suspended endpoint now; 409 where there is nothing to find out."),
                Command::Job(_) => ("job", "Says something about a job."),
                Command::Release => ("release", "Takes a suspended endpoint for healthy; 409 where it is."),
            };
            draft(route, name, sentence)
                .answer(200, "So it is now.", &schemas.of::<operate::View>())
                .errors(&CHANGING, error)
        }
    }
}

fn replay_verb(route: &Route, verb: ReplayVerb, method: &Method, schemas: &mut Schemas, error: &Value) -> Draft {
    let view = schemas.of::<replay::View>();
    let (id, sentence) = match verb {
        ReplayVerb::All if *method == Method::POST => {
            let (body, dry_run) = (schemas.of::<replay::Body>(), schemas.of::<replay::DryRun>());
            return draft(
                route,
                "startReplay",
                "Sends a part of what is stored once more; or counts what it would send.",
            )
            .body(false, &body, json!({"from": "2026-01-01T00:00:00Z", "dryRun": true}))
            .answer(200, "So many, and nothing was sent.", &dry_run)
            .answer(201, "It has begun.", &view)
            .errors(&CHANGING, error);
        }
        ReplayVerb::All => {
            let all = draft(route, "listReplays", "Its replays that go on, and the last that have ended.");
            return list(all, view).errors(&READING, error);
        }
        ReplayVerb::One => {
            return draft(route, "getReplay", "A replay: how far it is, and what became of its events.")
                .answer(200, "It.", &view)
                .errors(&READING, error);
        }
        ReplayVerb::Pause => ("pauseReplay", "Sends nothing of it for now; what is in flight is finished."),
        ReplayVerb::Resume => ("resumeReplay", "Goes on with it."),
        ReplayVerb::Cancel => ("cancelReplay", "Ends it; what has been delivered stays delivered."),
    };
    draft(route, id, sentence).answer(200, "So it is now.", &view).errors(&CHANGING, error)
}

fn paging(draft: Draft) -> Draft {
    draft
        .query("top", "How much an answer has.", &json!({"type": "integer", "minimum": 1, "maximum": trace::TOP_MAX}))
        .query("continue", "Where it goes on, as the answer before had it.", &json!({"type": "string"}))
}

fn test_filter(route: &Route, schemas: &mut Schemas) -> Draft {
    let filter = schemas.of::<subscription::FilterBody>();
    let events = json!({"description": "One event, or a list of events, in the topic's input schema."});
    let asked = json!({
        "description": "What to try it on; a body without one of these keys is an event, or a list of events.",
        "type": "object",
        "properties": {
            "filter": filter,
            "events": events,
            "last": {"type": "integer", "minimum": 1, "maximum": 1000},
        },
    });
    let body = json!({"anyOf": [asked, {"type": "array", "items": {"type": "object"}}]});
    draft(route, "testFilter", "Which events would match, and what stops the others. Changes nothing.")
        .body(true, &body, json!({"last": 100}))
        .answer(200, "What it says of each.", &schemas.of::<Report>())
}
