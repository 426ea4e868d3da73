//! ARM's paths, read.

use expect_test::expect;
use gridhook::admin::{
    arm::path::{Target, TopicPath, parse},
    model::subscription::Form,
};

const RG: &str = "/subscriptions/S/resourceGroups/g/providers/Microsoft.EventGrid";

fn told(path: &str) -> String {
    let topic =
        |TopicPath { scope, name }: TopicPath| format!("{}/{}/{name}", scope.subscription, scope.resource_group);
    let form = |form: Form| format!("{form:?}").to_lowercase();
    match parse(path) {
        None => "nothing".to_owned(),
        Some(Target::Topics { subscription, resource_group }) => format!("topics of {subscription}/{resource_group:?}"),
        Some(Target::Topic(path, verb)) => format!("topic {}: {verb:?}", topic(path)),
        Some(Target::Subscriptions(path, how)) => format!("subscriptions of {}, {}", topic(path), form(how)),
        Some(Target::Subscription(path, how, name, verb)) => {
            format!("subscription {name} of {}, {}: {verb:?}", topic(path), form(how))
        }
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
    ];
    let lines: Vec<_> = paths.iter().map(|path| told(path)).collect();
    expect![[r#"
        topics of S/None
        topics of S/Some("g")
        topic S/g/t: Itself
        topic S/g/t: ListKeys
        topic S/g/t: RegenerateKey
        subscriptions of S/g/t, nested
        subscription e of S/g/t, nested: Itself
        subscription e of S/g/t, nested: GetFullUrl
        subscription e of S/g/t, nested: GetDeliveryAttributes
        subscription e of S/g/t, nested: Status
        subscription e of S/g/t, nested: Command(Hold)
        subscription e of S/g/t, nested: Command(Resume)
        subscription e of S/g/t, nested: Command(Probe)
        subscription e of S/g/t, nested: Command(Release)
        subscriptions of S/g/t, scoped
        subscription e of S/g/t, scoped: Itself
        subscription e of S/g/t, scoped: GetFullUrl"#]]
    .assert_eq(&lines.join("\n"));
}

#[test]
fn words_are_compared_without_case_and_names_are_kept() {
    let lower = told(
        "/SUBSCRIPTIONS/AbC/resourcegroups/My%20Rg/PROVIDERS/microsoft.eventgrid/Topics/MyTopic/EVENTSUBSCRIPTIONS/Es/",
    );
    assert_eq!(lower, "subscription Es of AbC/My Rg/MyTopic, nested: Itself");
}

#[test]
fn other_paths_are_nothing() {
    for path in [
        "/subscriptions",
        "/subscriptions/S",
        "/subscriptions/S/providers/Microsoft.EventGrid/topics/t",
        "/subscriptions/S/resourceGroups/g/providers/Microsoft.Storage/topics/t",
        "/subscriptions/S/resourceGroups/g/providers/Microsoft.EventGrid/domains/d",
        "/subscriptions/S/resourceGroups/g/providers/Microsoft.EventGrid/topics/t/keys",
        "/subscriptions/S/resourceGroups/g/providers/Microsoft.EventGrid/topics/t/eventSubscriptions/e/status/more",
        "/subscriptions/S/resourceGroups/g/providers/Microsoft.EventGrid/topics/%FF",
        "/",
    ] {
        assert_eq!(told(path), "nothing", "{path}");
    }
}
