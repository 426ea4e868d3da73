// A portal link: the holder sees some event subscriptions, changes an address, tests a filter, sends dead letters again, and no more.
import { NETWORK, Server, Watch, check, hash, receiver, scene, settled, show, subscriptionId, topicId, until, visit } from './support.mjs';

let server;
let page;
let watch;
let hook;
let link;
const received = {};
const answers = { shop: 400 };

const id = subscriptionId('orders', 'billing');
const main = () => page.locator('main');
const heading = (name) => page.getByRole('heading', { level: 1, name, exact: true }).waitFor();
const button = (name) => main().getByRole('button', { name, exact: true });
const hours = (n) => new Date(Date.now() + n * 3_600_000).toISOString();
const portal = (name) => server.ask('POST', '/tokens', { name, roles: ['portal'], scopes: ['labels/team=shop'], expires: hours(8) });

await scene({
  async 'a server with event subscriptions of two teams'() {
    hook = await receiver(answers, received);
    server = await Server.start();
    await server.topic('orders');
    const deadLetterDestination = { endpointType: 'StorageBlob', properties: { resourceId: '/r', blobContainerName: 'letters' } };
    await server.subscribe('orders', 'billing', `${hook}/shop`, { properties: { labels: ['team=shop'], deadLetterDestination } });
    await server.subscribe('orders', 'audit', `${hook}/audit`, { properties: { labels: ['team=audit'] } });
    await server.publish('orders', [{ id: 'a' }, { id: 'b' }]);
    await until('the dead letters', async () => (await server.ask('GET', `${id}/status`)).counters.deadLettered === 2);
    ({ link } = await portal('shop-portal'));
    check(link.startsWith(`${server.url}/ui/#token=`), link);
  },

  async 'the link opens what is its own, and is not kept in the address'() {
    ({ page, watch } = await visit(server, { link }));
    await heading('Event subscriptions');
    await main().getByText('1 of 1').waitFor();
    await main().getByRole('link', { name: 'billing' }).waitFor();
    check(!(await main().innerText()).includes('audit'), "another team's event subscription is shown");
    check(!page.url().includes('token'), page.url());
    check((await page.evaluate(() => history.length)) <= 2, 'the link is in the history');
    const places = await page.locator('nav.views a').allInnerTexts();
    check(places.join() === 'Subscriptions,Dead letters', places.join());
    // A reload keeps it.
    await page.reload();
    await main().getByText('1 of 1').waitFor();
  },

  async 'see'() {
    await main().getByRole('link', { name: 'billing' }).click();
    await heading('billing');
    await main().locator('tbody').getByText('deadLettered').first().waitFor();
    for (const name of ['Hold', 'Delete …', 'Edit …', 'Replay …']) check((await button(name).count()) === 0, `${name} is offered`);
    await main().getByRole('tab', { name: 'Settings and filter' }).click();
    await main().getByText('team=shop').first().waitFor();
    check((await button('Reveal the full address and headers').count()) === 0, 'secrets are offered');
  },

  async 'edit the own endpoint'() {
    await button('Change the endpoint …').click();
    await heading('Endpoint of billing');
    await main().getByLabel('Endpoint URL').fill('ftp://example.com');
    await button('Save').click();
    await main().getByRole('alert').getByText('another scheme').waitFor();
    await main().getByLabel('Endpoint URL').fill(`${hook}/new`);
    await button('Save').click();
    await heading('billing');
    await main().locator('section').getByText(`${hook}/new`).first().waitFor();
    await server.publish('orders', [{ id: 'c' }]);
    await until('the new endpoint to receive', () => received.new?.includes('c'));
    check((await server.ask('GET', id)).properties.labels[0] === 'team=shop', 'something else has changed');
    watch.problems = watch.problems.filter((one) => !/status of 400/.test(one));
    watch.clean('editing');
  },

  async 'test'() {
    await main().getByRole('link', { name: 'Filter bench' }).click();
    await heading('Filter bench');
    await main().getByLabel('Filter (JSON)').fill('{"includedEventTypes": ["Order.Placed"]}');
    const event = (eventId, eventType) => ({ id: eventId, eventType, subject: 's', dataVersion: '1', eventTime: hours(0), data: {} });
    await main().getByLabel('One event, or a list of events, as published').fill(JSON.stringify([event('x', 'Order.Placed'), event('y', 'Order.Paid')]));
    await button('Test the filter').click();
    await main().getByText('1 of 2 match').waitFor();
  },

  async 'redrive'() {
    await page.getByRole('link', { name: 'Dead letters', exact: true }).click();
    await heading('Dead letters');
    await main().getByRole('link', { name: 'billing' }).click();
    await button('Redrive all that match …').click();
    await button('Redrive 2').click();
    await heading('Jobs of billing');
    await main().getByText('completed').waitFor();
    await until('the dead letters to arrive', () => ['a', 'b'].every((one) => received.new.includes(one)));
    check((await button('New replay …').count()) === 0, 'a replay is offered');
  },

  async 'the page asks for nothing that the link does not permit'() {
    for (const view of [hash('overview'), hash('subscriptions'), hash('dead-letters'), hash('filter', { id }), hash('jobs', { id }), hash('subscription', { id, tab: 'actor' })]) {
      await show(page, view);
      await settled(page);
      watch.clean(view);
    }
    for (const view of [hash('server'), hash('topic', { id: topicId('orders') }), hash('edit', { id }), hash('event'), hash('tail')]) {
      await show(page, view);
      await main().getByText('A portal link does not show this.').waitFor();
      watch.clean(view);
    }
    await page.keyboard.press('g');
    await page.keyboard.press('s');
    await heading('Event subscriptions');
  },

  async 'a revoked link is at its end, and another one is opened in the same tab'() {
    watch.allowed = NETWORK;
    await server.ask('DELETE', '/tokens/shop-portal');
    await page.getByText('Your session has ended').waitFor();
    const old = await visit(server, { link, watch: Object.assign(new Watch(server.url), { allowed: NETWORK }) });
    await old.page.getByText('This link is no longer valid').waitFor();
    await old.context.close();
    const { link: next } = await portal('next');
    await page.evaluate((href) => (location.href = href), next);
    await main().getByText('1 of 1').waitFor();
    watch.clean('the other link');
  },

  async 'a page that shows more than the link permits is found'() {
    const { link: next } = await portal('seeded');
    const seeded = await visit(server, { link: next, seed: { 'js/keys.js': (text) => text.replace("'sd'.includes(key)", 'true'), 'js/app.js': (text) => text.replace("isPortal() && !OF_PORTAL.includes(view)", 'false') } });
    await show(seeded.page, hash('server'));
    await until('a refused request', () => seeded.watch.problems.some((one) => /status of 403/.test(one)));
  },
});
