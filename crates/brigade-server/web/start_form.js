// The form that starts a process or an agent.

/** @import {Definition, Session} from './api_types.d.ts' */
/** @import {AppContext} from './app_context.js' */

import { describeError, newKey } from './api.js';
import { append, button, byId, el, field } from './dom.js';
import { shortSession } from './format.js';

const DIRECTORY_KEY = 'brigade_directory';
const OWN_SESSION = '';

/** The upper bounds of an agent's permissions that the form offers. @type {[string, string, object | null][]} */
const PERMISSIONS = [
  ['read', 'Read, delegate and ask', null],
  ['ask', 'Ask before it writes or runs', { ask: ['write_file', 'edit_file', 'run_process'] }],
  ['all', 'All that its definition allows', {}],
];

/** The fields of the request as the form calls them. */
const FIELD_LABELS = new Map([
  ['`cwd`', 'Directory'],
  ['`workspace`', 'Directory'],
  ['`shell`', 'Command line'],
  ['`prompt`', 'Prompt'],
  ['`name`', 'Name'],
  ['`definition`', 'Definition'],
  ['`model`', 'Model'],
  ['`limits.money`', 'Budget in dollars'],
]);

export class StartForm {
  /** A repeated press starts the same task, not a second one. */
  #key = newKey();
  #definitionsFor = '';
  processKind = el('input', { type: 'radio', name: 'kind', value: 'process', checked: true });
  agentKind = el('input', { type: 'radio', name: 'kind', value: 'agent' });
  command = el('textarea', { rows: '2', spellcheck: 'false', class: 'code' });
  prompt = el('textarea', { rows: '4' });
  directory = el('input', {
    type: 'text',
    required: true,
    spellcheck: 'false',
    autocomplete: 'off',
    class: 'code',
    placeholder: '/home/you/project',
  });
  session = el(
    'select',
    {},
    el('option', { value: OWN_SESSION, text: 'The session of the directory' }),
  );
  name = el('input', {
    type: 'text',
    maxlength: '64',
    autocomplete: 'off',
    placeholder: 'Optional',
  });
  definition = el('select', {}, el('option', { value: '', text: 'The default agent' }));
  model = el('input', { type: 'text', autocomplete: 'off', placeholder: 'As defined' });
  budget = el('input', {
    type: 'text',
    inputmode: 'decimal',
    pattern: '[0-9]*\\.?[0-9]+',
    autocomplete: 'off',
    placeholder: 'No limit',
  });
  permissions = el(
    'select',
    {},
    ...PERMISSIONS.map(([name, label]) => el('option', { value: name, text: label })),
  );
  stdin = el('input', { type: 'checkbox' });
  sandbox = el('input', { type: 'checkbox' });
  submit = el('button', { type: 'submit', class: 'primary', text: 'Start' });
  status = el('p', { class: 'form-status', role: 'status' });
  processFields = el(
    'div',
    { class: 'start-fields' },
    field('Command line, run by the shell', this.command),
    el('label', { class: 'check' }, this.stdin, 'It reads the messages that are sent to it'),
  );
  agentFields = el(
    'div',
    { class: 'start-fields' },
    field('Prompt', this.prompt),
    el(
      'div',
      { class: 'field-row' },
      field('Definition', this.definition),
      field('Permissions', this.permissions),
      field('Model', this.model),
      field('Budget in dollars', this.budget),
    ),
  );

  /** @param {AppContext} app */
  constructor(app) {
    this.app = app;
    this.element = byId('start');
    this.toggle = byId('start-toggle');
    this.toggle.hidden = !app.canChange;
    this.toggle.addEventListener('click', () => this.setOpen(!this.isOpen));
    this.#build();
  }

  /** @param {boolean} isOpen */
  setOpen(isOpen) {
    if (!this.app.canChange) return;
    this.element.hidden = !isOpen;
    this.toggle.setAttribute('aria-expanded', String(isOpen));
    if (!isOpen) {
      this.toggle.focus();
      return;
    }
    this.#loadSessions();
    this.#loadDefinitions();
    (this.isProcess ? this.command : this.prompt).focus();
  }

  get isOpen() {
    return !this.element.hidden;
  }

  get isProcess() {
    return this.processKind.checked;
  }

  #build() {
    this.directory.value = localStorage.getItem(DIRECTORY_KEY) ?? '';
    this.sandbox.checked = this.app.caller.token.scope !== 'operator';
    this.sandbox.disabled = this.app.caller.token.scope !== 'operator';
    const form = el(
      'form',
      { class: 'start-form' },
      el(
        'fieldset',
        { class: 'kinds' },
        el('legend', { text: 'Start' }),
        el('label', {}, this.processKind, 'a process'),
        el('label', {}, this.agentKind, 'an agent'),
      ),
      this.processFields,
      this.agentFields,
      el(
        'div',
        { class: 'field-row' },
        field('Directory', this.directory),
        field('Session', this.session),
        field('Name', this.name),
      ),
      el('label', { class: 'check' }, this.sandbox, 'Sandbox: only the directory is writable'),
      this.status,
      el(
        'div',
        { class: 'buttons' },
        this.submit,
        button('Close', () => this.setOpen(false)),
      ),
    );
    form.addEventListener('submit', (event) => {
      event.preventDefault();
      this.#start();
    });
    form.addEventListener('change', () => this.#showKind());
    form.addEventListener('input', () => {
      this.#key = newKey();
    });
    form.addEventListener('keydown', (event) => {
      if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) form.requestSubmit();
      if (event.key !== 'Escape') return;
      event.stopPropagation();
      this.setOpen(false);
    });
    this.session.addEventListener('change', () => this.#useSessionDirectory());
    this.directory.addEventListener('change', () => this.#loadDefinitions());
    this.element.replaceChildren(form);
    this.#showKind();
  }

  #showKind() {
    this.processFields.hidden = !this.isProcess;
    this.agentFields.hidden = this.isProcess;
    this.command.required = this.isProcess;
    this.prompt.required = !this.isProcess;
  }

  async #loadSessions() {
    try {
      /** @type {{items: Session[]}} */
      const { items } = await this.app.api.get('sessions');
      const chosen = this.session.value;
      this.session.replaceChildren(
        el('option', { value: OWN_SESSION, text: 'The session of the directory' }),
      );
      for (const session of items)
        append(
          this.session,
          el('option', {
            value: session.id,
            text: shortSession(session.name),
            title: session.name,
          }),
        );
      this.session.value = chosen;
    } catch (error) {
      this.#say(describeError(error), true);
    }
  }

  /** The name of a session of a directory is its path. */
  #useSessionDirectory() {
    const name = this.session.selectedOptions[0]?.title ?? '';
    if (!name.startsWith('/')) return;
    this.directory.value = name;
    this.#loadDefinitions();
  }

  async #loadDefinitions() {
    const directory = this.directory.value;
    if (directory === '' || directory === this.#definitionsFor) return;
    try {
      /** @type {{items: Definition[]}} */
      const { items } = await this.app.api.get(
        `definitions?${new URLSearchParams({ cwd: directory })}`,
      );
      this.#definitionsFor = directory;
      this.definition.replaceChildren(el('option', { value: '', text: 'The default agent' }));
      for (const definition of items)
        append(
          this.definition,
          el('option', {
            value: definition.name,
            text: definition.name,
            title: definition.description,
          }),
        );
    } catch {
      // An unfinished path has no definitions.
    }
  }

  async #start() {
    this.submit.disabled = true;
    this.#say('Starting…', false);
    try {
      const session = this.session.value || (await this.#openSession());
      const task = await this.app.api.post(
        `sessions/${encodeURIComponent(session)}/tasks`,
        this.#body(),
        { key: this.#key },
      );
      this.#key = newKey();
      localStorage.setItem(DIRECTORY_KEY, this.directory.value);
      this.command.value = '';
      this.prompt.value = '';
      this.name.value = '';
      this.#say('', false);
      this.setOpen(false);
      this.app.openTask(task.id, { tab: this.isProcess ? 'output' : 'transcript' });
    } catch (error) {
      this.#say(nameFields(describeError(error)), true);
    }
    this.submit.disabled = false;
  }

  async #openSession() {
    try {
      const session = await this.app.api.post('sessions', { workspace: this.directory.value });
      return session.id;
    } catch (error) {
      throw new Error(`Directory: ${describeError(error)}`);
    }
  }

  #body() {
    /** @type {{[name: string]: unknown}} */
    const body = { kind: this.isProcess ? 'process' : 'agent', cwd: this.directory.value };
    if (this.name.value) body.name = this.name.value;
    if (this.sandbox.checked) body.sandbox = {};
    if (this.isProcess) {
      body.shell = this.command.value;
      if (this.stdin.checked) body.stdin = true;
      return body;
    }
    body.prompt = this.prompt.value;
    const permissions = PERMISSIONS.find(([name]) => name === this.permissions.value)?.[2];
    if (permissions) body.permissions = permissions;
    if (this.definition.value) body.definition = this.definition.value;
    if (this.model.value) body.model = this.model.value;
    if (this.budget.value) body.limits = { money: this.budget.value };
    return body;
  }

  /**
   * @param {string} text
   * @param {boolean} isError
   */
  #say(text, isError) {
    this.status.className = isError ? 'form-status error' : 'form-status';
    this.status.textContent = text;
  }
}

/** Names the fields in an error as the form does. @param {string} text */
function nameFields(text) {
  let named = text;
  for (const [field, label] of FIELD_LABELS) named = named.replaceAll(field, label);
  return named.charAt(0).toUpperCase() + named.slice(1);
}
