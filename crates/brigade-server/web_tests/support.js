// What the stories share: the server's address, a browser, pages with a token, the API, axe.

import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { extname, join } from 'node:path';
import { after, before } from 'node:test';
import { chromium } from 'playwright-core';
import { World } from './world.js';

export const url = required('BRIGADE_URL').replace(/\/$/, '');
export const token = required('BRIGADE_TOKEN');
export const directory = process.env.BRIGADE_CWD ?? mkdtempSync(join(tmpdir(), 'brigade-web-'));
/** The world of this run, if run.js has started one. */
export const world = process.env.BRIGADE_WORLD ? new World(process.env.BRIGADE_WORLD) : null;
const shots = process.env.BRIGADE_SHOTS;
/** A directory with sources of the page that replace those in the server. */
const sources = process.env.BRIGADE_WEB;
const axeSource = readFileSync(
  createRequire(import.meta.url).resolve('axe-core/axe.min.js'),
  'utf8',
);
/** Closed networks and containers need these. */
const CHROMIUM_ARGS = [
  '--no-sandbox',
  '--disable-gpu',
  '--disable-dev-shm-usage',
  '--disable-background-networking',
  '--disable-component-update',
  '--no-first-run',
];

const CONTENT_TYPES = { '.js': 'text/javascript', '.css': 'text/css', '.html': 'text/html' };

export const WIDE = { width: 1440, height: 900 };
export const PHONE = { width: 390, height: 844 };

let browser;

before(async () => {
  browser = await chromium.launch({
    executablePath: process.env.BRIGADE_CHROMIUM ?? '/usr/bin/chromium',
    args: CHROMIUM_ARGS,
  });
});

after(async () => {
  await browser?.close();
});

/**
 * Opens the dashboard in a new tab. Errors of the page and of its security policy fail the test.
 * @param {import('node:test').TestContext} t
 * @param {{hash?: string, theme?: 'light' | 'dark', viewport?: object, base?: string, withToken?: boolean | string, withTouch?: boolean}} [options]
 */
export async function openDashboard(t, options = {}) {
  const context = await browser.newContext({
    viewport: options.viewport ?? WIDE,
    colorScheme: options.theme ?? 'light',
    hasTouch: options.withTouch ?? false,
    reducedMotion: 'reduce',
  });
  const errors = [];
  if (options.withToken !== false) {
    await context.addInitScript((value) => {
      if (!sessionStorage.getItem('brigade_token_was_set'))
        sessionStorage.setItem('brigade_token', value);
      sessionStorage.setItem('brigade_token_was_set', 'yes');
    }, options.withToken ?? token);
  }
  if (sources) await useSources(context);
  const page = await context.newPage();
  page.setDefaultTimeout(15_000);
  page.on('pageerror', (error) => errors.push(error.message));
  page.on('console', (message) => {
    if (message.type() === 'error' && /Content Security Policy|Refused to/.test(message.text()))
      errors.push(message.text());
  });
  t.after(async () => {
    await context.unrouteAll({ behavior: 'ignoreErrors' });
    await context.close();
    assert.deepEqual(errors, [], 'the page has no errors');
  });
  await page.goto(`${options.base ?? url}/${options.hash ?? ''}`);
  return page;
}

/** Answers requests for the page with the sources, under the headers of the server. */
async function useSources(context) {
  const isPage = ({ pathname }) => /^\/(docs)?$|^\/assets\//.test(pathname);
  await context.route(isPage, async (route) => {
    const { pathname } = new URL(route.request().url());
    const pages = { '/': 'index.html', '/docs': 'docs.html' };
    const name = pages[pathname] ?? pathname.replace('/assets/', '');
    const body = readFileSync(join(sources, name));
    const response = await route.fetch();
    // The server may not have a new file yet.
    if (response.ok()) await route.fulfill({ response, body });
    else await route.fulfill({ contentType: CONTENT_TYPES[extname(name)], body });
  });
}

/** Waits until all tasks are loaded and the feed is followed. */
export async function waitUntilLive(page) {
  await page.locator('#connection-text', { hasText: /^Live$/ }).waitFor({ state: 'attached' });
}

/** Calls the API beside the page. */
export async function api(method, path, body, headers = {}) {
  const response = await fetch(`${url}/v1/${path}`, {
    method,
    headers: {
      authorization: `Bearer ${token}`,
      accept: 'application/json',
      ...(body === undefined ? {} : { 'content-type': 'application/json' }),
      ...headers,
    },
    body: body === undefined ? undefined : JSON.stringify(body),
  });
  const text = await response.text();
  assert.ok(response.ok, `${method} ${path}: ${response.status} ${text}`);
  return text === '' ? {} : JSON.parse(text);
}

/** Starts a task beside the page and returns it. */
export async function startTask(task) {
  const session = await api('POST', 'sessions', { workspace: directory });
  return api(
    'POST',
    `sessions/${session.id}/tasks`,
    { cwd: directory, ...task },
    { 'idempotency-key': uniqueName('key') },
  );
}

/** Starts a process beside the page and returns its task. */
export function startProcess(shell, name) {
  return startTask({ kind: 'process', shell, name });
}

let names = 0;

/** Returns a name that no other test uses. */
export function uniqueName(stem) {
  names += 1;
  return `${stem}-${process.pid}-${names}`;
}

/** Returns the row of a task by its name. */
export function rowOf(page, name) {
  return page.locator('.task-rows .row:not([hidden])', {
    has: page.locator('.label', { hasText: new RegExp(`^${name}$`) }),
  });
}

/** Fails if axe finds anything, on the whole page or in one part of it. */
export async function expectAccessible(page, where, selector = 'html') {
  await page.evaluate(axeSource);
  const { violations } = await page.evaluate(
    (part) => globalThis.axe.run(part, { resultTypes: ['violations'] }),
    selector,
  );
  const found = violations.map(
    (violation) =>
      `${violation.id}: ${violation.nodes
        .map((node) => node.target.join(' '))
        .slice(0, 5)
        .join(', ')}`,
  );
  assert.deepEqual(found, [], `axe finds nothing on ${where}`);
}

/** Keeps a screenshot, if they are wanted. */
export async function keepScreenshot(page, name) {
  if (!shots) return;
  mkdirSync(shots, { recursive: true });
  await page.screenshot({ path: join(shots, `${name}.png`) });
}

function required(name) {
  const value = process.env[name];
  if (!value) throw new Error(`set ${name}; README.md has the list`);
  return value;
}
