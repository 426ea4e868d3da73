// The pictures of the README and of the manual. With GRIDHOOK_SCREENSHOTS they are written, otherwise only made.
import fs from 'node:fs';
import path from 'node:path';
import {
  Server,
  check,
  endpoint,
  hash,
  scene,
  show,
  sleep,
  subscriptionId,
  report,
  topicId,
  until,
  visit,
} from './support.mjs';

/** Of all pictures together. */
const BYTES = 300_000;
const folder = path.join(process.env.GRIDHOOK_PAGE, '../screenshots');
const isKept = Boolean(process.env.GRIDHOOK_SCREENSHOTS);
/** Long enough for charts, where the pictures are kept. */
const SECONDS = isKept ? 75 : 1;

let server;
const PICTURES = {
  'overview-light.jpg': ['light', hash('overview')],
  'subscriptions-dark.jpg': ['dark', hash('subscriptions')],
  'subscription-light.jpg': ['light', hash('subscription', { id: subscriptionId('orders', 'warehouse') })],
  'event-dark.jpg': ['dark', hash('event', { topic: topicId('orders'), sequence: '3' })],
};

await scene({
  async 'a shop'() {
    server = await Server.start();
    const hook = await endpoint((where) =>
      where.startsWith('/503') ? 'The warehouse is closed for stocktaking until 18:00.' : 'ok',
    );
    const deadLetterDestination = {
      endpointType: 'StorageBlob',
      properties: { resourceId: '/r', blobContainerName: 'letters' },
    };
    for (const topic of ['orders', 'payments', 'inventory']) await server.topic(topic);
    for (const [topic, name, status, more] of [
      ['orders', 'billing', 200],
      ['orders', 'shipping', 200],
      ['orders', 'warehouse', 503],
      ['orders', 'legacy-crm', 400, { properties: { deadLetterDestination } }],
      ['orders', 'cancellations', 200, { properties: { filter: { includedEventTypes: ['Order.Cancelled'] } } }],
      ['orders', 'analytics', 200, { webhook: { maxEventsPerBatch: 50 } }],
      ['payments', 'ledger', 200],
      ['payments', 'fraud-check', 200],
      ['payments', 'receipts', 200],
      ['inventory', 'search-index', 200],
      ['inventory', 'suppliers', 200],
    ])
      await server.subscribe(topic, name, `${hook}/${status}/hooks/${name}`, more);
    await server.ask('POST', `${subscriptionId('payments', 'receipts')}/hold`);
    const end = Date.now() + SECONDS * 1000;
    for (let n = 0; Date.now() < end; n += 1) {
      const wave = 6 + Math.round(4 * Math.sin(n / 9));
      const events = (kind, types) =>
        Array.from({ length: wave }, (_, index) => ({
          id: `${kind}-${n}-${index}`,
          eventType: types[(n + index) % types.length],
          subject: `${kind}/${n}`,
          data: { total: 12.5 },
        }));
      await server.publish('orders', events('order', ['Order.Placed', 'Order.Paid', 'Order.Shipped']));
      await server.publish('payments', events('payment', ['Payment.Done']));
      await server.publish('inventory', events('item', ['Item.Changed']).slice(0, 3));
      await sleep(50);
    }
    await until(
      'the suspension',
      async () =>
        (await server.ask('GET', `${subscriptionId('orders', 'warehouse')}/status`)).health.state !== 'healthy',
    );
  },

  async pictures() {
    let bytes = 0;
    for (const [name, [colorScheme, at]] of Object.entries(PICTURES)) {
      const { context, page, watch } = await visit(server, {
        colorScheme,
        viewport: { width: 1120, height: 640 },
        reducedMotion: 'reduce',
      });
      await show(page, at);
      await server.publish('orders', [{ id: `last-${name}`, eventType: 'Order.Placed' }]);
      // The second poll has rates.
      await page.waitForResponse((response) => /top|status|trace/.test(response.url()));
      const picture = await page.screenshot({ type: 'jpeg', quality: 60 });
      bytes += picture.length;
      if (isKept) {
        fs.mkdirSync(folder, { recursive: true });
        fs.writeFileSync(path.join(folder, name), picture);
      }
      watch.clean(name);
      await context.close();
    }
    report('pictures (budget 300,000 bytes)', `${bytes.toLocaleString('en-US')} bytes`);
    check(bytes <= BYTES, `the pictures have ${bytes} bytes`);
  },

  async 'the kept pictures are these'() {
    const kept = fs.readdirSync(folder).sort();
    check(JSON.stringify(kept) === JSON.stringify(Object.keys(PICTURES).sort()), `kept are ${kept}`);
    const bytes = kept.reduce((sum, name) => sum + fs.statSync(path.join(folder, name)).size, 0);
    check(bytes <= BYTES, `the kept pictures have ${bytes} bytes`);
  },
});
