// The states of a task as the page shows them. A state that this page does not know is shown by
// its name, with a neutral symbol.

/** @import {Task} from './api_types.d.ts' */

import { visibleLine } from './visible_text.js';

/** The known states in the order in which counts are shown. */
export const STATES = [
  'running',
  'waiting',
  'queued',
  'stopping',
  'closing',
  'away',
  'failed',
  'cancelled',
  'succeeded',
];

const KNOWN = new Set(STATES);

/**
 * Returns the name of the symbol and of the colour of a state.
 * @param {string} state
 */
export function stateSymbol(state) {
  return KNOWN.has(state) ? state : 'other';
}

/**
 * Returns the state as people read it: `away (kitchen-2)`.
 * @param {Task} task
 */
export function describeState(task) {
  if (task.away) return `${task.state} (${visibleLine(task.away.node)})`;
  if (task.stalled) return `${task.state}, stalled`;
  return task.ready_at && task.state === 'running' ? `${task.state} (ready)` : task.state;
}

/**
 * Returns all states of a count, the known ones first.
 * @param {Map<string, number>} counts
 */
export function countedStates(counts) {
  const others = [...counts.keys()].filter((state) => !KNOWN.has(state)).sort();
  return [...STATES, ...others].filter((state) => (counts.get(state) ?? 0) > 0);
}
