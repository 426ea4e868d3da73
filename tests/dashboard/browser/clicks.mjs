// Frequent jobs with their number of clicks.
import {
  Server,
  Watch,
  check,
  endpoint,
  hash,
  receiver,
  scene,
  settled,
  show,
  sleep,
  subscriptionId,
  until,
  violations,
  visit,
} from './support.mjs';

let server;
let page;
let watch;
let hook;
const answers = { legacy: 400, shop: 200 };
const received = {};
const main = () => page.locator('main');
const button = (name) => main().getByRole('button', { name, exact: true });
const status = (name) => server.ask('GET', `${subscriptionId('orders', name)}/status`);

/** Does a job from a view on, with at most so many clicks. */
async function job(name, from, most, work) {
  await show(page, from);
  await page.evaluate(() => {
    Object.assign(window, { clicks: 0 });
    const count = ({ isTrusted }) => {
      if (isTrusted) window.clicks += 1;
    };
    addEventListener('click', count, { capture: true });
  });
  await work();
  const clicks = await page.evaluate(() => window.clicks);
  check(clicks > 0 && clicks <= most, `${name} takes ${clicks} clicks`);
  watch.clean(name);
  // The counter of this document goes with it.
  await page.reload();
  await settled(page);
}

await scene({
  async 'the first delivered event: at most 6, with the sign-in'() {
    // As a newcomer has it: endpoints are validated.
    const first = await Server.start({ GRIDHOOK_DELIVERY__VALIDATE: 'true' });
    let context;
    ({ context, page, watch } = await visit(first));
    await job('the first event', hash('overview'), 5, async () => {
      await main().getByText('your first event in three steps').waitFor();
      await button('Create the topic').click();
      await main().getByText('The test endpoint of the server accepts every event').waitFor();
      const problems = await violations(page);
      check(problems.length === 0, problems.join('\n'));
      await button('Subscribe').click();
      await button('Publish').click();
      await page.getByRole('heading', { level: 1, name: /^first-/ }).waitFor();
      await main().getByRole('region', { name: 'first' }).getByText('Delivered').first().waitFor();
    });
    await context.close();
    await first.kill();
  },

  async 'without the test endpoint the first run asks for an address, and says what is wrong with it'() {
    const first = await Server.start({ GRIDHOOK_DELIVERY__TEST_ENDPOINT: 'false' });
    const allowed = Object.assign(new Watch(first.url), { allowed: [/status of 400/] });
    const newcomer = await visit(first, { watch: allowed });
    await newcomer.page.getByRole('button', { name: 'Create the topic' }).click();
    await newcomer.page.getByLabel('Endpoint URL').fill('ftp://example.com');
    await newcomer.page.getByRole('button', { name: 'Subscribe', exact: true }).click();
    await newcomer.page.getByRole('alert').getByText('another scheme').waitFor();
    allowed.clean('an address that is refused');
    await newcomer.context.close();
    await first.kill();
  },

  async 'a server with an endpoint that refuses'() {
    hook = await receiver(answers, received);
    server = await Server.start();
    await server.topic('orders');
    const deadLetterDestination = {
      endpointType: 'StorageBlob',
      properties: { resourceId: '/r', blobContainerName: 'letters' },
    };
    await server.subscribe('orders', 'legacy', `${hook}/legacy`, { properties: { deadLetterDestination } });
    await server.subscribe('orders', 'billing', `${hook}/shop`);
    await server.publish(
      'orders',
      ['a', 'b', 'c'].map((id) => ({ id })),
    );
    await until('the dead letters', async () => (await status('legacy')).counters.deadLettered === 3);
    ({ page, watch } = await visit(server));
  },

  async 'why an event is not delivered: at most 3'() {
    await job('why not delivered', hash('overview'), 3, async () => {
      await main().getByRole('link', { name: 'legacy' }).click();
      await main()
        .getByRole('group', { name: 'Last failure' })
        .getByRole('link', { name: /^event/ })
        .click();
      await main().getByRole('region', { name: 'legacy' }).getByText('from legacy').first().waitFor();
    });
  },

  async 'an endpoint that is always slow, and one that is slow once'() {
    const waiting = { always: [], once: [] };
    let isOver = false;
    // The first request to the one and all requests to the other wait until they are let go.
    const isHeld = (name) => !isOver && (name === 'always' || waiting.once.length === 0);
    const slow = await endpoint((where) => {
      const name = where.split('/').at(-1);
      return isHeld(name) ? new Promise((done) => waiting[name].push(() => done('late'))) : 'ok';
    });
    const letGo = (name) => {
      for (const answer of waiting[name]) answer();
    };
    await server.topic('times');
    for (const name of ['always', 'once']) await server.subscribe('times', name, `${slow}/200/${name}`);
    const counters = async (name) => (await server.ask('GET', `${subscriptionId('times', name)}/status`)).counters;
    const began = Date.now();
    await server.publish(
      'times',
      Array.from({ length: 10 }, (_, n) => ({ id: `time-${n}` })),
    );
    await until(
      'the quick deliveries',
      async () => (await counters('once')).delivered === 9 && waiting.always.length === 10,
    );
    // Longer than any quick request can have taken, and the slow one much longer still.
    await sleep(Date.now() - began + 200);
    isOver = true;
    letGo('always');
    await until('the slow deliveries', async () => (await counters('always')).delivered === 10);
    await sleep(3 * (Date.now() - began));
    letGo('once');
    await until('the last delivery', async () => (await counters('once')).delivered === 10);
  },

  async 'the slowest endpoint: 1, by each quantile'() {
    // All columns fit.
    await page.setViewportSize({ width: 1700, height: 800 });
    for (const [quantile, name] of [
      ['p50', 'always'],
      ['p95', 'once'],
      ['p99', 'once'],
    ]) {
      await job(`the slowest endpoint by ${quantile}`, hash('subscriptions'), 1, async () => {
        await main().getByRole('button', { name: quantile }).click();
        await main().locator('th[aria-sort=descending]', { hasText: quantile }).waitFor();
        await page.waitForFunction((first) => document.querySelector('main tbody tr a')?.textContent === first, name);
      });
    }
  },

  async 'the dead letters of a time, sent again: at most 4'() {
    await job('a redrive', hash('subscription', { id: subscriptionId('orders', 'legacy') }), 4, async () => {
      answers.legacy = 200;
      await main().getByRole('tab', { name: 'Dead letters' }).click();
      await button('The last hour').click();
      await button('Redrive all that match …').click();
      await button('Redrive 3').click();
      await until('the events', () =>
        ['a', 'b', 'c'].every((id) => received.legacy.filter((one) => one === id).length === 2),
      );
    });
  },

  async 'an address is mended: at most 4'() {
    await job('another address', hash('overview'), 4, async () => {
      await main().getByRole('link', { name: 'legacy' }).click();
      await button('Edit …').click();
      await main().getByLabel('Endpoint URL').fill(`${hook}/new`);
      await button('Review').click();
      await button('Save').click();
      await page.getByRole('heading', { level: 1, name: 'legacy', exact: true }).waitFor();
    });
  },
});
