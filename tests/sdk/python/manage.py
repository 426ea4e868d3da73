"""Set up, read, change, list and delete everything of the basic tier; meet the errors as the SDK raises them."""

import datetime

from azure.core.exceptions import HttpResponseError, ResourceNotFoundError
from azure.mgmt.eventgrid import models

from support import GROUP, PLAIN, Webhook, management, raises, wait_for


def destination(webhook, path="/hook?code=secret"):
    return models.WebHookEventSubscriptionDestination(
        endpoint_url=webhook.url(path),
        max_events_per_batch=10,
        preferred_batch_size_in_kilobytes=64,
        delivery_attribute_mappings=[
            models.StaticDeliveryAttributeMapping(name="tenant", value="a"),
            models.StaticDeliveryAttributeMapping(name="pass", value="hidden", is_secret=True),
            models.DynamicDeliveryAttributeMapping(name="total", source_field="data.total"),
        ],
    )


def subscription(webhook):
    return models.EventSubscription(
        destination=destination(webhook),
        filter=models.EventSubscriptionFilter(
            subject_begins_with="/a",
            subject_ends_with=".x",
            included_event_types=["A"],
            is_subject_case_sensitive=False,
            enable_advanced_filtering_on_arrays=True,
            advanced_filters=[
                models.StringInAdvancedFilter(key="data.k", values=["a"]),
                models.NumberInRangeAdvancedFilter(key="data.n", values=[[1.0, 2.0]]),
                models.NumberLessThanAdvancedFilter(key="data.n", value=5.0),
                models.BoolEqualsAdvancedFilter(key="data.b", value=True),
                models.IsNotNullAdvancedFilter(key="data.z"),
            ],
        ),
        labels=["l"],
        expiration_time_utc=datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(days=1),
        retry_policy=models.RetryPolicy(max_delivery_attempts=10, event_time_to_live_in_minutes=60),
        dead_letter_destination=models.StorageBlobDeadLetterDestination(resource_id="/r", blob_container_name="letters"),
    )


def topics(client):
    made = client.topics.begin_create_or_update(GROUP, "py-topic", models.Topic(location="local"), **PLAIN).result()
    assert made.name == "py-topic" and made.provisioning_state == "Succeeded", made
    assert made.id.endswith("/topics/py-topic") and made.endpoint.endswith("/api/events"), made
    again = client.topics.begin_create_or_update(GROUP, "py-topic", models.Topic(location="local"), **PLAIN).result()
    assert again.id == made.id
    client.topics.begin_update(GROUP, "py-topic", models.TopicUpdateParameters(tags={"team": "a"}), **PLAIN).result()
    assert client.topics.get(GROUP, "py-topic", **PLAIN).tags == {"team": "a"}
    assert "py-topic" in [found.name for found in client.topics.list_by_resource_group(GROUP, **PLAIN)]
    found = client.topics.list_by_subscription(filter="name eq 'py-topic'", **PLAIN)
    assert [found.name for found in found] == ["py-topic"]
    for number in range(3):
        client.topics.begin_create_or_update(GROUP, f"py-page-{number}", models.Topic(location="local"), **PLAIN).result()
    pages = list(client.topics.list_by_resource_group(GROUP, filter="contains(name, 'py-page')", top=2, **PLAIN).by_page())
    assert [len(list(page)) for page in pages] == [2, 1]
    keys = client.topics.list_shared_access_keys(GROUP, "py-topic", **PLAIN)
    request = models.TopicRegenerateKeyRequest(key_name="key1")
    fresh = client.topics.begin_regenerate_key(GROUP, "py-topic", request, **PLAIN).result()
    assert fresh.key1 != keys.key1 and fresh.key2 == keys.key2
    raises(ResourceNotFoundError, lambda: client.topics.get(GROUP, "py-none", **PLAIN))
    wrong = models.Topic(location="local")
    error = raises(HttpResponseError, lambda: client.topics.begin_create_or_update(GROUP, "x", wrong, **PLAIN))
    assert error.status_code == 400 and error.error.code, error


def nested(client, webhook):
    operations = client.topic_event_subscriptions
    made = operations.begin_create_or_update(GROUP, "py-topic", "all", subscription(webhook), **PLAIN).result()
    assert made.provisioning_state == "Succeeded" and made.labels == ["l"], made
    assert made.destination.endpoint_url is None, made.destination
    assert made.destination.endpoint_base_url == webhook.url("/hook"), made.destination
    assert [type(one).__name__ for one in made.filter.advanced_filters] == [
        "StringInAdvancedFilter",
        "NumberInRangeAdvancedFilter",
        "NumberLessThanAdvancedFilter",
        "BoolEqualsAdvancedFilter",
        "IsNotNullAdvancedFilter",
    ]
    assert made.retry_policy.max_delivery_attempts == 10 and made.dead_letter_destination.blob_container_name == "letters"
    assert operations.get_full_url(GROUP, "py-topic", "all", **PLAIN).endpoint_url == webhook.url("/hook?code=secret")
    attributes = operations.get_delivery_attributes(GROUP, "py-topic", "all", **PLAIN).value
    assert [(one.name, one.type) for one in attributes] == [("tenant", "Static"), ("pass", "Static"), ("total", "Dynamic")]
    assert attributes[1].value == "hidden" and attributes[2].source_field == "data.total"
    shown = operations.get(GROUP, "py-topic", "all", **PLAIN).destination.delivery_attribute_mappings
    assert "hidden" not in str([one.serialize() for one in shown]), shown
    update = models.EventSubscriptionUpdateParameters(labels=["x", "y"])
    assert operations.begin_update(GROUP, "py-topic", "all", update, **PLAIN).result().labels == ["x", "y"]
    assert [found.name for found in operations.list(GROUP, "py-topic", **PLAIN)] == ["all"]
    operations.begin_delete(GROUP, "py-topic", "all", **PLAIN).result()
    raises(ResourceNotFoundError, lambda: operations.get(GROUP, "py-topic", "all", **PLAIN))


def scoped(client, webhook):
    operations = client.event_subscriptions
    scope = client.topics.get(GROUP, "py-topic", **PLAIN).id
    made = operations.begin_create_or_update(scope, "scoped", subscription(webhook), **PLAIN).result()
    assert made.name == "scoped" and made.provisioning_state == "Succeeded", made
    update = models.EventSubscriptionUpdateParameters(labels=["z"])
    assert operations.begin_update(scope, "scoped", update, **PLAIN).result().labels == ["z"]
    assert operations.get(scope, "scoped", **PLAIN).labels == ["z"]
    by_resource = operations.list_by_resource(GROUP, "Microsoft.EventGrid", "topics", "py-topic", **PLAIN)
    assert [found.name for found in by_resource] == ["scoped"]
    assert operations.get_full_url(scope, "scoped", **PLAIN).endpoint_url == webhook.url("/hook?code=secret")
    operations.begin_delete(scope, "scoped", **PLAIN).result()
    wrong = subscription(webhook)
    wrong.retry_policy.max_delivery_attempts = 31
    error = raises(HttpResponseError, lambda: operations.begin_create_or_update(scope, "wrong", wrong, **PLAIN).result())
    assert error.status_code == 400 and "30" in error.message, error


def domains(client, webhook):
    made = client.domains.begin_create_or_update(GROUP, "py-domain", models.Domain(location="local"), **PLAIN).result()
    assert made.provisioning_state == "Succeeded" and made.endpoint, made
    assert client.domains.list_shared_access_keys(GROUP, "py-domain", **PLAIN).key1
    topic = client.domain_topics.begin_create_or_update(GROUP, "py-domain", "one", **PLAIN).result()
    assert topic.provisioning_state == "Succeeded", topic
    both = [client.domain_event_subscriptions, client.domain_topic_event_subscriptions]
    for operations, path in zip(both, [("py-domain",), ("py-domain", "one")]):
        made = operations.begin_create_or_update(GROUP, *path, "sub", subscription(webhook), **PLAIN).result()
        assert made.provisioning_state == "Succeeded", made
        assert [found.name for found in operations.list(GROUP, *path, **PLAIN)] == ["sub"]
        operations.begin_delete(GROUP, *path, "sub", **PLAIN).result()
    update = models.DomainUpdateParameters(tags={"team": "b"})
    client.domains.begin_update(GROUP, "py-domain", update, **PLAIN).result()
    assert client.domains.get(GROUP, "py-domain", **PLAIN).tags == {"team": "b"}
    assert "py-domain" in [found.name for found in client.domains.list_by_subscription(**PLAIN)]
    client.domains.begin_delete(GROUP, "py-domain", **PLAIN).result()
    raises(ResourceNotFoundError, lambda: client.domains.get(GROUP, "py-domain", **PLAIN))


def catalogues(client):
    assert "Microsoft.EventGrid.Topics" in [kind.name for kind in client.topic_types.list(**PLAIN)]
    assert any(one.name.startswith("Microsoft.EventGrid/") for one in client.operations.list(**PLAIN))


def main():
    client, webhook = management(), Webhook()
    topics(client)
    nested(client, webhook)
    scoped(client, webhook)
    domains(client, webhook)
    catalogues(client)
    client.topics.begin_delete(GROUP, "py-topic", **PLAIN).result()
    wait_for("the deletion notices", lambda: any(
        headers.get("aeg-event-type") == "SubscriptionDeletion" for _, headers, _ in list(webhook.requests)
    ))


main()
