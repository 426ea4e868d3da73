"""Publish every schema with every credential; read what arrives with the SDK's own classes."""

import json

from azure.core.messaging import CloudEvent
from azure.eventgrid import EventGridEvent
from dateutil.parser import isoparse

from support import PLAIN, Webhook, credentials, management, publisher, subscribe, topic

DATA = {"total": 12.5, "lines": [1, 2, {"name": "höhe ✓"}], "nothing": None}


def event_grid(client, webhook):
    endpoint, key = topic(client, "py-eventgrid", inputSchema="EventGridSchema")
    subscribe(client, "py-eventgrid", "single", webhook.url("/eg"))
    subscribe(client, "py-eventgrid", "converted", webhook.url("/eg-ce"), eventDeliverySchema="CloudEventSchemaV1_0")
    for kind, (credential, options) in credentials(endpoint, key).items():
        sent = EventGridEvent(subject=kind, event_type="Order.Placed", data=DATA, data_version="2.0")
        publisher(endpoint, credential).send(sent, **options)
        headers, body = webhook.wait("/eg", 1).pop()
        [received] = [EventGridEvent.from_dict(event) for event in json.loads(body)]
        assert (received.id, received.subject, received.event_type) == (str(sent.id), kind, "Order.Placed"), received
        assert (received.data, received.data_version) == (DATA, "2.0"), received
        assert received.event_time == isoparse(sent.event_time), (received.event_time, sent.event_time)
        assert received.topic.endswith("/topics/py-eventgrid"), received.topic
        assert headers["aeg-event-type"] == "Notification" and headers["aeg-subscription-name"] == "SINGLE", headers
        assert headers["content-type"] == "application/json; charset=utf-8", headers
        headers, body = webhook.wait("/eg-ce", 1).pop()
        converted = CloudEvent.from_json(body)
        assert (converted.id, converted.type, converted.subject) == (str(sent.id), "Order.Placed", kind), converted
        assert converted.data == DATA and converted.source.endswith("/topics/py-eventgrid"), converted
        assert headers["content-type"] == "application/cloudevents+json; charset=utf-8", headers
        webhook.requests.clear()


def cloud_events(client, webhook):
    endpoint, key = topic(client, "py-cloudevents", inputSchema="CloudEventSchemaV1_0")
    subscribe(client, "py-cloudevents", "single", webhook.url("/ce"), eventDeliverySchema="CloudEventSchemaV1_0")
    for kind, (credential, options) in credentials(endpoint, key).items():
        for data in (DATA, b"\x00bytes\xff", "text", None):
            sent = CloudEvent(source="/orders", type="Order.Placed", data=data, subject=kind, extensions={"tenant": "a"})
            publisher(endpoint, credential).send(sent, **options)
            headers, body = webhook.wait("/ce", 1).pop()
            received = CloudEvent.from_json(body)
            assert (received.id, received.source, received.subject) == (sent.id, "/orders", kind), received
            assert received.data == data and received.extensions == {"tenant": "a"}, received
            assert received.time == sent.time, received
            assert headers["aeg-metadata-version"] == "1.0", headers
            webhook.requests.clear()


def custom(client, webhook):
    mapping = {
        "inputSchemaMappingType": "Json",
        "properties": {
            "id": {"sourceField": "number"},
            "eventType": {"sourceField": "kind", "defaultValue": "Order.Unknown"},
            "subject": {"defaultValue": "orders"},
            "dataVersion": {"defaultValue": "1.0"},
        },
    }
    endpoint, key = topic(client, "py-custom", inputSchema="CustomEventSchema", inputSchemaMapping=mapping)
    subscribe(client, "py-custom", "same", webhook.url("/custom"), eventDeliverySchema="CustomInputSchema")
    subscribe(client, "py-custom", "mapped", webhook.url("/custom-eg"), eventDeliverySchema="EventGridSchema")
    subscribe(client, "py-custom", "cloud", webhook.url("/custom-ce"), eventDeliverySchema="CloudEventSchemaV1_0")
    for kind, (credential, options) in credentials(endpoint, key).items():
        sent = {"number": f"n-{kind}", "kind": "Order.Placed", "total": 12.5}
        publisher(endpoint, credential).send(sent, **options)
        [(_, body)] = webhook.wait("/custom", 1)
        assert json.loads(body) == [sent], body
        [(_, body)] = webhook.wait("/custom-eg", 1)
        [mapped] = [EventGridEvent.from_dict(event) for event in json.loads(body)]
        assert (mapped.id, mapped.event_type, mapped.subject) == (f"n-{kind}", "Order.Placed", "orders"), mapped
        assert mapped.data == sent, mapped
        [(_, body)] = webhook.wait("/custom-ce", 1)
        cloud = CloudEvent.from_json(body)
        assert (cloud.id, cloud.type, cloud.data) == (f"n-{kind}", "Order.Placed", sent), cloud
        webhook.requests.clear()


def many(client, webhook):
    endpoint, key = topic(client, "py-many", inputSchema="EventGridSchema")
    subscribe(client, "py-many", "all", webhook.url("/many"))
    credential, _ = credentials(endpoint, key)["key"]
    events = [
        EventGridEvent(subject=str(number), event_type="T", data=number, data_version="1") for number in range(500)
    ]
    publisher(endpoint, credential).send(events)
    received = [EventGridEvent.from_dict(json.loads(body)[0]) for _, body in webhook.wait("/many", 500)]
    assert sorted(int(event.subject) for event in received) == list(range(500))


def main():
    client, webhook = management(), Webhook()
    event_grid(client, webhook)
    cloud_events(client, webhook)
    custom(client, webhook)
    many(client, webhook)


main()
