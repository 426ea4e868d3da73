// A portal link: the holder sees some event subscriptions, changes an address, tests a filter, sends dead letters again, and no more.
import {
  NETWORK,
  SCOPE,
  Server,
  TOKEN,
  Watch,
  check,
  hash,
  receiver,
  scene,
  settled,
  show,
  subscriptionId,
  topicId,
  until,
  visit,
} from './support.mjs';

let server;
let page;
let watch;
let hook;
let link;
const received = {};
const answers = { shop: 400, oven: 400 };

const id = subscriptionId('orders', 'billing');
const HEAT = 'namespaces/plant/topics/heat';
const ofHeat = (name) => `${SCOPE}/${HEAT}/eventSubscriptions/${name}`;
const main = () => page.locator('main');
const heading = (name) => page.getByRole('heading', { level: 1, name, exact: true }).waitFor();
const button = (name) => main().getByRole('button', { name, exact: true });
const hours = (n) => new Date(Date.now() + n * 3_600_000).toISOString();
const portal = (name) =>
  server.ask('POST', '/tokens', {
    name,
    roles: ['portal'],
    scopes: ['labels/team=shop', `${HEAT}/eventSubscriptions/alarm`],
    expires: hours(8),
  });

/** Publishes to the topic of the namespace. */
async function publish(...ids) {
  const body = JSON.stringify(ids.map((one) => ({ specversion: '1.0', id: one, source: '/plant', type: 'Hot' })));
  const headers = { authorization: `Bearer ${TOKEN}`, 'content-type': 'application/cloudevents-batch+json' };
  const answer = await fetch(`${server.url}/${HEAT}:publish`, { method: 'POST', headers, body });
  check(answer.ok, `${answer.status} ${await answer.text()}`);
}

/** The four things that a portal link is for: with an event subscription of a topic, and a push subscription of a namespace. */
const SEVERAL = [
  {
    name: 'billing',
    of: id,
    moved: 'new',
    send: (one) => server.publish('orders', [{ id: one }]),
    event: (eventId, eventType) => ({
      id: eventId,
      eventType,
      subject: 's',
      dataVersion: '1',
      eventTime: hours(0),
      data: {},
    }),
    async isSame(found) {
      await main().getByText('team=shop').first().waitFor();
      check(found.labels[0] === 'team=shop', 'something else has changed');
    },
  },
  {
    name: 'alarm',
    of: ofHeat('alarm'),
    moved: 'cool',
    send: publish,
    event: (eventId, type) => ({ specversion: '1.0', id: eventId, source: '/plant', type }),
    async isSame(found) {
      for (const text of ['"PT5H"', '/r / letters'])
        await main().getByRole('definition').filter({ hasText: text }).waitFor();
      const { push, deliveryMode } = found.deliveryConfiguration;
      check(
        deliveryMode === 'Push' && push.maxDeliveryCount === 1 && push.eventTimeToLive === 'PT5H',
        'something else has changed',
      );
    },
  },
];

await scene({
  async 'a server with event subscriptions of two teams'() {
    hook = await receiver(answers, received);
    server = await Server.start();
    await server.topic('orders');
    const deadLetterDestination = {
      endpointType: 'StorageBlob',
      properties: { resourceId: '/r', blobContainerName: 'letters' },
    };
    await server.subscribe('orders', 'billing', `${hook}/shop`, {
      properties: { labels: ['team=shop'], deadLetterDestination },
    });
    await server.subscribe('orders', 'audit', `${hook}/audit`, { properties: { labels: ['team=audit'] } });
    await server.publish('orders', [{ id: 'a' }, { id: 'b' }]);
    await server.ask('PUT', `${SCOPE}/namespaces/plant`, { location: 'local' });
    await server.ask('PUT', `${SCOPE}/${HEAT}`, {});
    const deadLetterDestinationWithResourceIdentity = {
      endpointType: 'StorageBlob',
      StorageBlob: { blobContainerName: 'letters', resourceId: '/r' },
    };
    for (const name of ['alarm', 'siren']) {
      const destination = { endpointType: 'WebHook', properties: { endpointUrl: `${hook}/oven` } };
      const push = {
        destination,
        maxDeliveryCount: 1,
        eventTimeToLive: 'PT5H',
        deadLetterDestinationWithResourceIdentity,
      };
      await server.ask('PUT', ofHeat(name), { properties: { deliveryConfiguration: { deliveryMode: 'Push', push } } });
    }
    await publish('a', 'b');
    for (const one of SEVERAL) {
      await until(
        `the dead letters of ${one.name}`,
        async () => (await server.ask('GET', `${one.of}/status`)).counters.deadLettered === 2,
      );
    }
    ({ link } = await portal('shop-portal'));
    check(link.startsWith(`${server.url}/ui/#token=`), link);
  },

  async 'the link opens what is its own, and is not kept in the address'() {
    ({ page, watch } = await visit(server, { link }));
    await heading('Event subscriptions');
    await main().getByText('2 of 2').waitFor();
    for (const { name } of SEVERAL) await main().getByRole('link', { name }).waitFor();
    check(!/audit|siren/.test(await main().innerText()), "another team's event subscription is shown");
    check(!page.url().includes('token'), page.url());
    check((await page.evaluate(() => history.length)) <= 2, 'the link is in the history');
    const places = await page.locator('nav.views a').allInnerTexts();
    check(places.join() === 'Subscriptions,Dead letters', places.join());
    // A reload keeps it.
    await page.reload();
    await main().getByText('2 of 2').waitFor();
  },

  ...Object.fromEntries(
    SEVERAL.flatMap(({ name, of, moved, send, event, isSame }) =>
      Object.entries({
        async [`see ${name}`]() {
          await show(page, hash('subscriptions'));
          await main().getByRole('link', { name }).click();
          await heading(name);
          await main().locator('tbody').getByText('Dead lettered').first().waitFor();
          for (const action of ['Hold', 'Delete …', 'Edit …', 'Replay …'])
            check((await button(action).count()) === 0, `${action} is offered`);
          await main().getByRole('tab', { name: 'Settings and filter' }).click();
          await isSame((await server.ask('GET', of)).properties);
          check((await button('Reveal the full address and headers').count()) === 0, 'secrets are offered');
        },

        async [`edit the own endpoint of ${name}`]() {
          await button('Change the endpoint …').click();
          await heading(`Endpoint of ${name}`);
          await main().getByLabel('Endpoint URL').fill('ftp://example.com');
          await button('Save').click();
          await main().getByRole('alert').getByText('another scheme').waitFor();
          await main().getByLabel('Endpoint URL').fill(`${hook}/${moved}`);
          await button('Save').click();
          await heading(name);
          await main().locator('section').getByText(`${hook}/${moved}`).first().waitFor();
          await send('c');
          await until('the new endpoint to receive', () => received[moved]?.includes('c'));
          await main().getByRole('tab', { name: 'Settings and filter' }).click();
          await isSame((await server.ask('GET', of)).properties);
          watch.problems = watch.problems.filter((one) => !/status of 400/.test(one));
          watch.clean(`editing ${name}`);
        },

        async [`test ${name}`]() {
          await main().getByRole('link', { name: 'Filter bench' }).click();
          await heading('Filter bench');
          await main().getByLabel('Filter (JSON)').fill('{"includedEventTypes": ["Order.Placed"]}');
          await main()
            .getByLabel('One event, or a list of events, as published')
            .fill(JSON.stringify([event('x', 'Order.Placed'), event('y', 'Order.Paid')]));
          await button('Test the filter').click();
          await main().getByText('1 of 2 match').waitFor();
          watch.clean(`testing ${name}`);
        },

        async [`redrive ${name}`]() {
          await page.getByRole('link', { name: 'Dead letters', exact: true }).click();
          await heading('Dead letters');
          await main().getByRole('link', { name }).click();
          await button('Redrive all that match …').click();
          await button('Redrive 2').click();
          await heading(`Jobs of ${name}`);
          await main().getByText('completed').waitFor();
          await until('the dead letters to arrive', () => ['a', 'b'].every((one) => received[moved].includes(one)));
          check((await button('New replay …').count()) === 0, 'a replay is offered');
          watch.clean(`redriving ${name}`);
        },
      }),
    ),
  ),

  async 'the page asks for nothing that the link does not permit'() {
    for (const view of [
      hash('overview'),
      hash('subscriptions'),
      hash('dead-letters'),
      hash('filter', { id }),
      hash('jobs', { id }),
      hash('subscription', { id, tab: 'actor' }),
    ]) {
      await show(page, view);
      await settled(page);
      watch.clean(view);
    }
    for (const view of [
      hash('server'),
      hash('topic', { id: topicId('orders') }),
      hash('edit', { id }),
      hash('event'),
      hash('tail'),
    ]) {
      await show(page, view);
      await main().getByText('A portal link does not show this.').waitFor();
      watch.clean(view);
    }
    await page.keyboard.press('g');
    await page.keyboard.press('s');
    await heading('Event subscriptions');
  },

  async 'the link shows no words of operators, and no address that it does not open'() {
    const words = /\bgridhook [a-z]|\bactors?\b|\beditions?\b|\blanes?\b|\bcursor\b|\bTopics \/|\bshards?\b|Ctrl\+K/i;
    const tabs = ['attempts', 'dead-letters', 'jobs', 'settings'];
    const views = SEVERAL.flatMap(({ of }) => [
      ...tabs.map((tab) => hash('subscription', { id: of, tab })),
      hash('dead-letters', { id: of }),
      hash('jobs', { id: of }),
      hash('endpoint', { id: of }),
      hash('filter', { id: of }),
    ]);
    const wrong = [];
    for (const view of [hash('subscriptions'), hash('dead-letters'), ...views]) {
      await show(page, view);
      const opener = main().locator('tbody button.opener').first();
      if ((await opener.count()) > 0) {
        await opener.click();
        await main().locator('tr.details').waitFor();
      }
      const text = await page.locator('body').innerText();
      const line = text.split('\n').find((one) => words.test(one));
      if (line) wrong.push(`${view} says "${line}"`);
      const addresses = await page
        .locator('a[href^="#/"]')
        .evaluateAll((links) => links.map((one) => /** @type {HTMLElement} */ (one).getAttribute('href')));
      const dead = addresses.find((href) => !/^#\/(subscriptions?|endpoint|filter|dead-letters|jobs)\b/.test(href));
      if (dead) wrong.push(`${view} leads to ${dead}`);
      const shownTabs = await main().getByRole('tab').allInnerTexts();
      if (shownTabs.includes('Actor')) wrong.push(`${view} has the tab Actor`);
    }
    check(wrong.length === 0, wrong.join('\n'));
    watch.clean('the views of a link');
  },

  async 'a revoked link is at its end, and another one is opened in the same tab'() {
    watch.allowed = NETWORK;
    await show(page, hash('subscriptions'));
    await server.ask('DELETE', '/tokens/shop-portal');
    await page.getByText('Your session has ended').waitFor();
    const old = await visit(server, { link, watch: Object.assign(new Watch(server.url), { allowed: NETWORK }) });
    await old.page.getByText('This link is no longer valid').waitFor();
    await old.context.close();
    const { link: next } = await portal('next');
    await page.evaluate((href) => (location.href = href), next);
    await main().getByText('2 of 2').waitFor();
    watch.clean('the other link');
  },

  async 'a page that shows more than the link permits is found'() {
    const { link: next } = await portal('seeded');
    const seeded = await visit(server, {
      link: next,
      seed: {
        'js/keys.js': (text) => text.replace("'sd'.includes(key)", 'true'),
        'js/app.js': (text) => text.replace('isPortal() && !OF_PORTAL.includes(view)', 'false'),
      },
    });
    await show(seeded.page, hash('server'));
    await until('a refused request', () => seeded.watch.problems.some((one) => /status of 403/.test(one)));
  },
});
