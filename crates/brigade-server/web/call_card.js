// A pending approval as a card: the whole call, so that a person knows what they allow.

/** @import {Approval} from './api_types.d.ts' */

import { el } from './dom.js';
import { formatJson } from './format.js';
import { foreignText, scrollableText } from './visible_text.js';

/** A longer argument gets a scrollable box of its own, in full. */
const SHORT_CHARS = 80;

/**
 * Returns the facts of a call: tool, every argument, directory, rule.
 * @param {Approval} approval
 */
export function renderCall(approval) {
  const facts = el('dl', { class: 'call-facts' });
  addFact(facts, 'Tool', foreignText('code', approval.tool));
  for (const [name, value] of listArguments(approval.arguments)) {
    addFact(facts, name, renderValue(value), true);
  }
  if (approval.directory) addFact(facts, 'Directory', foreignText('code', approval.directory));
  const rule = el(
    'span',
    {},
    foreignText('code', approval.rule),
    ' of ',
    foreignText('span', approval.rule_source),
  );
  addFact(facts, 'Rule', rule);
  return facts;
}

/**
 * Returns the arguments by name. Arguments that are not an object, or a JSON text that differs
 * from its parsed form (a repeated key, a large number), are one value and shown as they are.
 * @param {unknown} given
 * @returns {[string, unknown][]}
 */
export function listArguments(given) {
  if (given === undefined) return [];
  let value = given;
  if (typeof given === 'string') {
    try {
      value = JSON.parse(given);
    } catch {
      return [['Arguments', given]];
    }
    if (compactJson(given) !== JSON.stringify(value)) return [['Arguments', given]];
  }
  if (value === null || typeof value !== 'object' || Array.isArray(value))
    return [['Arguments', value]];
  return Object.entries(value);
}

/** Removes the space outside of strings. @param {string} json */
function compactJson(json) {
  return json.replace(/("(?:[^"\\]|\\.)*")|\s+/g, (_, text) => text ?? '');
}

/** @param {unknown} value */
function renderValue(value) {
  const text = formatJson(value);
  if (text.length <= SHORT_CHARS && !text.includes('\n')) return foreignText('code', text);
  return scrollableText('pre', text, 'long-value', 'Argument in full');
}

/**
 * @param {HTMLElement} list
 * @param {string} name
 * @param {HTMLElement} value
 * @param {boolean} [isForeign]
 */
function addFact(list, name, value, isForeign = false) {
  const term = isForeign ? foreignText('dt', name, 'argument-name') : el('dt', { text: name });
  list.append(term, el('dd', {}, value));
}
