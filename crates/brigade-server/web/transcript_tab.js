// The transcript of an agent, with the model's text as it arrives.

/** @import {Change, TranscriptItem} from './api_types.d.ts' */
/** @import {AppContext} from './app_context.js' */
/** @import {TaskRecord} from './task_store.js' */

import { el } from './dom.js';
import { formatJson } from './format.js';
import { PanelTab } from './panel_tab.js';
import { followStream } from './stream_reader.js';
import { TailScroller } from './tail_scroller.js';
import { foreignText, scrollableText, visibleText } from './visible_text.js';

const PAGE_ITEMS = 200;
const RELOAD_MS = 1000;
const MAX_LIVE_CHARS = 50_000;
const SUMMARY_CHARS = 120;

export class TranscriptTab extends PanelTab {
  #nextIndex = 0;
  /** The page token of the last page, which is read again for newer items. */
  #lastPage = '';
  #isLoading = false;
  #isStale = false;
  /** The reply that arrives now: its text, and the names of its tool calls. */
  #live = new LiveReply();
  /** The last recorded reply. @type {TranscriptItem | null} */
  #lastReply = null;
  #isLiveScheduled = false;
  /** The run whose text is followed. */
  #run = 0;

  /**
   * @param {AppContext} app
   * @param {TaskRecord} record
   */
  constructor(app, record) {
    super(app, record);
    this.scroller = new TailScroller('Transcript');
    this.items = el('ol', { class: 'transcript' });
    this.live = el('div', { class: 'transcript-live', hidden: true });
    this.scroller.list.append(this.items, this.live);
    this.element.classList.add('tab-fill');
    this.element.append(this.scroller.element);
    this.#load();
  }

  /** @override */
  update() {
    const { alive, run } = this.record.task;
    if (!alive || run === this.#run) return;
    this.#run = run;
    this.#followText();
  }

  /** @override @param {Change} change */
  receive(change) {
    if (change.type === 'charged' || change.type === 'reserved') return;
    if (this.#isStale) return;
    this.#isStale = true;
    setTimeout(() => {
      this.#isStale = false;
      if (!this.abort.signal.aborted) this.#load();
    }, RELOAD_MS);
  }

  /** @override */
  follow() {
    this.scroller.follow();
  }

  async #load() {
    if (this.#isLoading) return;
    this.#isLoading = true;
    try {
      for (let page = /** @type {string | undefined} */ (this.#lastPage); page !== undefined;) {
        const query = new URLSearchParams({ limit: String(PAGE_ITEMS) });
        if (page !== '') query.set('page', page);
        const answer = await this.app.api.get(`${this.path}/transcript?${query}`, {
          signal: this.abort.signal,
        });
        this.#lastPage = page;
        this.#add(answer.items);
        page = answer.next_page;
      }
      if (this.#nextIndex === 0)
        this.items.replaceChildren(el('li', { class: 'hint', text: 'Nothing is recorded yet.' }));
    } catch (error) {
      this.showError(error);
    }
    this.#isLoading = false;
  }

  /** @param {TranscriptItem[]} items */
  #add(items) {
    const fresh = items.filter((item) => item.index >= this.#nextIndex);
    if (fresh.length === 0) return;
    if (this.#nextIndex === 0) this.items.replaceChildren();
    for (const item of fresh) {
      this.items.append(renderItem(item));
      if (item.role === 'assistant') this.#lastReply = item;
    }
    this.#renderLive();
    this.#nextIndex = fresh[fresh.length - 1].index + 1;
    this.scroller.grow(fresh.length);
  }

  #followText() {
    followStream(
      this.app.api,
      () => `${this.path}/text/stream`,
      this.abort.signal,
      (event, data) => {
        if (event === 'text') this.#live.text += data.text ?? '';
        else if (event === 'reasoning') this.#live.reasoning += data.text ?? '';
        else if (event === 'tool_call') this.#live.calls.push(data.tool ?? '');
        // After `lagged` and `restarted`, the step follows again from its start.
        else if (['step', 'end', 'restarted', 'lagged'].includes(event))
          this.#live = new LiveReply();
        this.#renderLive();
      },
    ).catch(() => {});
  }

  #renderLive() {
    if (this.#isLiveScheduled) return;
    this.#isLiveScheduled = true;
    requestAnimationFrame(() => {
      this.#isLiveScheduled = false;
      const isRecorded = this.#lastReply !== null && this.#live.is(this.#lastReply);
      const text = isRecorded ? '' : this.#live.shown();
      this.live.hidden = text === '';
      this.live.textContent = visibleText(text);
      this.scroller.grow(0);
    });
  }
}

/** A reply of the model that is not recorded yet. */
class LiveReply {
  text = '';
  reasoning = '';
  /** @type {string[]} */
  calls = [];

  /** @param {TranscriptItem} item */
  is(item) {
    const calls = (item.tool_calls ?? []).map((call) => call.name);
    return this.text.trim() === (item.text ?? '').trim() && this.calls.join() === calls.join();
  }

  shown() {
    const calls = this.calls.map((name) => `→ ${name}`);
    const parts = [this.text === '' ? this.reasoning : this.text, ...calls];
    return parts
      .filter((part) => part !== '')
      .join('\n')
      .slice(-MAX_LIVE_CHARS);
  }
}

/** @param {TranscriptItem} item */
function renderItem(item) {
  const entry = el('li', {
    class: `entry entry-${/^[a-z]+$/.test(item.role) ? item.role : 'other'}`,
  });
  entry.append(
    el('div', { class: 'entry-head' }, el('span', { class: 'entry-role', text: item.role })),
  );
  if (item.reasoning)
    entry.append(
      el(
        'details',
        { class: 'reasoning' },
        el('summary', { text: 'Reasoning' }),
        foreignText('div', item.reasoning, 'prose'),
      ),
    );
  if (item.text) entry.append(foreignText('div', item.text, 'prose'));
  for (const call of item.tool_calls ?? []) {
    const text = call.problem ?? formatJson(call.arguments);
    entry.append(renderFoldable('tool-call', '→ ', call.name, text));
  }
  const result = item.tool_result;
  if (result) {
    const className = result.failed ? 'tool-result is-error' : 'tool-result';
    entry.append(renderFoldable(className, result.failed ? '✕ ' : '← ', result.name, result.text));
  }
  return entry;
}

/**
 * @param {string} className
 * @param {string} mark
 * @param {string} name
 * @param {string} text
 */
function renderFoldable(className, mark, name, text) {
  const start = foreignText(
    'span',
    text.replace(/\s+/g, ' ').slice(0, SUMMARY_CHARS),
    'summary-text',
  );
  const summary = el('summary', {}, mark, foreignText('code', name), ' ', start);
  return el(
    'details',
    { class: className },
    summary,
    scrollableText('pre', text, 'long-value', name),
  );
}
