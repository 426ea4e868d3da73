// The nodes of a cluster: seen by everyone, moved, drained and forgotten by who may; on two real nodes and a server of NATS.
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { NETWORK, Server, atEnd, check, hash, nats, node, scene, show, until, violations, visit } from './support.mjs';

const AT = hash('server', { tab: 'cluster' });
const HOSTILE = '"><img src=x onerror=alert(1)>';

const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'gridhook-nodes-'));
atEnd(() => fs.rmSync(folder, { recursive: true, force: true }));
let nodes;
let page;
let watch;

const row = (name, of = page) =>
  of
    .getByRole('region', { name: 'Nodes' })
    .locator('tbody tr')
    .filter({ has: of.getByText(name, { exact: true }) });
const says = (name, text, of = page) => row(name, of).locator('.badge', { hasText: text }).first().waitFor();

/** Presses a button with the keyboard alone, and confirms. */
async function act(name, node, typed = '') {
  await page.getByRole('button', { name: `${name}: ${node}`, exact: true }).focus();
  await page.keyboard.press('Enter');
  const dialog = page.getByRole('dialog');
  await dialog.waitFor();
  check((await violations(page)).length === 0, `${name}: ${(await violations(page)).join('\n')}`);
  if (typed) {
    check(await dialog.getByRole('button', { name }).isDisabled(), 'the name is typed first');
    await dialog.getByLabel(`Type ${typed} to confirm`).focus();
    await page.keyboard.type(typed);
    await page.keyboard.press('Enter');
  } else {
    await dialog.getByRole('button', { name, exact: true }).focus();
    await page.keyboard.press('Enter');
  }
  await dialog.waitFor({ state: 'detached' });
}

await scene({
  async 'a server that is no node has no such part'() {
    const server = await Server.start();
    const alone = await visit(server);
    alone.watch.allowed = [/status of 404/];
    await show(alone.page, hash('server'));
    await alone.page.getByRole('tab', { name: 'Supervision' }).waitFor();
    check((await alone.page.getByRole('tab', { name: 'Cluster' }).count()) === 0, 'a tab for no cluster');
    await show(alone.page, AT);
    await alone.page.getByText('This server is no node of a cluster').waitFor();
    const text = await alone.page.evaluate(async () => {
      const load = (name) => import(new URL(`js/${name}.js`, document.baseURI).href);
      const { html, render } = await load('html');
      const { createStore, useStore } = await load('state');
      const source = createStore('before');
      const element = document.createElement('div');
      const Shown = () => useStore(source);
      render(html`<${Shown} />`, element);
      // Its effects have not begun.
      source.set('after');
      for (let turn = 0; turn < 100 && element.textContent !== 'after'; turn += 1)
        await new Promise((done) => setTimeout(done, 10));
      return element.textContent;
    });
    check(text === 'after', `a value that changed before a view listened is shown as ${text}`);
    alone.watch.clean('alone');
    await alone.context.close();
    await server.kill();
  },

  async 'two nodes'() {
    const url = await nats();
    const settings = (name) => node(name, url, folder);
    nodes = { a: await Server.start(settings('a')) };
    await until('an owner', async () => (await nodes.a.ask('GET', '/cluster/ownership')).value[0]?.ownerName === 'a');
    nodes.b = await Server.start(settings('b'));
    await nodes.a.topic('orders');
  },

  async 'everyone sees them, light and dark, and at 320 pixels'() {
    ({ page, watch } = await visit(nodes.a));
    await show(page, hash('server'));
    await page.getByRole('tab', { name: 'Cluster' }).waitFor();
    await page.getByRole('tab', { name: 'State' }).focus();
    for (let step = 0; step < 4; step += 1) await page.keyboard.press('ArrowRight');
    check((await page.getByRole('tab', { selected: true }).innerText()) === 'Cluster', 'it is reached by the keyboard');
    await says('a', 'owner');
    await says('b', 'alive');
    await page.locator('main dl').getByText('shop', { exact: true }).waitFor();
    for (const colorScheme of ['light', 'dark']) {
      await page.emulateMedia({ colorScheme, reducedMotion: 'reduce' });
      check((await violations(page)).length === 0, `${colorScheme}: ${(await violations(page)).join('\n')}`);
    }
    const narrow = await visit(nodes.a, { viewport: { width: 320, height: 640 } });
    await show(narrow.page, AT);
    await says('b', 'alive', narrow.page);
    const wide = await narrow.page.evaluate(() => document.documentElement.scrollWidth);
    check(wide <= 320, `it is ${wide} pixels wide`);
    await narrow.context.close();
  },

  async 'a reader sees them and does nothing, also through a standby'() {
    const { token } = await nodes.a.ask('POST', '/tokens', { name: 'reader', roles: ['read'] });
    const reader = await visit(nodes.b, { token });
    await show(reader.page, AT);
    await says('a', 'owner', reader.page);
    check(
      (await reader.page.getByRole('region', { name: 'Nodes' }).getByRole('button').count()) === 0,
      'a reader may act',
    );
    reader.watch.clean('reader');
    await reader.context.close();
  },

  async 'a node is drained, and forgotten when it is dead, by the keyboard'() {
    await act('Drain', 'b');
    await says('b', 'drained');
    check((await page.getByRole('button', { name: 'Make owner: b' }).count()) === 0, 'it takes nothing');
    await act('End drain', 'b');
    await says('b', 'alive');
    check((await page.getByRole('button', { name: /^Forget/ }).count()) === 0, 'a node that is alive is not forgotten');
    await nodes.b.kill();
    await says('b', 'dead');
    await act('Forget', 'b', 'b');
    await until(
      'it to be gone',
      async () => (await page.getByRole('region', { name: 'Nodes' }).locator('tbody tr').count()) === 1,
    );
    watch.clean('drained and forgotten');
    await nodes.b.start();
    await says('b', 'alive');
  },

  async 'another node becomes the owner'() {
    // Requests in flight end with the ownership; the session goes on at the next owner.
    watch.allowed = NETWORK;
    await act('Make owner', 'b');
    await until('the owner', async () => (await nodes.b.ask('GET', '/cluster/ownership')).value[0].ownerName === 'b');
    await says('b', 'owner');
    await page.locator('.bar').getByText('live', { exact: true }).waitFor();
    check((await page.getByText('Your session has ended').count()) === 0, 'the session has ended with the ownership');
    watch.clean('moved');
    await page.context().close();
  },

  async 'text of a record stays text'() {
    ({ page, watch } = await visit(nodes.b));
    const change = (url, edit) =>
      page.context().route(url, async (route) => {
        // The page may be closed meanwhile.
        const response = await route.fetch().catch(() => null);
        const answered = response ? route.fulfill({ response, json: edit(await response.json()) }) : route.abort();
        await answered.catch(() => undefined);
      });
    await change('**/cluster/status', (view) => {
      const node = { ...view.nodes[0], name: HOSTILE, address: HOSTILE, version: HOSTILE, state: 'dead', owns: [] };
      return { ...view, name: HOSTILE, node: HOSTILE, problem: HOSTILE, nodes: [...view.nodes, node] };
    });
    await change('**/cluster/ownership', (view) => ({
      value: [{ ...view.value[0], ownerName: HOSTILE, wantedBy: HOSTILE }],
    }));
    await show(page, AT);
    await page.getByRole('button', { name: `Forget: ${HOSTILE}` }).click();
    const dialog = page.getByRole('dialog');
    await dialog.getByText(`gridhook cluster forget '${HOSTILE}'`).waitFor();
    const markup = await page.locator('main img, dialog img, main script, dialog script').count();
    check(markup === 0, 'a name became markup');
    check((await violations(page)).length === 0, `hostile: ${(await violations(page)).join('\n')}`);
    watch.clean('hostile');
  },
});
