// What operators come for, from the first view to the last click: with the mouse, and with the keyboard alone.
import {
  Server,
  check,
  flashes,
  hash,
  leave,
  receiver,
  scene,
  settled,
  subscriptionId,
  taken,
  topicId,
  turn,
  until,
  visit,
} from './support.mjs';

let server;
let page;
let watch;
let hook;
/** What the endpoint answers, by the last part of the path. */
const answers = { shop: 200, store: 503, legacy: 400 };
const received = {};

const orders = topicId('orders');
const status = (name) => server.ask('GET', `${subscriptionId('orders', name)}/status`);
const main = () => page.locator('main');
const heading = (name) => page.getByRole('heading', { level: 1, name, exact: true }).waitFor();

/** Moves the focus with Tab until it is on the element, as an operator without a mouse does. */
async function tabTo(locator, key = 'Tab') {
  for (let n = 0; n < 150; n += 1) {
    if (
      await locator
        .first()
        .evaluate(
          (one) => one === document.activeElement || (one.tagName === 'TR' && one.contains(document.activeElement)),
        )
    )
      return;
    await page.keyboard.press(key);
  }
  throw new Error(`Tab does not reach ${locator}: ${await main().innerText()}`);
}

async function press(...keys) {
  for (const key of keys) await page.keyboard.press(key);
}

const button = (name) => main().getByRole('button', { name, exact: true });
const dialogButton = (name) => page.getByRole('dialog').getByRole('button', { name, exact: true });

await scene({
  async 'a server with dead letters and an endpoint that is down'() {
    hook = await receiver(answers, received);
    server = await Server.start();
    await server.topic('orders');
    const deadLetterDestination = {
      endpointType: 'StorageBlob',
      properties: { resourceId: '/r', blobContainerName: 'letters' },
    };
    await server.subscribe('orders', 'billing', `${hook}/shop`);
    await server.subscribe('orders', 'picky', `${hook}/shop`, {
      properties: { filter: { includedEventTypes: ['Order.Cancelled'] } },
    });
    await server.subscribe('orders', 'legacy', `${hook}/legacy`, { properties: { deadLetterDestination } });
    await server.publish(
      'orders',
      ['a', 'b', 'c'].map((id) => ({ id })),
    );
    await until(
      'the deliveries',
      async () =>
        (await status('billing')).counters.delivered === 3 && (await status('legacy')).counters.deadLettered === 3,
    );
    ({ page, watch } = await visit(server));
  },

  async 'mouse: why did the event not arrive'() {
    await page.getByRole('link', { name: 'Events', exact: true }).click();
    await heading('Events');
    await main().getByLabel('Event id or sequence number').fill('b');
    await button('Find').click();
    await heading('b');
    const picky = main().getByRole('region', { name: 'picky' });
    await picky.getByText('includedEventTypes').first().waitFor();
    await picky.getByText('"Order.Placed"').first().waitFor();
    const legacy = main().getByRole('region', { name: 'legacy' });
    await legacy.getByText('from legacy').waitFor();
    check((await legacy.innerText()).includes('400'), 'the status of the attempt is not there');
  },

  async 'mouse: pause and resume a delivery'() {
    await main().getByRole('region', { name: 'billing' }).getByRole('link', { name: 'billing' }).click();
    await heading('billing');
    await flashes(page, 'gridhook subscriptions hold orders billing', () => button('Hold').click());
    await main().getByText('held by').first().waitFor();
    check((await status('billing')).heldBy, 'the server did not hold it');
    await button('Resume').click();
    await button('Hold').waitFor();
    check(!(await status('billing')).heldBy, 'the server did not resume it');
  },

  async 'mouse: redrive the dead letters'() {
    answers.legacy = 200;
    await page.getByRole('link', { name: 'Dead letters', exact: true }).click();
    await main()
      .getByRole('region', { name: 'Event subscriptions with dead letters' })
      .getByRole('link', { name: 'legacy' })
      .click();
    await button('Redrive all that match …').click();
    await main().getByText('3 dead letters').waitFor();
    await main().getByLabel('Events per second').fill('100');
    await main().getByText('gridhook dead-letters redrive orders legacy --all --rate 100').waitFor();
    await button('Redrive 3').click();
    await heading('Jobs of legacy');
    await main().getByText('completed').waitFor();
    await until('the dead letters to arrive', () =>
      ['a', 'b', 'c'].every((id) => received.legacy.filter((one) => one === id).length >= 2),
    );
  },

  async 'mouse: change an endpoint'() {
    await turn(page, hash('subscription', { id: subscriptionId('orders', 'billing') }));
    await button('Edit …').click();
    await heading('Edit billing');
    await main().getByLabel('Endpoint URL').fill(`${hook}/new`);
    await button('Review').click();
    await main().getByRole('region', { name: 'Changes' }).getByText(`"${hook}/new"`).waitFor();
    await button('Save').click();
    await heading('billing');
    await main().locator('section').getByText(`${hook}/new`).first().waitFor();
    await server.publish('orders', [{ id: 'to-new' }]);
    await until('the new endpoint to receive', () => received.new?.includes('to-new'));
    check(
      (await server.ask('GET', subscriptionId('orders', 'billing'))).properties.retryPolicy.maxDeliveryAttempts === 30,
      'something else has changed',
    );
  },

  async 'mouse: replay an hour'() {
    await turn(page, hash('subscription', { id: subscriptionId('orders', 'billing') }));
    await button('Replay …').click();
    await button('The last hour').click();
    // The end of the range is in whole seconds: the newest events of this second are not in it.
    await main().getByLabel('To (UTC)').fill('');
    await button('Count').click();
    await main().getByText('4 of 4 stored events match').waitFor();
    await button('Start the replay').click();
    await main().getByText('completed').waitFor();
    await until('the events to arrive again', () => received.new.filter((one) => one === 'a').length === 1);
  },

  async 'mouse: a wrong address is reported at its field, and a delete needs the name'() {
    await turn(page, hash('edit', { topic: orders }));
    await heading('New event subscription');
    await main().getByLabel('Name', { exact: true }).fill('wrong');
    await main().getByLabel('Endpoint URL').fill('ftp://example.com');
    await button('Review').click();
    await main().locator('.wrong').getByText('another scheme').waitFor();
    await turn(page, hash('subscription', { id: subscriptionId('orders', 'picky') }));
    await leave(page);
    await button('Delete …').click();
    check(await dialogButton('Delete').isDisabled(), 'a delete without the name');
    await page.getByRole('dialog').getByLabel('Type picky to confirm').fill('picky');
    await dialogButton('Delete').click();
    await heading('orders');
    await until('it to be gone', () =>
      status('picky').then(
        () => false,
        () => true,
      ),
    );
    watch.allowed = [/status of 400/, /status of 404/];
    watch.problems = watch.problems.filter((one) => !/status of 40[04]/.test(one));
    watch.clean('mouse');
  },

  async 'keyboard: why did the event not arrive'() {
    await press('Escape');
    await page.evaluate(() => /** @type {HTMLElement} */ (document.activeElement).blur());
    await press('g', 'e');
    await heading('Events');
    await settled(page);
    await press('/');
    await page.keyboard.type('c');
    await press('Enter');
    await heading('c');
    await settled(page);
    await main().locator('[data-row]').first().waitFor();
    await press('j', 'j');
    await page.waitForFunction(() => document.activeElement?.matches('[data-open]'));
  },

  async 'keyboard: pause and resume a delivery'() {
    await press('g', 's');
    await heading('Event subscriptions');
    await settled(page);
    await press('/');
    await page.keyboard.type('billing');
    await page.waitForFunction(() => document.querySelectorAll('main tbody tr').length === 1);
    await press('Escape', 'j');
    await page.waitForFunction(() => document.activeElement?.textContent === 'billing');
    await press('x');
    await page.waitForFunction(() => document.querySelector('main tbody input')?.checked);
    await tabTo(button('Hold 1'), 'Shift+Tab');
    await press('Enter');
    await until('the hold', async () => (await status('billing')).heldBy);
    await tabTo(button('Resume 1'));
    await press('Space');
    await until('the resume', async () => !(await status('billing')).heldBy);
    await tabTo(main().locator('tbody a').first());
    await press('Enter');
    await heading('billing');
  },

  async 'keyboard: change an endpoint'() {
    await settled(page);
    await tabTo(button('Edit …'));
    await press('Enter');
    await heading('Edit billing');
    await settled(page);
    await tabTo(main().getByLabel('Endpoint URL'));
    await press('ControlOrMeta+a');
    await page.keyboard.type(`${hook}/third`);
    await press('Enter');
    await main().getByRole('region', { name: 'Changes' }).waitFor();
    await tabTo(button('Save'));
    await press('Enter');
    await heading('billing');
    await server.publish('orders', [{ id: 'to-third' }]);
    await until('the new endpoint to receive', () => received.third?.includes('to-third'));
  },

  async 'keyboard: redrive and replay'() {
    // Otherwise this event becomes a dead letter, too.
    await until('the last event of before', () => received.legacy.includes('to-third'));
    answers.legacy = 400;
    await server.publish('orders', [{ id: 'late' }]);
    await until('a dead letter', async () =>
      (await server.ask('GET', `${subscriptionId('orders', 'legacy')}/deadLetters`)).value.some(
        (one) => one.id === 'late',
      ),
    );
    answers.legacy = 200;
    await page.evaluate(() => /** @type {HTMLElement} */ (document.activeElement).blur());
    await press('g', 'd');
    await heading('Dead letters');
    await settled(page);
    await tabTo(main().getByRole('link', { name: 'legacy' }).first());
    await press('Enter');
    await heading('Dead letters of legacy');
    await settled(page);
    await tabTo(button('Redrive all that match …'));
    await press('Enter');
    await button('Redrive 1').waitFor();
    await tabTo(button('Redrive 1'));
    await press('Enter');
    await heading('Jobs of legacy');
    await until('the dead letter to arrive', () => received.legacy.filter((one) => one === 'late').length >= 2);
    await settled(page);
    await tabTo(button('New replay …'));
    await press('Enter');
    await tabTo(main().getByLabel('From sequence'));
    await page.keyboard.type('1');
    await press('Enter');
    await main().getByText('stored events match').waitFor();
    await tabTo(button('Start the replay'));
    await press('Enter');
    await until('the replay to be there', async () =>
      (await server.ask('GET', `${subscriptionId('orders', 'legacy')}/replays`)).value.some(
        (job) => job.kind === 'replay',
      ),
    );
  },

  async 'retry now: one event by mouse, all that wait by keyboard'() {
    await server.subscribe('orders', 'later', `${hook}/store`, { properties: { retryPolicy: { schedule: ['1h'] } } });
    await server.publish(
      'orders',
      ['x', 'y', 'z'].map((id) => ({ id: `later-${id}` })),
    );
    await until('the failures', async () => (await status('later')).counters.requestsFailed === 3);
    answers.store = 200;
    await turn(page, hash('event', { topic: orders, id: 'later-y' }));
    await flashes(page, 'gridhook subscriptions retry orders later ', () =>
      main().getByRole('region', { name: 'later' }).getByRole('button', { name: 'Retry now' }).click(),
    );
    await until('the event to arrive', () => received.store.filter((one) => one === 'later-y').length === 2);
    check(received.store.length === 4, `others were sent, too: ${received.store}`);
    await main().getByRole('region', { name: 'later' }).getByRole('link', { name: 'later' }).click();
    await heading('later');
    await settled(page);
    await tabTo(button('Retry now'), 'Shift+Tab');
    await press('Enter');
    await until('the other events to arrive', () => received.store.length === 6);
    await button('Retry now').waitFor({ state: 'detached' });
    watch.problems = watch.problems.filter((one) => !/status of 40[04]/.test(one));
  },

  async 'keyboard: the refresh pauses, and keeps what is open and where the focus is'() {
    await turn(page, hash('subscription', { id: subscriptionId('orders', 'billing') }));
    await heading('billing');
    await settled(page);
    check((await taken(page, '/status')) === '', 'the refresh takes something away');
    const requests = [];
    page.on('request', (request) => requests.push(request.url()));
    await press('p');
    await page.locator('.bar').getByText('paused').waitFor();
    // Another tab, which is not paused, shows that time passes.
    const other = await page.context().newPage();
    const others = [];
    other.on('request', (request) => others.push(request.url()));
    await other.goto(page.url());
    requests.length = 0;
    await until('two refreshes of another tab', () => others.filter((url) => url.endsWith('/status')).length >= 3);
    check(requests.length === 0, `a paused page asks for ${requests[0]}`);
    await other.close();
    await press('p');
    await page.locator('.bar').getByText('live', { exact: true }).waitFor();
    await until('a refresh', () => requests.some((url) => url.endsWith('/status')));
    await press('?');
    await page.getByRole('dialog').waitFor();
    await press('Escape');
    await page.getByRole('dialog').waitFor({ state: 'detached' });
    watch.clean('keyboard');
  },
});
