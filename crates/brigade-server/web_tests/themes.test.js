// Every part of the page in both themes: axe finds nothing, and screenshots are kept.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { api, expectAccessible, keepScreenshot, openDashboard, waitUntilLive } from './support.js';

for (const theme of /** @type {const} */ (['light', 'dark'])) {
  test(`list, "Needs you", start form and help in the ${theme} theme`, async (t) => {
    const page = await openDashboard(t, { theme });
    await waitUntilLive(page);
    await page.locator('.task-rows .row:not([hidden])').first().waitFor();
    await expectAccessible(page, 'the list');
    await keepScreenshot(page, `list-${theme}`);
    const isDark = await page.evaluate(() => getComputedStyle(document.body).backgroundColor);
    const brightness = isDark
      .match(/\d+/g)
      .slice(0, 3)
      .reduce((sum, value) => sum + Number(value), 0);
    assert.equal(brightness < 384, theme === 'dark');
    await page.keyboard.press('?');
    await expectAccessible(page, 'the help');
    await page.keyboard.press('?');
    await page.getByRole('button', { name: 'Start…' }).click();
    await expectAccessible(page, 'the start form of a process');
    await page.getByLabel('an agent').check();
    await expectAccessible(page, 'the start form of an agent');
    await keepScreenshot(page, `start-${theme}`);
  });

  test(`the panel and its tabs in the ${theme} theme`, async (t) => {
    const { items } = await api('GET', 'tasks?ended=true&limit=1000');
    const shown = [
      items.find((task) => task.kind === 'agent' && task.alive),
      items.find((task) => task.kind === 'process'),
    ];
    for (const task of shown) {
      assert.ok(task, 'the server has an agent and a process');
      const page = await openDashboard(t, { theme, hash: `#task=${task.id}` });
      await waitUntilLive(page);
      for (const tab of await page.getByRole('tab').all()) {
        await tab.click();
        const name = (await tab.textContent()).toLowerCase();
        await page.waitForTimeout(300);
        await expectAccessible(page, `${name} of ${task.address}`, '#task-panel');
        await keepScreenshot(page, `panel-${task.kind}-${name}-${theme}`);
      }
      await expectAccessible(page, `the page with ${task.address}`);
    }
  });

  test(`the question before a stop in the ${theme} theme`, async (t) => {
    const { items } = await api('GET', 'tasks?limit=1000');
    const task = items.find((one) => one.alive && one.state !== 'stopping');
    const page = await openDashboard(t, { theme, hash: `#task=${task.id}` });
    await waitUntilLive(page);
    await page.getByRole('button', { name: 'Stop…' }).click();
    await expectAccessible(page, 'the question before a stop');
  });
}
