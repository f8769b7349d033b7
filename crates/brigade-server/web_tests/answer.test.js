// Answering a question on the page.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { api, openDashboard, waitUntilLive } from './support.js';

test('a question is answered in its card', async (t) => {
  const page = await openDashboard(t);
  await waitUntilLive(page);
  const { questions } = await api('GET', 'pending');
  assert.ok(questions.length > 0, 'the server has an open question');
  const { task, question } = questions[0];
  await page.goto(`${new URL(page.url()).origin}/#task=${task}`);
  await page.locator('.waits', { hasText: question.text.slice(0, 40) }).waitFor();
  const card = page.locator('#needs-you .card', { hasText: question.text.slice(0, 40) });
  await card.getByLabel('Answer').fill('Mark it as deprecated.');
  await card.getByRole('button', { name: 'Answer' }).click();
  await page.locator('.card.is-decided', { hasText: 'Answered' }).waitFor();
  const answered = await api('GET', `tasks/${task}`);
  assert.ok(!answered.questions.some((open) => open.call === question.call));
});
