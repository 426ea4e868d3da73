// Charts: by status and destination, one cursor, zoom by dragging, and the same figures as a table.
import { Server, check, scene, settled, topicId, until, violations, visit } from './support.mjs';

const STEPS = 120;
let page;
let watch;
const main = () => page.locator('main');
const column = (value) => Array.from({ length: STEPS }, (_, index) => (index < 20 ? null : value + (index % 7)));

/** A course of ten minutes that ends now. */
function course() {
  return {
    recorded: true,
    since: new Date(Date.now() - 60_000).toISOString(),
    from: new Date(Date.now() - STEPS * 5000).toISOString(),
    stepSeconds: 5,
    published: column(100),
    delivered: column(90),
    failedRequests: column(40),
    givenUp: column(1),
    refusedRequests: column(10),
    busyRequests: column(5),
    unansweredRequests: column(3),
    backlog: column(7),
    pending: column(4),
    responseP50Milliseconds: column(12.5),
    responseP99Milliseconds: column(80),
    destinations: [
      { topic: topicId('orders'), subscription: 'slow', delivered: column(10) },
      { topic: topicId('orders'), subscription: 'busy', delivered: column(80) },
    ],
  };
}

const cursors = () => main().locator('svg line.cursor').count();

await scene({
  async 'charts by status and by destination, with units'() {
    const server = await Server.start();
    await server.topic('orders');
    await server.subscribe('orders', 'billing', 'http://127.0.0.1:9/');
    let context;
    ({ context, page, watch } = await visit(server));
    const report = course();
    await context.route(/\/history\?/, (route) => route.fulfill({ json: report }));
    await page.reload();
    await settled(page);
    for (const title of [
      'Events',
      'Failed requests by status',
      'Waiting events',
      'Response time',
      'Delivered by destination, the busiest',
    ])
      await main().getByText(title, { exact: true }).waitFor();
    for (const name of ['refused (4xx)', 'busy (429, 503)', 'no response', 'other, such as 500'])
      await main().locator('figcaption').getByText(name).waitFor();
    const names = await main()
      .locator('figure')
      .filter({ hasText: 'Delivered by destination' })
      .locator('.key')
      .allInnerTexts();
    check(/busy/.test(names[0]) && /slow/.test(names[1]), `the busiest is not the first: ${names}`);
    const colours = await main()
      .locator('figure')
      .evaluateAll((figures) =>
        figures.map((figure) => [...figure.querySelectorAll('.key')].map((key) => getComputedStyle(key).color)),
      );
    check(
      colours.every((own) => new Set(own).size === own.length),
      `two series of a chart have one colour: ${JSON.stringify(colours)}`,
    );
    // The times below may end at the edge, too.
    const axis = await main().locator('figure').first().locator('g > text').allTextContents();
    check(
      axis.every((text) => text.endsWith('/s')),
      `the axis has no unit: ${axis}`,
    );
    watch.clean('charts');
  },

  async 'one cursor is in all charts'() {
    const charts = main().locator('figure svg');
    const count = await charts.count();
    await charts.first().hover();
    await until('the cursor in all charts', async () => (await cursors()) === count);
    const times = await main().locator('figcaption .faint').allInnerTexts();
    check(new Set(times).size === 1 && times[0] !== '', `the charts show different times: ${times}`);
    await page.mouse.move(0, 0);
    await until('no cursor', async () => (await cursors()) === 0);
  },

  async 'dragging zooms all charts, and Back undoes nothing else'() {
    const box = await main().locator('figure svg').nth(1).boundingBox();
    await page.mouse.move(box.x + box.width * 0.6, box.y + 40);
    await page.mouse.down();
    await page.mouse.move(box.x + box.width * 0.8, box.y + 40);
    await page.mouse.up();
    await page.mouse.move(0, 0);
    const chosen = main().getByRole('button', { name: / to \d\d:/ });
    await chosen.waitFor();
    check(/from=\d+.*to=\d+/.test(page.url()), `the range is not in the address: ${page.url()}`);
    await main().getByRole('button', { name: 'Table', exact: true }).click();
    const rows = await main().getByRole('region', { name: 'Figures' }).locator('tbody tr').count();
    check(rows > 15 && rows < 40, `${rows} steps are shown of a fifth of ${STEPS}`);
    await chosen.click();
    await until(
      'all steps',
      async () => (await main().getByRole('region', { name: 'Figures' }).locator('tbody tr').count()) === STEPS,
    );
  },

  async 'the table has all series with their units, for keyboard and readers'() {
    const headers = await main().getByRole('region', { name: 'Figures' }).locator('th').allInnerTexts();
    for (const name of ['Time', 'published, /s', 'refused (4xx), /s', 'backlog', 'p99, ms', 'orders / busy, /s'])
      check(headers.includes(name), `${name} is no column of ${headers}`);
    const found = await violations(page);
    check(found.length === 0, found.join('\n'));
    watch.clean('the table');
  },
});
