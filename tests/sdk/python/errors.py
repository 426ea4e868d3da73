"""What goes wrong, as the SDK raises it; and what it tries again by itself."""

import os
import time

from azure.core.credentials import AzureKeyCredential, AzureSasCredential
from azure.core.exceptions import ClientAuthenticationError, HttpResponseError, ResourceNotFoundError
from azure.eventgrid import EventGridEvent

from support import Webhook, management, publisher, raises, subscribe, topic


def event(data=None, **more):
    return EventGridEvent(subject="s", event_type="T", data=data, data_version="1", **more)


def refused(endpoint, key):
    good = publisher(endpoint, AzureKeyCredential(key))
    wrong_keys = [AzureKeyCredential("d3Jvbmc="), AzureKeyCredential("?"), AzureSasCredential("r=a&e=b&s=c")]
    for credential in wrong_keys:
        raises(ClientAuthenticationError, lambda: publisher(endpoint, credential).send(event()))
    elsewhere = endpoint.replace("/py-errors/", "/py-none/")
    raises(ResourceNotFoundError, lambda: publisher(elsewhere, AzureKeyCredential(key)).send(event()))
    error = raises(HttpResponseError, lambda: good.send({"id": "1", "subject": "without a type"}))
    assert error.status_code == 400 and error.error.code == "BadRequest", error
    assert error.error.details[0].code == "InputJsonInvalid", error.error.details
    begun = time.monotonic()
    error = raises(HttpResponseError, lambda: good.send(event("x" * 1_100_000)))
    assert error.status_code == 413 and "1049600" in str(error), error
    error = raises(HttpResponseError, lambda: good.send([event("x" * 900_000), event("x" * 900_000)]))
    assert error.status_code == 413 and "1536000" in str(error), error
    # What can never succeed must not be tried again: ten retries of the SDK would take a minute.
    assert time.monotonic() - begun < 10


def tried_again(client, webhook):
    """The server takes few events a second here: the SDK obeys Retry-After, and all arrive."""
    endpoint, key = topic(client, "py-busy")
    subscribe(client, "py-busy", "all", webhook.url("/busy"), filter={"includedEventTypes": ["T"]})
    rate = int(os.environ["GRIDHOOK_TEST_RATE"])
    client = publisher(endpoint, AzureKeyCredential(key))
    waits = []
    for _ in range(3):
        client.send([event(number) for number in range(rate)], raw_response_hook=lambda answer: waits.append(answer.context))
    assert sum(len(one.get("history", [])) for one in waits) > 0, "no answer made the SDK wait"
    webhook.wait("/busy", 3 * rate)
    assert len(webhook.notifications("/busy")) == 3 * rate


def main():
    client, webhook = management(), Webhook()
    endpoint, key = topic(client, "py-errors", inputSchema="EventGridSchema")
    refused(endpoint, key)
    tried_again(client, webhook)


main()
