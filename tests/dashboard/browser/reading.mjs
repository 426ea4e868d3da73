// What an operator reads and comes back to: heads of requests, one format of times, cards, places, totals and warnings.
import {
  Server,
  check,
  endpoint,
  hash,
  leave,
  scene,
  settled,
  show,
  subscriptionId,
  topicId,
  turn,
  unfold,
  until,
  visit,
} from './support.mjs';

let server;
let page;
let watch;
let context;
/** What the endpoint received. */
const bodies = [];
const main = () => page.locator('main');
const id = (name) => subscriptionId('orders', name);
const status = (name) => server.ask('GET', `${id(name)}/status`);
/** Event subscriptions beside the first two: more than fit on a screen. */
const OTHERS = 30;

await scene({
  async 'a server with failed requests and dead letters'() {
    server = await Server.start({ GRIDHOOK_DELIVERY__SUSPEND_AFTER_FAILURES: '1' });
    const hook = await endpoint((path, body) => {
      bodies.push(body);
      return `an answer to ${path.split('?')[0]}`;
    });
    await server.topic('orders');
    const deadLetterDestination = {
      endpointType: 'StorageBlob',
      properties: { resourceId: '/r', blobContainerName: 'letters' },
    };
    const secret = [{ name: 'x-code', type: 'Static', properties: { value: 'hidden-code', isSecret: true } }];
    await server.subscribe('orders', 'legacy', `${hook}/400?code=hidden-query`, {
      webhook: { deliveryAttributeMappings: secret },
      properties: { deadLetterDestination },
    });
    await server.subscribe('orders', 'moved', `${hook}/404`);
    await server.publish('orders', [
      { id: 'a', eventType: 'Order.Placed' },
      { id: 'b', eventType: 'Order.Placed' },
      { id: 'c', eventType: 'Order.Paid' },
    ]);
    for (let n = 0; n < OTHERS; n += 1)
      await server.subscribe('orders', `other-${String(n).padStart(2, '0')}`, `${hook}/200`);
    await until('the dead letters', async () => (await status('legacy')).counters.deadLettered === 3);
    await until('the suspension', async () => (await status('moved')).health.state !== 'healthy');
    ({ page, watch, context } = await visit(server));
  },

  async 'the banner and an attempt have the heads of the request and its response, without secrets'() {
    await show(page, hash('subscription', { id: id('legacy') }));
    await main()
      .getByRole('region', { name: 'Attempts' })
      .getByRole('row')
      .filter({ hasText: 'an answer to /400' })
      .first()
      .locator('button.opener')
      .click();
    for (const part of [main().getByRole('group', { name: 'Last failure' }), main().locator('tr.details')]) {
      await part.getByText('Request', { exact: true }).click();
      await part.getByText('aeg-event-type: Notification').waitFor();
      await part.getByText('x-code: [hidden]').waitFor();
      await part.getByText('Response headers').click();
      await part.getByText('content-type: text/plain').waitFor();
    }
    check(!(await main().innerText()).includes('hidden-'), 'a secret is shown');
  },

  async 'an attempt has its request with the body that was sent'() {
    for (const view of [
      hash('subscription', { id: id('legacy') }),
      hash('event', { topic: topicId('orders'), id: 'c' }),
    ]) {
      await show(page, view);
      const isList = view.includes('subscription?');
      if (isList)
        await main()
          .getByRole('region', { name: 'Attempts' })
          .getByRole('row')
          .filter({ hasText: '400' })
          .first()
          .locator('button.opener')
          .click();
      const attempt = isList ? main().locator('tr.details') : main().getByRole('region', { name: 'legacy' });
      await attempt.getByText('Request with its body').click();
      const payload = attempt.locator('.payload pre');
      await payload.waitFor();
      const shown = JSON.parse(await payload.innerText());
      const sent = bodies.map((body) => JSON.parse(body)).find(([event]) => event.id === shown[0].id);
      check(
        JSON.stringify(shown) === JSON.stringify(sent),
        `${JSON.stringify(shown)} is shown of ${JSON.stringify(sent)}`,
      );
      await attempt.getByText('x-code: [hidden]').filter({ visible: true }).waitFor();
      check(!(await main().innerText()).includes('hidden-'), 'a secret is shown');
    }
    await server.ask('PATCH', id('legacy'), { labels: ['changed'] });
    await show(page, hash('event', { topic: topicId('orders'), id: 'b' }));
    await main().getByRole('region', { name: 'legacy' }).getByText('Request with its body').first().click();
    await main().getByText('was changed after this attempt').waitFor();
  },

  async 'a page has one format of times, relative, and the exact one on hover'() {
    for (const view of [
      hash('event', { topic: topicId('orders'), id: 'a' }),
      hash('subscription', { id: id('legacy') }),
      hash('server'),
    ]) {
      await show(page, view);
      await main().locator('time').first().waitFor();
      const times = await main()
        .locator('time')
        .evaluateAll((all) => all.map((time) => [time.textContent, time.title]));
      const others = times.filter(
        ([text, title]) =>
          !/^(now|in .*|.* ago)$/.test(text) || !/^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} UTC$/.test(title),
      );
      check(others.length === 0, `${view} has ${others}`);
      const raw = /\d{4}-\d\d-\d\dT\S*/.exec(await main().innerText());
      check(!raw, `${view} has ${raw}`);
    }
  },

  async 'bounds are in the zone of the page, and in UTC in the address'() {
    const tokyo = await visit(server, { timezoneId: 'Asia/Tokyo' });
    await tokyo.page.getByRole('button', { name: 'UTC', exact: true }).click();
    await show(tokyo.page, hash('dead-letters', { id: id('legacy'), from: '2026-01-31T12:00:00' }));
    const from = tokyo.page.locator('main').getByLabel('From (local time)');
    check((await from.inputValue()).startsWith('2026-01-31T21:00'), `the bound is ${await from.inputValue()}`);
    await from.fill('2026-02-01T09:30');
    await from.blur();
    await tokyo.page.waitForFunction(
      () => new URLSearchParams(location.hash.split('?')[1]).get('from') === '2026-02-01T00:30:00',
    );
    await tokyo.context.close();
  },

  async 'the dead letters that match are counted'() {
    await show(page, hash('dead-letters', { id: id('legacy') }));
    await main().getByRole('button', { name: 'Count' }).click();
    await main().getByText('3 match', { exact: true }).waitFor();
    await main().getByLabel('Select all of Dead letters').check();
    await main().getByRole('button', { name: 'Redrive 3 selected' }).waitFor();
    await main().getByLabel('Event id').fill('b');
    await main().getByRole('button', { name: 'Redrive 0 selected' }).waitFor();
    await main().getByRole('button', { name: 'Count' }).click();
    await main().getByText('1 matches', { exact: true }).waitFor();
  },

  async 'a review warns of waits that are longer than the schedule'() {
    await show(page, hash('edit', { topic: topicId('orders') }));
    await main().getByLabel('Name', { exact: true }).fill('waits');
    await main().getByLabel('Endpoint URL').fill('http://127.0.0.1:9/hook');
    await unfold(page);
    await main().getByLabel('Retry schedule').fill('10s, 1m');
    await main().getByRole('button', { name: 'Review' }).click();
    await main().getByText('after 503 it is 30s, 1m').waitFor();
    await turn(page, hash('overview'));
    await leave(page);
  },

  async 'a schedule that names an edition is shown'() {
    await server.ask('PATCH', id('legacy'), { retryPolicy: { schedule: '2021' } });
    await show(page, hash('subscription', { id: id('legacy') }));
    await main().getByText('after 2021;').waitFor();
  },

  async 'a table is cards on a phone, with the name of each figure'() {
    await page.setViewportSize({ width: 390, height: 800 });
    for (const view of [hash('subscriptions', { by: 'name' }), hash('dead-letters', { id: id('legacy') })]) {
      await show(page, view);
      const cell = main().locator('tbody tr').first().locator('td[data-name]').nth(1);
      await cell.waitFor();
      const name = await cell.evaluate((one) => getComputedStyle(one, '::before').content);
      check(/[A-Z].*: /.test(name), `the second figure is named ${name}`);
      const over = await page.evaluate(() =>
        Math.max(
          document.documentElement.scrollWidth - innerWidth,
          ...[...document.querySelectorAll('main .table')].map((box) => box.scrollWidth - box.clientWidth),
        ),
      );
      check(over <= 0, `${view} is ${over} pixels too wide`);
    }
    await page.setViewportSize({ width: 1280, height: 800 });
  },

  async 'back leads to the row that was left'() {
    await page.setViewportSize({ width: 1280, height: 400 });
    await show(page, hash('subscriptions', { by: 'name' }));
    const last = main().getByRole('link', { name: `other-${OTHERS - 1}` });
    const box = main().getByLabel(`Select ${id(`other-${OTHERS - 1}`)}`);
    await box.check();
    await last.scrollIntoViewIfNeeded();
    const left = await page.evaluate(() => scrollY);
    check(left > 300, `the list is scrolled by ${left} pixels only`);
    await last.click();
    await main()
      .getByRole('heading', { level: 1, name: `other-${OTHERS - 1}` })
      .waitFor();
    check((await page.evaluate(() => scrollY)) < left, 'the next view begins in its middle');
    await page.goBack();
    await settled(page);
    await page.waitForFunction((name) => document.activeElement?.textContent === name, `other-${OTHERS - 1}`);
    await page.waitForFunction((y) => Math.abs(scrollY - y) < 3, left);
    check(await box.isChecked(), 'the selection is gone');
    await main().getByRole('button', { name: 'Hold 1' }).waitFor();
    await page.setViewportSize({ width: 1280, height: 800 });
  },

  async 'another address ends the suspension that the old one caused'() {
    await server.publish('orders', [{ id: 'waits' }]);
    const { destination } = (await server.ask('GET', id('moved'))).properties;
    await show(page, hash('subscription', { id: id('moved') }));
    await main().locator('.badge').getByText('suspended').first().waitFor();
    await main().getByRole('button', { name: 'Edit …' }).click();
    await main().getByLabel('Endpoint URL').fill(destination.properties.endpointBaseUrl.replace('/404', '/200'));
    await main().getByRole('button', { name: 'Review' }).click();
    await main().getByRole('button', { name: 'Save' }).click();
    await main().getByRole('heading', { level: 1, name: 'moved', exact: true }).waitFor();
    await until('the end of the suspension', async () => (await status('moved')).health.state === 'healthy', 60000);
    watch.clean('reading');
    await context.close();
  },
});
