"""Register the server as a cloud, sign in, and manage Event Grid with `az`, in one process for all commands."""

import contextlib
import io
import json
import logging
import os
import tempfile
import threading
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from azure.cli.core import get_default_cli

URL = os.environ["GRIDHOOK_URL"]
AUDIENCE = os.environ["GRIDHOOK_TEST_AUDIENCE"]
GROUP = ["-g", "az"]
az_cli = get_default_cli()


def az(command, *more):
    """What a command prints: the words of `command`, and arguments with spaces."""
    out = io.StringIO()
    arguments = [*command.split(), *more, "--output", "json"]
    status = az_cli.invoke(arguments, out_file=out)
    assert status == 0, f"az {arguments} ended with {status}: {az_cli.result.error}"
    return json.loads(out.getvalue() or "null")


class Printed(logging.Handler):
    """What `az` prints as errors."""

    text = ""

    def emit(self, record):
        self.text += record.getMessage()


def az_fails(code, command, *more):
    """The text of the error of a command that is refused, by the server with this code."""
    printed = Printed(logging.ERROR)
    logging.getLogger("cli").addHandler(printed)
    try:
        status = az_cli.invoke([*command.split(), *more], out_file=io.StringIO())
    except SystemExit as error:
        status = error.code
    finally:
        logging.getLogger("cli").removeHandler(printed)
    # `az` has a status of its own for the `show` of something that is not there.
    assert status == (3 if " show " in command else 1), (status, command)
    assert code is None or f"({code}) " in printed.text, (command, printed.text)
    return printed.text


class Webhook(BaseHTTPRequestHandler):
    """It answers both handshakes and keeps notifications."""

    received = []
    arrived = threading.Event()

    def do_POST(self):
        events = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        answer = b""
        if self.path.startswith("/refused"):
            self.send_error(404)
            return
        if self.headers["aeg-event-type"] == "SubscriptionValidation":
            answer = json.dumps({"validationResponse": events[0]["data"]["validationCode"]}).encode()
        else:
            self.received.append((dict(self.headers), events))
            self.arrived.set()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def do_OPTIONS(self):
        self.send_response(200)
        self.send_header("WebHook-Allowed-Origin", self.headers["WebHook-Request-Origin"])
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


def sign_in():
    global az_cli
    az("cloud register -n gridhook --endpoint-resource-manager", URL)
    az("cloud set -n gridhook")
    # A process reads the active cloud once.
    az_cli = get_default_cli()
    endpoints = az("cloud show -n gridhook")["endpoints"]
    assert endpoints["resourceManager"] == URL, endpoints
    assert endpoints["activeDirectory"] == os.environ["GRIDHOOK_TEST_AUTHORITY"], endpoints
    assert endpoints["activeDirectoryResourceId"] == AUDIENCE, endpoints
    assert endpoints["portal"] == f"{URL}/ui/", endpoints
    [account] = az("login --identity")
    assert (account["id"], account["user"]["type"]) == ("s-1", "servicePrincipal") and account["isDefault"], account
    client, secret, tenant = (os.environ[f"GRIDHOOK_TEST_{name}"] for name in ("CLIENT", "SECRET", "TENANT"))
    application = ["login", "--service-principal", "-u", client, "--tenant", tenant, "-p"]
    assert "AADSTS7000215" in az_fails(None, *application, "wrong")
    [account] = az(*application, secret)
    assert (account["id"], account["user"]["name"]) == ("s-1", client), account


def topics():
    made = az("eventgrid topic create -n az-topic -l local --public-network-access enabled --tags team=a", *GROUP)
    assert made["provisioningState"] == "Succeeded" and made["publicNetworkAccess"] == "Enabled", made
    assert made["id"] == "/subscriptions/s-1/resourceGroups/az/providers/Microsoft.EventGrid/topics/az-topic", made
    az("eventgrid topic update -n az-topic --tags team=b", *GROUP)
    shown = az("eventgrid topic show -n az-topic", *GROUP)
    assert shown["tags"] == {"team": "b"} and shown["inputSchema"] == "EventGridSchema", shown
    az("eventgrid topic create -n az-custom -l local --input-schema customeventschema", "--input-mapping-fields",
       "id=number", "eventType=kind", "--input-mapping-default-values", "subject=orders", "dataVersion=1", *GROUP)
    mapped = az("eventgrid topic show -n az-custom", *GROUP)["inputSchemaMapping"]
    assert mapped["id"]["sourceField"] == "number" and mapped["subject"]["defaultValue"] == "orders", mapped
    names = [topic["name"] for topic in az("eventgrid topic list", *GROUP)]
    assert names == ["az-custom", "az-topic"], names
    filtered = az("eventgrid topic list --odata-query", "name eq 'az-topic'", *GROUP)
    assert [topic["name"] for topic in filtered] == ["az-topic"], filtered
    before = az("eventgrid topic key list -n az-topic", *GROUP)
    after = az("eventgrid topic key regenerate -n az-topic --key-name key1", *GROUP)
    assert after["key1"] != before["key1"] and after["key2"] == before["key2"], (before, after)
    az("eventgrid topic delete -n az-custom", *GROUP)
    text = az_fails("ResourceNotFound", "eventgrid topic show -n az-custom", *GROUP)
    assert "az-custom" in text, text
    text = az_fails("InvalidRequest", "eventgrid topic create -n x -l local", *GROUP)
    assert "3" in text, text
    return shown["id"], shown["endpoint"], after["key1"]


def subscriptions(scope, endpoint, key, webhook):
    source = ["--source-resource-id", scope]
    az(
        "eventgrid event-subscription create -n all --endpoint", webhook, *source,
        *"--max-delivery-attempts 7 --event-ttl 60 --labels first --included-event-types Order.Placed".split(),
        *"--subject-begins-with /orders --advanced-filter data.region StringIn eu us".split(),
        *"--advanced-filter data.total NumberInRange 1,99.5 --max-events-per-batch 1".split(),
        "--deadletter-endpoint", "/r/blobServices/default/containers/letters",
        *"--delivery-attribute-mapping tenant static a --delivery-attribute-mapping total dynamic data.total".split(),
        *"--delivery-attribute-mapping pass static swordfish true".split(),
    )
    # What `create` prints lacks the parts that differ by kind: this SDK reads an answer that ends at once twice.
    made = az("eventgrid event-subscription show -n all", *source)
    assert made["provisioningState"] == "Succeeded" and made["labels"] == ["first"], made
    assert made["retryPolicy"]["maxDeliveryAttempts"] == 7 and made["retryPolicy"]["eventTimeToLiveInMinutes"] == 60, made
    assert made["deadLetterDestination"]["blobContainerName"] == "letters", made
    operators = [filter["operatorType"] for filter in made["filter"]["advancedFilters"]]
    assert operators == ["StringIn", "NumberInRange"], made
    assert made["destination"]["endpointUrl"] is None and made["destination"]["endpointBaseUrl"] == webhook, made
    assert made["destination"]["deliveryAttributeMappings"][2]["value"] == "Hidden", made

    # `update` reads the subscription and writes back what it has read.
    az("eventgrid event-subscription update -n all --labels second third", *source)
    flags = ["--include-full-endpoint-url", "true", "--include-static-delivery-attribute-secret", "true"]
    shown = az("eventgrid event-subscription show -n all", *source, *flags)
    assert shown["labels"] == ["second", "third"] and shown["destination"]["endpointUrl"] == webhook, shown
    secret = [one for one in shown["destination"]["deliveryAttributeMappings"]["value"] if one["name"] == "pass"]
    assert secret[0]["value"] == "swordfish" and secret[0]["isSecret"], shown

    def event(id, region, total):
        return {"id": id, "subject": "/orders/1", "eventType": "Order.Placed", "dataVersion": "1",
                "eventTime": "2026-01-01T00:00:00Z", "data": {"region": region, "total": total}}

    events = [event("elsewhere", "asia", 5), event("dear", "eu", 100), event("passes", "EU", 12.5)]
    request = urllib.request.Request(endpoint, json.dumps(events).encode(), {"aeg-sas-key": key})
    urllib.request.urlopen(request).close()
    assert Webhook.arrived.wait(60), "no event arrived"
    [(headers, [received])] = Webhook.received
    assert received["id"] == "passes", received
    assert [headers.get(name) for name in ("tenant", "pass", "total")] == ["a", "swordfish", "12.5"], headers

    listed = az("eventgrid event-subscription list", *source)
    assert [one["name"] for one in listed] == ["all"], listed
    az("eventgrid event-subscription delete -n all", *source)
    az_fails("ResourceNotFound", "eventgrid event-subscription show -n all", *source)


def domains(webhook):
    made = az("eventgrid domain create -n az-domain -l local --input-schema cloudeventschemav1_0", *GROUP)
    assert made["inputSchema"] == "CloudEventSchemaV1_0", made
    az("eventgrid domain topic create --domain-name az-domain -n tenant-a", *GROUP)
    topics = az("eventgrid domain topic list --domain-name az-domain", *GROUP)
    assert [topic["name"] for topic in topics] == ["tenant-a"], topics
    nested = ["--domain-name", "az-domain", "--domain-topic-name", "tenant-a", *GROUP]
    az("eventgrid domain topic event-subscription create -n all --endpoint", webhook, *nested)
    az("eventgrid domain topic event-subscription update -n all --labels x", *nested)
    shown = az("eventgrid domain topic event-subscription show -n all", *nested)
    assert shown["labels"] == ["x"] and shown["destination"]["endpointBaseUrl"] == webhook, shown
    before = az("eventgrid domain key list -n az-domain", *GROUP)
    after = az("eventgrid domain key regenerate -n az-domain --key-name key2", *GROUP)
    assert after["key2"] != before["key2"] and after["key1"] == before["key1"], (before, after)
    az("eventgrid domain delete -n az-domain", *GROUP)
    az_fails("ResourceNotFound", "eventgrid domain show -n az-domain", *GROUP)


def others():
    """What other sources of events would have is empty, not unknown."""
    assert "Microsoft.Storage.StorageAccounts" in [one["name"] for one in az("eventgrid topic-type list")]
    assert az("eventgrid system-topic list") == []
    assert az("eventgrid partner topic list") == []
    az_fails("ResourceNotFound", "eventgrid system-topic show -n none", *GROUP)


def groups():
    """Resource groups, the resources in them, and what nobody assigned to them."""
    assert az("group exists -n az-empty") is False
    made = az("group create -n az-empty -l local --tags team=a")
    assert made["properties"]["provisioningState"] == "Succeeded" and made["tags"] == {"team": "a"}, made
    assert az("group exists -n az-empty") is True
    assert az("group update -n az-empty --tags team=b")["tags"] == {"team": "b"}
    assert "az-empty" in [group["name"] for group in az("group list")]
    az("eventgrid topic create -n az-inside -l local -g az-empty")
    [inside] = az("resource list -g az-empty")
    assert inside["type"] == "Microsoft.EventGrid/topics" and inside["name"] == "az-inside", inside
    assert "team" in [tag["tagName"] for tag in az("tag list")]
    az("group delete -n az-empty --yes")
    assert az("group exists -n az-empty") is False
    assert az("resource list --resource-type Microsoft.EventGrid/topics --name az-inside") == []
    az("provider register -n Microsoft.EventGrid")
    assert az("provider show -n Microsoft.EventGrid")["registrationState"] == "Registered"


TEMPLATE = """{
  // A template as people write it: with comments, and with text over two lines.
  "$schema": "https://schema.management.azure.com/schemas/2019-04-01/deploymentTemplate.json#",
  "contentVersion": "1.0.0.0",
  "parameters": {
    "topicName": {"type": "string", "defaultValue": "[concat('az-', uniqueString(resourceGroup().id))]"},
    "endpoint": {"type": "string"},
    "code": {"type": "securestring"},
    "tags": {"type": "object", "defaultValue": {}}
  },
  "resources": [
    {
      "type": "Microsoft.EventGrid/topics", "apiVersion": "2022-06-15", "name": "[parameters('topicName')]",
      "location": "[resourceGroup().location]", "tags": "[parameters('tags')]"
    },
    {
      "type": "Microsoft.EventGrid/eventSubscriptions", "apiVersion": "2022-06-15", "name": "az-sub",
      "scope": "[format('Microsoft.EventGrid/topics/{0}', parameters('topicName'))]",
      "dependsOn": ["[resourceId('Microsoft.EventGrid/topics', parameters('topicName'))]"],
      "properties": {"destination": {"endpointType": "WebHook", "properties": {
        "endpointUrl": "[concat(parameters('endpoint'), '?code=',
          parameters('code'))]"
      }}}
    }
  ],
  "outputs": {
    "endpoint": {
      "type": "string",
      "value": "[reference(resourceId('Microsoft.EventGrid/topics', parameters('topicName'))).endpoint]"
    }
  }
}"""


def written(folder, name, text):
    path = os.path.join(folder, name)
    with open(path, "w") as file:
        file.write(text)
    return path


def deployments(webhook):
    """Templates: what a deployment would do, what it did, and why one failed."""
    az("group create -n az-deploy -l local")
    group = ["-g", "az-deploy"]
    with tempfile.TemporaryDirectory() as folder:
        template = written(folder, "main.json", TEMPLATE)
        values = {"endpoint": {"value": webhook}, "code": {"value": "swordfish"}, "topicName": {"value": "az-main"}}
        file = written(folder, "main.parameters.json", json.dumps({
            "$schema": "https://schema.management.azure.com/schemas/2019-04-01/deploymentParameters.json#",
            "contentVersion": "1.0.0.0", "parameters": values}))
        given = ["--template-file", template, "--parameters", f"@{file}"]
        valid = az("deployment group validate -n main", *given, *group)
        assert valid["error"] is None and valid["properties"]["provisioningState"] == "Succeeded", valid
        assert len(valid["properties"]["validatedResources"]) == 2, valid
        planned = az("deployment group what-if -n main --no-pretty-print", *given, *group)
        assert [one["changeType"] for one in planned["changes"]] == ["Create", "Create"], planned
        made = az("deployment group create -n main", *given, *group)
        assert made["properties"]["provisioningState"] == "Succeeded", made
        assert made["properties"]["outputs"]["endpoint"]["value"].endswith("/topics/az-main/api/events"), made
        assert made["properties"]["parameters"]["code"].get("value") is None, made
        assert len(made["properties"]["outputResources"]) == 2, made
        again = az("deployment group what-if -n main --no-pretty-print", *given, *group)
        assert [one["changeType"] for one in again["changes"]] == ["NoChange", "NoChange"], again
        changed = [*given, "tags={\"team\": \"a\"}"]
        planned = az("deployment group what-if -n main --no-pretty-print", *changed, *group)
        assert planned["changes"][0]["delta"][0]["path"] == "tags.team", planned
        az("deployment group create -n main", *changed, *group)
        assert az("eventgrid topic show -n az-main", *group)["tags"] == {"team": "a"}
        # Without a file of parameters, and with a default that is an expression.
        inline = ["--template-file", template, "--parameters", f"endpoint={webhook}", "code=other"]
        az("deployment group create -n second", *inline, *group)
        assert [one["name"] for one in az("deployment group list", *group)] == ["main", "second"]
        assert az("deployment group list --filter", "provisioningState eq 'Failed'", *group) == []
        shown = az("deployment group show -n main", *group)
        assert shown["id"].endswith("/providers/Microsoft.Resources/deployments/main"), shown
        steps = az("deployment operation group list --name main", *group)
        types = [one["properties"]["targetResource"]["resourceType"] for one in steps]
        assert types == ["Microsoft.EventGrid/topics/eventSubscriptions", "Microsoft.EventGrid/topics"], types
        # It prints by itself.
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            az("deployment group export -n main", *group)
        assert json.loads(printed.getvalue())["parameters"]["topicName"]["type"] == "string", printed.getvalue()
        # A deployment that fails says which resource and why.
        refused = written(folder, "refused.json", TEMPLATE.replace('"az-sub"', '"az-refused"'))
        text = az_fails(None, "deployment group create -n third --template-file", refused, "--parameters",
                        f"endpoint={webhook}refused", "code=x", *group)
        assert "DeploymentFailed" in text and "Webhook validation handshake failed" in text, text
        wrong = written(folder, "wrong.json", '{"resources": [{"type": "Microsoft.Logic/workflows", "name": "x", "apiVersion": "1"}]}')
        text = az_fails(None, "deployment group validate --template-file", wrong, *group)
        assert "InvalidTemplate" in text and "deployments.ignore_foreign" in text, text
        # What the template does not have goes.
        az("eventgrid topic create -n az-old -l local", *group)
        complete = ["--mode", "Complete", *changed]
        planned = az("deployment group what-if -n fourth --no-pretty-print", *complete, *group)
        gone = [one["resourceId"].split("/")[-1] for one in planned["changes"] if one["changeType"] == "Delete"]
        assert "az-old" in gone and "az-main" not in gone, planned
        made = az("deployment group create -n fourth", *complete, *group)
        assert made["properties"]["mode"] == "Complete", made
        assert [one["name"] for one in az("eventgrid topic list", *group)] == ["az-main"]
        az("deployment group delete -n fourth", *group)
        text = az_fails(None, "deployment sub create -l local -n whole --template-file", template,
                        "--parameters", f"endpoint={webhook}", "code=x")
        assert "NotSupported" in text and "az deployment group create" in text, text
        assert az("deployment sub list") == []
    az("deployment group delete -n second", *group)
    assert [one["name"] for one in az("deployment group list", *group)] == ["main", "third"]
    az("group delete -n az-deploy --yes")


def main():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Webhook)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    webhook = f"http://127.0.0.1:{server.server_port}/"
    sign_in()
    subscriptions(*topics(), webhook)
    domains(webhook)
    others()
    groups()
    deployments(webhook)


main()
