// The page without a token: it says how to get one.

/** @import {Api} from './api.js' */

import { describeError, Problem } from './api.js';
import { byId } from './dom.js';

/**
 * Shows the login page until there is a token that the server accepts.
 * @param {Api} api
 * @param {string} message Why the reader is here, if there is a reason.
 * @returns {Promise<void>}
 */
export function requestToken(api, message) {
  const page = byId('login');
  const form = /** @type {HTMLFormElement} */ (byId('login-form'));
  const input = /** @type {HTMLInputElement} */ (byId('login-token'));
  const status = byId('login-status');
  const say = (/** @type {string} */ text, /** @type {boolean} */ isError) => {
    status.className = isError ? 'form-status error' : 'form-status';
    status.textContent = text.charAt(0).toUpperCase() + text.slice(1);
  };
  say(message, true);
  byId('app').hidden = true;
  page.hidden = false;
  document.title = 'Brigade: log in';
  return new Promise((resolve) => {
    const submit = async (/** @type {Event} */ event) => {
      event.preventDefault();
      const text = input.value.trim();
      if (text === '') return;
      say('Checking…', false);
      try {
        await acceptTokenOrUrl(api, text);
        await api.get('whoami');
      } catch (error) {
        api.clearToken();
        const isUnknown =
          error instanceof Problem && error.code === 'unauthenticated' && !text.includes('#code=');
        say(isUnknown ? 'The server does not know this token.' : describeError(error), true);
        return;
      }
      form.removeEventListener('submit', submit);
      input.value = '';
      page.hidden = true;
      resolve();
    };
    form.addEventListener('submit', submit);
    input.focus();
  });
}

/**
 * Accepts a token, or the whole URL that `brigade dashboard` prints.
 * @param {Api} api
 * @param {string} text
 */
async function acceptTokenOrUrl(api, text) {
  const code = /#code=([^&\s]+)$/.exec(text);
  if (code) await api.login(decodeURIComponent(code[1]));
  else api.setToken(text);
}
