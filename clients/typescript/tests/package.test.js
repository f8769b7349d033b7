// The package as its users get it, and the examples of its page.

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { after, before, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { Client } from '../dist/index.js';
import { Server } from './server.js';

const PACKAGE = path.join(path.dirname(fileURLToPath(import.meta.url)), '..');
let server;

before(async () => {
  server = await Server.start();
});

after(() => server?.stop());

function examples() {
  const text = fs.readFileSync(path.join(PACKAGE, 'README.md'), 'utf8');
  return [...text.matchAll(/```js\n(.*?)```/gs)].map((found) => found[1]);
}

test('a package has all files and runs the ten lines', (t) => {
  const dir = fs.mkdtempSync(path.join(os.tmpdir(), 'brigade-pack-'));
  t.after(() => fs.rmSync(dir, { recursive: true }));
  const run = (program, args, options) => execFileSync(program, args, { encoding: 'utf8', ...options });
  // The tests are run after a build.
  const pack = ['pack', '--json', '--silent', '--ignore-scripts', '--pack-destination', dir];
  run('npm', pack, { cwd: PACKAGE, stdio: ['ignore', 'pipe', 'ignore'] });
  const [archive] = fs.readdirSync(dir);
  run('tar', ['-xzf', archive], { cwd: dir });
  const names = fs.readdirSync(path.join(dir, 'package'), { recursive: true });
  const sources = fs.readdirSync(path.join(PACKAGE, 'src')).map((name) => path.parse(name).name);
  const built = sources.flatMap((name) => [`dist/${name}.js`, `dist/${name}.d.ts`]);
  const others = ['LICENSE-APACHE', 'LICENSE-MIT', 'README.md', 'dist', 'package.json'];
  assert.deepEqual(names.sort(), [...built, ...others].sort());
  const manifest = JSON.parse(fs.readFileSync(path.join(dir, 'package/package.json'), 'utf8'));
  assert.equal(manifest.dependencies, undefined);

  const modules = path.join(dir, 'node_modules/@brigade-run');
  fs.mkdirSync(modules, { recursive: true });
  fs.renameSync(path.join(dir, 'package'), path.join(modules, 'client'));
  // The session is that of the directory in which the program runs.
  fs.symlinkSync(path.join(dir, 'node_modules'), path.join(server.project, 'node_modules'));
  fs.writeFileSync(path.join(server.project, 'example.mjs'), examples()[0]);
  const env = { PATH: process.env.PATH, BRIGADE_URL: server.url, BRIGADE_TOKEN: server.token };
  const runs = [1, 2].map(() => run(process.execPath, ['example.mjs'], { cwd: server.project, env }));
  assert.match(runs[0], /^\S+\.1\ndone\n\n$/);
  assert.equal(runs[1], runs[0], 'the same key is the same task');
});

test('the example of an agent asks a person', async () => {
  const client = new Client({ url: server.url, token: server.token });
  const session = await client.session(server.project);
  const asked = [];
  const confirm = async (question) => asked.push(question);
  const AsyncFunction = (async () => {}).constructor;
  await new AsyncFunction('client', 'session', 'confirm', 'console', examples()[1])(
    client,
    session,
    confirm,
    { log: (result) => asked.push(result) },
  );
  assert.deepEqual(asked, ['run_process(echo allowed)', 'It ran, or it was not allowed.']);
});
