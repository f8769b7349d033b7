// The fields of an event on one line, as people read them.

/** @import {Author, Change} from './api_types.d.ts' */
/** @import {AppContext} from './app_context.js' */

import { nameOf } from './app_context.js';
import { formatAuthor, formatDuration, formatName, formatTime, formatUsage } from './format.js';

const TASK_ID = /^[0-9a-f]{8}-[0-9a-f-]{27}\.\d+$/;
const TIME = /^\d{4}-\d\d-\d\dT[\d:.]+Z$/;

/**
 * Returns the fields of a change.
 * @param {AppContext} app
 * @param {Change['data']} data
 */
export function describeData(app, data) {
  return describeFields(app, data ?? {}, ' · ');
}

/**
 * Names an author. A task is named by its address.
 * @param {AppContext} app
 * @param {Author} author
 */
export function describeAuthor(app, author) {
  return author.task ? nameOf(app, author.task) : formatAuthor(author);
}

/**
 * @param {AppContext} app
 * @param {object} fields
 * @param {string} separator
 */
function describeFields(app, fields, separator) {
  return Object.entries(fields)
    .map(([name, value]) => describeField(app, name, value))
    .filter((text) => text !== '')
    .join(separator);
}

/**
 * @param {AppContext} app
 * @param {string} name
 * @param {unknown} value
 */
function describeField(app, name, value) {
  if (value === null || value === '' || value === false) return '';
  if (value === true) return formatName(name);
  if (isUsage(value)) return `${formatName(name)}: ${formatUsage(value)}`;
  if (name === 'outcome' && isObject(value) && typeof value.text === 'string') return value.text;
  if (name.endsWith('_ms') && typeof value === 'number')
    return `${formatName(name.slice(0, -3))}: ${formatDuration(value)}`;
  const text = describeValue(app, value);
  return text === '' ? '' : `${formatName(name)}: ${text}`;
}

/**
 * @param {AppContext} app
 * @param {unknown} value
 * @returns {string}
 */
function describeValue(app, value) {
  if (typeof value === 'string') {
    if (TASK_ID.test(value)) return nameOf(app, value);
    return TIME.test(value) ? formatTime(value) : value;
  }
  if (Array.isArray(value)) return value.map((item) => describeValue(app, item)).join(', ');
  if (isObject(value)) return `(${describeFields(app, value, ', ')})`;
  return String(value);
}

/** @param {unknown} value @returns {value is {[name: string]: unknown}} */
function isObject(value) {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** @param {unknown} value @returns {value is {tokens: number, money: string}} */
function isUsage(value) {
  return isObject(value) && typeof value.tokens === 'number' && typeof value.money === 'string';
}
