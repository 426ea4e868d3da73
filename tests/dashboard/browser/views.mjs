// Every view: empty, full, with the server killed while it is shown, and after the server is back.
import {
  NETWORK,
  SCOPE,
  Server,
  Watch,
  check,
  endpoint,
  hash,
  scene,
  settled,
  show,
  subscriptionId,
  topicId,
  until,
  visit,
} from './support.mjs';

const orders = topicId('orders');
const id = subscriptionId('orders', 'billing');

/** Each view, a text that shows that it is empty, and one that shows that it is full. */
export const VIEWS = [
  { name: 'overview', at: hash('overview'), empty: 'Nothing subscribes yet', full: 'What is wrong now' },
  { name: 'topics', at: hash('topics'), empty: 'There is no topic yet', full: 'EventGridSchema' },
  { name: 'topic', at: hash('topic', { id: orders }), full: 'Access keys' },
  {
    name: 'subscriptions',
    at: hash('subscriptions'),
    empty: 'There is no event subscription yet',
    full: /suspended|probing/,
  },
  { name: 'subscription', at: hash('subscription', { id }), full: '= delivered' },
  { name: 'subscription: settings', at: hash('subscription', { id, tab: 'settings' }), full: 'Event types' },
  { name: 'editor', at: hash('edit', { id }), full: 'JSON of the properties' },
  { name: 'new subscription', at: hash('edit', { topic: orders }), full: 'New event subscription' },
  { name: 'endpoint', at: hash('endpoint', { id }), full: 'Endpoint URL' },
  { name: 'events', at: hash('event'), empty: 'There is no topic yet', full: 'Find' },
  { name: 'newest events', at: hash('event', { topic: orders }), full: 'Order.Paid' },
  { name: 'event', at: hash('event', { topic: orders, sequence: '1' }), full: 'What became of it' },
  // A retry of the failing endpoint is no line of this one.
  { name: 'tail', at: hash('tail', { subscription: 'nobody' }), empty: 'Nothing yet', full: 'Nothing yet' },
  { name: 'dead letters', at: hash('dead-letters'), empty: 'No event was given up', full: 'Newest' },
  {
    name: 'dead letters of one',
    at: hash('dead-letters', { id: subscriptionId('orders', 'legacy') }),
    full: 'Undeliverable: bad request',
  },
  { name: 'all jobs', at: hash('jobs'), empty: 'No job runs or is paused', full: 'replay 16' },
  { name: 'jobs', at: hash('jobs', { id: subscriptionId('orders', 'picky') }), full: 'No job yet' },
  { name: 'new replay', at: hash('jobs', { id, new: 'replay' }), full: 'The last hour' },
  { name: 'filter bench', at: hash('filter', { id }), full: 'Test the filter' },
  { name: 'retry schedule', at: hash('editions'), empty: 'Attempts by status', full: 'any other' },
  { name: 'server', at: hash('server'), empty: 'Accepts events', full: 'Accepts events' },
  {
    name: 'server: settings',
    at: hash('server', { tab: 'settings' }),
    empty: 'delivery.validate',
    full: 'chaos.enabled',
  },
  { name: 'server: store', at: hash('server', { tab: 'store' }), full: 'Check the store' },
  { name: 'server: supervision', at: hash('server', { tab: 'supervision' }), full: 'Actors' },
  // The sign-in is recorded.
  { name: 'audit trail', at: hash('audit'), empty: 'done 2', full: 'legacy' },
  { name: 'tokens', at: hash('tokens'), empty: 'There is no named token yet', full: 'labels/team=shop' },
  { name: 'portal links', at: hash('links'), empty: 'There is no portal link', full: 'portal' },
  { name: 'sessions', at: hash('sessions'), empty: 'this one', full: 'this one' },
  { name: 'chaos', at: hash('chaos'), empty: 'Chaos is off', full: 'Active faults' },
  { name: 'help', at: hash('help'), empty: 'Manual', full: 'operations' },
  {
    name: 'a chapter',
    at: hash('help', { chapter: 'dead-letters' }),
    empty: 'A dead letter is an event that was given up',
    full: 'A dead letter is an event that was given up',
  },
];

/** A server with something in every view. */
export async function fill(server) {
  const hook = await endpoint((path) => `an answer to ${path}`);
  await server.topic('orders');
  await server.topic('inventory');
  await server.ask('PUT', `${SCOPE}/domains/shops`, { location: 'local' });
  await server.subscribe('orders', 'billing', `${hook}/200`);
  await server.subscribe('orders', 'warehouse', `${hook}/503`);
  await server.subscribe('orders', 'picky', `${hook}/200`, {
    properties: { filter: { includedEventTypes: ['Order.Cancelled'] } },
  });
  const deadLetterDestination = {
    endpointType: 'StorageBlob',
    properties: { resourceId: '/r', blobContainerName: 'letters' },
  };
  await server.subscribe('orders', 'legacy', `${hook}/400`, { properties: { deadLetterDestination } });
  await server.publish('orders', [
    { id: 'one' },
    { id: 'two', subject: 'orders/2' },
    { id: 'three', eventType: 'Order.Paid' },
  ]);
  const status = (name) => server.ask('GET', `${subscriptionId('orders', name)}/status`);
  await until(
    'the deliveries',
    async () =>
      (await status('billing')).counters.delivered === 3 && (await status('legacy')).counters.deadLettered === 3,
  );
  await until(
    'the suspension',
    async () =>
      (await status('warehouse')).health.state !== 'healthy' ||
      server.publish('orders', [{ id: `more-${Date.now()}`, eventType: 'Order.Paid' }]).then(() => false),
  );
  await server.ask('POST', '/tokens', { name: 'shop', roles: ['read'], scopes: ['labels/team=shop'] });
  const expires = new Date(Date.now() + 3_600_000).toISOString();
  await server.ask('POST', '/tokens', { name: 'shop-link', roles: ['portal'], scopes: ['labels/team=shop'], expires });
  // A job that does not end by itself.
  const job = await server.ask('POST', `${subscriptionId('orders', 'billing')}/replays`, { eventsPerSecond: 0.001 });
  await server.ask('POST', `${subscriptionId('orders', 'billing')}/replays/${job.id}/pause`);
}

async function shows(page, text) {
  await page.locator('main').getByText(text).filter({ visible: true }).first().waitFor();
}

if (process.argv[1].endsWith('views.mjs')) {
  let server;
  await scene({
    async 'every view is whole on an empty server'() {
      server = await Server.start();
      const watch = new Watch(server.url);
      // Chaos is off: its path does not exist.
      watch.allowed = [/404 .*\/chaos/, /status of 404/];
      const { context, page } = await visit(server, { watch });
      for (const { name, at, empty } of VIEWS.filter((view) => view.empty)) {
        await show(page, at);
        await shows(page, empty);
        watch.clean(name);
      }
      await context.close();
    },

    async 'every view is whole on a full server'() {
      await server.kill();
      server.settings.GRIDHOOK_CHAOS__ENABLED = 'true';
      await server.start();
      await fill(server);
      const { context, page, watch } = await visit(server);
      for (const { name, at, full } of VIEWS) {
        await show(page, at);
        await shows(page, full);
        watch.clean(name);
      }
      await context.close();
    },

    async 'every view survives the end of the server and its return'() {
      const watch = new Watch(server.url);
      const { context, page } = await visit(server, { watch });
      watch.allowed = NETWORK;
      const pages = [page];
      // A page for each view: all of them see the same end.
      for (let n = 1; n < VIEWS.length; n += 1) pages.push(await context.newPage());
      for (const [index, view] of VIEWS.entries()) {
        await pages[index].goto(`${server.url}/ui/${view.at}`);
        await settled(pages[index]);
        await shows(pages[index], view.full);
      }
      await server.kill();
      for (const [index, view] of VIEWS.entries()) {
        await pages[index].bringToFront();
        if (POLLS(view)) await pages[index].locator('.bar').getByText('server unreachable').waitFor();
        // What was read stays to be read.
        check(
          await pages[index].locator('main').getByText(view.full).filter({ visible: true }).first().isVisible(),
          `${view.name}: its content is gone`,
        );
      }
      await server.start();
      // The session is still valid, and each tab is at its view again.
      for (const [index, view] of VIEWS.entries()) {
        if (!POLLS(view)) continue;
        await pages[index].bringToFront();
        await pages[index].locator('.bar').getByText('live', { exact: true }).waitFor();
        await shows(pages[index], view.full);
        await until(
          `${view.name} to be well`,
          async () => (await pages[index].locator('main .notice[role=alert]').count()) === 0,
        );
      }
      watch.clean('the end of the server');
      await context.close();
    },
  });
}

/** Views that read nothing by themselves once they are shown do not notice. */
function POLLS({ name }) {
  return ![
    'a chapter',
    'editor',
    'endpoint',
    'new subscription',
    'events',
    'filter bench',
    'help',
    'retry schedule',
    'server: store',
    'tail',
  ].includes(name);
}
