// Frequent jobs with their number of clicks.
import { Server, check, hash, receiver, scene, settled, show, subscriptionId, until, visit } from './support.mjs';

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
    addEventListener('click', (event) => event.isTrusted && (/** @type {any} */ (window).clicks += 1), { capture: true });
  });
  await work();
  const clicks = await page.evaluate(() => /** @type {any} */ (window).clicks);
  check(clicks > 0 && clicks <= most, `${name} takes ${clicks} clicks`);
  watch.clean(name);
  // The counter of this document goes with it.
  await page.reload();
  await settled(page);
}

await scene({
  async 'a server with an endpoint that refuses'() {
    hook = await receiver(answers, received);
    server = await Server.start();
    await server.topic('orders');
    const deadLetterDestination = { endpointType: 'StorageBlob', properties: { resourceId: '/r', blobContainerName: 'letters' } };
    await server.subscribe('orders', 'legacy', `${hook}/legacy`, { properties: { deadLetterDestination } });
    await server.subscribe('orders', 'billing', `${hook}/shop`);
    await server.publish('orders', ['a', 'b', 'c'].map((id) => ({ id })));
    await until('the dead letters', async () => (await status('legacy')).counters.deadLettered === 3);
    ({ page, watch } = await visit(server));
  },

  async 'why an event is not delivered: at most 3'() {
    await job('why not delivered', hash('overview'), 3, async () => {
      await main().getByRole('link', { name: 'legacy' }).click();
      await main().getByRole('group', { name: 'Last failure' }).getByRole('link', { name: /^event/ }).click();
      await main().getByRole('region', { name: 'legacy' }).getByText('from legacy').first().waitFor();
    });
  },

  async 'the slowest endpoint: 1'() {
    await job('the slowest endpoint', hash('subscriptions'), 1, async () => {
      await main().getByRole('button', { name: 'p99' }).click();
      await main().locator('th[aria-sort=descending]', { hasText: 'p99' }).waitFor();
    });
  },

  async 'the dead letters of a time, sent again: at most 4'() {
    await job('a redrive', hash('subscription', { id: subscriptionId('orders', 'legacy') }), 4, async () => {
      answers.legacy = 200;
      await main().getByRole('tab', { name: 'Dead letters' }).click();
      await button('The last hour').click();
      await button('Redrive all that match …').click();
      await button('Redrive 3').click();
      await until('the events', () => ['a', 'b', 'c'].every((id) => received.legacy.filter((one) => one === id).length === 2));
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
