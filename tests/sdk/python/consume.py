"""Receive events of a namespace topic with the SDK's own client; acknowledge, release, reject and renew them."""

from azure.core.credentials import AzureKeyCredential
from azure.core.exceptions import HttpResponseError
from azure.core.messaging import CloudEvent
from azure.eventgrid import EventGridConsumerClient, EventGridEvent, EventGridPublisherClient
from azure.mgmt.eventgrid import models

from support import GROUP, PLAIN, URL, Token, management, topic, wait_for

NAMESPACE = "py-consumed"


def setup(client):
    resource = models.Namespace(location="local")
    made = client.namespaces.begin_create_or_update(GROUP, NAMESPACE, resource, **PLAIN).result()
    client.namespace_topics.begin_create_or_update(GROUP, NAMESPACE, "heat", models.NamespaceTopic(), **PLAIN).result()
    queue = models.QueueInfo(receive_lock_duration_in_seconds=60, max_delivery_count=3)
    configuration = models.DeliveryConfiguration(delivery_mode="Queue", queue=queue)
    resource = models.Subscription(delivery_configuration=configuration)
    operations = client.namespace_topic_event_subscriptions
    operations.begin_create_or_update(GROUP, NAMESPACE, "heat", "work", resource, **PLAIN).result()
    key = client.namespaces.list_shared_access_keys(GROUP, NAMESPACE, **PLAIN).key1
    return f"{URL.split('://')[0]}://{made.topics_configuration.hostname}", key


def receive(consumer, count, **options):
    found = []

    def so():
        found.extend(consumer.receive(max_events=10, max_wait_time=10, **options))
        return len(found) >= count

    wait_for(f"{count} events", so)
    assert len(found) == count, found
    return found


def scenario(endpoint, credential, options):
    publisher = EventGridPublisherClient(endpoint, credential, namespace_topic="heat")
    consumer = EventGridConsumerClient(endpoint, credential, namespace_topic="heat", subscription="work")
    data = [{"degrees": 81.5}, b"\x00bytes\xff", "text", None]
    sent = [CloudEvent(source="/oven", type="Heat.Measured", data=one, extensions={"tenant": "a"}) for one in data]
    publisher.send(sent, **options)
    got = receive(consumer, 4, **options)
    for one in got:
        [event] = [event for event in sent if event.id == one.event.id]
        assert (one.event.source, one.event.type, one.event.data) == ("/oven", "Heat.Measured", event.data), one
        assert one.event.time == event.time and one.broker_properties.delivery_count == 1, one
    tokens = [one.broker_properties.lock_token for one in got]
    renewed = consumer.renew_locks(lock_tokens=tokens, **options)
    assert sorted(renewed.succeeded_lock_tokens) == sorted(tokens) and not renewed.failed_lock_tokens, renewed
    done = consumer.acknowledge(lock_tokens=tokens[:2], **options)
    assert sorted(done.succeeded_lock_tokens) == sorted(tokens[:2]), done
    assert consumer.reject(lock_tokens=[tokens[2]], **options).succeeded_lock_tokens == [tokens[2]]
    assert consumer.release(lock_tokens=[tokens[3]], **options).succeeded_lock_tokens == [tokens[3]]
    again = consumer.acknowledge(lock_tokens=[tokens[0]], **options)
    [failed] = again.failed_lock_tokens
    assert failed.lock_token == tokens[0] and failed.error.code == "TokenLost", again
    [back] = receive(consumer, 1, **options)
    assert back.event.id == got[3].event.id and back.broker_properties.delivery_count == 2, back
    consumer.release(lock_tokens=[back.broker_properties.lock_token], release_delay=0, **options)
    [last] = receive(consumer, 1, **options)
    assert last.broker_properties.delivery_count == 3, last
    consumer.acknowledge(lock_tokens=[last.broker_properties.lock_token], **options)


def forwarded(client, endpoint, key):
    """A topic whose event subscription delivers to the topic of the namespace."""
    source, source_key = topic(client, "py-forwarding")
    heat = client.namespace_topics.get(GROUP, NAMESPACE, "heat", **PLAIN)
    destination = models.NamespaceTopicEventSubscriptionDestination(resource_id=heat.id)
    subscription = models.EventSubscription(destination=destination, event_delivery_schema="CloudEventSchemaV1_0")
    operations = client.topic_event_subscriptions
    made = operations.begin_create_or_update(GROUP, "py-forwarding", "forward", subscription, **PLAIN).result()
    assert made.destination.resource_id == heat.id, made.destination
    event = EventGridEvent(subject="/oven", event_type="Heat.Measured", data={"degrees": 81.5}, data_version="1")
    EventGridPublisherClient(source, AzureKeyCredential(source_key)).send(event)
    consumer = EventGridConsumerClient(
        endpoint, AzureKeyCredential(key), namespace_topic="heat", subscription="work"
    )
    [one] = receive(consumer, 1)
    assert (one.event.id, one.event.type, one.event.data) == (str(event.id), "Heat.Measured", {"degrees": 81.5}), one
    consumer.acknowledge(lock_tokens=[one.broker_properties.lock_token])


def main():
    client = management()
    endpoint, key = setup(client)
    scenario(endpoint, AzureKeyCredential(key), {})
    scenario(endpoint, Token(), PLAIN)
    forwarded(client, endpoint, key)
    nobody = EventGridConsumerClient(
        endpoint, AzureKeyCredential(key), namespace_topic="heat", subscription="nobody"
    )
    error = raises_any(lambda: nobody.receive(max_wait_time=10))
    assert error.status_code == 404, error


def raises_any(call):
    try:
        call()
    except HttpResponseError as error:
        return error
    raise AssertionError("an error was to be raised")


main()
