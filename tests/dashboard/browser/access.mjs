// Who may use the server: tokens, portal links, sessions and the audit trail, and what a session that ends leaves behind.
import {
  NETWORK,
  Server,
  TOKEN,
  check,
  hash,
  receiver,
  scene,
  settled,
  show,
  signIn,
  topicId,
  until,
  visit,
} from './support.mjs';

let server;
let page;
let context;
let watch;
const main = () => page.locator('main');
const dialog = () => page.getByRole('dialog');
const heading = (name) => page.getByRole('heading', { level: 1, name, exact: true }).waitFor();
const button = (name) => page.getByRole('button', { name, exact: true });
const statusOf = async (token) =>
  (await fetch(`${server.url}/top`, { headers: { authorization: `Bearer ${token}` } })).status;

await scene({
  async 'a token is created, shown once, and revoked'() {
    server = await Server.start();
    await server.topic('orders');
    ({ context, page, watch } = await visit(server));
    await page.getByRole('link', { name: 'Tokens', exact: true }).click();
    await heading('Tokens');
    await button('New token …').click();
    check(
      await dialog()
        .getByLabel('Name')
        .evaluate((one) => one === document.activeElement),
      'the focus is not on the name',
    );
    await dialog().getByLabel('Name').fill('no spaces');
    await button('Create').click();
    await dialog().locator('.wrong').getByText('1 to 64 letters').waitFor();
    await dialog().getByLabel('Name').fill('shop');
    await dialog().getByLabel('Limited to').fill('topics/orders');
    await dialog().getByText('gridhook tokens create shop --role read --scope topics/orders').waitFor();
    await button('Create').click();
    const token = await dialog().getByRole('region', { name: 'Token' }).innerText();
    check(token.startsWith('ght_') && (await statusOf(token)) === 200, `the token ${token} is refused`);
    await button('Done').click();
    await main().getByRole('cell', { name: 'topics/orders' }).waitFor();
    check(!(await page.locator('body').innerText()).includes(token), 'the token is shown again');
    await page.getByRole('button', { name: 'Revoke shop' }).click();
    await dialog().getByRole('button', { name: 'Revoke', exact: true }).click();
    await main().getByText('There is no named token yet').waitFor();
    check((await statusOf(token)) === 401, 'the token is still accepted');
    watch.problems = watch.problems.filter((one) => !/status of 400/.test(one));
    watch.clean('tokens');
  },

  async 'a portal link is created and opens'() {
    await page.getByRole('link', { name: 'Portal links' }).click();
    await heading('Portal links');
    await button('New link …').click();
    await dialog().getByLabel('Name').fill('shop-link');
    await dialog().getByLabel('Event subscriptions').fill('labels/team=shop');
    await button('Create').click();
    const link = await dialog().getByRole('region', { name: 'Link' }).innerText();
    await button('Done').click();
    await main().getByRole('cell', { name: 'shop-link', exact: true }).waitFor();
    // Also in a browser that is signed in, whose session stays.
    const other = await context.newPage();
    await other.goto(link);
    await other.getByRole('heading', { level: 1, name: 'Event subscriptions' }).waitFor();
    check(
      (await other.locator('nav.views a').allInnerTexts()).join() === 'Subscriptions,Dead letters',
      'the link shows the views of an operator',
    );
    await other.close();
    await page.reload();
    await main().getByRole('cell', { name: 'shop-link', exact: true }).waitFor();
    watch.clean('links');
  },

  async 'sessions are listed and ended, and all tabs of a browser share one'() {
    await page.getByRole('link', { name: 'Sessions' }).click();
    await heading('Sessions');
    await main().getByText('this one').waitFor();
    const other = await visit(server);
    await until('the other session', async () => (await main().locator('tbody tr').count()) === 2);
    await page.getByRole('button', { name: 'End the session of admin' }).click();
    await button('End the session').click();
    await until('one session', async () => (await main().locator('tbody tr').count()) === 1);
    await other.page.getByText('Your session has ended').waitFor();
    await other.context.close();
    const tab = await context.newPage();
    await tab.goto(`${server.url}/ui/`);
    await tab.getByRole('button', { name: /^Sign out/ }).click();
    await page.getByText('The session has ended in another tab').waitFor();
    await signIn(tab);
    await page.getByRole('button', { name: /^Sign out/ }).waitFor();
    await tab.close();
    watch.problems = watch.problems.filter((one) => !/status of 401/.test(one));
    watch.clean('sessions');
  },

  async 'the audit trail has a view of its own'() {
    await page.getByRole('link', { name: 'Audit trail' }).click();
    await heading('Audit trail');
    await main()
      .getByRole('cell', { name: 'shop-link', exact: true })
      .or(main().getByText('tokens', { exact: false }))
      .first()
      .waitFor();
    await show(page, hash('server'));
    check(
      (await main().getByRole('tab', { name: 'Audit trail' }).count()) === 0,
      'the audit trail is a tab of the server, too',
    );
    watch.clean('audit');
  },

  async 'nothing typed is lost when the session ends'() {
    watch.allowed = NETWORK;
    const hook = await receiver({}, {});
    await show(page, hash('edit', { topic: topicId('orders') }));
    await main().getByLabel('Name', { exact: true }).fill('billing');
    await main().getByLabel('Endpoint URL').fill(`${hook}/billing`);
    const { value } = await server.ask('GET', '/sessions');
    for (const { id } of value) await server.ask('DELETE', `/sessions/${id}`);
    await button('Review').click();
    await dialog().getByText('Your session has ended').waitFor();
    check(!(await main().getByLabel('Endpoint URL').isVisible()), 'the page is shown without a session');
    // Esc does not lead past the sign-in.
    for (let n = 0; n < 3; n += 1) await page.keyboard.press('Escape');
    await dialog().getByLabel('Token of an operator').fill(TOKEN);
    await button('Sign in').click();
    await dialog().waitFor({ state: 'detached' });
    check((await main().getByLabel('Endpoint URL').inputValue()) === `${hook}/billing`, 'the address is gone');
    await button('Review').click();
    await button('Create').click();
    await heading('billing');
    await settled(page);
  },

  async 'the editor offers no change to an operator who may only read'() {
    const { token } = await server.ask('POST', '/tokens', { name: 'reader', roles: ['read'] });
    const reader = await visit(server, { token });
    await show(reader.page, hash('edit', { topic: topicId('orders') }));
    await reader.page.getByText('Changes need the role admin').waitFor();
    check((await reader.page.getByRole('button', { name: 'Review' }).count()) === 0, 'a reader can review a change');
    await reader.context.close();
  },

  async 'another operator does not get what was typed'() {
    const { token } = await server.ask('POST', '/tokens', { name: 'other', roles: ['admin'] });
    await show(page, hash('edit', { topic: topicId('orders') }));
    await main().getByLabel('Name', { exact: true }).fill('secret-plan');
    const { value } = await server.ask('GET', '/sessions');
    for (const { id } of value) await server.ask('DELETE', `/sessions/${id}`);
    await button('Review').isVisible();
    await main().getByLabel('Endpoint URL').fill('http://127.0.0.1:9/');
    await button('Review').click();
    await dialog().getByLabel('Token of an operator').fill(token);
    await button('Sign in').click();
    await dialog().waitFor({ state: 'detached' });
    check(
      (await main().getByLabel('Name', { exact: true }).inputValue()) === '',
      'another operator sees what was typed',
    );
    watch.clean('sessions that end');
  },
});
