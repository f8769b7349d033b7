// The state of the page in the fragment of its URL, so that a link shows the same view. The server
// never sees the fragment.

import { FOLD_PREFIX } from './visible_rows.js';

/**
 * @typedef {object} UrlState
 * @property {string} task
 * @property {string} tab
 * @property {string} text
 * @property {string[]} states
 * @property {string} session
 * @property {string} range
 * @property {number} levels
 * @property {Map<string, boolean>} expanded What the reader expanded or collapsed, by row key.
 */

export const DEFAULT_LEVELS = 2;
export const ALL_LEVELS = 1000;
/** A link stays short: of more rows than fit, those that the reader touched last are kept. */
const MAX_ROWS_CHARS = 1500;
const MAX_ROWS = 500;

/** @returns {UrlState} */
export function readUrlState() {
  const fields = new URLSearchParams(location.hash.slice(1));
  return {
    task: fields.get('task') ?? '',
    tab: fields.get('tab') ?? 'overview',
    text: fields.get('q') ?? '',
    states: (fields.get('state') ?? '').split(',').filter((state) => state !== ''),
    session: fields.get('session') ?? '',
    range: fields.get('range') ?? 'auto',
    levels:
      fields.get('levels') === 'all'
        ? ALL_LEVELS
        : Number(fields.get('levels') ?? DEFAULT_LEVELS) || DEFAULT_LEVELS,
    expanded: new Map([
      ...decodeRows(fields.get('open') ?? '', true),
      ...decodeRows(fields.get('shut') ?? '', false),
    ]),
  };
}

/**
 * Writes the state. A new history entry makes the back button close a task.
 * @param {UrlState} state
 * @param {{isNewEntry: boolean}} options
 */
export function writeUrlState(state, options) {
  const fields = new URLSearchParams();
  if (state.task) fields.set('task', state.task);
  if (state.task && state.tab !== 'overview') fields.set('tab', state.tab);
  if (state.text) fields.set('q', state.text);
  if (state.states.length > 0) fields.set('state', state.states.join(','));
  if (state.session) fields.set('session', state.session);
  if (state.range !== 'auto') fields.set('range', state.range);
  if (state.levels !== DEFAULT_LEVELS)
    fields.set('levels', state.levels === ALL_LEVELS ? 'all' : String(state.levels));
  const { open, shut } = encodeRows(state.expanded);
  if (open) fields.set('open', open);
  if (shut) fields.set('shut', shut);
  const text = fields.toString();
  const url = `${location.pathname}${location.search}${text === '' ? '' : `#${text}`}`;
  if (url === `${location.pathname}${location.search}${location.hash}`) return;
  if (options.isNewEntry) history.pushState(null, '', url);
  else history.replaceState(null, '', url);
}

/**
 * Encodes rows as `SESSION.1.2.f7~SESSION.4`; `f` marks a fold by its first task.
 * @param {Map<string, boolean>} expanded
 */
function encodeRows(expanded) {
  const kept = new Map([...expanded].slice(-MAX_ROWS));
  for (;;) {
    const open = encodeKeys([...kept.keys()].filter((key) => kept.get(key)));
    const shut = encodeKeys([...kept.keys()].filter((key) => !kept.get(key)));
    if (open.length + shut.length <= MAX_ROWS_CHARS) return { open, shut };
    for (const key of [...kept.keys()].slice(0, Math.ceil(kept.size / 8))) kept.delete(key);
  }
}

/** @param {string[]} keys */
function encodeKeys(keys) {
  /** @type {Map<string, string[]>} */
  const sessions = new Map();
  for (const key of keys) {
    const id = key.replace(FOLD_PREFIX, '');
    const [session, number] = id.split('.');
    const numbers = sessions.get(session) ?? [];
    numbers.push(id === key ? number : `f${number}`);
    sessions.set(session, numbers);
  }
  return [...sessions].map(([session, numbers]) => [session, ...numbers].join('.')).join('~');
}

/**
 * @param {string} text
 * @param {boolean} isExpanded
 * @returns {[string, boolean][]}
 */
function decodeRows(text, isExpanded) {
  /** @type {[string, boolean][]} */
  const rows = [];
  for (const part of text.split('~')) {
    const [session, ...numbers] = part.split('.');
    for (const number of numbers) {
      const match = /^(f?)(\d+)$/.exec(number);
      if (!match || rows.length >= MAX_ROWS) continue;
      rows.push([`${match[1] ? FOLD_PREFIX : ''}${session}.${match[2]}`, isExpanded]);
    }
  }
  return rows;
}

/** Returns the login code in the fragment and removes it from the URL and the history. */
export function takeLoginCode() {
  const code = new URLSearchParams(location.hash.slice(1)).get('code');
  if (code) history.replaceState(null, '', `${location.pathname}${location.search}`);
  return code;
}
