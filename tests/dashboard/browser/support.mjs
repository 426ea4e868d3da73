// What the scenes share: the real binary, an endpoint, a browser, and what is watched on every page.
import { spawn } from 'node:child_process';
import fs from 'node:fs';
import http from 'node:http';
import { createRequire } from 'node:module';
import os from 'node:os';
import path from 'node:path';
import { chromium } from 'playwright-core';

const { GRIDHOOK_BINARY, GRIDHOOK_CHROMIUM } = process.env;
export const SCOPE = '/subscriptions/local/resourceGroups/dev/providers/Microsoft.EventGrid';
export const TOKEN = 'a-token-of-the-operators-of-this-test';
/** Generous: a machine with two busy cores is slow. */
const WAIT = 120000;
/** A read that returns 503 is repeated so often. */
const READS_MAX = 20;

const ends = [];
/** Runs at the end of the process, also after a failure. */
export const atEnd = (work) => ends.push(work);
process.on('exit', () => {
  for (const work of ends) work();
});
for (const signal of ['SIGTERM', 'SIGINT']) process.on(signal, () => process.exit(1));
setTimeout(
  () => fail(new Error('the scene takes too long')),
  Number(process.env.GRIDHOOK_SCENE_SECONDS ?? 150) * 1000,
).unref();
process.on('unhandledRejection', (error) => fail(error));

/** What a failing scene prints: its servers, what was watched, and the part that runs. */
const servers = [];
const watches = [];
let part = 'before the first part';
let isFailing = false;

/** Ends the scene: where it was, what is wrong, and what the pages and the logs say. */
async function fail(error) {
  if (isFailing) return;
  isFailing = true;
  console.error(`in the part “${part}”: ${error?.stack ?? error}`);
  await describePages().catch((problem) => console.error(`the pages cannot be read: ${problem.message}`));
  for (const { problems } of watches)
    if (problems.length > 0) console.error(`watched: ${problems.slice(-5).join('\n')}`);
  for (const server of servers)
    console.error(`the log of ${server.url} ends with\n${server.log().split('\n').slice(-LOG_LINES).join('\n')}`);
  process.exit(1);
}

/** Of a page and of a log a failing scene prints so much. */
const TEXT_CHARS = 3000;
const LOG_LINES = 12;
/** A page that does not respond is skipped after this time, in milliseconds. */
const LOOK_TIME = 10000;

async function describePages() {
  const pages = browser?.contexts().flatMap((context) => context.pages()) ?? [];
  for (const page of pages) {
    const look = page.evaluate(
      () => `${document.activeElement?.outerHTML.slice(0, 200)} has the focus\n${document.body.innerText}`,
    );
    const text = await Promise.race([look, sleep(LOOK_TIME).then(() => 'it does not respond')]).catch(
      (problem) => problem.message,
    );
    console.error(`the page ${page.url()} shows\n${text.slice(0, TEXT_CHARS)}`);
  }
}

export function check(condition, text) {
  if (!condition) throw new Error(text);
}

export const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

/** Waits until it is so. */
export async function until(what, so, most = WAIT) {
  const end = Date.now() + most;
  for (;;) {
    const found = await so();
    if (found) return found;
    check(Date.now() < end, `waited ${most} ms for ${what}`);
    await sleep(20);
  }
}

/** A server of NATS on a folder of its own: its URL. */
export async function nats() {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'gridhook-nats-'));
  const file = path.join(folder, 'nats.conf');
  fs.writeFileSync(
    file,
    `listen: "127.0.0.1:-1"\nports_file_dir: "${folder}"\nmax_payload: 8MB\njetstream { store_dir: "${folder}/data" }\n`,
  );
  const child = spawn('nats-server', ['-c', file], { stdio: 'ignore' });
  atEnd(() => {
    child.kill('SIGKILL');
    fs.rmSync(folder, { recursive: true, force: true, maxRetries: 5 });
  });
  const ports = path.join(folder, `nats-server_${child.pid}.ports`);
  return until('NATS', () => fs.existsSync(ports) && JSON.parse(fs.readFileSync(ports, 'utf8') || '{}').nats?.[0]);
}

/** The settings of a node. Its secret is in this folder. */
export function node(name, urls, folder) {
  const secret = path.join(folder, 'secret');
  fs.writeFileSync(secret, 'a-secret-of-the-nodes-of-this-test');
  return {
    GRIDHOOK_CLUSTER__ENGINE: 'nats',
    GRIDHOOK_CLUSTER__NAME: 'shop',
    GRIDHOOK_CLUSTER__NODE: name,
    GRIDHOOK_CLUSTER__URLS: urls,
    GRIDHOOK_CLUSTER__DURABILITY: 'unchecked',
    GRIDHOOK_CLUSTER__REPLICAS: '1',
    // NATS reserves it for each stream, and the disk may be small.
    GRIDHOOK_CLUSTER__STREAM_BYTES: '256 MiB',
    GRIDHOOK_CLUSTER__STREAM_KEEP_BYTES: '64 MiB',
    GRIDHOOK_CLUSTER__NODE_LISTEN: '127.0.0.1:0',
    GRIDHOOK_CLUSTER__SECRET_FILE: secret,
    GRIDHOOK_CLUSTER__EXPIRY: '6s',
  };
}

/** The real binary on a folder of its own. */
export class Server {
  constructor(settings = {}) {
    this.folder = fs.mkdtempSync(path.join(os.tmpdir(), 'gridhook-dashboard-'));
    this.settings = settings;
    this.at = '127.0.0.1:0';
    servers.push(this);
    atEnd(() => {
      this.child?.kill('SIGKILL');
      fs.rmSync(this.folder, { recursive: true, force: true, maxRetries: 5 });
    });
  }

  static async start(settings) {
    const server = new Server(settings);
    // With GRIDHOOK_SCENE_SHARDS it is a node of a cluster that has this many shards, and owns all of them.
    const shards = process.env.GRIDHOOK_SCENE_SHARDS;
    if (shards && settings?.GRIDHOOK_CLUSTER__ENGINE === undefined) {
      const alone = node('alone', await nats(), server.folder);
      server.settings = {
        ...alone,
        GRIDHOOK_CLUSTER__SHARDS: shards,
        ...settings,
      };
    }
    await server.start();
    return server;
  }

  async start() {
    const environment = Object.fromEntries(
      Object.entries(process.env).filter(([name]) => !name.startsWith('GRIDHOOK_')),
    );
    const log = fs.openSync(path.join(this.folder, 'log'), 'a');
    this.child = spawn(GRIDHOOK_BINARY, ['serve', '--listen', this.at, '--data-dir', path.join(this.folder, 'data')], {
      stdio: ['ignore', log, log],
      env: {
        ...environment,
        GRIDHOOK_ADMIN_TOKEN: TOKEN,
        GRIDHOOK_DELIVERY__VALIDATE: 'false',
        GRIDHOOK_JOURNAL__RETENTION: '7d',
        ...this.settings,
      },
    });
    fs.closeSync(log);
    // The address stays the same over restarts, as the page expects.
    if (this.at.endsWith(':0')) {
      this.at = await until('the server to listen', () => /listens on https?:\/\/(\S+)\n/.exec(this.log())?.[1]);
      this.url = `http://${this.at}`;
    }
    await until('the server to be ready', () =>
      fetch(`${this.url}/readyz`).then(
        (answer) => answer.ok,
        () => false,
      ),
    );
  }

  log() {
    return fs.readFileSync(path.join(this.folder, 'log'), 'utf8');
  }

  async kill() {
    const gone = new Promise((done) => this.child.once('exit', done));
    this.child.kill('SIGKILL');
    await gone;
  }

  /** Each request has a connection of its own: the server may close an idle one when it is used again. */
  send(method, where, body) {
    return new Promise((done, failed) => {
      const headers = { authorization: `Bearer ${TOKEN}`, 'content-type': 'application/json' };
      const request = http.request(this.url + where, { method, headers, agent: false }, (response) => {
        let text = '';
        response
          .setEncoding('utf8')
          .on('data', (piece) => (text += piece))
          .on('error', failed);
        response.on('end', () => done({ status: response.statusCode, text }));
      });
      request.on('error', (error) => failed(new Error(`${method} ${where}: ${error.message}`)));
      request.end(body);
    });
  }

  async ask(method, where, body = undefined) {
    const content = body === undefined || typeof body === 'string' ? body : JSON.stringify(body);
    let answer = await this.send(method, where, content);
    // A busy server asks to read again.
    for (let n = 0; method === 'GET' && answer.status === 503 && n < READS_MAX; n += 1) {
      await sleep(500);
      answer = await this.send(method, where, content);
    }
    check(answer.status < 300, `${method} ${where}: ${answer.status} ${answer.text}`);
    return answer.text ? JSON.parse(answer.text) : null;
  }

  topic(name, properties = {}) {
    return this.ask('PUT', `${SCOPE}/topics/${name}`, { location: 'local', properties });
  }

  subscribe(topic, name, endpoint, more = {}) {
    const destination = { endpointType: 'WebHook', properties: { endpointUrl: endpoint, ...more.webhook } };
    return this.ask('PUT', `${SCOPE}/topics/${topic}/eventSubscriptions/${name}`, {
      properties: { destination, ...more.properties },
    });
  }

  async publish(topic, events) {
    const body = events.map((event, index) => ({
      id: `e-${index}`,
      eventType: 'Order.Placed',
      subject: 'orders/1',
      dataVersion: '1',
      eventTime: new Date().toISOString(),
      data: {},
      ...event,
    }));
    await this.ask('POST', `/topics/${topic}/api/events`, typeof events === 'string' ? events : body);
  }
}

export const subscriptionId = (topic, name) => `${SCOPE}/topics/${topic}/eventSubscriptions/${name}`;
export const topicId = (name) => `${SCOPE}/topics/${name}`;

/** A webhook that answers as its path says: `/503/text` answers 503. `says` makes the text of its responses. */
export async function endpoint(
  says = /** @type {(url: string, body: string) => string | Promise<string>} */ (() => 'ok'),
) {
  const server = http.createServer((request, response) => {
    let body = '';
    request
      .setEncoding('utf8')
      .on('data', (piece) => (body += piece))
      .on('end', async () => {
        const status = Number(/^\/(\d{3})/.exec(request.url)?.[1] ?? 200);
        const text = await says(request.url, body);
        response.writeHead(status, { 'content-type': 'text/plain' }).end(text);
      });
  });
  return listening(server);
}

/** An endpoint that notes in `received` which events came, and answers what `answers` says, by the last part of the path. */
export async function receiver(answers, received) {
  const server = http.createServer((request, response) => {
    let body = '';
    request
      .on('data', (part) => (body += part))
      .on('end', () => {
        const name = request.url.split('/').at(-1).split('?')[0];
        (received[name] ??= []).push(...[JSON.parse(body || '[]')].flat().map((event) => event.id));
        response.writeHead(answers[name] ?? 200).end(`from ${name}`);
      });
  });
  return listening(server);
}

async function listening(server) {
  // The scene is as busy as the machine: it closes no connection that an event may be on the way on.
  server.keepAliveTimeout = 0;
  await new Promise((done) => server.listen(0, '127.0.0.1', () => done()));
  server.unref();
  return `http://127.0.0.1:${server.address().port}`;
}

let browser;
async function launch() {
  browser ??= await chromium.launch({
    executablePath: GRIDHOOK_CHROMIUM,
    args: ['--no-sandbox', '--disable-gpu', '--js-flags=--expose-gc'],
  });
  return browser;
}
export const close = async () => {
  await browser?.close();
  browser = undefined;
};

/** Opens all subjects of a form. */
export const unfold = (page) =>
  page.locator('main details.subject').evaluateAll((all) => all.forEach((one) => Object.assign(one, { open: true })));

/** Leaves a form without saving. */
export const leave = (page) => page.getByRole('dialog').getByRole('button', { name: 'Leave', exact: true }).click();

/** What a page may never do. */
export class Watch {
  constructor(origin) {
    this.origin = origin;
    /** Refused requests and lost connections are logged by the browser itself; a scene that causes them says so. */
    this.allowed = [];
    this.problems = [];
    this.requests = new Map();
    watches.push(this);
  }

  async on(context) {
    await context.addInitScript(() => {
      addEventListener('securitypolicyviolation', (event) =>
        console.error(`CSP ${event.violatedDirective} ${event.blockedURI} ${event.sourceFile}:${event.lineNumber}`),
      );
    });
    context.on('request', (request) => {
      const url = request.url();
      if (!url.startsWith(`${this.origin}/`) && !url.startsWith('data:') && !url.startsWith('blob:'))
        this.problems.push(`request to ${url}`);
      this.requests.set(`${request.method()} ${url}`, request);
    });
    context.on('console', (message) => {
      if (['error', 'warning'].includes(message.type()))
        this.tell(`console: ${message.text()} ${message.location().url}`);
    });
    context.on('weberror', (error) => this.tell(`error: ${error.error().stack}`));
    context.on('dialog', (dialog) => {
      this.problems.push(`dialog: ${dialog.message()}`);
      dialog.dismiss();
    });
  }

  tell(text) {
    if (!this.allowed.some((pattern) => pattern.test(text))) this.problems.push(text);
  }

  /** Nothing has happened that may not. */
  clean(when) {
    check(this.problems.length === 0, `${when}: ${this.problems.slice(0, 5).join('\n')}`);
  }
}

/** What the browser logs by itself where the server is not there or refuses. */
export const NETWORK = [/Failed to load resource/, /net::ERR_/];

/** Serves files of the page with a change: a seeded bug, or all of them from the folder while they are written. With `headers` they have other headers. */
async function change(context, seed) {
  const folder = process.env.GRIDHOOK_PAGE_FOLDER;
  if (!folder && Object.keys(seed).length === 0) return;
  await context.route(/\/ui\/(?!session|api\/)/, async (route) => {
    const file = new URL(route.request().url()).pathname.replace(/^.*\/ui\//, '') || 'index.html';
    if (file.startsWith('manual/') || (!folder && !(file in seed))) return route.continue();
    const url = route
      .request()
      .url()
      .replace(/\/ui\/.*/, `/ui/${folder ? '' : file}`);
    return fulfil(route, { url }, async (response) => {
      const before = folder ? fs.readFileSync(path.join(folder, file), 'utf8') : await response.text();
      const body = seed[file]?.(before) ?? before;
      if (seed[file]) check(body !== before, `the seed does not fit ${file}`);
      const types = { js: 'text/javascript', css: 'text/css', html: 'text/html' };
      const headers = { ...response.headers(), 'content-type': types[file.split('.').pop()] };
      for (const name of ['content-encoding', 'content-length', 'etag']) delete headers[name];
      return { status: 200, headers: Object.assign(headers, seed.headers), body };
    });
  });
}

/** Requests on the way when a page is closed or leaves a view end in ways that say nothing. */
const GONE = /has been closed|disposed|already handled|canceled|Invalid InterceptionId|ECONNRE|socket hang up/;
const ignoreGone = (error) => check(GONE.test(error.message), error.stack);

/** Answers a request of a page with the server's response and `edit` of it. */
async function fulfil(route, options, edit) {
  try {
    // On a busy machine the server may close an idle connection when it is used again.
    const response = await route.fetch({ maxRetries: 3, ...options });
    await route.fulfill({ response, ...(await edit(response)) });
  } catch (error) {
    ignoreGone(error);
    await route.abort().catch(ignoreGone);
  }
}

/** Changes the server's responses at `url` as `edit` says of their text. The returned function ends it. */
export async function changeText(context, url, edit) {
  const handler = (route) => fulfil(route, {}, async (response) => ({ body: edit(await response.text()) }));
  await context.route(url, handler);
  return () => context.unroute(url, handler);
}

/** The same with their JSON. */
export const changeResponses = (context, url, edit) =>
  changeText(context, url, (text) => JSON.stringify(edit(JSON.parse(text))));

/** Does something that shows a text for some seconds only, after which a busy machine would look for it. */
export async function flashes(page, text, work) {
  const shown = page.waitForFunction((wanted) => document.body.innerText.includes(wanted), text);
  await work();
  await shown;
}

/** A context of the browser with a page that is signed in, or that opens a portal link. */
export async function visit(
  server,
  { watch = new Watch(server.url), seed = {}, link = '', token = TOKEN, ...options } = {},
) {
  const context = await (await launch()).newContext({ viewport: { width: 1280, height: 800 }, ...options });
  context.setDefaultTimeout(WAIT);
  await watch.on(context);
  await change(context, seed);
  const page = await context.newPage();
  await page.goto(link || `${server.url}/ui/`);
  if (!link) await signIn(page, token);
  return { context, page, watch };
}

export async function signIn(page, token = TOKEN) {
  await page.getByLabel('Token of an operator').fill(token);
  await page.getByRole('button', { name: 'Sign in' }).click();
  await page.getByRole('button', { name: /^Sign out/ }).waitFor();
}

/** Goes to a view by its address and waits until it shows something. */
export async function show(page, hash) {
  await turn(page, hash);
  await settled(page);
}

/** Turns to an address. The page has left the view before when this returns. */
export const turn = (page, hash) =>
  page.evaluate(
    (next) =>
      new Promise((done) => {
        const before = location.href;
        addEventListener('hashchange', () => done(undefined), { once: true });
        location.hash = next;
        if (location.href === before) done(undefined);
      }),
    hash,
  );

/** The view has loaded: no part of it waits for its first answer. */
export async function settled(page) {
  await page.waitForFunction(() => {
    const main = document.querySelector('main');
    return main?.querySelector('h1') && !main.querySelector('.loading');
  });
}

const RULES = ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa'];

/** What axe finds, with where. The page's own policy would refuse a script tag; the browser's own evaluation does not ask it. */
export async function violations(page) {
  const axe = createRequire(import.meta.url).resolve('axe-core/axe.min.js');
  if (!(await page.evaluate(() => 'axe' in window))) await page.evaluate(fs.readFileSync(axe, 'utf8'));
  const found = await page.evaluate(
    (tags) =>
      window.axe.run(document, { runOnly: { type: 'tag', values: tags }, resultTypes: ['violations'] }).then((result) =>
        result.violations.map(
          ({ id, nodes }) =>
            `${id}: ${nodes
              .slice(0, 3)
              .map((node) => `${node.html} ${node.failureSummary}`)
              .join(' | ')}`,
        ),
      ),
    RULES,
  );
  return found;
}

/** How many of these tabs read the live tail from the server. */
export async function readers(pages) {
  const texts = await Promise.all(pages.map((one) => one.locator('main .toolbar').getByText(/lines/).innerText()));
  return texts.filter((text) => !text.includes('another tab')).length;
}

export const hash = (view, params = {}) => {
  const query = new URLSearchParams(params).toString();
  return `#/${view}${query ? `?${query}` : ''}`;
};

/** What two refreshes of a view take away: its open row, the focus or the place. Empty if nothing. */
export async function taken(page, part) {
  await page.setViewportSize({ width: 1280, height: 300 });
  await page.locator('main button.opener').first().focus();
  await page.keyboard.press('Enter');
  await page.locator('main tr.details').waitFor();
  const before = await page.evaluate(() => {
    const [row, focused] = [document.querySelector('main tr.details'), document.activeElement];
    scrollTo(0, 150);
    Object.assign(window, { row, focused });
    return scrollY;
  });
  check(before > 0, 'the view has nothing to scroll');
  let refreshes = 0;
  const count = (response) => (refreshes += response.url().endsWith(part) ? 1 : 0);
  page.on('response', count);
  await until('two refreshes', () => refreshes >= 3);
  page.off('response', count);
  await page.setViewportSize({ width: 1280, height: 800 });
  return page.evaluate((place) => {
    const { row, focused } = /** @type {any} */ (window);
    return [
      !row.isConnected && 'the open row',
      document.activeElement !== focused && 'the focus',
      scrollY < Math.min(place, document.documentElement.scrollHeight - innerHeight) && 'the place',
    ]
      .filter(Boolean)
      .join(', ');
  }, before);
}

/** The page's own console errors, and a table of what was measured. */
export const report = (name, value) => console.log(`${name.padEnd(52)} ${value}`);

/** Runs the parts of a scene one after the other. */
export async function scene(parts) {
  try {
    for (const [name, work] of Object.entries(parts)) {
      const began = Date.now();
      part = name;
      await work();
      console.log(`ok ${name} (${Date.now() - began} ms)`);
    }
    part = 'the end';
    await close();
    process.exit(0);
  } catch (error) {
    await fail(error);
  }
}
