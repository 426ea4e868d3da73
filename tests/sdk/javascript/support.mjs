// What the scenarios share: a webhook that keeps what it got, and the control plane by plain requests.

import assert from "node:assert/strict";
import http from "node:http";

export const url = process.env.GRIDHOOK_URL;
const token = process.env.GRIDHOOK_ADMIN_TOKEN;
const group = "/subscriptions/local/resourceGroups/dev/providers/Microsoft.EventGrid";

/** The credential that `@azure/identity` would be. */
export const bearer = {
  getToken: async () => ({ token, expiresOnTimestamp: Date.now() + 3_600_000 }),
};

/** JavaScript's clients refuse plain http unless an option allows it. */
export const plain = url.startsWith("https:") ? {} : { allowInsecureConnection: true };

export async function arm(method, path, body) {
  const answer = await fetch(`${url}${group}${path}`, {
    method,
    headers: { authorization: `Bearer ${token}`, "content-type": "application/json" },
    body: body && JSON.stringify(body),
  });
  const text = await answer.text();
  assert.ok(answer.ok, `${method} ${path}: ${answer.status} ${text}`);
  return text && JSON.parse(text);
}

/** Makes a topic; returns where it takes events, and its first key. */
export async function topic(name, properties) {
  const made = await arm("PUT", `/topics/${name}`, { location: "local", properties });
  const { key1 } = await arm("POST", `/topics/${name}/listKeys`);
  return { endpoint: made.properties.endpoint, key: key1 };
}

export async function subscribe(topic, name, endpointUrl, properties = {}) {
  const destination = { endpointType: "WebHook", properties: { endpointUrl } };
  return arm("PUT", `/topics/${topic}/eventSubscriptions/${name}`, { properties: { destination, ...properties } });
}

/** A real webhook: it answers both handshakes, and keeps what it is sent. */
export class Webhook {
  requests = [];

  async start() {
    this.server = http.createServer((request, response) => this.#serve(request, response));
    await new Promise((ready) => this.server.listen(0, "127.0.0.1", ready));
    return this;
  }

  url(path) {
    return `http://127.0.0.1:${this.server.address().port}${path}`;
  }

  async #serve(request, response) {
    if (request.method === "OPTIONS") {
      const origin = request.headers["webhook-request-origin"] ?? "";
      response.writeHead(200, { "WebHook-Allowed-Origin": origin, "WebHook-Allowed-Rate": "*" }).end();
      return;
    }
    const parts = [];
    for await (const part of request) parts.push(part);
    const body = Buffer.concat(parts).toString();
    if (request.headers["aeg-event-type"] === "SubscriptionValidation") {
      const [{ data }] = JSON.parse(body);
      response.writeHead(200).end(JSON.stringify({ validationResponse: data.validationCode }));
      return;
    }
    this.requests.push({ path: request.url, headers: request.headers, body });
    response.writeHead(200).end();
  }

  /** Waits for a number of notifications at a path, and takes them. */
  async take(path, count) {
    const end = Date.now() + 60_000;
    const here = () => this.requests.filter((one) => one.path === path);
    while (here().length < count) {
      assert.ok(Date.now() < end, `waited for ${count} requests at ${path}, got ${here().length}`);
      await new Promise((later) => setTimeout(later, 10));
    }
    const taken = here();
    this.requests = this.requests.filter((one) => one.path !== path);
    return taken;
  }
}
