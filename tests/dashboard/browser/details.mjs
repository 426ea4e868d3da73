// What operators of other dashboards miss: exact numbers, large payloads, links that show the same, obeying Retry-After, a path prefix.
import http from 'node:http';
import {
  NETWORK,
  SCOPE,
  Server,
  TOKEN,
  Watch,
  changeText,
  check,
  endpoint,
  flashes,
  hash,
  scene,
  settled,
  show,
  signIn,
  subscriptionId,
  topicId,
  unfold,
  until,
  visit,
} from './support.mjs';

let server;
const id = subscriptionId('orders', 'legacy');
const BIG = '12345678901234567890.50e3';

await scene({
  async 'a dead letter with a large payload'() {
    server = await Server.start();
    const hook = await endpoint();
    await server.topic('orders');
    const deadLetterDestination = {
      endpointType: 'StorageBlob',
      properties: { resourceId: '/r', blobContainerName: 'letters' },
    };
    await server.subscribe('orders', 'legacy', `${hook}/400`, { properties: { deadLetterDestination } });
    const head = `"eventType":"Order.Placed","subject":"orders/1","dataVersion":"1","eventTime":"${new Date().toISOString()}"`;
    await server.ask(
      'POST',
      '/topics/orders/api/events',
      `[{"id":"big",${head},"data":{"exact":${BIG},"long":9007199254740993,"text":"${'x'.repeat(70 * 1024)}"}}]`,
    );
    await until('the dead letter', async () => (await server.ask('GET', `${id}/deadLetters`)).value.length === 1);
  },

  async 'every digit of a payload is shown, 64 KiB of it, and all of it is downloaded'() {
    const { context, page, watch } = await visit(server);
    for (const view of [hash('dead-letters', { id }), hash('event', { topic: topicId('orders'), sequence: '1' })]) {
      await show(page, view);
      await page.locator('main').locator('button.opener, summary').first().click();
      await page.locator('.payload pre').waitFor();
      const text = await page.locator('.payload pre').innerText();
      check(
        text.includes(`"exact": ${BIG}`) && text.includes('"long": 9007199254740993'),
        `not exact: ${text.slice(0, 400)}`,
      );
      check(text.length <= 64 * 1024, `${text.length} characters are shown`);
      await page.getByText('the first 64 KiB of').waitFor();
      const [file] = await Promise.all([
        page.waitForEvent('download'),
        page.getByRole('button', { name: 'Download' }).click(),
      ]);
      const stream = await file.createReadStream();
      let length = 0;
      for await (const part of stream) length += part.length;
      check(length > 70 * 1024, `${length} bytes were downloaded`);
    }
    watch.clean('payload');
    await context.close();
  },

  async 'counters beyond 2^53 keep every digit'() {
    const { context, page } = await visit(server);
    await changeText(context, '**/status', (text) => text.replace(/"passed":\d+/, '"passed":9007199254740993'));
    await show(page, hash('subscription', { id }));
    await page.getByText('9,007,199,254,740,993').waitFor();
    await context.close();
  },

  async 'an address shows the same in another tab, without another sign-in'() {
    const { context, page } = await visit(server);
    await show(page, hash('dead-letters', { id }));
    await page.locator('main').getByLabel('Reason').selectOption('TimeToLiveExceeded');
    await page.getByText('No dead letter matches').waitFor();
    const other = await context.newPage();
    await other.goto(page.url());
    await other.getByText('No dead letter matches').waitFor();
    check(
      (await other.locator('main').getByLabel('Reason').inputValue()) === 'TimeToLiveExceeded',
      'the filter is lost',
    );
    await other.goBack().catch(() => undefined);
    await context.close();
  },

  async 'a server that is busy is asked again when it says'() {
    const { context, page, watch } = await visit(server);
    watch.allowed = NETWORK;
    let asked = 0;
    await context.route('**/supervision', (route) => {
      asked += 1;
      return asked > 1
        ? route.continue()
        : route.fulfill({
            status: 503,
            headers: { 'retry-after': '3' },
            json: { error: { code: 'ServerBusy', message: 'Too many requests wait.', details: [] } },
          });
    });
    const began = Date.now();
    await show(page, hash('server', { tab: 'supervision' }));
    await page.getByText('503 ServerBusy').waitFor();
    await page.getByText('The server asks to wait 3 s').waitFor();
    await page.getByText('Quarantined events').waitFor();
    check(Date.now() - began >= 2900, 'it was asked before');
    watch.clean('busy');
    await context.close();
  },

  async 'copying works where the browser has no clipboard for pages on plain http'() {
    const { context, page } = await visit(server);
    await context.addInitScript(() =>
      Object.defineProperty(Navigator.prototype, 'clipboard', { get: () => undefined }),
    );
    await page.reload();
    await show(page, hash('jobs', { id }));
    await flashes(page, 'Copied', () => page.locator('.command').getByRole('button', { name: 'Copy' }).last().click());
    await show(page, hash('subscriptions'));
    await page.locator('main').getByLabel('Search by name or endpoint').focus();
    await page.keyboard.press('ControlOrMeta+v');
    check(
      (await page.locator('main').getByLabel('Search by name or endpoint').inputValue()) ===
        'gridhook replay list orders legacy',
      'another text was copied',
    );
    await context.close();
  },

  async 'times are in UTC or local, and the theme changes, and both stay'() {
    const { context, page } = await visit(server, { timezoneId: 'Asia/Tokyo', colorScheme: 'light' });
    await show(page, hash('event', { topic: topicId('orders'), sequence: '1' }));
    const inUtc = page.locator('main time[title$="UTC"]');
    await inUtc.first().waitFor();
    await page.getByRole('button', { name: 'UTC', exact: true }).click();
    await page.getByRole('button', { name: 'Local time' }).waitFor();
    check((await inUtc.count()) === 0, 'a time is still in UTC');
    const ground = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
    const light = await ground();
    await page.getByRole('button', { name: 'Theme: auto' }).click();
    await page.getByRole('button', { name: 'Theme: light' }).click();
    await page.getByRole('button', { name: 'Theme: dark' }).waitFor();
    check((await ground()) !== light, 'the theme did not change');
    await page.reload();
    await page.getByRole('button', { name: 'Theme: dark' }).waitFor();
    await page.getByRole('button', { name: 'Local time' }).waitFor();
    await context.close();
  },

  async 'a retry schedule is shown by status, and a simulation runs and says what is wrong with it'() {
    const { context, page, watch } = await visit(server);
    watch.allowed = [/status of 400/];
    await page.keyboard.press('g');
    await page.keyboard.press('r');
    await page.getByRole('heading', { level: 1, name: 'Retry schedule' }).waitFor();
    const row = page.locator('main tr').filter({ hasText: /^503/ });
    await row.getByText('0, 30 s, 1 min, 2 min, 7 min').waitFor();
    await page.locator('main').getByLabel('Destination').selectOption('resource');
    check(page.url().includes('destination=resource'), `the choice is not in the address: ${page.url()}`);
    const form = page.getByRole('form', { name: 'Simulate' });
    await form.getByLabel('Endpoint models').fill('broken');
    await form.getByRole('button', { name: 'Run' }).click();
    await form.locator('.wrong').getByText('there is no endpoint model').waitFor();
    await form.getByLabel('Endpoint models').fill('outage:5h healthy');
    await form.getByLabel('Event subscriptions').fill('4');
    await form.getByText('gridhook simulate --edition current --model outage:5h --model healthy').waitFor();
    await form.getByRole('button', { name: 'Run' }).click();
    await form.getByRole('row').filter({ hasText: 'outage:5h' }).waitFor();
    await form.getByRole('img', { name: /Share of the events/ }).waitFor();
    watch.clean('retry schedule');
    await context.close();
  },

  async 'every kind of destination is shown in every view, and kept by the editor'() {
    const resourceId = (name) => ({ resourceId: name });
    const kinds = {
      Amqp: { ...resourceId('amqp'), exchange: 'shop', routingKey: 'placed' },
      AzureFunction: { resourceId: 'functions/functions/bill' },
      EventHub: { resourceId: 'hub/eventhubs/orders' },
      Kafka: { ...resourceId('kafka'), topicName: 'orders', contentMode: 'Binary' },
      NamespaceTopic: { resourceId: `${SCOPE}/namespaces/shop/topics/inner` },
      Nats: { ...resourceId('nats'), subject: 'orders.placed' },
      ServiceBusQueue: { resourceId: 'bus/queues/orders' },
      ServiceBusTopic: { resourceId: 'bus/topics/orders' },
      Sqs: { ...resourceId('sqs'), queueName: 'orders' },
      StorageQueue: { ...resourceId('queue'), queueName: 'orders', queueMessageTimeToLiveInSeconds: 600 },
      WebHook: { endpointUrl: 'http://127.0.0.1:9/hook' },
    };
    const services = {
      AMQP: { URL: 'amqp://127.0.0.1:9' },
      FUNCTIONS: { URL: 'http://127.0.0.1:9', FUNCTION_KEY: 'key' },
      HUB: { URL: 'kafka://127.0.0.1:9' },
      KAFKA: { URL: 'kafka://127.0.0.1:9' },
      NATS: { URL: 'nats://127.0.0.1:9' },
      BUS: { URL: 'http://127.0.0.1:9', SAS_TOKEN: 'SharedAccessSignature sr=s' },
      SQS: { URL: 'http://127.0.0.1:9/1', ACCESS_KEY_ID: 'id', SECRET_ACCESS_KEY: 'key' },
      QUEUE: { URL: 'http://127.0.0.1:9', SAS_TOKEN: 'sv=1&sig=s' },
    };
    const settings = Object.entries(services).flatMap(([name, values]) =>
      Object.entries(values).map(([key, value]) => [`GRIDHOOK_DELIVERY__RESOURCES__${name}__${key}`, value]),
    );
    const other = await Server.start(Object.fromEntries(settings));
    await other.topic('orders', { inputSchema: 'CloudEventSchemaV1_0' });
    await other.ask('PUT', `${SCOPE}/namespaces/shop`, { location: 'local' });
    await other.ask('PUT', `${SCOPE}/namespaces/shop/topics/inner`, { properties: {} });
    // The server's own list of kinds: a new one needs a line above.
    const refused = await other
      .ask('PUT', `${subscriptionId('orders', 'none')}`, {
        properties: { destination: { endpointType: 'Pigeon', properties: {} } },
      })
      .catch((error) => error.message);
    const allowed =
      /expected one of ([\w, ]+)/
        .exec(refused)?.[1]
        .split(/,? (?:and |or )?|, /)
        .filter((one) => /^[A-Z]/.test(one)) ?? [];
    check(
      JSON.stringify(allowed.sort()) === JSON.stringify(Object.keys(kinds)),
      `the server has ${allowed}: ${refused}`,
    );
    for (const [kind, properties] of Object.entries(kinds)) {
      await other.ask('PUT', subscriptionId('orders', kind.toLowerCase()), {
        properties: { destination: { endpointType: kind, properties }, eventDeliverySchema: 'CloudEventSchemaV1_0' },
      });
    }
    const { context, page, watch } = await visit(other);
    const main = page.locator('main');
    for (const [kind, properties] of Object.entries(kinds)) {
      const id = subscriptionId('orders', kind.toLowerCase());
      const address = properties.resourceId ?? properties.endpointUrl;
      const before = await other.ask('GET', id);
      await show(page, hash('topic', { id: topicId('orders') }));
      await main
        .getByRole('row')
        .filter({ hasText: kind.toLowerCase() })
        .filter({ hasText: address })
        .first()
        .waitFor();
      await show(page, hash('subscription', { id, tab: 'settings' }));
      await main.getByRole('region', { name: 'Health' }).getByText(address).waitFor();
      await main.getByText(kind, { exact: true }).first().waitFor();
      for (const value of Object.values(properties)) await main.getByText(String(value)).first().waitFor();
      await show(page, hash('edit', { id }));
      const json = JSON.parse(await main.getByLabel('JSON of the properties').inputValue());
      for (const [key, value] of Object.entries(properties))
        check(
          JSON.stringify(json.destination.properties[key]) === JSON.stringify(value),
          `${kind}: the editor has no ${key}: ${JSON.stringify(json.destination)}`,
        );
      await main.getByLabel('Labels, separated by commas').fill('kept');
      await main.getByRole('button', { name: 'Review' }).click();
      await main.getByRole('region', { name: 'Changes' }).getByText('labels').waitFor();
      await main.getByRole('button', { name: 'Save' }).click();
      await main.getByRole('heading', { level: 1, name: kind.toLowerCase(), exact: true }).waitFor();
      const after = await other.ask('GET', id);
      check(
        JSON.stringify(after.properties.destination) === JSON.stringify(before.properties.destination) &&
          after.properties.labels[0] === 'kept',
        `${kind}: ${JSON.stringify(after.properties)}`,
      );
    }
    watch.clean('kinds of destinations');
    await context.close();
  },

  async 'order, own schedule and transformation are edited, tried and taken back'() {
    const { context, page, watch } = await visit(server);
    watch.allowed = [/status of 400/];
    const main = page.locator('main');
    const own = id;
    await show(page, hash('edit', { id: own }));
    await unfold(page);
    await main.getByLabel('Order by key').fill('subject');
    await main.getByLabel('Retry schedule').fill('30s, 2h');
    await main.getByLabel('Transformation of the body (JMESPath)').fill("join('-', [id, eventType])");
    await main.getByRole('button', { name: 'Test the transformation' }).click();
    await main.getByText('big-Order.Placed').first().waitFor();
    await main.getByRole('button', { name: 'Review' }).click();
    const changes = main.getByRole('region', { name: 'Changes' });
    for (const at of ['ordering', 'retryPolicy.schedule', 'transform']) await changes.getByText(at).first().waitFor();
    await main.getByRole('button', { name: 'Save' }).click();
    await main.getByRole('heading', { level: 1, name: 'legacy', exact: true }).waitFor();
    const { properties } = await server.ask('GET', own);
    check(
      properties.ordering.key === 'subject' && properties.transform.body.startsWith('join'),
      JSON.stringify(properties),
    );
    check(JSON.stringify(properties.retryPolicy.schedule) === '["30s","2h"]', JSON.stringify(properties.retryPolicy));
    await show(page, hash('subscription', { id: own, tab: 'settings' }));
    for (const text of ['ordering', 'transform', '30s, 2h']) await main.getByText(text).first().waitFor();
    await show(page, hash('edit', { id: own }));
    await unfold(page);
    check((await main.getByLabel('Retry schedule').inputValue()) === '30s, 2h', 'the schedule is not read back');
    await main.getByLabel('Transformation of the body (JMESPath)').fill('join(');
    await main.getByRole('button', { name: 'Review' }).click();
    await main.locator('.wrong, [role=alert]').getByText('transform.body').first().waitFor();
    for (const label of ['Order by key', 'Retry schedule', 'Transformation of the body (JMESPath)'])
      await main.getByLabel(label).fill('');
    await main.getByRole('button', { name: 'Review' }).click();
    await changes.waitFor();
    await main.getByRole('button', { name: 'Save' }).click();
    await main.getByRole('heading', { level: 1, name: 'legacy', exact: true }).waitFor();
    const after = (await server.ask('GET', own)).properties;
    check(!after.ordering && !after.transform && !after.retryPolicy.schedule, JSON.stringify(after));
    watch.clean('order and transformation');
    await context.close();
  },

  async 'the way to chaos is there only where chaos is'() {
    const off = await visit(server);
    await off.page.getByRole('link', { name: 'Server', exact: true }).waitFor();
    const way = (page) => page.getByRole('navigation', { name: 'Views' }).getByRole('link', { name: 'Chaos' });
    await settled(off.page);
    check((await way(off.page).count()) === 0, 'a server without chaos offers it');
    await off.page.keyboard.press('g');
    await off.page.keyboard.press('c');
    check(!off.page.url().includes('chaos'), 'a key leads to it');
    await off.context.close();
    const on = await visit(server, {
      seed: { 'js/app.js': (text) => text.replace('facts.data?.chaos ?? false', 'true') },
    });
    await way(on.page).waitFor();
    await on.context.close();
    const other = await Server.start({ GRIDHOOK_CHAOS__ENABLED: 'true' });
    const real = await visit(other);
    await way(real.page).click();
    await real.page.getByText('Active faults').waitFor();
    await real.context.close();
  },

  async 'the page works below the path prefix of a proxy'() {
    const target = new URL(server.url);
    const proxy = http.createServer((request, response) => {
      if (!request.url.startsWith('/grid/')) return response.writeHead(404).end();
      const passed = http.request(
        {
          host: target.hostname,
          port: target.port,
          path: request.url.slice(5),
          method: request.method,
          headers: request.headers,
        },
        (answer) => {
          response.writeHead(answer.statusCode, answer.headers);
          answer.pipe(response);
        },
      );
      passed.on('error', () => response.destroy());
      response.on('close', () => passed.destroy());
      return request.pipe(passed);
    });
    await new Promise((done) => proxy.listen(0, '127.0.0.1', () => done()));
    proxy.unref();
    const url = `http://127.0.0.1:${proxy.address().port}/grid`;
    const { context, page, watch } = await visit({ url }, { watch: new Watch(url) });
    await show(page, hash('topics'));
    await page.locator('main').getByRole('link', { name: 'orders' }).click();
    await page.getByText(`${SCOPE}/topics/orders`, { exact: true }).first().waitFor();
    await show(page, hash('tail'));
    await page.getByText('connected').waitFor();
    watch.clean('prefix');
    await context.close();
  },

  async 'a wrong token is refused, and a session ends with its sign-out'() {
    const watch = new Watch(server.url);
    watch.allowed = NETWORK;
    const { context, page } = await visit(server, { watch });
    const session = JSON.parse(await page.evaluate(() => localStorage.getItem('gridhook.session')));
    check(session.key && !JSON.stringify(session).includes(TOKEN), 'the page keeps the token of the operator');
    const [cookie] = await context.cookies(`${server.url}/ui/`);
    check(
      cookie.httpOnly && cookie.sameSite === 'Strict' && cookie.path === '/ui',
      `the cookie is ${JSON.stringify(cookie)}`,
    );
    check((await context.cookies(server.url)).length === 0, 'the cookie is sent beyond the page');
    await page.getByRole('button', { name: /^Sign out/ }).click();
    await page.getByLabel('Token of an operator').waitFor();
    check((await context.cookies(`${server.url}/ui/`)).length === 0, 'the cookie stays after the sign-out');
    const headers = { cookie: `${cookie.name}=${cookie.value}`, 'gridhook-session-key': session.key };
    const answer = await fetch(`${server.url}/ui/api/top`, { headers });
    check(answer.status === 401, `a session that was signed out is answered ${answer.status}`);
    await page.getByLabel('Token of an operator').fill('wrong');
    await page.getByRole('button', { name: 'Sign in' }).click();
    await page.locator('.notice.bad').getByText('401').waitFor();
    await signIn(page);
    await settled(page);
    await context.close();
  },
});
