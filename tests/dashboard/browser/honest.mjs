// What the page says is so: conditions, failures, waits, an absent server, lists that hold still, and how others read it.
import {
  NETWORK,
  SCOPE,
  Server,
  changeResponses,
  check,
  endpoint,
  flashes,
  hash,
  scene,
  show,
  sleep,
  subscriptionId,
  topicId,
  turn,
  until,
  visit,
} from './support.mjs';

let server;
let page;
let watch;
let context;
const orders = topicId('orders');
const main = () => page.locator('main');
const id = (name) => subscriptionId('orders', name);
const status = (name) => server.ask('GET', `${id(name)}/status`);

await scene({
  async 'a server with event subscriptions in all conditions'() {
    server = await Server.start({ GRIDHOOK_DELIVERY__SUSPEND_AFTER_FAILURES: '1' });
    const hook = await endpoint((path) => `an answer to ${path}`);
    // It answers so late that no request to another endpoint can have taken as long.
    const requests = [];
    let isLate = false;
    const slow = await endpoint(() => (isLate ? 'ok' : new Promise((done) => requests.push(() => done('late')))));
    await server.topic('orders');
    await server.subscribe('orders', 'billing', `${hook}/200`);
    await server.subscribe('orders', 'crawling', `${slow}/200/slow`);
    const deadLetterDestination = {
      endpointType: 'StorageBlob',
      properties: { resourceId: '/r', blobContainerName: 'letters' },
    };
    await server.subscribe('orders', 'legacy', `${hook}/400`, { properties: { deadLetterDestination } });
    for (let n = 0; n < 11; n += 1) {
      await server.subscribe('orders', `paused-${n}`, `${hook}/200`);
      await server.ask('POST', `${id(`paused-${n}`)}/hold`);
    }
    const began = Date.now();
    await server.publish(
      'orders',
      Array.from({ length: 4 }, (_, n) => ({ id: `first-${n}` })),
    );
    await server.subscribe('orders', 'warehouse', `${hook}/503`);
    await server.publish('orders', [{ id: 'last' }]);
    await until('the deliveries', async () => (await status('billing')).counters.delivered === 5);
    await until('the dead letters', async () => (await status('legacy')).counters.deadLettered === 5);
    await until('the suspension', async () => (await status('warehouse')).health.state !== 'healthy');
    await until('a request to the slow endpoint', () => requests.length > 0);
    await sleep(Date.now() - began + 100);
    isLate = true;
    for (const answer of requests) answer();
    await until('the slow deliveries', async () => (await status('crawling')).counters.delivered === 5);
    ({ page, watch, context } = await visit(server));
  },

  async 'conditions are the same everywhere, the worst first, and none is left out silently'() {
    const sick = main().locator('.sick');
    await sick.first().getByText('failing 0.0 %').waitFor();
    check((await sick.first().innerText()).includes('legacy'), 'the failing one is not the first');
    check((await sick.nth(1).innerText()).includes('warehouse'), 'the suspended one is not the second');
    check((await sick.count()) === 10, 'more than ten are listed');
    await main().getByRole('link', { name: 'and 3 more' }).click();
    await page.getByText('13 of 15').waitFor();
    await show(page, hash('topic', { id: orders }));
    const row = (name) =>
      main().getByRole('region', { name: 'Event subscriptions' }).getByRole('row').filter({ hasText: name }).first();
    await row('legacy').getByText('failing').waitFor();
    await row('warehouse').getByText('suspended').waitFor();
    await row('paused-1').getByText('held').waitFor();
    await row('billing').getByText('healthy').waitFor();
    check((await main().getByText('Succeeded').count()) === 0, 'a state of provisioning passes for health');
  },

  async 'the banner has the last failure and what to do, and nothing is promised while nothing is sent'() {
    await show(page, hash('subscription', { id: id('legacy') }));
    const failure = main().getByRole('group', { name: 'Last failure' });
    await failure.getByText('400').first().waitFor();
    await failure.getByText('an answer to /400').waitFor();
    await failure.getByText('5 requests failed of 5').waitFor();
    await failure.getByText('Look at what it says about the events').waitFor();
    await show(page, hash('subscription', { id: id('warehouse') }));
    await main().getByText('after a probe that succeeds').waitFor();
    await main()
      .getByText(/\d+ suspensions? in a row/)
      .waitFor();
    await main().getByRole('link', { name: 'Retry schedule' }).click();
    await main().getByRole('heading', { level: 1, name: 'Retry schedule' }).waitFor();
    await main().getByText('6 min 40 s').first().waitFor();
  },

  async 'an advice names the setting that is in force'() {
    const restore = await changeResponses(context, '**/status', (body) => {
      const health = {
        state: 'suspended',
        cause: 'TimedOut',
        since: body.actor.lastEnd ?? new Date().toISOString(),
        nextProbe: new Date().toISOString(),
        consecutiveSuspensions: 1,
      };
      return { ...body, health, endpoint: { ...body.endpoint, responseTimeoutInSeconds: 7 } };
    });
    await show(page, hash('subscription', { id: id('billing') }));
    await main().getByText('within 7 s').first().waitFor();
    check(
      !(await main().innerText()).includes('delivery.response_timeout'),
      'the setting of the server is named, which does not count',
    );
    await restore();
  },

  async 'a queue has no endpoint and waits for a receiver'() {
    await server.ask('PUT', `${SCOPE}/namespaces/plant`, { location: 'local' });
    await server.ask('PUT', `${SCOPE}/namespaces/plant/topics/heat`, { properties: {} });
    const queue = `${SCOPE}/namespaces/plant/topics/heat/eventSubscriptions/readings`;
    await server.ask('PUT', queue, { properties: { deliveryConfiguration: { deliveryMode: 'Queue', queue: {} } } });
    const event = { specversion: '1.0', id: '1', source: '/test', type: 'Heat', data: 1 };
    await server.ask('POST', `${SCOPE}/namespaces/plant/topics/heat/publish`, [event]);
    await show(page, hash('subscription', { id: queue }));
    await main().getByText('1 event unread').waitFor();
    await main().locator('.badge').getByText('waiting').first().waitFor();
    check((await main().locator('.states .state').count()) === 0, 'a queue has the states of an endpoint');
    check((await main().getByText('Pace', { exact: true }).count()) === 0, 'a queue has a pace');
  },

  async 'what needs attention comes first on the page of an event, in words'() {
    await show(page, hash('event', { topic: orders, id: 'first-0' }));
    const regions = main().locator('section[data-row]');
    await regions.first().waitFor();
    check(
      (await regions.first().getAttribute('aria-label')) === 'legacy',
      `the first is ${await regions.first().getAttribute('aria-label')}`,
    );
    check(
      (await regions.nth(1).getAttribute('aria-label'))?.startsWith('paused-'),
      'an unread one comes after a delivered one',
    );
    check(!/deadLetterWaiting|UndeliverableDueTo/.test(await main().innerText()), 'a code of the API is shown as text');
    await show(page, hash('dead-letters', { id: id('legacy') }));
    await main().getByText('Undeliverable: bad request').filter({ visible: true }).first().waitFor();
  },

  async 'the slowest endpoint takes one click, and the table fits'() {
    await show(page, hash('subscriptions'));
    await main().getByRole('button', { name: 'p99' }).click();
    await page.waitForFunction(() => document.querySelector('main tbody tr')?.textContent?.includes('crawling'));
    for (const width of [1440, 1280, 1024]) {
      await page.setViewportSize({ width, height: 800 });
      const over = await page.locator('main .table').evaluate((box) => box.scrollWidth - box.clientWidth);
      check(over <= 0, `the table is ${over} pixels too wide at ${width}`);
    }
    await page.setViewportSize({ width: 390, height: 800 });
    const name = page.locator('main tbody tr').first().locator('.sticky');
    await page.locator('main .table').evaluate((box) => (box.scrollLeft = 400));
    check((await name.boundingBox()).x >= 0, 'the name scrolls away');
    await page.setViewportSize({ width: 1280, height: 800 });
  },

  async 'a selection ends with the filter that it was made in, and can have all that match'() {
    await show(page, hash('subscriptions', { by: 'name', q: 'paused' }));
    await page.getByText('11 of 16').waitFor();
    await main().getByLabel('Select all of Event subscriptions').click();
    await main().getByRole('button', { name: 'Hold 11' }).waitFor();
    await main().getByLabel('Search by name or endpoint').fill('billing');
    await page.getByText('1 of 16').waitFor();
    check(
      await main().getByRole('button', { name: 'Hold', exact: true }).isDisabled(),
      'hidden rows are still selected',
    );
    await main().getByLabel('Search by name or endpoint').fill('paused');
    await page.getByText('11 of 16').waitFor();
    await main().locator('tbody input').first().click();
    await main().getByRole('button', { name: 'Select all 11 that match' }).click();
    await main().getByRole('button', { name: 'Hold 11' }).waitFor();
  },

  async 'a live list holds still under the pointer and says what waits'() {
    await show(page, hash('event', { topic: orders }));
    const table = main().getByRole('region', { name: 'Newest events' });
    const first = table.locator('tbody tr').first();
    await first.hover();
    const ids = () => table.locator('tbody code').allInnerTexts();
    const before = await ids();
    await until('the list to notice the pointer', () => table.evaluate((box) => box.matches(':hover')));
    await server.publish('orders', [{ id: 'fresh', eventType: 'Fresh' }]);
    await table.getByText('1 new · show').waitFor();
    check(JSON.stringify(await ids()) === JSON.stringify(before), 'the rows moved');
    await table.getByText('1 new · show').click();
    await page.waitForFunction(() => document.querySelector('main tbody tr')?.textContent?.includes('fresh'));
    await page.mouse.move(5, 400);
  },

  async 'attempts begin with the newest and go both ways'() {
    await server.ask(
      'PUT',
      id('billing'),
      await server.ask('GET', id('billing')).then(({ properties }) => ({ properties })),
    );
    for (let n = 0; n < 12; n += 1)
      await server.publish(
        'orders',
        Array.from({ length: 10 }, (_, index) => ({ id: `many-${n}-${index}` })),
      );
    await until('the deliveries', async () => (await status('billing')).counters.delivered >= 126);
    // Requests at the same time end in any order: the newest is the one after all others.
    await server.publish('orders', [{ id: 'newest' }]);
    await until('the newest delivery', async () => (await status('billing')).counters.delivered >= 127);
    await show(page, hash('subscription', { id: id('billing') }));
    const table = main().getByRole('region', { name: 'Attempts' });
    const newest = (await status('billing')).counters.passed;
    await table.locator('tbody tr').first().getByText(Number(newest).toLocaleString('en-US')).first().waitFor();
    const top = await table.evaluate((box) => box.getBoundingClientRect().top + scrollY);
    check(top < 800, `the attempts begin ${top} pixels from the top`);
  },

  async 'a lone sample is drawn, and no label is cut'() {
    const steps = Array.from({ length: 120 }, (_, n) => (n === 60 ? 5 : null));
    const lone = Object.fromEntries(
      ['published', 'delivered', 'failedRequests', 'givenUp', 'backlog', 'pending'].map((key) => [key, steps]),
    );
    const restore = await changeResponses(context, '**/history?*', (body) => ({ ...body, ...lone, recorded: true }));
    await show(page, hash('overview'));
    await main().locator('path.lone').first().waitFor({ state: 'attached' });
    const drawn = await main().locator('path.lone').first().getAttribute('d');
    check(/^M[\d.]+ [\d.]+h/.test(drawn ?? ''), `the sample is drawn as ${drawn}`);
    const cut = await page.evaluate(() =>
      [...document.querySelectorAll('svg[role=img]')].flatMap((svg) => {
        const box = svg.getBoundingClientRect();
        return [...svg.querySelectorAll('text')]
          .filter(
            (text) =>
              text.getBoundingClientRect().right > box.right + 1 || text.getBoundingClientRect().left < box.left - 1,
          )
          .map((text) => text.textContent);
      }),
    );
    check(cut.length === 0, `labels are cut: ${cut}`);
    await restore();
  },

  async 'a reader of the screen hears where it is'() {
    await page.getByRole('link', { name: 'Server', exact: true }).click();
    await main().getByRole('heading', { level: 1, name: 'Server' }).waitFor();
    await page.waitForFunction(() => document.activeElement?.tagName === 'H1');
    await main().getByRole('tabpanel', { name: 'State' }).waitFor();
    await main().getByRole('tab', { name: 'Settings' }).click();
    await main().getByRole('tabpanel', { name: 'Settings' }).waitFor();
    await show(page, hash('event', { topic: orders }));
    const names = await main()
      .getByRole('link')
      .evaluateAll((links) => links.map((link) => link.getAttribute('aria-label') ?? link.textContent));
    check(!names.some((name) => /^[\d,]+$/.test(name.trim())), `links are named ${names}`);
    await show(page, hash('tail', { subscription: 'nobody' }));
    await main().locator('[role=status]').getByText('connected').waitFor();
    check(
      !/lines/.test(await main().locator('[role=status]').first().innerText()),
      'a status is told again at each line',
    );
  },

  async 'a search from anywhere finds events, names and endpoints, and a wrong topic leads to the right one'() {
    await server.topic('payments');
    await show(page, hash('editions'));
    await page.keyboard.press('ControlOrMeta+k');
    await page.getByRole('dialog').waitFor();
    await page.keyboard.type('first-2');
    await page.getByRole('dialog').getByText('event 3 of orders').waitFor();
    await page.keyboard.press('Enter');
    await main().getByRole('heading', { level: 1, name: 'Event 3', exact: true }).waitFor();
    check((await page.getByRole('dialog').count()) === 0, 'the search stays open');
    await show(page, hash('editions'));
    await page.keyboard.press('/');
    await page.getByRole('dialog').waitFor();
    await page.keyboard.type('wareh');
    await page.getByRole('dialog').getByRole('link', { name: 'warehouse' }).click();
    await main().getByRole('heading', { level: 1, name: 'warehouse', exact: true }).waitFor();
    await show(page, hash('event', { topic: topicId('payments'), id: 'first-2' }));
    await main().getByText('1 event has this id elsewhere').getByRole('link', { name: 'orders' }).click();
    await main().getByRole('heading', { level: 1, name: 'Event 3', exact: true }).waitFor();
  },

  async 'a message covers no table and is above a dialog'() {
    await show(page, hash('topics'));
    await main().getByRole('button', { name: 'New topic …' }).click();
    const dialog = page.getByRole('dialog');
    await page.waitForFunction(() => document.activeElement?.matches('dialog input'));
    await page.keyboard.type('orders');
    check((await dialog.getByLabel('Name').inputValue()) === 'orders', 'the first field has no focus');
    watch.allowed = [/status of 412/];
    await dialog.getByRole('button', { name: 'Create' }).click();
    await dialog.locator('.wrong').getByText('A topic with this name exists').waitFor();
    await dialog.getByRole('button', { name: 'Cancel' }).click();
    await show(page, hash('subscription', { id: id('billing') }));
    // A failure stays until it is closed; what was done leaves by itself.
    const refusal = { error: { code: 'Conflict', message: 'Somebody else holds it.', details: [] } };
    await context.route('**/hold', (route) => route.fulfill({ status: 409, json: refusal }));
    watch.allowed.push(/status of 409/);
    await main().getByRole('button', { name: 'Hold' }).click();
    await page.locator('.messages').getByText('Somebody else holds it').waitFor();
    await context.unroute('**/hold');
    const under = (await page.locator('main').boundingBox()).y;
    const { y, height } = await page.locator('.messages .notice').boundingBox();
    check(y + height <= under + 1, `the message reaches to ${y + height}, the view begins at ${under}`);
    // A backdrop would darken it.
    const clip = await page.locator('.messages .notice p').boundingBox();
    const before = await page.screenshot({ clip, animations: 'disabled' });
    await main().getByRole('button', { name: 'Delete …' }).click();
    await page.getByRole('dialog').waitFor();
    await until('a message that the dialog does not cover', async () =>
      before.equals(await page.screenshot({ clip, animations: 'disabled' })),
    );
    await page.keyboard.press('Escape');
    await page.locator('.messages').getByRole('button', { name: 'Close message' }).click();
    await flashes(page, 'billing held', () => main().getByRole('button', { name: 'Hold' }).click());
    await main().getByRole('button', { name: 'Resume' }).click();
  },

  async 'an idle page costs little'() {
    await show(page, hash('subscriptions', { by: 'name' }));
    await page.getByText('16 of 16').waitFor();
    await sleep(3000);
    let bytes = 0;
    const count = async (request) => {
      const sizes = await request.sizes().catch(() => null);
      if (sizes) bytes += sizes.responseBodySize + sizes.responseHeadersSize;
    };
    page.on('requestfinished', count);
    await sleep(15000);
    page.off('requestfinished', count);
    check(bytes * 4 <= 150 * 1024, `an idle list costs ${bytes * 4} bytes a minute`);
    watch.clean('idle');
  },

  async 'a view that throws leaves the rest of the page'() {
    const broken = await visit(server, {
      seed: {
        'js/views/editions.js': (text) =>
          text.replace('const edition = data.editions.find', 'const edition = null.editions.find'),
      },
    });
    await show(broken.page, hash('editions'));
    await broken.page.getByRole('heading', { level: 1, name: 'Not shown' }).waitFor();
    await broken.page.getByRole('link', { name: 'Topics', exact: true }).click();
    await broken.page.getByRole('heading', { level: 1, name: 'Topics' }).waitFor();
    await broken.context.close();
  },

  async 'a view that could not be loaded is tried again'() {
    watch.allowed = NETWORK;
    let losses = 0;
    await context.route('**/ui/js/views/chaos.js*', (route) => {
      losses += 1;
      return losses > 1 ? route.continue() : route.abort();
    });
    watch.allowed.push(/chaos/);
    await turn(page, hash('chaos'));
    await page.getByRole('heading', { level: 1, name: 'Chaos' }).waitFor();
  },

  async 'a stopped server is noticed, with one banner, and so is its return'() {
    await context.close();
    // Reads do not give up: that the server is away is found by the small question of every four seconds alone.
    const seed = { 'js/api.js': (text) => text.replace('READ_TIMEOUT = 60000', 'READ_TIMEOUT = 3600000') };
    ({ page, watch, context } = await visit(server, { seed }));
    watch.allowed = NETWORK;
    await show(page, hash('subscription', { id: id('billing') }));
    let questions = 0;
    context.on('request', (request) => (questions += request.url().endsWith('/healthz') ? 1 : 0));
    server.child.kill('SIGSTOP');
    await page.locator('.bar').getByText('server unreachable').waitFor();
    check(questions <= 2, `it is noticed after ${questions} questions`);
    await page
      .locator('.bar')
      .getByText(/updated \d+ s ago/)
      .waitFor();
    check(
      (await page.locator('.banner').count()) === 1 && (await main().locator('.notice[role=alert]').count()) === 0,
      'there is more than one box',
    );
    server.child.kill('SIGCONT');
    await page.locator('.bar').getByText('live', { exact: true }).waitFor();
    await page.locator('.banner').waitFor({ state: 'detached' });
    await context.close();
  },
});
