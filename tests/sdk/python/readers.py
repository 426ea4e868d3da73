"""The CloudEvents SDK reads what is delivered: one event in structured mode, several as a batch."""

import json

from azure.core.credentials import AzureKeyCredential
from azure.core.messaging import CloudEvent as AzureCloudEvent
from cloudevents.core.bindings import http
from cloudevents.core.formats.json import JSONFormat

from support import Webhook, management, publisher, subscribe, topic


def read(headers, body):
    kind = headers["content-type"]
    if kind.startswith("application/cloudevents+json"):
        return [http.from_http_event(http.HTTPMessage(headers, body))]
    assert kind == "application/cloudevents-batch+json; charset=utf-8", kind
    return [JSONFormat().read(None, json.dumps(one)) for one in json.loads(body)]


def main():
    client, webhook = management(), Webhook()
    endpoint, key = topic(client, "py-readers", inputSchema="CloudEventSchemaV1_0")
    subscribe(client, "py-readers", "single", webhook.url("/single"), eventDeliverySchema="CloudEventSchemaV1_0")
    batched = {"endpointUrl": webhook.url("/batch"), "maxEventsPerBatch": 50}
    subscribe(
        client,
        "py-readers",
        "batch",
        webhook.url("/batch"),
        destination={"endpointType": "WebHook", "properties": batched},
        eventDeliverySchema="CloudEventSchemaV1_0",
    )
    sent = [
        AzureCloudEvent(source="/s", type="T", subject=str(n), data=data, extensions={"tenant": "a"})
        for n, data in enumerate([{"total": 1}, "text", b"\x00\xff", 7])
    ]
    publisher(endpoint, AzureKeyCredential(key)).send(sent)
    singles = [read(headers, body) for headers, body in webhook.wait("/single", len(sent))]
    batches = []
    for _ in range(1000):
        batches = [event for headers, body in webhook.wait("/batch", 1) for event in read(headers, body)]
        if len(batches) == len(sent):
            break
    for received in ([event for [event] in singles], batches):
        received.sort(key=lambda event: event.get_subject())
        assert [event.get_id() for event in received] == [event.id for event in sent], received
        assert [event.get_extension("tenant") for event in received] == ["a"] * len(sent)
        assert [event.get_data() for event in received] == [{"total": 1}, "text", b"\x00\xff", 7]


main()
