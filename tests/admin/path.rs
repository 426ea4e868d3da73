//! The parser of ARM's paths.

use expect_test::expect;
use gridhook::admin::arm::path::find_route;

const RG: &str = "/subscriptions/S/resourceGroups/g/providers/Microsoft.EventGrid";

/// The route of a path, and the names in the path.
fn describe(path: &str) -> String {
    let Some(found) = find_route(path) else {
        return "nothing".to_owned();
    };
    let group = "/subscriptions/{subscriptionId}/resourceGroups/{resourceGroupName}/providers/Microsoft.EventGrid";
    let names: Vec<&str> = found.names.iter().map(|(_, name)| name.as_str()).collect();
    format!(
        "{} {}",
        found.route.template.replace(group, "…"),
        names.join(" ")
    )
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
        /subscriptions/{subscriptionId}/providers/Microsoft.EventGrid/topics S
        …/topics S g
        …/topics/{topicName} S g t
        …/topics/{topicName}/listKeys S g t
        …/topics/{topicName}/regenerateKey S g t
        …/topics/{topicName}/eventSubscriptions S g t
        …/topics/{topicName}/eventSubscriptions/{eventSubscriptionName} S g t e
        …/topics/{topicName}/eventSubscriptions/{eventSubscriptionName}/getFullUrl S g t e
        …/topics/{topicName}/eventSubscriptions/{eventSubscriptionName}/getDeliveryAttributes S g t e
        …/topics/{topicName}/eventSubscriptions/{eventSubscriptionName}/status S g t e
        …/topics/{topicName}/eventSubscriptions/{eventSubscriptionName}/hold S g t e
        …/topics/{topicName}/eventSubscriptions/{eventSubscriptionName}/resume S g t e
        …/topics/{topicName}/eventSubscriptions/{eventSubscriptionName}/probe S g t e
        …/topics/{topicName}/eventSubscriptions/{eventSubscriptionName}/release S g t e
        …/topics/{topicName}/providers/Microsoft.EventGrid/eventSubscriptions S g t
        …/topics/{topicName}/providers/Microsoft.EventGrid/eventSubscriptions/{eventSubscriptionName} S g t e
        …/topics/{topicName}/providers/Microsoft.EventGrid/eventSubscriptions/{eventSubscriptionName}/getFullUrl S g t e
        …/topics/{topicName}/providers/Microsoft.EventGrid/eventTypes S g t
        …/topics/{topicName}/privateEndpointConnections S g t
        /subscriptions/{subscriptionId}/providers/Microsoft.EventGrid/domains S
        …/domains S g
        …/domains/{domainName} S g d
        …/domains/{domainName}/listKeys S g d
        …/domains/{domainName}/regenerateKey S g d
        …/domains/{domainName}/eventSubscriptions/{eventSubscriptionName} S g d e
        …/domains/{domainName}/providers/Microsoft.EventGrid/eventSubscriptions/{eventSubscriptionName} S g d e
        …/domains/{domainName}/topics S g d
        …/domains/{domainName}/topics/{domainTopicName} S g d t
        …/domains/{domainName}/topics/{domainTopicName}/eventSubscriptions S g d t
        …/domains/{domainName}/topics/{domainTopicName}/eventSubscriptions/{eventSubscriptionName} S g d t e
        …/domains/{domainName}/topics/{domainTopicName}/providers/Microsoft.EventGrid/eventSubscriptions/{eventSubscriptionName}/getDeliveryAttributes S g d t e
        …/eventSubscriptions S g
        /subscriptions/{subscriptionId}/providers/Microsoft.EventGrid/eventSubscriptions S
        …/locations/{location}/eventSubscriptions S g l
        …/topicTypes/{topicTypeName}/eventSubscriptions S g tt
        /subscriptions/{subscriptionId}/providers/Microsoft.EventGrid/locations/{location}/topicTypes/{topicTypeName}/eventSubscriptions S l tt
        /providers/Microsoft.EventGrid/operations 
        /providers/Microsoft.EventGrid/topicTypes 
        /providers/Microsoft.EventGrid/topicTypes/{topicTypeName} tt
        /providers/Microsoft.EventGrid/topicTypes/{topicTypeName}/eventTypes tt
        nothing
        nothing"#]]
    .assert_eq(&lines.join("\n"));
}

#[test]
fn words_are_compared_without_case_and_names_are_kept() {
    let found = find_route(
        "/SUBSCRIPTIONS/AbC/resourcegroups/My%20Rg/PROVIDERS/microsoft.eventgrid/Topics/MyTopic/EVENTSUBSCRIPTIONS/Es/",
    );
    let found = found.expect("a route");
    let topic = found.topic().expect("a topic");
    let subscription = found.subscription().expect("an event subscription");
    let kept = [
        topic.scope.subscription.as_str(),
        &topic.scope.resource_group,
        topic.name.as_str(),
        &subscription,
    ];
    assert_eq!(kept, ["AbC", "My Rg", "MyTopic", "Es"]);
}

#[test]
fn a_subscription_of_a_domain_topic_has_the_topic_in_its_key() {
    for between in ["", "/providers/Microsoft.EventGrid"] {
        let found = find_route(&format!(
            "{RG}/domains/d/topics/t{between}/eventSubscriptions/e"
        ))
        .expect("a route");
        assert_eq!(found.subscription().expect("an event subscription"), "t/e");
        assert_eq!(
            found
                .topic()
                .expect("a topic")
                .domain_topic
                .expect("a domain topic")
                .as_str(),
            "t"
        );
    }
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
