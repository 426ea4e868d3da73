// Publish to a namespace topic with one client of the SDK, and receive, settle and renew with the other.

import assert from "node:assert/strict";
import { AzureKeyCredential } from "@azure/eventgrid";
import { EventGridReceiverClient, EventGridSenderClient } from "@azure/eventgrid-namespaces";
import { arm, bearer, plain } from "./support.mjs";

const NAMESPACE = "/namespaces/js-consumed";
const TOPIC = "heat";

async function setup() {
  const made = await arm("PUT", NAMESPACE, { location: "local" });
  await arm("PUT", `${NAMESPACE}/topics/${TOPIC}`, {});
  const queue = { receiveLockDurationInSeconds: 60, maxDeliveryCount: 3 };
  const deliveryConfiguration = { deliveryMode: "Queue", queue };
  await arm("PUT", `${NAMESPACE}/topics/${TOPIC}/eventSubscriptions/work`, { properties: { deliveryConfiguration } });
  const { key1 } = await arm("POST", `${NAMESPACE}/listKeys`);
  return { endpoint: made.properties.endpoint, key: key1 };
}

async function receive(receiver, count) {
  const end = Date.now() + 20_000;
  const found = [];
  while (found.length < count) {
    assert.ok(Date.now() < end, `waited for ${count} events, got ${found.length}`);
    found.push(...(await receiver.receiveEvents({ maxEvents: 10, maxWaitTime: 10 })).details);
  }
  assert.equal(found.length, count);
  return found;
}

async function scenario(endpoint, credential, options) {
  const sender = new EventGridSenderClient(endpoint, credential, TOPIC, options);
  const receiver = new EventGridReceiverClient(endpoint, credential, TOPIC, "work", options);
  const event = (id) => ({ id, type: "Heat.Measured", source: "/oven", specversion: "1.0", data: { degrees: 81.5 } });
  await sender.sendEvents(event("one"));
  await sender.sendEvents([event("two"), event("three"), event("four")]);
  const got = await receive(receiver, 4);
  assert.deepEqual(got.map((one) => one.event.id).sort(), ["four", "one", "three", "two"]);
  for (const one of got) {
    assert.deepEqual([one.event.type, one.event.source, one.brokerProperties.deliveryCount], ["Heat.Measured", "/oven", 1]);
    assert.deepEqual(one.event.data, { degrees: 81.5 });
  }
  const tokens = got.map((one) => one.brokerProperties.lockToken);
  assert.equal((await receiver.renewEventLocks(tokens)).succeededLockTokens.length, 4);
  assert.equal((await receiver.acknowledgeEvents(tokens.slice(0, 2))).succeededLockTokens.length, 2);
  assert.deepEqual((await receiver.rejectEvents([tokens[2]])).succeededLockTokens, [tokens[2]]);
  assert.deepEqual((await receiver.releaseEvents([tokens[3]])).succeededLockTokens, [tokens[3]]);
  const { failedLockTokens } = await receiver.acknowledgeEvents([tokens[0]]);
  assert.equal(failedLockTokens[0].lockToken, tokens[0]);
  assert.equal(failedLockTokens[0].error.code, "TokenLost");
  const [back] = await receive(receiver, 1);
  assert.deepEqual([back.event.id, back.brokerProperties.deliveryCount], [got[3].event.id, 2]);
  await receiver.acknowledgeEvents([back.brokerProperties.lockToken]);
}

const { endpoint, key } = await setup();
await scenario(endpoint, new AzureKeyCredential(key), plain);
if (endpoint.startsWith("https:")) await scenario(endpoint, bearer, plain);
