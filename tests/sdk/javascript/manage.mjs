// Manage topics, domains and event subscriptions with the management SDK, signed in as an application.

import assert from "node:assert/strict";
import { EventGridManagementClient } from "@azure/arm-eventgrid";
import { AzureKeyCredential, EventGridPublisherClient } from "@azure/eventgrid";
import { ClientSecretCredential } from "@azure/identity";
import { Webhook, url } from "./support.mjs";

const GROUP = "js";
const {
  GRIDHOOK_TEST_AUTHORITY: authorityHost,
  GRIDHOOK_TEST_AUDIENCE: audience,
  GRIDHOOK_TEST_TENANT: tenant,
  GRIDHOOK_TEST_CLIENT: client,
  GRIDHOOK_TEST_SECRET: known,
} = process.env;

/** A client of the cloud that is here, and not of Azure. */
function management(secret = known) {
  const credential = new ClientSecretCredential(tenant, client, secret, { authorityHost, disableInstanceDiscovery: true });
  const credentialScopes = `${audience}/.default`;
  return new EventGridManagementClient(credential, "s-js", { endpoint: url, credentialScopes });
}

async function names(list) {
  const found = [];
  for await (const one of list) found.push(one.name);
  return found;
}

const refused = (statusCode, code) => ({ name: "RestError", statusCode, code });

async function topics(client) {
  const body = { location: "local", tags: { team: "a" }, publicNetworkAccess: "Enabled", inputSchema: "EventGridSchema" };
  const made = await client.topics.beginCreateOrUpdateAndWait(GROUP, "js-topic", body);
  assert.deepEqual([made.name, made.provisioningState], ["js-topic", "Succeeded"]);
  assert.ok(made.systemData.createdAt instanceof Date, made.systemData);
  await client.topics.beginUpdateAndWait(GROUP, "js-topic", { tags: { team: "b" } });
  const shown = await client.topics.get(GROUP, "js-topic");
  assert.deepEqual([shown.tags, shown.inputSchema], [{ team: "b" }, "EventGridSchema"]);
  for (const name of ["js-page-0", "js-page-1", "js-page-2"]) {
    await client.topics.beginCreateOrUpdateAndWait(GROUP, name, { location: "local" });
  }
  const pages = [];
  const paged = client.topics.listByResourceGroup(GROUP, { filter: "contains(name, 'js-page')", top: 2 }).byPage();
  for await (const page of paged) pages.push(page.map((topic) => topic.name));
  assert.deepEqual(pages, [["js-page-0", "js-page-1"], ["js-page-2"]]);
  await client.topics.beginDeleteAndWait(GROUP, "js-page-2");
  await assert.rejects(client.topics.get(GROUP, "js-page-2"), refused(404, "ResourceNotFound"));
  const before = await client.topics.listSharedAccessKeys(GROUP, "js-topic");
  const after = await client.topics.beginRegenerateKeyAndWait(GROUP, "js-topic", { keyName: "key1" });
  assert.notEqual(after.key1, before.key1);
  assert.equal(after.key2, before.key2);
  return { endpoint: shown.endpoint, key: after.key1 };
}

const subscription = (endpointUrl) => ({
  destination: {
    endpointType: "WebHook",
    endpointUrl,
    maxEventsPerBatch: 1,
    preferredBatchSizeInKilobytes: 64,
    deliveryAttributeMappings: [
      { name: "tenant", type: "Static", value: "a", isSecret: false },
      { name: "pass", type: "Static", value: "swordfish", isSecret: true },
      { name: "total", type: "Dynamic", sourceField: "data.total" },
    ],
  },
  filter: {
    subjectBeginsWith: "/orders",
    includedEventTypes: ["Order.Placed"],
    advancedFilters: [
      { operatorType: "StringIn", key: "data.region", values: ["eu", "us"] },
      { operatorType: "NumberInRange", key: "data.total", values: [[1, 99.5]] },
      { operatorType: "IsNotNull", key: "data.region" },
    ],
  },
  labels: ["first"],
  retryPolicy: { maxDeliveryAttempts: 7, eventTimeToLiveInMinutes: 60 },
  deadLetterDestination: { endpointType: "StorageBlob", resourceId: "/r", blobContainerName: "letters" },
  expirationTimeUtc: new Date(Date.now() + 86_400_000),
});

async function subscriptions(client, webhook, { endpoint, key }) {
  const address = webhook.url("/all?code=secret");
  const wanted = subscription(address);
  const operations = client.topicEventSubscriptions;
  await operations.beginCreateOrUpdateAndWait(GROUP, "js-topic", "all", wanted);

  // Read, change and write back: the value of a secret is never shown, and stays.
  const shown = await operations.get(GROUP, "js-topic", "all");
  assert.equal(shown.provisioningState, "Succeeded");
  assert.deepEqual(shown.retryPolicy, wanted.retryPolicy);
  assert.deepEqual(shown.deadLetterDestination, wanted.deadLetterDestination);
  assert.deepEqual(shown.filter.advancedFilters, wanted.filter.advancedFilters);
  assert.equal(Math.trunc(shown.expirationTimeUtc / 1_000), Math.trunc(wanted.expirationTimeUtc / 1_000));
  const { destination } = shown;
  assert.deepEqual([destination.endpointUrl ?? null, destination.endpointBaseUrl], [null, webhook.url("/all")]);
  assert.equal(destination.deliveryAttributeMappings[1].value, "Hidden");
  const { endpointUrl } = await operations.getFullUrl(GROUP, "js-topic", "all");
  assert.equal(endpointUrl, address);
  const changed = { ...shown, labels: ["second", "third"], destination: { ...destination, endpointUrl } };
  const again = await operations.beginCreateOrUpdateAndWait(GROUP, "js-topic", "all", changed);
  assert.deepEqual(again.labels, ["second", "third"]);
  const { value } = await operations.getDeliveryAttributes(GROUP, "js-topic", "all");
  assert.deepEqual(value, wanted.destination.deliveryAttributeMappings);
  const retryPolicy = { maxDeliveryAttempts: 3, eventTimeToLiveInMinutes: 60 };
  await operations.beginUpdateAndWait(GROUP, "js-topic", "all", { retryPolicy });
  const patched = await operations.get(GROUP, "js-topic", "all");
  assert.deepEqual([patched.retryPolicy, patched.labels], [retryPolicy, ["second", "third"]]);

  // What is stored is what is done: one of three events passes the filter, with the secret in a header.
  const publisher = new EventGridPublisherClient(endpoint, "EventGrid", new AzureKeyCredential(key));
  const event = (id, region, total) => ({
    id, eventType: "Order.Placed", subject: "/orders/1", dataVersion: "1", data: { region, total },
  });
  await publisher.send([event("elsewhere", "asia", 5), event("dear", "eu", 100), event("passes", "EU", 12.5)]);
  const [{ headers, body }] = await webhook.take("/all?code=secret", 1);
  assert.equal(JSON.parse(body)[0].id, "passes");
  assert.deepEqual([headers.tenant, headers.pass, headers.total], ["a", "swordfish", "12.5"]);

  assert.deepEqual(await names(operations.list(GROUP, "js-topic")), ["all"]);
  const everywhere = client.eventSubscriptions.listGlobalByResourceGroupForTopicType(GROUP, "Microsoft.EventGrid.Topics");
  assert.deepEqual(await names(everywhere), ["all"]);
  await operations.beginDeleteAndWait(GROUP, "js-topic", "all");
  await assert.rejects(operations.get(GROUP, "js-topic", "all"), refused(404, "ResourceNotFound"));
}

async function domains(client, webhook) {
  const body = { location: "local", inputSchema: "CloudEventSchemaV1_0" };
  const made = await client.domains.beginCreateOrUpdateAndWait(GROUP, "js-domain", body);
  assert.equal(made.provisioningState, "Succeeded");
  await client.domainTopics.beginCreateOrUpdateAndWait(GROUP, "js-domain", "tenant-a");
  assert.deepEqual(await names(client.domainTopics.listByDomain(GROUP, "js-domain")), ["tenant-a"]);
  const hook = { destination: { endpointType: "WebHook", endpointUrl: webhook.url("/domain") } };
  hook.eventDeliverySchema = "CloudEventSchemaV1_0";
  const operations = client.domainTopicEventSubscriptions;
  await operations.beginCreateOrUpdateAndWait(GROUP, "js-domain", "tenant-a", "all", hook);
  const before = await client.domains.listSharedAccessKeys(GROUP, "js-domain");
  const after = await client.domains.regenerateKey(GROUP, "js-domain", { keyName: "key2" });
  assert.notEqual(after.key2, before.key2);
  const publisher = (key) => new EventGridPublisherClient(made.endpoint, "CloudEvent", new AzureKeyCredential(key));
  const event = { id: "in-domain", type: "Order.Placed", source: "tenant-a", data: { n: 1 } };
  await publisher(after.key2).send([event]);
  const [received] = await webhook.take("/domain", 1);
  assert.equal(JSON.parse(received.body).id, "in-domain");
  await assert.rejects(publisher(before.key2).send([event]), refused(401, "Unauthorized"));
  await client.domains.beginDeleteAndWait(GROUP, "js-domain");
  await assert.rejects(client.domains.get(GROUP, "js-domain"), refused(404, "ResourceNotFound"));
}

async function errors(client) {
  const made = client.topics.beginCreateOrUpdateAndWait(GROUP, "x", { location: "local" });
  await assert.rejects(made, refused(400, "InvalidRequest"));
  const key = client.topics.beginRegenerateKeyAndWait(GROUP, "js-topic", { keyName: "key3" });
  await assert.rejects(key, (error) => error.statusCode === 400 && error.message.includes("key3"));
  await assert.rejects(management("wrong").topics.get(GROUP, "js-topic"), /AADSTS7000215/);
  assert.deepEqual(await names(client.systemTopics.listBySubscription()), []);
}

const webhook = await new Webhook().start();
const grid = management();
await subscriptions(grid, webhook, await topics(grid));
await domains(grid, webhook);
await errors(grid);
process.exit(0);
