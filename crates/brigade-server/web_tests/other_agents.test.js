// A tree of Brigade's own agent, agents of other vendors and a process.

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { api, openDashboard, keepScreenshot, rowOf, waitUntilLive, world } from './support.js';

const CHILDREN = ['Cook', 'Baker', 'Timer'];

/** Creates a repository in which tasks can have worktrees. */
function createRepository(t) {
  const directory = mkdtempSync(join(tmpdir(), 'brigade-kitchen-'));
  t.after(() => rmSync(directory, { recursive: true, force: true }));
  const env = { PATH: process.env.PATH, HOME: world.home };
  const git = (...words) => execFileSync('git', words, { cwd: directory, env });
  git('init', '-q');
  const author = ['-c', 'user.name=cook', '-c', 'user.email=cook@localhost'];
  git(...author, 'commit', '-q', '--allow-empty', '-m', 'begin');
  return directory;
}

test('a mixed tree is shown whole, and its stop reaches all', { skip: !world }, async (t) => {
  const workspace = createRepository(t);
  const session = await api('POST', 'sessions', { workspace });
  const root = await api('POST', `sessions/${session.id}/tasks`, {
    kind: 'agent',
    name: 'Mixed',
    prompt: 'Serve.',
    cwd: workspace,
    permissions: { allow: ['run_process', 'spawn_agent', 'wait_tasks'] },
  });
  const page = await openDashboard(t);
  await waitUntilLive(page);
  for (const name of ['Mixed', ...CHILDREN]) await rowOf(page, name).waitFor();
  for (const name of CHILDREN) {
    await rowOf(page, name)
      .locator('.cell-state', { hasText: /running|waiting/ })
      .waitFor();
    await rowOf(page, name).click();
    const { items } = await api('GET', `tasks?session=${session.id}&limit=100`);
    const { id } = items.find((task) => task.name === name);
    const number = id.split('.').at(-1);
    const panel = page.locator('#task-panel', { hasText: name });
    await panel.getByText(new RegExp(`brigade/.*/${number}/1`)).first().waitFor();
  }
  await keepScreenshot(page, 'other-agents');
  await api('POST', `tasks/${root.id}/stop`, {});
  for (const name of ['Mixed', ...CHILDREN]) {
    await rowOf(page, name).locator('.cell-state', { hasText: 'cancelled' }).waitFor();
  }
  const { items } = await api('GET', `tasks?session=${session.id}&limit=100`);
  assert.deepEqual(
    items.map((task) => task.name),
    [],
    'nothing is alive',
  );
});
