// The state of the page in the fragment of its URL, so that a link shows the same view. The server
// never sees the fragment.

/**
 * @typedef {object} UrlState
 * @property {string} task
 * @property {string} tab
 * @property {string} text
 * @property {string[]} states
 * @property {string} session
 * @property {string} range
 * @property {number} levels
 */

export const DEFAULT_LEVELS = 2;
export const ALL_LEVELS = 1000;

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
  const text = fields.toString();
  const url = `${location.pathname}${location.search}${text === '' ? '' : `#${text}`}`;
  if (url === `${location.pathname}${location.search}${location.hash}`) return;
  if (options.isNewEntry) history.pushState(null, '', url);
  else history.replaceState(null, '', url);
}

/** Returns the login code in the fragment and removes it from the URL and the history. */
export function takeLoginCode() {
  const code = new URLSearchParams(location.hash.slice(1)).get('code');
  if (code) history.replaceState(null, '', `${location.pathname}${location.search}`);
  return code;
}
