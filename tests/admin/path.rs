//! ARM's paths, read.

use expect_test::expect;
use gridhook::admin::{
    arm::path::{AzureScope, ResourcePath, TopicPath, parse},
    model::subscription::PathForm,
};

const RG: &str = "/subscriptions/S/resourceGroups/g/providers/Microsoft.EventGrid";

fn describe(path: &str) -> String {
    let of = |path: &TopicPath| {
        let TopicPath { scope, kind, name, namespace, domain_topic } = path;
        let above = namespace.as_ref().map(|namespace| format!("{namespace}/")).unwrap_or_default();
        let below = domain_topic.as_ref().map(|topic| format!("/{topic}")).unwrap_or_default();
        format!("{kind:?} {}/{}/{above}{name}{below}", scope.subscription, scope.resource_group).to_lowercase()
    };
    let at = |place: &AzureScope| format!("{}/{:?}", place.subscription, place.resource_group);
    let form = |form: PathForm| format!("{form:?}").to_lowercase();
    match parse(path) {
        None => "nothing".to_owned(),
        Some(ResourcePath::Topics(kind, place)) => format!("each {kind:?} of {}", at(&place)),
        Some(ResourcePath::Topic(path, verb)) => format!("{}: {verb:?}", of(&path)),
        Some(ResourcePath::DomainTopics(path)) => format!("topics of {}", of(&path)),
        Some(ResourcePath::DomainTopic(path)) => of(&path),
        Some(ResourcePath::Subscriptions(path, how)) => format!("subscriptions of {}, {}", of(&path), form(how)),
        Some(ResourcePath::Subscription(path, how, key, verb)) => {
            format!("subscription {key} of {}, {}: {verb:?}", of(&path), form(how))
        }
        Some(ResourcePath::AllSubscriptions { place, location, topic_type }) => {
            format!("all subscriptions of {}, {location:?}, {topic_type:?}", at(&place))
        }
        Some(other) => format!("{other:?}"),
    }
}

#[test]
fn every_path_of_the_reference_is_read() {
    let scoped = "providers/Microsoft.EventGrid/eventSubscriptions";
    let paths = [
        "/subscriptions/S/providers/Microsoft.EventGrid/topics".to_owned(),
        format!("{RG}/topics"),
        format!("{RG}/topics/t"),
        format!("{RG}/topics/t/listKeys"),
        format!("{RG}/topics/t/regenerateKey"),
        format!("{RG}/topics/t/eventSubscriptions"),
        format!("{RG}/topics/t/eventSubscriptions/e"),
        format!("{RG}/topics/t/eventSubscriptions/e/getFullUrl"),
        format!("{RG}/topics/t/eventSubscriptions/e/getDeliveryAttributes"),
        format!("{RG}/topics/t/eventSubscriptions/e/status"),
        format!("{RG}/topics/t/eventSubscriptions/e/hold"),
        format!("{RG}/topics/t/eventSubscriptions/e/resume"),
        format!("{RG}/topics/t/eventSubscriptions/e/probe"),
        format!("{RG}/topics/t/eventSubscriptions/e/release"),
        format!("{RG}/topics/t/{scoped}"),
        format!("/{RG}/topics/t/{scoped}/e"),
        format!("{RG}/topics/t/{scoped}/e/getFullUrl"),
        format!("{RG}/topics/t/providers/Microsoft.EventGrid/eventTypes"),
        format!("{RG}/topics/t/privateEndpointConnections"),
        "/subscriptions/S/providers/Microsoft.EventGrid/domains".to_owned(),
        format!("{RG}/domains"),
        format!("{RG}/domains/d"),
        format!("{RG}/domains/d/listKeys"),
        format!("{RG}/domains/d/regenerateKey"),
        format!("{RG}/domains/d/eventSubscriptions/e"),
        format!("{RG}/domains/d/{scoped}/e"),
        format!("{RG}/domains/d/topics"),
        format!("{RG}/domains/d/topics/t"),
        format!("{RG}/domains/d/topics/t/eventSubscriptions"),
        format!("{RG}/domains/d/topics/t/eventSubscriptions/e"),
        format!("{RG}/domains/d/topics/t/{scoped}/e/getDeliveryAttributes"),
        format!("{RG}/eventSubscriptions"),
        "/subscriptions/S/providers/Microsoft.EventGrid/eventSubscriptions".to_owned(),
        format!("{RG}/locations/l/eventSubscriptions"),
        format!("{RG}/topicTypes/tt/eventSubscriptions"),
        "/subscriptions/S/providers/Microsoft.EventGrid/locations/l/topicTypes/tt/eventSubscriptions".to_owned(),
        "/providers/Microsoft.EventGrid/operations".to_owned(),
        "/providers/Microsoft.EventGrid/topicTypes".to_owned(),
        "/providers/Microsoft.EventGrid/topicTypes/tt".to_owned(),
        "/providers/Microsoft.EventGrid/topicTypes/tt/eventTypes".to_owned(),
        format!("{RG}/eventSubscriptions/e"),
        format!("/subscriptions/S/resourceGroups/g/providers/Microsoft.Storage/storageAccounts/a/{scoped}/e"),
    ];
    let lines: Vec<_> = paths.iter().map(|path| describe(path)).collect();
    expect![[r#"
        each Topic of S/None
        each Topic of S/Some("g")
        topic s/g/t: Itself
        topic s/g/t: ListKeys
        topic s/g/t: RegenerateKey
        subscriptions of topic s/g/t, nested
        subscription e of topic s/g/t, nested: Itself
        subscription e of topic s/g/t, nested: GetFullUrl
        subscription e of topic s/g/t, nested: GetDeliveryAttributes
        subscription e of topic s/g/t, nested: Status
        subscription e of topic s/g/t, nested: Command(Hold)
        subscription e of topic s/g/t, nested: Command(Resume)
        subscription e of topic s/g/t, nested: Command(Probe)
        subscription e of topic s/g/t, nested: Command(Release)
        subscriptions of topic s/g/t, scoped
        subscription e of topic s/g/t, scoped: Itself
        subscription e of topic s/g/t, scoped: GetFullUrl
        topic s/g/t: EventTypes
        topic s/g/t: PrivateEndpointConnections
        each Domain of S/None
        each Domain of S/Some("g")
        domain s/g/d: Itself
        domain s/g/d: ListKeys
        domain s/g/d: RegenerateKey
        subscription e of domain s/g/d, nested: Itself
        subscription e of domain s/g/d, scoped: Itself
        topics of domain s/g/d
        domain s/g/d/t
        subscriptions of domain s/g/d/t, nested
        subscription t/e of domain s/g/d/t, nested: Itself
        subscription t/e of domain s/g/d/t, scoped: GetDeliveryAttributes
        all subscriptions of S/Some("g"), None, None
        all subscriptions of S/None, None, None
        all subscriptions of S/Some("g"), Some("l"), None
        all subscriptions of S/Some("g"), None, Some("tt")
        all subscriptions of S/None, Some("l"), Some("tt")
        Operations
        TopicTypes
        TopicType("tt")
        EventTypesOf("tt")
        Sourceless("subscriptions/S/resourceGroups/g")
        Sourceless("subscriptions/S/resourceGroups/g/providers/Microsoft.Storage/storageAccounts/a")"#]]
    .assert_eq(&lines.join("\n"));
}

#[test]
fn words_are_compared_without_case_and_names_are_kept() {
    let parsed = parse(
        "/SUBSCRIPTIONS/AbC/resourcegroups/My%20Rg/PROVIDERS/microsoft.eventgrid/Topics/MyTopic/EVENTSUBSCRIPTIONS/Es/",
    );
    let Some(ResourcePath::Subscription(path, PathForm::Nested, name, _)) = parsed else { panic!("{parsed:?}") };
    let TopicPath { scope, name: topic, .. } = path;
    let kept = [scope.subscription.as_str(), &scope.resource_group, topic.as_str(), &name];
    assert_eq!(kept, ["AbC", "My Rg", "MyTopic", "Es"]);
}

#[test]
fn other_paths_are_nothing() {
    for path in [
        "/subscriptions/S/resourceGroups/g/providers",
        "/tenants/t",
        "/subscriptions/S/providers/Microsoft.EventGrid/topics/t",
        "/subscriptions/S/resourceGroups/g/providers/Microsoft.Storage/topics/t",
        "/subscriptions/S/resourceGroups/g/providers/Microsoft.EventGrid/eventHubs/d",
        "/subscriptions/S/resourceGroups/g/providers/Microsoft.EventGrid/topics/t/topics/u",
        "/subscriptions/S/resourceGroups/g/providers/Microsoft.EventGrid/topics/a%2Fb",
        "/subscriptions/S/resourceGroups/g/providers/Microsoft.EventGrid/topics/t/keys",
        "/subscriptions/S/resourceGroups/g/providers/Microsoft.EventGrid/topics/t/eventSubscriptions/e/status/more",
        "/subscriptions/S/resourceGroups/g/providers/Microsoft.EventGrid/topics/%FF",
        "/",
    ] {
        assert_eq!(describe(path), "nothing", "{path}");
    }
}
