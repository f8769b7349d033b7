// Keys that work everywhere on the page except in a form control.

/**
 * @typedef {object} KeyHandlers
 * @property {{[key: string]: () => void}} keys
 * @property {() => boolean} isInGrid True if the focus is in the list or nowhere.
 * @property {{[key: string]: () => void}} gridKeys
 */

/** The keys and what they do, for the help. @type {[string, string][]} */
export const KEY_HELP = [
  ['j  k', 'Next and previous row'],
  ['l  h', 'Expand and collapse; first child and parent'],
  ['Enter', 'Open the task'],
  ['Esc', 'Clear the filter; close the task'],
  ['/', 'Filter by text; Enter goes to the rows'],
  ['a', 'Go to what needs you'],
  ['s', 'Stop the task and its descendants'],
  ['m', 'Send a message to the task'],
  ['f', 'Follow: go to the newest entries'],
  ['z', 'Fit the time axis to the task; again: to all'],
  ['n', 'Start a process or an agent'],
  ['g  G', 'First and last row'],
  ['?', 'Show the keys'],
];

/** @param {KeyHandlers} handlers */
export function listenToKeys(handlers) {
  document.addEventListener('keydown', (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    const target = /** @type {Element} */ (event.target);
    if (isTyping(target) && event.key !== 'Escape') return;
    const inGrid = handlers.isInGrid() ? handlers.gridKeys[event.key] : undefined;
    const handler = inGrid ?? handlers.keys[event.key];
    if (!handler) return;
    event.preventDefault();
    handler();
  });
}

/** @param {Element} target */
function isTyping(target) {
  return target.matches('input:not([type=checkbox], [type=radio]), textarea, select');
}
