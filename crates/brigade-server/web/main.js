// The dashboard: logs in, loads all tasks, follows the feed, and connects the parts of the page.

/** @import {Change, TaskList, WhoAmI} from './api_types.d.ts' */
/** @import {AppContext} from './app_context.js' */

import { Api, describeError, Problem } from './api.js';
import { ConnectionStatus } from './connection_status.js';
import { Dashboard } from './dashboard.js';
import { byId } from './dom.js';
import { EventStream } from './event_stream.js';
import { requestToken } from './login.js';
import { TaskStore } from './task_store.js';
import { takeLoginCode } from './url_state.js';

const PAGE_TASKS = 1000;
const RETRY_MS = 2000;
/** Retention removes old tasks without a change, so that a page that stays open lists them again. */
const RELIST_MS = 3_600_000;

const api = new Api();
const store = new TaskStore();
/** @type {((change: Change) => void)[]} */
const changeListeners = [];
/** @type {EventStream | null} */
let stream = null;
const status = new ConnectionStatus(() => stream?.reconnectNow());

api.onUnauthenticated = () => {
  // The dashboard's state is that of one caller: a reload starts anew, at the login page.
  if (byId('app').hidden) return;
  api.clearToken();
  location.reload();
};

async function start() {
  const caller = await logIn();
  byId('app').hidden = false;
  /** @type {AppContext} */
  const app = {
    api,
    store,
    caller,
    canChange: caller.token.scope !== 'read_only',
    openTask: (id, options) => dashboard.openTask(id, options ?? {}),
    onChange: (listener) => {
      changeListeners.push(listener);
      return () => changeListeners.splice(changeListeners.indexOf(listener), 1);
    },
  };
  const dashboard = new Dashboard(app);
  await loadTasks();
  dashboard.onLoaded();
  setInterval(() => loadTasks(), RELIST_MS);
}

/** @returns {Promise<WhoAmI>} */
async function logIn() {
  const code = takeLoginCode();
  let message = '';
  if (code) {
    try {
      await api.login(code);
    } catch (error) {
      message = describeError(error);
    }
  }
  for (;;) {
    if (!api.token) await requestToken(api, message);
    try {
      return await api.get('whoami');
    } catch (error) {
      if (error instanceof Problem && error.code === 'unauthenticated') {
        api.clearToken();
        byId('app').hidden = true;
        message = 'The login has ended.';
      } else {
        showUnreachable();
        await pause(RETRY_MS);
      }
    }
  }
}

/** Shows the page without tasks, until the server answers for the first time. */
function showUnreachable() {
  status.setState({ name: 'reconnecting', retryAt: Date.now() + RETRY_MS });
  byId('app').hidden = false;
  byId('no-tasks').hidden = false;
  byId('no-tasks-text').textContent =
    'The server cannot be reached. The tasks appear here as soon as it answers.';
}

let isLoading = false;
let isReloadNeeded = false;
let isCursorUnknown = false;
let isRepair = false;

/** Changes are missing: loads all tasks. */
function repairTasks() {
  isRepair = true;
  loadTasks();
}

/** Loads all tasks, and again if that became necessary meanwhile. */
async function loadTasks() {
  isReloadNeeded = true;
  if (isLoading) return;
  isLoading = true;
  status.setLoading(true);
  while (isReloadNeeded) {
    isReloadNeeded = false;
    await loadPages();
  }
  isLoading = false;
  status.setLoading(false);
}

/**
 * Loads all tasks page by page. The feed is followed from the first page's cursor on, so that no
 * change between the pages is lost.
 */
async function loadPages() {
  const options = { isRepair };
  isRepair = false;
  store.beginLoad(options);
  let page = '';
  for (;;) {
    const query = new URLSearchParams({
      ended: 'true',
      order: 'newest',
      limit: String(PAGE_TASKS),
    });
    if (page !== '') query.set('page', page);
    try {
      /** @type {TaskList} */
      const answer = await api.get(`tasks?${query}`);
      if (page === '') useCursor(answer.cursor);
      store.addPage(answer.items);
      if (!answer.next_page) break;
      page = answer.next_page;
    } catch (error) {
      if (error instanceof Problem && error.code === 'invalid' && page !== '') {
        // The page token has lapsed: begin again.
        page = '';
        store.beginLoad(options);
      }
      if (!stream) status.setState({ name: 'reconnecting', retryAt: Date.now() + RETRY_MS });
      await pause(RETRY_MS);
    }
  }
  store.finishLoad();
}

/** @param {string} cursor */
function useCursor(cursor) {
  if (!stream) {
    stream = followFeed(cursor);
  } else if (isCursorUnknown) {
    isCursorUnknown = false;
    stream.cursor = cursor;
  }
}

/** @param {string} cursor */
function followFeed(cursor) {
  const feed = new EventStream(api, cursor, {
    onChange: (change) => {
      store.apply(change);
      for (const listener of changeListeners) listener(change);
    },
    onState: (state) => status.setState(state),
    onGap: () => repairTasks(),
    onUnknownCursor: () => {
      isCursorUnknown = true;
      repairTasks();
    },
  });
  feed.run();
  return feed;
}

/** @param {number} ms */
function pause(ms) {
  return new Promise((resolve) => setTimeout(resolve, ms));
}

// Not awaited: the browser would show the page as loading until all tasks are here.
start();
