// Publish every schema with every credential; read what arrives with the official SDK and with that of CloudEvents.

import assert from "node:assert/strict";
import {
  AzureKeyCredential,
  AzureSASCredential,
  EventGridDeserializer,
  EventGridPublisherClient,
  generateSharedAccessSignature,
} from "@azure/eventgrid";
import { HTTP } from "cloudevents";
import { Webhook, bearer, plain, subscribe, topic, url } from "./support.mjs";

const data = { total: 12.5, lines: [1, 2, { name: "höhe ✓" }], nothing: null };
const reader = new EventGridDeserializer();

/** Every kind of credential; over plain http the SDK refuses to send a bearer token, so that it takes https to try it. */
async function credentials(endpoint, key) {
  const all = new AzureKeyCredential(key);
  const until = new Date(Date.now() + 3_600_000);
  const sas = new AzureSASCredential(await generateSharedAccessSignature(endpoint, all, until));
  return { key: all, sas, ...(url.startsWith("https:") && { bearer }) };
}

async function eventGrid(webhook) {
  const { endpoint, key } = await topic("js-eventgrid", { inputSchema: "EventGridSchema" });
  await subscribe("js-eventgrid", "single", webhook.url("/eg"));
  for (const [kind, credential] of Object.entries(await credentials(endpoint, key))) {
    const client = new EventGridPublisherClient(endpoint, "EventGrid", credential, plain);
    await client.send([{ id: kind, eventType: "Order.Placed", subject: "s", dataVersion: "2.0", data }]);
    const [{ body, headers }] = await webhook.take("/eg", 1);
    const [received] = await reader.deserializeEventGridEvents(body);
    assert.deepEqual([received.id, received.eventType, received.dataVersion], [kind, "Order.Placed", "2.0"]);
    assert.deepEqual(received.data, data);
    assert.equal(headers["aeg-event-type"], "Notification");
  }
}

async function cloudEvents(webhook) {
  const { endpoint, key } = await topic("js-cloudevents", { inputSchema: "CloudEventSchemaV1_0" });
  const schema = { eventDeliverySchema: "CloudEventSchemaV1_0" };
  await subscribe("js-cloudevents", "single", webhook.url("/ce"), schema);
  for (const [kind, credential] of Object.entries(await credentials(endpoint, key))) {
    const client = new EventGridPublisherClient(endpoint, "CloudEvent", credential, plain);
    await client.send([{ id: kind, type: "Order.Placed", source: "/orders", extensionAttributes: { tenant: "a" }, data }]);
    const [{ body, headers }] = await webhook.take("/ce", 1);
    const [received] = await reader.deserializeCloudEvents(body);
    assert.deepEqual([received.id, received.type, received.source], [kind, "Order.Placed", "/orders"]);
    assert.deepEqual(received.data, data);
    const event = HTTP.toEvent({ headers, body });
    assert.ok(event.validate());
    assert.deepEqual([event.id, event.data], [kind, data]);
  }
}

async function batches(webhook) {
  const { endpoint, key } = await topic("js-batches", { inputSchema: "CloudEventSchemaV1_0" });
  const destination = {
    endpointType: "WebHook",
    properties: { endpointUrl: webhook.url("/batch"), maxEventsPerBatch: 100 },
  };
  await subscribe("js-batches", "batch", webhook.url("/batch"), {
    destination,
    eventDeliverySchema: "CloudEventSchemaV1_0",
  });
  const client = new EventGridPublisherClient(endpoint, "CloudEvent", new AzureKeyCredential(key), plain);
  await client.send([0, 1, 2].map((id) => ({ id: `${id}`, type: "T", source: "/s", data: { id } })));
  const events = [];
  while (events.length < 3) {
    const [{ body, headers }] = await webhook.take("/batch", 1);
    assert.equal(headers["content-type"], "application/cloudevents-batch+json; charset=utf-8");
    events.push(...HTTP.toEvent({ headers, body }));
  }
  assert.deepEqual(events.map((event) => event.data.id).sort(), [0, 1, 2]);
}

async function custom(webhook) {
  const properties = { eventType: { sourceField: "kind" }, subject: { defaultValue: "orders" }, dataVersion: { defaultValue: "1" } };
  const { endpoint, key } = await topic("js-custom", {
    inputSchema: "CustomEventSchema",
    inputSchemaMapping: { inputSchemaMappingType: "Json", properties },
  });
  await subscribe("js-custom", "same", webhook.url("/custom"), { eventDeliverySchema: "CustomInputSchema" });
  const client = new EventGridPublisherClient(endpoint, "Custom", new AzureKeyCredential(key), plain);
  await client.send([{ kind: "Order.Placed", ...data }]);
  const [{ body }] = await webhook.take("/custom", 1);
  assert.deepEqual(JSON.parse(body), [{ kind: "Order.Placed", ...data }]);
}

async function errors() {
  const { endpoint, key } = await topic("js-errors", { inputSchema: "EventGridSchema" });
  const event = { eventType: "T", subject: "s", dataVersion: "1", data: { n: 1 } };
  const send = (at, credential, events, schema = "EventGrid") =>
    new EventGridPublisherClient(at, schema, credential, plain).send(events);
  const good = new AzureKeyCredential(key);
  const wrong = [
    ["Unauthorized", 401, () => send(endpoint, new AzureKeyCredential("d3Jvbmc="), [event])],
    ["NotFound", 404, () => send(endpoint.replace("/js-errors/", "/js-none/"), good, [event])],
    ["BadRequest", 400, () => send(endpoint, good, [{ type: "T", source: "/s" }], "CloudEvent")],
    ["RequestEntityTooLarge", 413, () => send(endpoint, good, [{ ...event, data: { text: "x".repeat(1_100_000) } }])],
  ];
  for (const [code, statusCode, sending] of wrong) {
    await assert.rejects(sending(), { name: "RestError", code, statusCode });
  }
}

/** The server takes few events a second here: the SDK obeys Retry-After, and all arrive. */
async function triedAgain(webhook) {
  const { endpoint, key } = await topic("js-busy", { inputSchema: "EventGridSchema" });
  await subscribe("js-busy", "all", webhook.url("/busy"));
  const rate = Number(process.env.GRIDHOOK_TEST_RATE);
  let waits = 0;
  const policy = {
    name: "count-waits",
    sendRequest: async (request, next) => {
      const answer = await next(request);
      waits += answer.status === 429 ? 1 : 0;
      return answer;
    },
  };
  const options = { ...plain, additionalPolicies: [{ policy, position: "perRetry" }] };
  const client = new EventGridPublisherClient(endpoint, "EventGrid", new AzureKeyCredential(key), options);
  for (let round = 0; round < 3; round += 1) {
    await client.send(Array.from({ length: rate }, (_, n) => ({ eventType: "T", subject: `${n}`, dataVersion: "1", data: { n } })));
  }
  await webhook.take("/busy", 3 * rate);
  assert.ok(waits > 0, "no answer made the SDK wait");
}

const webhook = await new Webhook().start();
await eventGrid(webhook);
await cloudEvents(webhook);
await batches(webhook);
await custom(webhook);
await errors();
await triedAgain(webhook);
process.exit(0);
