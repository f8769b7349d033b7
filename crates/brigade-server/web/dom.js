// Small helpers that build DOM nodes. Text from tasks reaches the page only as text nodes.

/**
 * @typedef {Node | string | null | undefined | false} Child
 * @typedef {{[event: string]: (event: any) => void}} Listeners
 * @typedef {{class?: string, text?: string, on?: Listeners, [attribute: string]: any}} Properties
 */

/**
 * Creates an element with properties and children.
 * `class`, `text` and `on` are shorthands, every other property is an attribute.
 * @template {keyof HTMLElementTagNameMap} K
 * @param {K} tag
 * @param {Properties} [properties]
 * @param {...Child} children
 * @returns {HTMLElementTagNameMap[K]}
 */
export function el(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (name === 'class') element.className = value;
    else if (name === 'text') element.textContent = value;
    else if (name === 'on') addListeners(element, value);
    else element.setAttribute(name, value === true ? '' : String(value));
  }
  append(element, ...children);
  return element;
}

/**
 * Appends children and skips the empty ones.
 * @param {Node} parent
 * @param {...Child} children
 */
export function append(parent, ...children) {
  for (const child of children) {
    if (child === null || child === undefined || child === false) continue;
    parent.appendChild(typeof child === 'string' ? document.createTextNode(child) : child);
  }
}

/**
 * Returns the element with this id. The page's skeleton has it.
 * @param {string} id
 * @returns {HTMLElement}
 */
export function byId(id) {
  const element = document.getElementById(id);
  if (!element) throw new Error(`the page has no element ${id}`);
  return element;
}

const SVG = 'http://www.w3.org/2000/svg';

/**
 * Creates an icon that shows one of the symbols in the page's skeleton.
 * @param {string} symbol
 * @returns {SVGSVGElement}
 */
export function icon(symbol) {
  const svg = document.createElementNS(SVG, 'svg');
  svg.setAttribute('class', 'icon');
  svg.setAttribute('aria-hidden', 'true');
  const use = document.createElementNS(SVG, 'use');
  use.setAttribute('href', `#${symbol}`);
  svg.appendChild(use);
  return svg;
}

/**
 * Creates a button.
 * @param {string} text
 * @param {() => void} press
 * @param {{[attribute: string]: any}} [attributes]
 * @returns {HTMLButtonElement}
 */
export function button(text, press, attributes = {}) {
  return el('button', { type: 'button', text, on: { click: press }, ...attributes });
}

/**
 * Creates a labelled form control.
 * @param {string} label
 * @param {HTMLElement} control
 * @param {string} [hint]
 * @returns {HTMLLabelElement}
 */
export function field(label, control, hint) {
  return el(
    'label',
    { class: 'field' },
    el('span', { class: 'field-label', text: label }),
    control,
    hint ? el('span', { class: 'field-hint', text: hint }) : null,
  );
}

/**
 * @param {HTMLElement} element
 * @param {Listeners} listeners
 */
function addListeners(element, listeners) {
  for (const [event, listener] of Object.entries(listeners)) {
    element.addEventListener(event, listener);
  }
}
