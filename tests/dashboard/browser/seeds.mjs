// The checks of the other scenes find what they look for: a page with a seeded bug fails each of them.
import {
  NETWORK,
  Server,
  check,
  hash,
  readers,
  scene,
  settled,
  show,
  signIn,
  taken,
  topicId,
  until,
  visit,
} from './support.mjs';
import { VIEWS, fill } from './views.mjs';

let server;

/** The page with a change to one file. */
const seeded = (file, from, to) => visit(server, { seed: { [file]: (text) => text.replace(from, to) } });

const FRAME = "history.scrollRestoration = 'manual';";

await scene({
  async 'a full server'() {
    server = await Server.start();
    await fill(server);
  },

  async 'an error in the console is found'() {
    const { context, watch } = await seeded('js/state.js', FRAME, `${FRAME} console.error('seeded');`);
    check(
      watch.problems.some((one) => one.includes('seeded')),
      'an error in the console went through',
    );
    await context.close();
  },

  async 'an error that nobody catches is found'() {
    const { context, watch } = await seeded(
      'js/state.js',
      FRAME,
      `${FRAME} setTimeout(() => { throw new Error('seeded'); });`,
    );
    await until('the error', () => watch.problems.some((one) => one.includes('seeded')));
    await context.close();
  },

  async 'a request to another origin is found'() {
    const { context, watch } = await seeded(
      'js/state.js',
      FRAME,
      `${FRAME} fetch('http://127.0.0.2:9/').catch(() => undefined);`,
    );
    await until('the report of the policy', () => watch.problems.some((one) => one.includes('connect-src')));
    await context.close();
  },

  async 'a request to another origin is found without the policy, too'() {
    const { context, watch } = await visit(server, {
      seed: {
        headers: { 'content-security-policy': '' },
        'index.html': (text) => `${text}\n`,
        'js/state.js': (text) => text.replace(FRAME, `${FRAME} fetch('http://127.0.0.2:9/').catch(() => undefined);`),
      },
    });
    await until('the request', () => watch.problems.some((one) => one.includes('request to http://127.0.0.2:9/')));
    await context.close();
  },

  async 'a refresh that takes the focus and the open row, or the place, is found'() {
    for (const [file, from, to, lost] of [
      [
        'js/views/subscription.js',
        '<${Attempts} id=${id} />',
        '<${Attempts} id=${id} key=${Date.now()} />',
        /row|focus/,
      ],
      [
        'js/poll.js',
        'setState({ name, data, error: undefined, at: Date.now() });',
        'setState({ name, data, error: undefined, at: Date.now() }); scrollTo(0, 0);',
        /place/,
      ],
    ]) {
      const { context, page } = await seeded(file, from, to);
      await show(page, VIEWS.find(({ name }) => name === 'subscription').at);
      const found = await taken(page, '/status');
      check(lost.test(found), `${file}: only “${found}” is found`);
      await context.close();
    }
  },

  async 'tabs that all read the tail are found'() {
    const { context, page } = await visit(server, {
      seed: {
        'js/tail.js': (text) =>
          text
            .replace('if (navigator.locks)\n', 'becomeReader(); if (false)\n')
            .replace('if (reads && data.from < self) stopReading();', ''),
      },
    });
    const pages = [page, await context.newPage(), await context.newPage()];
    for (const one of pages) await one.goto(`${server.url}/ui/${hash('tail')}`);
    for (const one of pages) await one.locator('main').getByText('connected').waitFor();
    check((await readers(pages)) > 1, 'the seeded tabs share a stream');
    await context.close();
  },

  async 'a script in the page itself is found'() {
    const { context, watch } = await seeded(
      'index.html',
      '<div id="app">',
      '<script>window.seeded = 1</script><div id="app">',
    );
    check(
      watch.problems.some((one) => one.includes('script-src')),
      'a script in the page went through',
    );
    await context.close();
  },

  async 'a view that loses its content with the server is found'() {
    const { context, page, watch } = await seeded(
      'js/poll.js',
      '...(old.name === name ? old : { data: undefined, at: 0 })',
      'data: undefined, at: 0',
    );
    const view = VIEWS.find(({ name }) => name === 'subscription');
    await show(page, view.at);
    watch.allowed = NETWORK;
    await server.kill();
    await page.locator('.bar').getByText('server unreachable').waitFor();
    await until('the content to be lost', async () => (await page.locator('main').getByText(view.full).count()) === 0);
    await context.close();
    await server.start();
  },

  async 'keys that do nothing are found'() {
    const { context, page } = await seeded('js/keys.js', "key === 'j' || key === 'k'", "key === 'J'");
    await show(page, hash('subscriptions'));
    await settled(page);
    await page.keyboard.press('j');
    check(!(await page.evaluate(() => document.activeElement?.matches('[data-open]'))), 'the seeded key works');
    await context.close();
  },

  async 'a page that rounds numbers is found'() {
    const { context, page } = await seeded(
      'js/json.js',
      "let out = '';",
      'return JSON.stringify(JSON.parse(text), null, 2); let out;',
    );
    await server.ask(
      'POST',
      '/topics/orders/api/events',
      `[{"id":"exact","eventType":"Order.Paid","subject":"/a","dataVersion":"1","eventTime":"${new Date().toISOString()}","data":{"long":9007199254740993}}]`,
    );
    await show(page, hash('event', { topic: topicId('orders'), id: 'exact' }));
    await page.locator('main summary').first().click();
    const text = await page.locator('.payload pre').innerText();
    check(text.includes('"long"') && !text.includes('9007199254740993'), `the seeded page is exact: ${text}`);
    await context.close();
  },

  async 'a page that is wider than a small screen is found'() {
    const { context, page } = await visit(server, {
      viewport: { width: 320, height: 640 },
      seed: { 'app.css': (text) => `${text}\nmain { min-width: 640px; }` },
    });
    check((await page.evaluate(() => document.documentElement.scrollWidth)) > 320, 'a wide page went through');
    await context.close();
  },

  async 'a pause that does not pause is found'() {
    const { context, page } = await seeded('js/poll.js', 'paused.get() || hidden.get()', 'hidden.get()');
    await page.keyboard.press('p');
    await page.locator('.bar').getByText('paused').waitFor();
    const requests = [];
    page.on('request', (request) => requests.push(request.url()));
    await until('a request of the paused page', () => requests.some((url) => url.includes('/top')));
    await context.close();
  },

  async 'a page that asks too early is found'() {
    const { context, page } = await seeded('js/poll.js', 'error.retryAfter * 1000', '0');
    let asked = 0;
    await context.route('**/supervision', (route) => {
      asked += 1;
      return route.fulfill({
        status: 503,
        headers: { 'retry-after': '600' },
        json: { error: { code: 'ServerBusy', message: 'Too many requests wait.', details: [] } },
      });
    });
    await show(page, hash('server', { tab: 'supervision' }));
    await until('a second request', () => asked > 1);
    await context.close();
  },

  async 'a page that is not signed out is found'() {
    const { context, page } = await seeded('js/api.js', 'area.removeItem(KEY);', '');
    await page.getByRole('button', { name: /^Sign out/ }).click();
    await page.getByLabel('Token of an operator').waitFor();
    check(await page.evaluate(() => localStorage.getItem('gridhook.session')), 'the seeded session is gone');
    await context.close();
    const sound = await visit(server);
    await sound.page.getByRole('button', { name: /^Sign out/ }).click();
    await sound.page.getByLabel('Token of an operator').waitFor();
    check(
      !(await sound.page.evaluate(() => localStorage.getItem('gridhook.session'))),
      'the session is kept after the sign-out',
    );
    await signIn(sound.page);
    await sound.context.close();
  },
});
