"""Set up a namespace with topics and event subscriptions, change and list them; publish to it, and read what arrives."""

import datetime

from azure.core.credentials import AzureKeyCredential
from azure.core.exceptions import ClientAuthenticationError, HttpResponseError, ResourceNotFoundError
from azure.core.messaging import CloudEvent
from azure.eventgrid import EventGridPublisherClient
from azure.mgmt.eventgrid import models

from support import GROUP, PLAIN, URL, Token, Webhook, management, raises

NAMESPACE = "py-namespace"
SCHEMA = "CloudEventSchemaV1_0"


def namespaces(client):
    resource = models.Namespace(location="local", sku=models.NamespaceSku(name="Standard", capacity=1), tags={"a": "b"})
    made = client.namespaces.begin_create_or_update(GROUP, NAMESPACE, resource, **PLAIN).result()
    assert made.name == NAMESPACE and made.provisioning_state == "Succeeded", made
    assert made.sku.name == "Standard" and made.location == "local", made
    again = client.namespaces.begin_create_or_update(GROUP, NAMESPACE, resource, **PLAIN).result()
    assert again.id == made.id
    update = models.NamespaceUpdateParameters(tags={"team": "a"})
    client.namespaces.begin_update(GROUP, NAMESPACE, update, **PLAIN).result()
    read = client.namespaces.get(GROUP, NAMESPACE, **PLAIN)
    # As in Azure, the tags of an update replace all.
    assert read.tags == {"team": "a"}, read.tags
    assert NAMESPACE in [found.name for found in client.namespaces.list_by_resource_group(GROUP, **PLAIN)]
    assert NAMESPACE in [found.name for found in client.namespaces.list_by_subscription(**PLAIN)]
    keys = client.namespaces.list_shared_access_keys(GROUP, NAMESPACE, **PLAIN)
    request = models.NamespaceRegenerateKeyRequest(key_name="key2")
    fresh = client.namespaces.begin_regenerate_key(GROUP, NAMESPACE, request, **PLAIN).result()
    assert fresh.key1 == keys.key1 and fresh.key2 != keys.key2
    return read.topics_configuration.hostname, keys.key1


def topics(client):
    operations, path = client.namespace_topics, (GROUP, NAMESPACE, "heat")
    resource = models.NamespaceTopic(publisher_type="Custom", input_schema=SCHEMA, event_retention_in_days=1)
    made = operations.begin_create_or_update(*path, resource, **PLAIN).result()
    assert made.provisioning_state == "Succeeded" and made.input_schema == SCHEMA, made
    update = models.NamespaceTopicUpdateParameters(event_retention_in_days=7)
    assert operations.begin_update(*path, update, **PLAIN).result().event_retention_in_days == 7
    assert operations.get(*path, **PLAIN).event_retention_in_days == 7
    assert [found.name for found in operations.list_by_namespace(GROUP, NAMESPACE, **PLAIN)] == ["heat"]
    keys = operations.list_shared_access_keys(*path, **PLAIN)
    request = models.TopicRegenerateKeyRequest(key_name="key1")
    fresh = operations.begin_regenerate_key(*path, request, **PLAIN).result()
    assert fresh.key1 != keys.key1 and fresh.key2 == keys.key2
    wrong = models.NamespaceTopic(event_retention_in_days=8)
    error = raises(HttpResponseError, lambda: operations.begin_create_or_update(*path, wrong, **PLAIN))
    assert error.status_code == 400 and "1 to 7" in error.message, error
    return fresh.key1


def letters():
    return models.DeadLetterWithResourceIdentity(
        identity=models.EventSubscriptionIdentity(type="SystemAssigned"),
        dead_letter_destination=models.StorageBlobDeadLetterDestination(resource_id="/r", blob_container_name="letters"),
    )


def filters():
    return models.FiltersConfiguration(
        included_event_types=["Heat.Measured"],
        filters=[models.NumberGreaterThanFilter(key="data.degrees", value=80.0), models.IsNotNullFilter(key="data.degrees")],
    )


def subscriptions(client, webhook):
    operations = client.namespace_topic_event_subscriptions
    push = models.PushInfo(
        max_delivery_count=5,
        event_time_to_live="PT12H",
        dead_letter_destination_with_resource_identity=letters(),
        destination=models.WebHookEventSubscriptionDestination(endpoint_url=webhook.url("/alarm?code=secret")),
    )
    resource = models.Subscription(
        delivery_configuration=models.DeliveryConfiguration(delivery_mode="Push", push=push),
        event_delivery_schema=SCHEMA,
        filters_configuration=filters(),
    )
    path = (GROUP, NAMESPACE, "heat", "alarm")
    made = operations.begin_create_or_update(*path, resource, **PLAIN).result()
    assert made.provisioning_state == "Succeeded" and made.event_delivery_schema == SCHEMA, made
    view = made.delivery_configuration.push
    assert (view.max_delivery_count, view.event_time_to_live) == (5, "PT12H"), view
    assert view.destination.endpoint_base_url == webhook.url("/alarm"), view.destination
    place = view.dead_letter_destination_with_resource_identity
    assert place.identity.type == "SystemAssigned", place
    assert place.dead_letter_destination.blob_container_name == "letters", place
    kinds = [type(one).__name__ for one in made.filters_configuration.filters]
    assert kinds == ["NumberGreaterThanFilter", "IsNotNullFilter"], kinds
    assert operations.get_full_url(*path, **PLAIN).endpoint_url == webhook.url("/alarm?code=secret")
    queue = models.QueueInfo(
        receive_lock_duration_in_seconds=90,
        max_delivery_count=3,
        event_time_to_live=datetime.timedelta(days=1),
        dead_letter_destination_with_resource_identity=letters(),
    )
    configuration = models.DeliveryConfiguration(delivery_mode="Queue", queue=queue)
    resource = models.Subscription(delivery_configuration=configuration, event_delivery_schema=SCHEMA)
    pulled = (GROUP, NAMESPACE, "heat", "pulled")
    view = operations.begin_create_or_update(*pulled, resource, **PLAIN).result().delivery_configuration.queue
    assert view.receive_lock_duration_in_seconds == 90 and view.event_time_to_live == datetime.timedelta(days=1), view
    update = models.SubscriptionUpdateParameters(
        delivery_configuration=models.DeliveryConfiguration(
            delivery_mode="Queue", queue=models.QueueInfo(receive_lock_duration_in_seconds=120)
        )
    )
    view = operations.begin_update(*pulled, update, **PLAIN).result().delivery_configuration.queue
    assert (view.receive_lock_duration_in_seconds, view.max_delivery_count) == (120, 3), view
    found = operations.list_by_namespace_topic(GROUP, NAMESPACE, "heat", **PLAIN)
    assert [one.name for one in found] == ["alarm", "pulled"]
    operations.begin_delete(*pulled, **PLAIN).result()
    raises(ResourceNotFoundError, lambda: operations.get(*pulled, **PLAIN))


def publishing(hostname, keys, webhook):
    scheme = URL.split("://")[0]
    endpoint = f"{scheme}://{hostname}"
    credentials = [(AzureKeyCredential(key), {}) for key in keys] + [(Token(), PLAIN)]
    for credential, options in credentials:
        client = EventGridPublisherClient(endpoint, credential, namespace_topic="heat")
        for data in ({"degrees": 81.5}, {"degrees": 100}):
            sent = CloudEvent(source="/oven", type="Heat.Measured", data=data, subject="s", extensions={"tenant": "a"})
            client.send([sent, CloudEvent(source="/oven", type="Other", data=data)], **options)
            headers, body = webhook.wait("/alarm?code=secret", 1).pop()
            received = CloudEvent.from_json(body)
            assert (received.id, received.source, received.data) == (sent.id, "/oven", data), received
            assert received.extensions == {"tenant": "a"} and received.time == sent.time, received
            assert headers["content-type"] == "application/cloudevents+json; charset=utf-8", headers
            webhook.requests.clear()
    wrong = EventGridPublisherClient(endpoint, AzureKeyCredential("AAAA"), namespace_topic="heat")
    event = CloudEvent(source="/oven", type="Heat.Measured", data={"degrees": 90})
    raises(ClientAuthenticationError, lambda: wrong.send(event))
    nowhere = EventGridPublisherClient(endpoint, credentials[0][0], namespace_topic="cold")
    error = raises(HttpResponseError, lambda: nowhere.send(event))
    assert error.status_code == 410, error


def main():
    client, webhook = management(), Webhook()
    hostname, key = namespaces(client)
    topic_key = topics(client)
    subscriptions(client, webhook)
    publishing(hostname, [key, topic_key], webhook)
    client.namespace_topics.begin_delete(GROUP, NAMESPACE, "heat", **PLAIN).result()
    client.namespaces.begin_delete(GROUP, NAMESPACE, **PLAIN).result()
    raises(ResourceNotFoundError, lambda: client.namespaces.get(GROUP, NAMESPACE, **PLAIN))


main()
