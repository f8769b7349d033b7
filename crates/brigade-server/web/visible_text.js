// Foreign text made safe to read: control, bidirectional and invisible characters become visible,
// so that a name or an argument cannot look like something that it is not.

import { el } from './dom.js';

// C0 without tab and newline, DEL and C1, line and paragraph separators, the blank of Braille,
// interlinear marks, and all that Unicode calls a format character or ignorable, except the
// selector of colour emoji.
const HIDDEN =
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u2028\u2029\u2800\ufff0-\ufffb]|(?!\ufe0f)[\p{Default_Ignorable_Code_Point}\p{Cf}]/gu;

/**
 * Returns the text with hidden characters spelled as `⟨U+202E⟩`.
 * @param {string} text
 */
export function visibleText(text) {
  return text.replace(HIDDEN, (character) => `⟨${codePoint(character)}⟩`);
}

/**
 * Returns the text on one line, for a table cell.
 * @param {string} text
 */
export function visibleLine(text) {
  return visibleText(text.replace(/\s*[\r\n]+\s*/g, ' ⏎ '));
}

/**
 * Returns an element that shows the text, with hidden characters marked.
 * @template {keyof HTMLElementTagNameMap} K
 * @param {K} tag
 * @param {string} text
 * @param {string} [className]
 * @returns {HTMLElementTagNameMap[K]}
 */
export function foreignText(tag, text, className) {
  const element = el(tag, { class: className });
  let from = 0;
  for (const match of text.matchAll(HIDDEN)) {
    element.append(text.slice(from, match.index));
    element.append(el('span', { class: 'hidden-character', text: codePoint(match[0]) }));
    from = match.index + match[0].length;
  }
  element.append(text.slice(from));
  return element;
}

/**
 * Returns a box with text of any length. It scrolls, also with the keyboard.
 * @template {'p' | 'pre'} K
 * @param {K} tag
 * @param {string} text
 * @param {string} className
 * @param {string} label
 * @returns {HTMLElementTagNameMap[K]}
 */
export function scrollableText(tag, text, className, label) {
  const box = foreignText(tag, text, `${className} scrollable-text`);
  box.tabIndex = 0;
  box.setAttribute('role', 'group');
  box.setAttribute('aria-label', label);
  return box;
}

/** @param {string} character */
function codePoint(character) {
  const code = character.codePointAt(0) ?? 0;
  return `U+${code.toString(16).toUpperCase().padStart(4, '0')}`;
}
