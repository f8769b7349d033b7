// Numbers, times and JSON as people read them.

/** @import {Author, Usage} from './api_types.d.ts' */

const SECOND = 1000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

const clock = new Intl.DateTimeFormat(undefined, {
  hour: '2-digit',
  minute: '2-digit',
  second: '2-digit',
  hourCycle: 'h23',
});
const day = new Intl.DateTimeFormat(undefined, { month: 'short', day: 'numeric' });
const dayAndYear = new Intl.DateTimeFormat(undefined, { dateStyle: 'medium' });
const grouped = new Intl.NumberFormat(undefined);

/**
 * Formats a duration with its two largest units: `3m 12s`.
 * @param {number} ms
 */
export function formatDuration(ms) {
  if (!(ms >= 0)) return '0s';
  if (ms < SECOND) return `${Math.round(ms)}ms`;
  if (ms < MINUTE) return `${Math.floor(ms / SECOND)}s`;
  if (ms < HOUR) return `${Math.floor(ms / MINUTE)}m ${Math.floor((ms % MINUTE) / SECOND)}s`;
  if (ms < DAY) return `${Math.floor(ms / HOUR)}h ${Math.floor((ms % HOUR) / MINUTE)}m`;
  return `${Math.floor(ms / DAY)}d ${Math.floor((ms % DAY) / HOUR)}h`;
}

/**
 * Formats a duration with its largest unit: `3m`.
 * @param {number} ms
 */
export function formatAge(ms) {
  return formatDuration(ms).split(' ')[0];
}

/**
 * Formats a time of day of 24 hours, with the day if it is not today. All times of the page look so.
 * @param {string | number} time
 */
export function formatTime(time) {
  const date = new Date(time);
  if (Number.isNaN(date.getTime())) return String(time);
  const today = new Date();
  if (date.toDateString() === today.toDateString()) return clock.format(date);
  const isThisYear = date.getFullYear() === today.getFullYear();
  return `${(isThisYear ? day : dayAndYear).format(date)}, ${clock.format(date)}`;
}

/**
 * Formats US dollars: cents, or four digits below ten cents.
 * @param {string | undefined} money
 */
export function formatMoney(money) {
  const amount = Number(money ?? 0);
  if (!Number.isFinite(amount)) return String(money);
  if (amount === 0) return '$0';
  return `$${amount.toFixed(amount < 0.1 ? 4 : 2)}`;
}

/**
 * Formats a number with separators.
 * @param {number} number
 */
export function formatNumber(number) {
  return grouped.format(number);
}

/**
 * Formats a number of tokens: `12.3k`.
 * @param {number} tokens
 */
export function formatTokens(tokens) {
  if (tokens < 1000) return String(tokens);
  if (tokens < 999_500) return `${(tokens / 1000).toFixed(tokens < 10_000 ? 1 : 0)}k`;
  return `${(tokens / 1_000_000).toFixed(1)}M`;
}

/**
 * Formats a usage for a table cell: money, or tokens if no price is known, or nothing.
 * @param {Usage | undefined} usage
 */
export function formatCost(usage) {
  if (Number(usage?.money ?? 0) > 0) return formatMoney(usage?.money);
  const tokens = usage?.tokens ?? 0;
  return tokens > 0 ? `${formatTokens(tokens)} tok` : '';
}

/**
 * Formats a usage as money and tokens.
 * @param {Usage | undefined} usage
 */
export function formatUsage(usage) {
  return `${formatMoney(usage?.money)} · ${formatNumber(usage?.tokens ?? 0)} tokens`;
}

/**
 * Formats a value: a string as it is, other JSON indented.
 * @param {unknown} value
 */
export function formatJson(value) {
  if (typeof value === 'string') return value;
  return JSON.stringify(value, null, 2) ?? '';
}

/**
 * Formats a count with its noun: `1 task`, `2 tasks`.
 * @param {number} count
 * @param {string} noun
 */
export function formatCount(count, noun) {
  return `${formatNumber(count)} ${noun}${count === 1 ? '' : 's'}`;
}

/**
 * Returns the last part of a session's name, which for a workspace is a path.
 * @param {string} name
 */
export function shortSession(name) {
  return name.slice(name.lastIndexOf('/', name.length - 2) + 1);
}

/**
 * Turns `delivery_unknown` into `delivery unknown`.
 * @param {string} name
 */
export function formatName(name) {
  return name.replaceAll('_', ' ');
}

/**
 * Returns an author as in `operator, terminal pts/3`. It is foreign text.
 * @param {Author} author
 */
export function formatAuthor(author) {
  const task = author.task?.slice(author.task.lastIndexOf('.') + 1);
  const name = author.name ?? task;
  const who = name ? `${author.kind} ${name}` : author.kind;
  return author.origin ? `${who}, ${author.origin}` : who;
}
