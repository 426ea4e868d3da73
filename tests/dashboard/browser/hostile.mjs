// Text of others in every place that reaches the page: nothing of it becomes markup, script or a request.
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import {
  SCOPE,
  Server,
  atEnd,
  check,
  endpoint,
  hash,
  leave,
  scene,
  settled,
  show,
  sleep,
  subscriptionId,
  topicId,
  turn,
  until,
  visit,
} from './support.mjs';

const CORPUS = [
  '<script>alert(1)</script>',
  '"><img src=x onerror=alert(1)>',
  "'-alert(1)-'",
  '<svg/onload=alert(1)>',
  'javascript:alert(1)',
  '${alert(1)}{{constructor.constructor("alert(1)")()}}',
  '</textarea><iframe srcdoc="<script>parent.alert(1)</script>">',
  '<a href="javascript:alert(1)">x</a>',
  '\u202Eevil\u2066 \u0000 \u001b[31m',
  '<style>@import"//evil.example/x.css"</style>',
];
const ALL = CORPUS.join(' ');

let server;
const id = subscriptionId('orders', 'billing');

await scene({
  async 'hostile text is published, answered and stored'() {
    // The name of an edition is that of its file, and a setting is shown as it was given.
    const editions = fs.mkdtempSync(path.join(os.tmpdir(), 'gridhook-"><img src=x onerror=alert(1)>-'));
    atEnd(() => fs.rmSync(editions, { recursive: true, force: true }));
    fs.writeFileSync(path.join(editions, '"><img src=x onerror=alert(1)>.toml'), 'base = "current"\n');
    server = await Server.start({ GRIDHOOK_CHAOS__ENABLED: 'true', GRIDHOOK_POLICY__EDITIONS_DIR: editions });
    const hook = await endpoint(() => ALL.replaceAll('\u0000', ''));
    await server.topic('orders');
    await server.ask('PUT', `${SCOPE}/topics/orders`, {
      location: 'local',
      tags: { '<b>tag</b>': '<img src=x onerror=alert(1)>' },
    });
    const deadLetterDestination = {
      endpointType: 'StorageBlob',
      properties: { resourceId: '/r', blobContainerName: 'letters' },
    };
    const deliveryAttributeMappings = CORPUS.filter((text) => /^[ -~]*$/.test(text)).map((value, index) => ({
      name: `x-hostile-${index}`,
      type: 'Static',
      properties: { value },
    }));
    const labels = ['<img src=x onerror=alert(1)>'];
    await server.subscribe('orders', 'billing', `${hook}/400/"><script>alert(1)</script>`, {
      properties: { deadLetterDestination, labels },
      webhook: { deliveryAttributeMappings },
    });
    await server.subscribe('orders', 'down', `${hook}/503`);
    await server.subscribe('orders', 'picky', `${hook}/200`, {
      properties: {
        filter: {
          advancedFilters: [
            {
              operatorType: 'StringContains',
              key: 'data.<img src=x onerror=alert(1)>',
              values: ['"><script>alert(1)</script>'],
            },
          ],
        },
      },
    });
    await server.publish(
      'orders',
      CORPUS.map((text, index) => ({
        id: text.replaceAll('\u0000', '') || `${index}`,
        eventType: text,
        subject: text,
        data: { [text]: text, html: ALL },
      })),
    );
    await until(
      'dead letters',
      async () => (await server.ask('GET', `${id}/status`)).counters.deadLettered >= CORPUS.length,
    );
  },

  async 'no view runs any of it'() {
    const { page, watch, context } = await visit(server);
    await page.evaluate(() => (window.harmed = []));
    const views = [
      hash('overview'),
      hash('topics'),
      hash('topic', { id: topicId('orders') }),
      hash('subscriptions'),
      hash('subscriptions', { q: CORPUS[1] }),
      hash('subscription', { id }),
      hash('subscription', { id, tab: 'dead-letters' }),
      hash('subscription', { id, tab: 'settings' }),
      hash('edit', { id }),
      ...CORPUS.map((_, index) => hash('event', { topic: topicId('orders'), sequence: `${index + 1}` })),
      hash('event', { topic: topicId('orders'), id: CORPUS[1] }),
      hash('dead-letters', { id, reason: CORPUS[0] }),
      hash('filter', { id: subscriptionId('orders', 'picky') }),
      hash('tail', { type: CORPUS[1], subscription: CORPUS[3] }),
      hash('subscription', { id, tab: 'jobs' }),
      hash('subscription', { id, tab: 'actor' }),
      hash('jobs'),
      hash('jobs', { id, new: 'replay' }),
      hash('subscriptions', { topic: CORPUS[1] }),
      hash('edit', { topic: CORPUS[1] }),
      hash('editions'),
      hash('editions', { edition: '"><img src=x onerror=alert(1)>', destination: CORPUS[0] }),
      hash('server'),
      hash('server', { tab: 'settings' }),
      hash('audit'),
      hash('audit', { q: CORPUS[1], operator: CORPUS[0] }),
      hash('tokens'),
      hash('links'),
      hash('sessions'),
      hash('dead-letters'),
      hash('dead-letters', { q: CORPUS[1] }),
      hash('chaos'),
      hash('help', { chapter: CORPUS[1] }),
      hash('server', { tab: CORPUS[1] }),
      hash(CORPUS[1]),
      hash('topic', { id: CORPUS[1] }),
      hash('subscription', { id: `/${CORPUS[3]}` }),
    ];
    watch.allowed = [/status of 40[04]/];
    for (const view of views) {
      await turn(page, view);
      await settled(page).catch(() => page.locator('main .notice').first().waitFor());
      await harmless(page, view);
    }
    // What opens only when it is asked for.
    await show(page, hash('dead-letters', { id }));
    await page.locator('button.opener').first().click();
    await page.locator('.payload pre').waitFor();
    check(
      (await page.locator('.payload pre').innerText()).includes('<script>alert(1)</script>'),
      'the payload is not shown as text',
    );
    await show(page, hash('filter', { id: subscriptionId('orders', 'picky') }));
    await page.getByRole('button', { name: 'Test the filter' }).click();
    await page.getByText('match', { exact: false }).first().waitFor();
    await harmless(page, 'filter bench');
    await show(page, hash('subscription', { id, tab: 'settings' }));
    await page.getByRole('button', { name: 'Reveal the full address and headers' }).click();
    await page.getByText('"><img src=x onerror=alert(1)>', { exact: true }).first().waitFor();
    await harmless(page, 'revealed headers');
    // What the server says of what was typed.
    await show(page, hash('edit', { topic: topicId('orders') }));
    await page.locator('main').getByLabel('Name', { exact: true }).fill(CORPUS[1]);
    await page.locator('main').getByLabel('Endpoint URL').fill(`http://127.0.0.1:9/${CORPUS[0]}`);
    await page.getByRole('button', { name: 'Review' }).click();
    await page.locator('main .wrong, main .notice').first().waitFor();
    await harmless(page, 'a refused event subscription');
    await page.evaluate(() => (location.hash = '#/overview'));
    await leave(page);
    await show(page, hash('editions'));
    await page.getByRole('form', { name: 'Simulate' }).getByLabel('Endpoint models').fill(CORPUS[0]);
    await page.getByRole('button', { name: 'Run' }).click();
    await page.locator('main .wrong').first().waitFor();
    await harmless(page, 'a refused simulation');
    await show(page, hash('tail'));
    await page.getByText('connected').waitFor();
    await server.publish(
      'orders',
      CORPUS.map((text, index) => ({ id: `again-${index}`, eventType: text, subject: text })),
    );
    await page.locator('main tbody tr').first().waitFor();
    await harmless(page, 'tail');
    watch.clean('hostile text');
    await context.close();
  },

  async 'a module that writes markup is found'() {
    const { page, watch, context } = await visit(server, {
      seed: {
        'js/views/attempts.js': (text) =>
          text.replace(
            '<blockquote>${line.response.text}</blockquote>',
            '<blockquote dangerouslySetInnerHTML=${{ __html: line.response.text }}></blockquote>',
          ),
      },
    });
    watch.allowed = [];
    await show(page, hash('subscription', { id }));
    await page.locator('button.opener').first().click();
    await until('the policy to refuse it', () =>
      watch.problems.some(
        (problem) => problem.includes('require-trusted-types-for') || problem.includes('TrustedHTML'),
      ),
    );
    await context.close();
  },

  async 'markup that the policy would not stop is found'() {
    const { page, watch, context } = await visit(server, {
      seed: {
        headers: { 'content-security-policy': '' },
        'index.html': (text) => `${text}\n`,
        'js/views/attempts.js': (text) =>
          text.replace(
            '<blockquote>${line.response.text}</blockquote>',
            '<blockquote dangerouslySetInnerHTML=${{ __html: line.response.text }}></blockquote>',
          ),
      },
    });
    await show(page, hash('subscription', { id }));
    await page.locator('button.opener').first().click();
    await until('the dialog of a script', () => watch.problems.some((problem) => problem.startsWith('dialog')));
    check(
      await harmless(page, 'seeded').then(
        () => false,
        () => true,
      ),
      'elements of the corpus went through',
    );
    await context.close();
  },

  async 'the sources have no way to write markup'() {
    const folder = process.env.GRIDHOOK_PAGE;
    const forbidden =
      /dangerouslySetInnerHTML|innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|srcdoc/;
    for (const file of fs.readdirSync(path.join(folder, 'js'), { recursive: true })) {
      const name = path.join(folder, 'js', String(file));
      if (fs.statSync(name).isFile()) check(!forbidden.test(fs.readFileSync(name, 'utf8')), `${file} writes markup`);
    }
  },
});

/** Nothing of the corpus became an element, a handler or a link that runs. */
async function harmless(page, view) {
  await sleep(50);
  const found = await page.evaluate(() =>
    [
      ...document.querySelectorAll(
        '#app img, #app iframe, #app script, #app style, #app svg[onload], #app [onerror], #app a[href^="javascript:" i]',
      ),
    ].map((one) => one.outerHTML.slice(0, 200)),
  );
  check(found.length === 0, `${view}: ${found.join('\n')}`);
}
