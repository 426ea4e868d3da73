// A live tail that stays open: it keeps the newest lines, and its heap does not grow. The long form lasts an hour.
import { Server, check, endpoint, hash, scene, sleep, report, until, visit } from './support.mjs';

/** The number of lines that the list keeps. */
const KEPT = 2000;
const SECONDS = process.env.GRIDHOOK_SOAK ? 3600 : 60;
/** At most: two busy cores may be slower. */
const EVENTS_PER_SECOND = 2000;

let server;

const lines = (one) => one.locator('main .toolbar').getByText(/lines/).innerText();
const count = async (one) => Number(/, ([\d,]+) lines/.exec(await lines(one))[1].replaceAll(',', ''));

async function heap({ context, page }) {
  const session = await context.newCDPSession(page);
  await session.send('HeapProfiler.collectGarbage');
  const { usedSize } = await session.send('Runtime.getHeapUsage');
  await session.detach();
  return usedSize;
}

/** Publishes a number of events, a hundred in a request. */
async function publish(events) {
  for (let n = 0; n < events; n += 100)
    await server.publish(
      'orders',
      Array.from({ length: 100 }, (_, index) => ({ id: `${n + index}` })),
    );
}

/** A page with a tail. */
async function tail(seed) {
  const visitor = await visit(server, { seed });
  await visitor.page.goto(`${server.url}/ui/${hash('tail')}`);
  await visitor.page.locator('main').getByText('connected').waitFor();
  return visitor;
}

/** The heap once the list is full, and the most of it while events are published for a time. */
async function watched(visitor, seconds, enough = (first, now) => now > 1e12) {
  // A slow reader loses lines.
  await until('a full list', async () => {
    await publish(KEPT / 2);
    return (await count(visitor.page)) >= 2 * KEPT;
  });
  const first = await heap(visitor);
  const end = Date.now() + seconds * 1000;
  let [published, most] = [0, first];
  for (let looks = Date.now() + 5000; Date.now() < end && !enough(first, most); ) {
    const began = Date.now();
    await publish(200);
    published += 200;
    await sleep(Math.max(0, (200 / EVENTS_PER_SECOND) * 1000 - (Date.now() - began)));
    if (Date.now() < looks) continue;
    most = Math.max(most, await heap(visitor));
    looks = Date.now() + 5000;
  }
  return { first, most: Math.max(most, await heap(visitor)), published };
}

const grew = (first, most) => most > first * 1.25 + 2 ** 20;

await scene({
  async 'a tail stays open'() {
    server = await Server.start();
    const hook = await endpoint();
    await server.topic('orders');
    await server.subscribe('orders', 'billing', `${hook}/200`, { webhook: { maxEventsPerBatch: 100 } });
    const visitor = await tail({});
    const { first, most, published } = await watched(visitor, SECONDS);
    report(`events published in ${SECONDS} s`, published.toLocaleString('en-US'));
    report('heap of the tail with a full list', `${(first / 2 ** 20).toFixed(1)} MiB`);
    report('heap of the tail at most, afterwards', `${(most / 2 ** 20).toFixed(1)} MiB`);
    check(!grew(first, most), `the heap grew from ${first} to ${most}`);
    check((await visitor.page.locator('main tbody tr').count()) < 200, 'the list is not windowed');
    const before = await count(visitor.page);
    await publish(100);
    await until('it to be alive', async () => (await count(visitor.page)) > before);
    visitor.watch.clean('a tail');
    await visitor.context.close();
  },

  async 'a list that keeps every line is found'() {
    const visitor = await tail({ 'js/views/tail.js': (text) => text.replace('.slice(0, KEPT);', ';') });
    const { first, most } = await watched(visitor, 240, grew);
    check(grew(first, most), `a list without an end was not found: ${first} to ${most}`);
  },
});
