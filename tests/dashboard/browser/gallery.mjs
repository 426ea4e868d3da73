// A picture of every view, light and dark, wide and on a phone, for a person to look at.
import fs from 'node:fs';
import path from 'node:path';
import { Server, check, report, scene, show, visit } from './support.mjs';
import { VIEWS, fill } from './views.mjs';

const folder = process.env.GRIDHOOK_GALLERY;
const WIDTHS = [1440, 390];
const THEMES = /** @type {('light' | 'dark')[]} */ (['light', 'dark']);

await scene({
  async 'every view is pictured'() {
    const server = await Server.start({ GRIDHOOK_CHAOS__ENABLED: 'true' });
    await fill(server);
    fs.rmSync(folder, { recursive: true, force: true });
    fs.mkdirSync(folder, { recursive: true });
    for (const width of WIDTHS) {
      const { context, page, watch } = await visit(server, {
        viewport: { width, height: 900 },
        reducedMotion: 'reduce',
      });
      for (const { name, at, full } of VIEWS) {
        await show(page, at);
        await page.locator('main').getByText(full).filter({ visible: true }).first().waitFor();
        for (const colorScheme of THEMES) {
          await page.emulateMedia({ colorScheme });
          await page.screenshot({
            path: path.join(folder, `${name.replace(/\W+/g, '-')}-${colorScheme}-${width}.jpg`),
            type: 'jpeg',
            quality: 70,
          });
        }
      }
      watch.clean(`${width} pixels`);
      await context.close();
    }
    const pictures = fs.readdirSync(folder).length;
    check(pictures === VIEWS.length * WIDTHS.length * THEMES.length, `${pictures} pictures`);
    report(`${pictures} pictures`, folder);
  },
});
