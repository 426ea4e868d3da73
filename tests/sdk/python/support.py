"""What the scenarios share: a webhook that keeps what it got, and clients that talk to the server under test."""

import datetime
import json
import os
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from azure.core.credentials import AccessToken, AzureKeyCredential, AzureSasCredential
from azure.eventgrid import EventGridPublisherClient, generate_sas
from azure.mgmt.eventgrid import EventGridManagementClient

URL = os.environ["GRIDHOOK_URL"]
TOKEN = os.environ["GRIDHOOK_ADMIN_TOKEN"]
GROUP = "dev"

# Over plain http the SDK's own bearer policy has to be allowed; over https nothing is needed.
PLAIN = {} if URL.startswith("https:") else {"enforce_https": False}
# The publisher drops its constructor's `connection_verify`; the environment (REQUESTS_CA_BUNDLE) is what works unchanged.


class Token:
    """The credential that `azure-identity` would be."""

    def __init__(self, token=TOKEN):
        self.token = token

    def get_token(self, *_scopes, **_options):
        return AccessToken(self.token, int(time.time()) + 3600)


def management():
    return EventGridManagementClient(Token(), "local", base_url=URL)


def wait_for(what, so, seconds=60):
    end = time.monotonic() + seconds
    while not so():
        assert time.monotonic() < end, f"waited {seconds} s for {what}"
        time.sleep(0.01)


class Webhook:
    """A real webhook: it answers both handshakes, and keeps what it is sent."""

    def __init__(self):
        self.requests = []
        self.handshakes = []
        webhook = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_OPTIONS(self):
                webhook.handshakes.append(dict(self.headers))
                self.send_response(200)
                self.send_header("WebHook-Allowed-Origin", self.headers.get("WebHook-Request-Origin", ""))
                self.send_header("WebHook-Allowed-Rate", "*")
                self.send_header("Content-Length", "0")
                self.end_headers()

            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                kind = self.headers.get("aeg-event-type")
                if kind == "SubscriptionValidation":
                    webhook.handshakes.append(dict(self.headers))
                    code = json.loads(body)[0]["data"]["validationCode"]
                    return self.answer(json.dumps({"validationResponse": code}).encode())
                webhook.requests.append((self.path, {k.lower(): v for k, v in self.headers.items()}, body))
                return self.answer(b"")

            def answer(self, body):
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def url(self, path="/"):
        return f"http://127.0.0.1:{self.server.server_port}{path}"

    def notifications(self, path):
        return [
            (headers, body)
            for at, headers, body in list(self.requests)
            if at == path and headers.get("aeg-event-type") == "Notification"
        ]

    def wait(self, path, requests):
        wait_for(f"{requests} requests at {path}", lambda: len(self.notifications(path)) >= requests)
        return self.notifications(path)


def topic(client, name, **properties):
    """Makes a topic; returns where it takes events, and its first key."""
    made = client.topics.begin_create_or_update(GROUP, name, {"location": "local", "properties": properties}, **PLAIN)
    endpoint = made.result().endpoint
    return endpoint, client.topics.list_shared_access_keys(GROUP, name, **PLAIN).key1


def subscribe(client, topic_name, name, url, **properties):
    webhook = {"endpointType": "WebHook", "properties": {"endpointUrl": url}}
    body = {"properties": {"destination": webhook, **properties}}
    made = client.topic_event_subscriptions.begin_create_or_update(GROUP, topic_name, name, body, **PLAIN)
    return made.result()


def credentials(endpoint, key):
    """Every kind of credential, with what a call needs beside it."""
    in_an_hour = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(hours=1)
    return {
        "key": (AzureKeyCredential(key), {}),
        "sas": (AzureSasCredential(generate_sas(endpoint, key, in_an_hour)), {}),
        "naive-sas": (AzureSasCredential(generate_sas(endpoint, key, in_an_hour.replace(tzinfo=None))), {}),
        "bearer": (Token(), PLAIN),
    }


def publisher(endpoint, credential):
    return EventGridPublisherClient(endpoint, credential)


def raises(kind, call):
    """The error that a call raises, which must be of this class and no other."""
    try:
        call()
    except Exception as error:
        assert type(error) is kind, f"{type(error).__name__} instead of {kind.__name__}: {error}"
        return error
    raise AssertionError(f"{kind.__name__} was to be raised")
