// The form of an event subscription: every subject, namespaces, errors at their field, and nothing lost by leaving.
import {
  SCOPE,
  Server,
  check,
  hash,
  leave,
  receiver,
  scene,
  settled,
  show,
  subscriptionId,
  topicId,
  unfold,
  until,
  violations,
  visit,
} from './support.mjs';

const BIG = '9007199254740993';
let server;
let page;
let watch;
let hook;
const main = () => page.locator('main');
const button = (name) => main().getByRole('button', { name, exact: true });
const heading = (name) => page.getByRole('heading', { level: 1, name, exact: true }).waitFor();
const open = async (params) => {
  await show(page, hash('edit', params));
  await unfold(page);
};
const create = async (name) => {
  await button('Review').click();
  await main().getByRole('region', { name: 'Changes' }).waitFor();
  await button('Create').click();
  await heading(name);
};

await scene({
  async 'required settings are first, and the rest is folded by subject'() {
    server = await Server.start();
    hook = await receiver({}, {});
    await server.topic('orders');
    await server.topic('things', { inputSchema: 'CloudEventSchemaV1_0' });
    await server.ask('PUT', `${SCOPE}/namespaces/plant`, { location: 'local' });
    await server.ask('PUT', `${SCOPE}/namespaces/plant/topics/heat`, {});
    ({ page, watch } = await visit(server));
    await show(page, hash('edit', { topic: topicId('orders') }));
    check(
      await main()
        .getByLabel('Name', { exact: true })
        .evaluate((one) => one === document.activeElement),
      'the focus is not on the name',
    );
    const subjects = await main().locator('details.subject > summary').allInnerTexts();
    check(
      subjects.join() === 'Filter,Headers,Signing,Batching and rate limit,Retries,Order,Transformation,Dead letters',
      `${subjects}`,
    );
    check(
      (await main().locator('details.subject[open]').count()) === 0,
      'a subject is open although nothing of it is set',
    );
    await unfold(page);
    const found = await violations(page);
    check(found.length === 0, found.join('\n'));
  },

  async 'every subject is set with the form, and read back by it'() {
    await open({ topic: topicId('orders') });
    await main().getByLabel('Name', { exact: true }).fill('whole');
    await main().getByLabel('Endpoint URL').fill(`${hook}/whole`);
    await button('Add a condition').click();
    await main().getByLabel('Field', { exact: true }).fill('data.total');
    await main().getByLabel('Operator').selectOption('NumberGreaterThan');
    await main().getByLabel('Value', { exact: true }).fill('10.5');
    await button('Add a header').click();
    await main().getByLabel('Header', { exact: true }).fill('x-region');
    await main().getByLabel('From', { exact: true }).selectOption('Dynamic');
    await main().getByLabel('Field, such as data.region').fill('data.region');
    await button('Generate a secret').click();
    await main().getByLabel('Requests a second, at most').fill('25');
    await main().getByLabel('Retry schedule').fill('30s, 2h');
    await main().getByLabel('Retry schedule').blur();
    await main()
      .getByRole('img', { name: /after 30 s; 3: after 2 h/ })
      .waitFor();
    await button('Use the folder of the server').click();
    await create('whole');
    const { properties } = await server.ask('GET', subscriptionId('orders', 'whole'));
    const webhook = properties.destination.properties;
    const [condition] = properties.filter.advancedFilters;
    check(
      condition.operatorType === 'NumberGreaterThan' && condition.key === 'data.total' && condition.value === 10.5,
      JSON.stringify(properties.filter),
    );
    check(
      webhook.deliveryAttributeMappings[0].properties.sourceField === 'data.region' &&
        webhook.maxRequestsPerSecond === 25 &&
        webhook.signing.secrets.length === 1,
      JSON.stringify(webhook),
    );
    check(
      properties.deadLetterDestination.properties.blobContainerName === 'whole',
      JSON.stringify(properties.deadLetterDestination),
    );
    await show(page, hash('edit', { id: subscriptionId('orders', 'whole') }));
    check(
      (await main().getByLabel('Field', { exact: true }).inputValue()) === 'data.total',
      'a set subject is not open',
    );
    watch.clean('every subject');
  },

  async 'a topic of CloudEvents and topics of namespaces have forms that the server accepts'() {
    await open({ topic: topicId('things') });
    await main().getByLabel('Name', { exact: true }).fill('cloud');
    await main().getByLabel('Endpoint URL').fill(`${hook}/cloud`);
    check(
      (await main().getByLabel('Delivery schema').locator('option').allInnerTexts()).join() === 'CloudEvents 1.0',
      'a schema is offered that the topic does not allow',
    );
    await create('cloud');
    const heat = `${SCOPE}/namespaces/plant/topics/heat`;
    await open({ topic: heat });
    await main().getByLabel('Name', { exact: true }).fill('alarm');
    await main().getByLabel('Endpoint URL').fill(`${hook}/alarm`);
    await main().getByLabel('Time to live').fill('PT5H');
    await create('alarm');
    await open({ topic: heat });
    await main().getByLabel('Name', { exact: true }).fill('reader');
    await main().getByLabel('Delivery', { exact: true }).selectOption('Queue');
    await main().getByLabel('Lock of a received event in seconds').fill('90');
    await create('reader');
    const { deliveryConfiguration } = (await server.ask('GET', `${heat}/eventSubscriptions/reader`)).properties;
    check(deliveryConfiguration.queue.receiveLockDurationInSeconds === 90, JSON.stringify(deliveryConfiguration));
    await open({ id: `${heat}/eventSubscriptions/alarm` });
    await main().getByLabel('Attempts, at most').fill('7');
    await button('Review').click();
    await button('Save').click();
    await heading('alarm');
    const alarm = (await server.ask('GET', `${heat}/eventSubscriptions/alarm`)).properties.deliveryConfiguration.push;
    check(alarm.maxDeliveryCount === 7 && alarm.eventTimeToLive === 'PT5H', JSON.stringify(alarm));
    const push = {
      destination: { endpointType: 'WebHook', properties: { endpointUrl: `${hook}/letters` } },
      maxDeliveryCount: 1,
      deadLetterDestinationWithResourceIdentity: {
        endpointType: 'StorageBlob',
        StorageBlob: { blobContainerName: 'letters', resourceId: '/r' },
        identity: { type: 'UserAssigned', userAssignedIdentity: '/subscriptions/0/identities/i' },
      },
    };
    const letters = `${heat}/eventSubscriptions/letters`;
    await server.ask('PUT', letters, { properties: { deliveryConfiguration: { deliveryMode: 'Push', push } } });
    await open({ id: letters });
    const json = main().getByLabel('JSON of the properties');
    await json.fill((await json.inputValue()).replace('"maxDeliveryCount": 1', '"maxDeliveryCount": 2'));
    await button('Review').click();
    await button('Save').click();
    await heading('letters');
    const edited = (await server.ask('GET', letters)).properties.deliveryConfiguration.push;
    check(edited.maxDeliveryCount === 2, JSON.stringify(edited));
    watch.clean('namespaces');
  },

  async 'an error is at its field, once, and opens its subject'() {
    await show(page, hash('edit', { topic: topicId('orders') }));
    await main().getByLabel('Name', { exact: true }).fill('wrong');
    await main().getByLabel('Endpoint URL').fill(`${hook}/wrong`);
    await main().locator('summary', { hasText: 'Retries' }).click();
    await main().getByLabel('Attempts, at most').fill('31');
    await main().locator('summary', { hasText: 'Retries' }).click();
    await main()
      .locator('form')
      .first()
      .evaluate((form) => Object.assign(form, { noValidate: true }));
    await button('Review').click();
    await main().locator('.wrong').waitFor();
    check(await main().getByLabel('Attempts, at most').isVisible(), 'the subject of the error stays folded');
    check((await main().locator('.wrong, [role=alert]').count()) === 1, 'the error is shown twice');
    watch.problems = watch.problems.filter((one) => !/status of 400/.test(one));
  },

  async 'a review checks what creating checks: the name, the services, the limits'() {
    watch.allowed = [/status of 4\d\d/];
    const name = main().getByLabel('Name', { exact: true });
    await main().getByLabel('Attempts, at most').fill('30');
    await name.fill('whole');
    await button('Review').click();
    await main().locator('.wrong').getByText('An event subscription with this name exists').waitFor();
    await name.fill('a b');
    await button('Review').click();
    await main().locator('.wrong').getByText('letters').waitFor();
    check((await main().locator('.wrong, [role=alert]').count()) === 1, 'the error of the name is shown twice');
    await name.fill('wrong');
    await main().getByLabel('Destination', { exact: true }).selectOption('Kafka');
    await main().getByLabel('Resource id').fill('nowhere');
    await main().getByLabel('Topic of Kafka').fill('orders');
    await button('Review').click();
    await main().locator('.wrong').getByText('nowhere').waitFor();
    check((await main().locator('.wrong, [role=alert]').count()) === 1, 'the error of the service is shown twice');
    check(await button('Create').isDisabled(), 'what was refused can be created');
    watch.problems = watch.problems.filter((one) => !/status of 4/.test(one));
  },

  async 'leaving asks, and staying loses nothing'() {
    await page.getByRole('link', { name: 'Topics', exact: true }).first().click();
    const dialog = page.getByRole('dialog', { name: 'Leave without saving?' });
    await dialog.getByRole('button', { name: 'Cancel' }).click();
    check((await main().getByLabel('Name', { exact: true }).inputValue()) === 'wrong', 'what was typed is gone');
    await page.getByRole('link', { name: 'Topics', exact: true }).first().click();
    await leave(page);
    await heading('Topics');
  },

  async 'leaving at once after typing asks too'() {
    await open({ id: subscriptionId('orders', 'whole') });
    const json = main().getByLabel('JSON of the properties');
    await json.evaluate(async (area) => {
      /** @type {HTMLTextAreaElement} */ (area).value = '[]';
      area.dispatchEvent(new Event('input', { bubbles: true }));
      // The form is drawn in a microtask.
      await Promise.resolve();
      location.hash = '#/overview';
    });
    await leave(page);
    await heading('Overview');
  },

  async 'a new form after a changed one is empty'() {
    await show(page, hash('edit', { id: subscriptionId('orders', 'whole') }));
    await until('its address', async () => (await main().getByLabel('Endpoint URL').inputValue()).endsWith('/whole'));
    await show(page, hash('edit', { topic: topicId('orders') }));
    await heading('New event subscription');
    check(
      (await main().getByLabel('Endpoint URL').inputValue()) === '',
      'the address of another event subscription is in a new form',
    );
  },

  async 'numbers beyond 2^53 keep their digits, and a wrong shape is told'() {
    await server.subscribe('orders', 'exact', `${hook}/exact`);
    await open({ id: subscriptionId('orders', 'exact') });
    const json = main().getByLabel('JSON of the properties');
    const text = await json.inputValue();
    await json.fill(
      text.replace(
        /"filter": \{[^}]*\}/,
        `"filter": { "advancedFilters": [{ "operatorType": "NumberIn", "key": "data.account", "values": [${BIG}] }] }`,
      ),
    );
    await main().getByLabel('Labels, separated by commas').fill('kept');
    await main().getByLabel('Labels, separated by commas').blur();
    check((await json.inputValue()).includes(BIG), 'the form has changed the number');
    let sent = '';
    page.on('request', (request) => request.method() === 'PATCH' && (sent = request.postData()));
    await button('Review').click();
    await main().getByRole('region', { name: 'Changes' }).getByText(BIG).waitFor();
    await button('Save').click();
    await heading('exact');
    check(sent.includes(`[${BIG}]`), `the number is sent as ${sent}`);
    await open({ id: subscriptionId('orders', 'exact') });
    await json.fill('[]');
    await main().locator('.wrong').getByText('an object').waitFor();
    await page.evaluate(() => (location.hash = '#/overview'));
    await leave(page);
    await settled(page);
    await until('the overview', async () => (await page.locator('h1').innerText()) === 'Overview');
    watch.clean('exact numbers');
  },

  async 'a text that the form cannot show is told, and the form stays'() {
    await open({ id: subscriptionId('orders', 'exact') });
    const json = main().getByLabel('JSON of the properties');
    const text = await json.inputValue();
    const wrong = {
      labels: 'a',
      filter: { includedEventTypes: 'Order.Placed' },
      retryPolicy: { schedule: [5] },
      destination: { properties: { deliveryAttributeMappings: {} } },
    };
    for (const [key, value] of Object.entries(wrong)) {
      await json.fill(JSON.stringify({ ...JSON.parse(text), [key]: value }));
      await main().locator('.wrong').getByText(`“${key}`).waitFor();
      check(await button('Review').isDisabled(), `${key} can be reviewed`);
    }
    await json.fill(text);
    await until('the text to be right', async () => (await main().locator('.wrong').count()) === 0);
    watch.clean('wrong members');
  },

  async 'secrets that are hidden are kept when another setting beside them changes'() {
    const secret = `whsec_${Buffer.from('a secret of the test of the form').toString('base64')}`;
    await server.subscribe('orders', 'secret', `${hook}/secret`, {
      webhook: {
        deliveryAttributeMappings: [{ name: 'x-code', type: 'Static', properties: { value: 'code', isSecret: true } }],
        signing: { secrets: [secret] },
      },
    });
    await open({ id: subscriptionId('orders', 'secret') });
    await button('Add a header').click();
    await main().getByLabel('Header', { exact: true }).last().fill('x-more');
    await main().getByLabel('Value', { exact: true }).last().fill('more');
    await button('Generate a secret').click();
    await button('Review').click();
    await button('Save').click();
    await heading('secret');
    const id = subscriptionId('orders', 'secret');
    const { value } = await server.ask('POST', `${id}/getDeliveryAttributes`);
    const headers = value.map((one) => `${one.name}: ${one.properties.value}`).join();
    check(headers === 'x-code: code,x-more: more', headers);
    const { signing } = (await server.ask('GET', id)).properties.destination.properties;
    check(signing.secrets.length === 2, `the former secret is gone: ${JSON.stringify(signing)}`);
    await open({ id });
    await main().getByLabel('Secrets, the newest first').fill('');
    await main().getByLabel('Secrets, the newest first').blur();
    await button('Review').click();
    await button('Save').click();
    await heading('secret');
    const after = (await server.ask('GET', id)).properties.destination.properties;
    check(!after.signing, `requests are signed still: ${JSON.stringify(after.signing)}`);
    watch.clean('hidden secrets');
  },

  async 'a field that is emptied and typed again keeps the settings beside it'() {
    const deadLetterDestination = {
      endpointType: 'StorageBlob',
      properties: { resourceId: '/local', blobContainerName: 'letters' },
    };
    await server.subscribe('orders', 'typed', `${hook}/typed`, {
      properties: { ordering: { key: 'subject', onFailure: 'block' }, deadLetterDestination },
    });
    await open({ id: subscriptionId('orders', 'typed') });
    for (const [label, text] of [
      ['Order by key', 'data.id'],
      ['Dead-letter destination', '/other'],
    ]) {
      await main().getByLabel(label).fill('');
      await main().getByLabel(label).pressSequentially(text);
    }
    await main().getByLabel('Destination', { exact: true }).selectOption('Kafka');
    await main().getByLabel('Destination', { exact: true }).selectOption('WebHook');
    const body = JSON.parse(await main().getByLabel('JSON of the properties').inputValue());
    check(body.ordering.onFailure === 'block', JSON.stringify(body.ordering));
    const letters = body.deadLetterDestination.properties;
    check(letters.blobContainerName === 'letters', JSON.stringify(letters));
    check(body.destination.properties.endpointUrl === `${hook}/typed`, JSON.stringify(body.destination));
    await show(page, '#/overview').catch(() => undefined);
    await leave(page);
    watch.clean('typed again');
  },

  async 'values keep their blanks and their digits, in the form and in the filter bench'() {
    const advancedFilters = [
      { operatorType: 'StringIn', key: 'data.region', values: [' north'] },
      { operatorType: 'StringIn', key: 'data.note', values: [''] },
    ];
    await server.subscribe('orders', 'values', `${hook}/values`, { properties: { filter: { advancedFilters } } });
    const id = subscriptionId('orders', 'values');
    await open({ id });
    const field = main().getByLabel('Values', { exact: true });
    check((await field.nth(0).inputValue()) === '[" north"]', `it shows ${await field.nth(0).inputValue()}`);
    check((await field.nth(1).inputValue()) === '[""]', `it shows ${await field.nth(1).inputValue()}`);
    await button('Remove condition 2').click();
    await main().getByLabel('Operator').selectOption('NumberGreaterThan');
    await main().getByLabel('Value', { exact: true }).fill('1e400');
    await main().getByLabel('Value', { exact: true }).blur();
    const json = main().getByLabel('JSON of the properties');
    await until('a text', async () => (await json.inputValue()).includes('"value": "1e400"'));
    await main().getByLabel('Value', { exact: true }).fill(BIG);
    await button('Review').click();
    await button('Save').click();
    await heading('values');
    const stored = (await server.send('GET', id)).text;
    check(stored.includes(`"value":${BIG}`), `stored is ${stored}`);
    await show(page, hash('filter', { topic: topicId('orders'), id }));
    const filter = main().getByLabel('Filter (JSON)');
    await until('the filter', async () => (await filter.inputValue()).includes(`"value": ${BIG}`));
    await main().getByLabel('Events', { exact: true }).selectOption('pasted');
    const event = { id: 'a', eventType: 'T', subject: 's', dataVersion: '1', eventTime: '2026-01-01T00:00:00Z' };
    const pasted = JSON.stringify({ ...event, data: { region: 0 } }).replace('"region":0', `"region":${BIG}`);
    await main().getByLabel('One event, or a list of events').fill(pasted);
    await button('Test the filter').click();
    await main().getByText('0 of 1 match').waitFor();
    await filter.fill((await filter.inputValue()).replace('NumberGreaterThan', 'NumberGreaterThanOrEquals'));
    await button('Test the filter').click();
    await main().getByText('1 of 1 match').waitFor();
    watch.clean('values');
  },
});
