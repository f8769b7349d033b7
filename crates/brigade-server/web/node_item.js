// One node of the fleet: its facts, its sessions, and its drain, which asks once, in place.

/** @import {Node as NodeBody, Session} from './api_types.d.ts' */
/** @import {NodeList} from './node_list.js' */

import { describeError } from './api.js';
import { button, el } from './dom.js';
import { formatCount, formatDuration, formatTime } from './format.js';
import { foreignText, visibleText } from './visible_text.js';

/** The looks of states. A state that a later server adds looks like an ended node. */
const STATE_LOOKS = new Map([
  ['running', 'running'],
  ['draining', 'stopping'],
  ['expired', 'failed'],
]);

/**
 * Returns the identity of a node. A later node can have its name.
 * @param {NodeBody} node
 */
export function nodeKey(node) {
  return `${node.joined_at} ${node.name}`;
}

export class NodeItem {
  /**
   * @param {NodeList} list
   * @param {NodeBody} node
   */
  constructor(list, node) {
    this.list = list;
    this.node = node;
    this.state = el('span', { class: 'node-state' });
    this.facts = el('dl', { class: 'node-facts' });
    this.warning = el('p', { class: 'node-warning', hidden: true });
    this.summary = el('summary');
    this.sessions = el('ul', { class: 'node-sessions' });
    this.details = el('details', {}, this.summary, this.sessions);
    this.details.addEventListener('toggle', () => list.load());
    this.drain = button('', () => this.#press(), { hidden: true });
    this.strip = el('div', { class: 'action-strip', hidden: true });
    this.element = el(
      'li',
      { class: 'node' },
      el(
        'div',
        { class: 'node-head' },
        foreignText('strong', node.name, 'node-name'),
        this.state,
        node.own ? el('span', { class: 'hint', text: 'this server' }) : null,
        this.drain,
      ),
      this.strip,
      this.warning,
      this.facts,
      this.details,
    );
    this.update(node);
  }

  get isExpanded() {
    return this.details.open;
  }

  /** @param {NodeBody} node */
  update(node) {
    this.node = node;
    this.state.className = `node-state state-${STATE_LOOKS.get(node.state) ?? 'other'}`;
    this.state.textContent = node.state;
    const hasEnded = node.state === 'ended';
    this.#showFacts(hasEnded);
    this.warning.hidden = hasEnded || !node.clock_skew_warning;
    this.warning.textContent = `Its clock differs by ${formatSkew(node.clock_skew_ms)} from the store's. Synchronize it.`;
    this.details.hidden = hasEnded;
    this.summary.textContent = formatCount(node.owned_sessions, 'session');
    const isOperator = this.list.app.caller.token.scope === 'operator';
    this.drain.hidden = hasEnded || !isOperator;
    const isDraining = node.state === 'draining';
    this.drain.textContent = isDraining ? 'Undo the drain' : 'Drain…';
    this.drain.setAttribute(
      'aria-label',
      `${isDraining ? 'Undo the drain of' : 'Drain'} ${visibleText(node.name)}`,
    );
    this.drain.className = isDraining ? '' : 'danger-quiet';
    if (hasEnded || isDraining) this.#closeStrip();
  }

  /** @param {boolean} hasEnded */
  #showFacts(hasEnded) {
    const { node } = this;
    // Every node has its name and its host as labels.
    const common = [`node=${node.name}`, `host=${node.host}`];
    const labels = node.labels.filter((label) => !common.includes(label));
    const capacity = node.capacity === undefined ? '' : ` of ${node.capacity}`;
    /** @type {[string, string][]} */
    const facts = [
      // Behind the machine, the host has the id of a state directory.
      ['Machine', node.host.split('/')[0]],
      ...(hasEnded
        ? []
        : /** @type {[string, string][]} */ ([
            ['Sessions', `${node.owned_sessions}${capacity}`],
            ['Running tasks', String(node.running_tasks)],
            ['Lease', formatDuration(node.lease_remaining_ms)],
            ['Clock', formatSkew(node.clock_skew_ms)],
          ])),
      ['Version', node.version],
      ['Joined', formatTime(node.joined_at)],
      ...(labels.length > 0
        ? /** @type {[string, string][]} */ ([['Labels', labels.join(', ')]])
        : []),
    ];
    this.facts.replaceChildren(
      ...facts.map(([name, value]) =>
        el('div', {}, el('dt', { text: name }), foreignText('dd', value)),
      ),
    );
  }

  /** Shows those of the sessions that the node owns. @param {Session[]} sessions */
  showSessions(sessions) {
    const owned = sessions.filter((session) => session.node === this.node.name);
    this.sessions.replaceChildren(
      ...owned.map((session) =>
        el(
          'li',
          {},
          foreignText('span', session.name, 'node-session'),
          el('span', { class: 'hint', text: formatCount(session.alive_tasks, 'alive task') }),
        ),
      ),
      ...(owned.length === 0 ? [el('li', { class: 'hint', text: 'There are none.' })] : []),
    );
  }

  #press() {
    if (this.node.state === 'draining') this.#setDraining(false, this.drain);
    else this.#askDrain();
  }

  /** Asks whether to drain the node. */
  #askDrain() {
    const submit = el('button', { type: 'submit', class: 'danger', text: 'Drain the node' });
    const form = el(
      'form',
      { class: 'inline-form' },
      el('p', {
        class: 'question',
        text: `Drain ${visibleText(this.node.name)}? It claims no more sessions, and gives up each of its ${formatCount(this.node.owned_sessions, 'session')} as soon as nothing of it runs.`,
      }),
      el(
        'div',
        { class: 'buttons' },
        submit,
        button('Cancel', () => this.#cancel()),
      ),
    );
    form.addEventListener('submit', (event) => {
      event.preventDefault();
      this.#setDraining(true, submit);
    });
    form.addEventListener('keydown', (event) => {
      if (event.key !== 'Escape') return;
      event.stopPropagation();
      this.#cancel();
    });
    this.strip.replaceChildren(form);
    this.strip.hidden = false;
    submit.focus();
  }

  /**
   * @param {boolean} draining
   * @param {HTMLButtonElement} press
   */
  async #setDraining(draining, press) {
    press.disabled = true;
    const name = visibleText(this.node.name);
    const path = `nodes/${encodeURIComponent(this.node.name)}/drain`;
    try {
      this.update(await this.list.app.api.post(path, { draining }));
      this.list.say(draining ? `${name} is draining.` : `${name} claims sessions again.`, false);
      this.drain.focus();
    } catch (error) {
      this.list.say(describeError(error), true);
    }
    press.disabled = false;
  }

  #cancel() {
    this.#closeStrip();
    this.drain.focus();
  }

  #closeStrip() {
    this.strip.hidden = true;
    this.strip.replaceChildren();
  }
}

/**
 * Formats the difference of a clock, with its sign.
 * @param {number} ms
 */
function formatSkew(ms) {
  const sign = ms > 0 ? '+' : ms < 0 ? '−' : '';
  return `${sign}${formatDuration(Math.abs(ms))}`;
}
