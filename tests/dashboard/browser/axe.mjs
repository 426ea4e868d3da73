// axe-core: no violation of WCAG 2.2 AA in any view, light and dark, at 1280 and at 320 pixels; and nothing wider than the page at 320.
import { Server, check, hash, scene, show, subscriptionId, topicId, violations, visit } from './support.mjs';
import { VIEWS, fill } from './views.mjs';

let server;
let page;
let watch;

const all = (theme) => async () => {
  await page.emulateMedia({ colorScheme: theme, reducedMotion: 'reduce' });
  for (const { name, at } of VIEWS) {
    await show(page, at);
    const found = await violations(page);
    check(found.length === 0, `${name}, ${theme}: ${found.join('\n')}`);
  }
  watch.clean(theme);
};

await scene({
  async 'a full server'() {
    server = await Server.start({ GRIDHOOK_CHAOS__ENABLED: 'true' });
    await fill(server);
    ({ page, watch } = await visit(server));
  },
  light: all('light'),
  dark: all('dark'),

  async 'dialogs and the page of the sign-in'() {
    await page.keyboard.press('?');
    await page.getByRole('dialog').waitFor();
    check((await violations(page)).length === 0, `keys: ${(await violations(page)).join('\n')}`);
    await page.keyboard.press('Escape');
    await page.getByRole('button', { name: /^Sign out/ }).click();
    await page.getByLabel('Token of an operator').waitFor();
    check((await violations(page)).length === 0, `sign-in: ${(await violations(page)).join('\n')}`);
  },

  async 'nothing is wider than a page of 320 pixels, which 400 % of 1280 are'() {
    const narrow = await visit(server, { viewport: { width: 320, height: 640 } });
    // The longest names.
    const [topic, subscription] = ['t'.repeat(50), 's'.repeat(64)];
    await server.topic(topic);
    await server.subscribe(topic, subscription, 'http://127.0.0.1:9/');
    await server.publish(topic, [{ id: 'long' }]);
    const id = subscriptionId(topic, subscription);
    const long = [
      { name: 'event', at: hash('event', { topic: topicId(topic), id: 'long' }) },
      { name: 'topic', at: hash('topic', { id: topicId(topic) }) },
      { name: 'edit', at: hash('edit', { id }) },
      { name: 'subscription', at: hash('subscription', { id }) },
    ];
    for (const { name, at } of [...VIEWS, ...long]) {
      await show(narrow.page, at);
      const wide = await narrow.page.evaluate(() => document.documentElement.scrollWidth);
      check(
        wide <= 320,
        `${name} is ${wide} pixels wide: ${await narrow.page.evaluate(() =>
          [...document.querySelectorAll('body *')]
            .filter(
              (one) => one.getBoundingClientRect().right > 321 && !one.closest('.table, .views, pre, .command code'),
            )
            .slice(0, 4)
            .map((one) => one.outerHTML.slice(0, 120))
            .join('\n'),
        )}`,
      );
    }
    await show(narrow.page, VIEWS[3].at);
    check((await violations(narrow.page)).length === 0, `320: ${(await violations(narrow.page)).join('\n')}`);
    narrow.watch.clean('320');
  },

  async 'a box without a name is found'() {
    const seeded = await visit(server, {
      seed: { 'js/table.js': (text) => text.replace('aria-label=${`Select all of ${name}`}', '') },
    });
    await show(seeded.page, VIEWS[3].at);
    check(
      (await violations(seeded.page)).some((one) => one.startsWith('label')),
      'a box without a name went through',
    );
  },
});
