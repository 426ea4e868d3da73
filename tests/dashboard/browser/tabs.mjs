// Live tails in seven tabs of one browser, which has six connections to a server.
import { Server, check, endpoint, hash, readers, scene, topicId, turn, until, visit } from './support.mjs';

const TABS = 7;

let server;
let context;
let page;
let watch;
const pages = [];

const lines = (one) => one.locator('main .toolbar').getByText(/lines/).innerText();

/** Publishes a number of events, a hundred in a request. */
async function publish(events, subject = 'orders/1') {
  for (let n = 0; n < events; n += 100) {
    await server.publish(
      'orders',
      Array.from({ length: Math.min(100, events - n) }, (_, index) => ({ id: `${n + index}`, subject })),
    );
  }
}

await scene({
  async 'seven tabs show the same events over one stream'() {
    server = await Server.start();
    const hook = await endpoint();
    await server.topic('orders');
    await server.topic('other');
    await server.subscribe('orders', 'billing', `${hook}/200`);
    ({ context, page, watch } = await visit(server));
    pages.push(page);
    for (let n = 1; n < TABS; n += 1) pages.push(await context.newPage());
    // The filters differ: what they have in common is the server's work, the rest is each tab's.
    for (const [index, one] of pages.entries())
      await one.goto(
        `${server.url}/ui/${hash('tail', index === 1 ? { only: 'events', topic: topicId('orders') } : {})}`,
      );
    for (const one of pages) await one.locator('main').getByText('connected').waitFor();
    await publish(10, 'orders/first');
    for (const one of pages) await one.locator('main tbody').getByText('orders/first').first().waitFor();
    check(
      (await pages[1].locator('main tbody').getByText('delivered').count()) === 0,
      'a tab shows what its filter excludes',
    );
    // Other views of these tabs still reach the server.
    await turn(pages[6], hash('overview'));
    await pages[6].getByRole('heading', { name: 'What is wrong now' }).waitFor();
    await turn(pages[6], hash('tail'));
    await pages[6].locator('main').getByText('connected').waitFor();
  },

  async 'another tab reads on when the one that reads is closed'() {
    await until('one tab to read', async () => (await readers(pages)) === 1);
    const reads = await Promise.all(pages.map(async (one) => !(await lines(one)).includes('another tab')));
    const [reader] = pages.splice(reads.indexOf(true), 1);
    await reader.close();
    await until('one tab to read', async () => (await readers(pages)) === 1);
    for (const one of pages) await one.locator('main').getByText('connected').waitFor();
    await publish(10, 'orders/second');
    for (const one of pages) await one.locator('main tbody').getByText('orders/second').first().waitFor();
    watch.clean('seven tabs');
  },
});
