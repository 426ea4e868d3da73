// The page's modules against the types of the API, as the server describes it: a field or a path that is not there is found.
import { execFileSync } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import { Server, check, scene } from './support.mjs';

const here = import.meta.dirname ?? path.dirname(new URL(import.meta.url).pathname);
const run = (program, ...more) =>
  execFileSync(process.execPath, [path.join(here, 'node_modules', program), ...more], {
    cwd: here,
    encoding: 'utf8',
    stdio: ['ignore', 'pipe', 'pipe'],
    maxBuffer: 1 << 26,
  });

/** What the compiler says of the page, with a change to one of its files. */
function compile(seed = null) {
  const page = path.join(here, 'page');
  fs.rmSync(page, { recursive: true, force: true });
  fs.cpSync(process.env.GRIDHOOK_PAGE, page, { recursive: true });
  for (const [name, of] of [
    ['preact', 'preact'],
    ['preact-hooks', 'preact/hooks'],
  ])
    fs.writeFileSync(path.join(page, 'vendor', `${name}.d.ts`), `export * from '${of}';\n`);
  fs.writeFileSync(path.join(page, 'vendor', 'htm.d.ts'), "export { default } from 'htm';\n");
  fs.copyFileSync(path.join(here, 'openapi.d.ts'), path.join(page, 'js', 'openapi.d.ts'));
  if (seed) {
    const file = path.join(page, 'js', seed.file);
    const text = fs.readFileSync(file, 'utf8');
    check(text.includes(seed.from), `the seed does not fit ${seed.file}`);
    fs.writeFileSync(file, text.replace(seed.from, seed.to));
  }
  const options = {
    allowJs: true,
    checkJs: true,
    noEmit: true,
    strict: false,
    target: 'es2023',
    module: 'esnext',
    moduleResolution: 'bundler',
    lib: ['es2023', 'dom', 'dom.iterable', 'dom.asynciterable'],
    types: [],
    skipLibCheck: true,
  };
  fs.writeFileSync(
    path.join(here, 'tsconfig.json'),
    JSON.stringify({ compilerOptions: options, include: ['page/js'] }),
  );
  try {
    run('typescript/bin/tsc', '--project', 'tsconfig.json');
    return '';
  } catch (error) {
    return error.stdout || error.message;
  }
}

await scene({
  async 'the types of the API are generated'() {
    // Paths of chaos are described where they exist.
    const server = await Server.start({ GRIDHOOK_CHAOS__ENABLED: 'true' });
    fs.writeFileSync(path.join(here, 'openapi.json'), JSON.stringify(await server.ask('GET', '/openapi.json')));
    run('openapi-typescript/bin/cli.js', 'openapi.json', '--output', 'openapi.d.ts');
    await server.kill();
  },

  async 'the page has no other fields than the API'() {
    const said = compile();
    check(said === '', said);
  },

  async 'a wrong field is found'() {
    const said = compile({ file: 'views/server.js', from: 'data.expiryPaused', to: 'data.expiryIsHeld' });
    check(said.includes("'expiryIsHeld' does not exist"), `a field that the API does not have went through: ${said}`);
  },
});
