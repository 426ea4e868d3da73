// Live tails in seven tabs of one browser, which has six connections to a server; and a tail that does not grow.
import { Server, check, endpoint, hash, scene, sleep, told, topicId, until, visit } from './support.mjs';

const TABS = 7;
/** The list keeps so many lines. */
const KEPT = 2000;
const MINUTE = process.env.GRIDHOOK_SOAK ? 60 : 0;

let server;
let context;
let page;
let watch;
const pages = [];

const lines = (one) => one.locator('main [role=status]').getByText(/lines/).innerText();
const count = async (one) => Number(/, ([\d,]+) lines/.exec(await lines(one))[1].replaceAll(',', ''));
const heap = async (one) => {
  const session = await context.newCDPSession(one);
  await session.send('HeapProfiler.collectGarbage');
  const { usedSize } = await session.send('Runtime.getHeapUsage');
  await session.detach();
  return usedSize;
};

/** Publishes so many events, a hundred in a request. */
async function publish(events, subject = 'orders/1') {
  for (let n = 0; n < events; n += 100) {
    await server.publish('orders', Array.from({ length: Math.min(100, events - n) }, (_, index) => ({ id: `${n + index}`, subject })));
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
    for (const [index, one] of pages.entries()) await one.goto(`${server.url}/ui/${hash('tail', index === 1 ? { only: 'events', topic: topicId('orders') } : {})}`);
    for (const one of pages) await one.locator('main').getByText('connected').waitFor();
    await publish(10, 'orders/first');
    for (const one of pages) await one.locator('main tbody').getByText('orders/first').first().waitFor();
    check((await pages[1].locator('main tbody').getByText('delivered').count()) === 0, 'a tab shows what its filter excludes');
    // Other views of these tabs still reach the server.
    await pages[6].evaluate((next) => (location.hash = next), hash('overview'));
    await pages[6].getByRole('heading', { name: 'What is wrong now' }).waitFor();
    await pages[6].evaluate((next) => (location.hash = next), hash('tail'));
    await pages[6].locator('main').getByText('connected').waitFor();
  },

  async 'another tab reads on when the one that reads is closed'() {
    const reads = await Promise.all(pages.map(async (one) => !(await lines(one)).includes('another tab')));
    check(reads.filter(Boolean).length === 1, `${reads.filter(Boolean).length} tabs read`);
    const [reader] = pages.splice(reads.indexOf(true), 1);
    await reader.close();
    await until('one tab to read', async () => (await Promise.all(pages.map(lines))).filter((text) => !text.includes('another tab')).length === 1);
    for (const one of pages) await one.locator('main').getByText('connected').waitFor();
    await publish(10, 'orders/second');
    for (const one of pages) await one.locator('main tbody').getByText('orders/second').first().waitFor();
    watch.clean('seven tabs');
  },

  async 'the heap of a tail is flat'() {
    while (pages.length > 1) await pages.pop().close();
    const [one] = pages;
    await one.bringToFront();
    const grow = async (events) => {
      const before = await count(one);
      await publish(events);
      await until('the lines', async () => (await count(one)) >= before + events);
      return heap(one);
    };
    // The list is full after the first part.
    const first = await grow(2 * KEPT);
    let most = 0;
    const rounds = MINUTE || 3;
    for (let round = 0; round < rounds; round += 1) {
      most = await grow(2 * KEPT);
      if (MINUTE) await sleep(1000);
    }
    told('heap of a tail, after the first 4,000 events', `${(first / 2 ** 20).toFixed(1)} MiB`);
    told(`heap of a tail, after ${(rounds * 2 * KEPT).toLocaleString('en-US')} more`, `${(most / 2 ** 20).toFixed(1)} MiB`);
    check(most < first * 1.25 + 2 ** 20, `the heap grew from ${first} to ${most}`);
    check((await one.locator('main tbody tr').count()) < 200, 'the list is not windowed');
    watch.clean('a tail');
  },

  async 'a list that keeps every line is found'() {
    const seeded = await visit(server, { seed: { 'js/views/tail.js': (text) => text.replace('.slice(0, KEPT);', ';') } });
    const { page: one } = seeded;
    context = seeded.context;
    await one.goto(`${server.url}/ui/${hash('tail', { only: 'events' })}`);
    await one.locator('main').getByText('connected').waitFor();
    await publish(2 * KEPT);
    await until('the lines', async () => (await count(one)) >= 2 * KEPT);
    const first = await heap(one);
    // A reader that is slow misses lines, which it counts and does not keep.
    let most = first;
    for (let round = 2; round <= 12 && most <= first * 1.25 + 2 ** 20; round += 1) {
      await publish(2 * KEPT);
      await until('the lines', async () => (await count(one)) >= 2 * KEPT * round);
      most = await heap(one);
    }
    check(most > first * 1.25 + 2 ** 20, 'a list without an end was not found');
  },
});
