// The reference of the API, from its description.

/** @typedef {{ $ref?: string, type?: string | string[], format?: string, items?: Schema, description?: string,
 *   properties?: Record<string, Schema>, required?: string[], oneOf?: Schema[], allOf?: Schema[],
 *   enum?: string[] }} Schema */
/** @typedef {{ content?: Record<string, { schema?: Schema }>, description?: string }} Content */
/** @typedef {{ name: string, in: string, required?: boolean, description?: string, schema?: Schema }} Parameter */
/** @typedef {{ summary?: string, description?: string, tags?: string[], parameters?: Parameter[],
 *   requestBody?: Content, responses?: Record<string, Content> }} Operation */

/**
 * @param {string} tag
 * @param {Record<string, string>} attributes
 * @param {(Node | string)[]} children
 */
function element(tag, attributes, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    node.setAttribute(name, value);
  }
  node.append(...children);
  return node;
}

/**
 * Returns a link to a schema, or the name of a plain type.
 * @param {Schema | undefined} schema
 * @returns {Node | string}
 */
function describeSchema(schema) {
  if (!schema) {
    return '';
  }
  if (schema.$ref) {
    const name = schema.$ref.split('/').pop() ?? '';
    return element('a', { href: `#schema-${name}` }, name);
  }
  const parts = schema.oneOf ?? schema.allOf;
  if (parts) {
    const known = parts.filter((part) => part.type !== 'null');
    return element('span', {}, ...known.flatMap((part, index) => [index > 0 ? ' or ' : '', describeSchema(part)]));
  }
  if (schema.items) {
    return element('span', {}, 'list of ', describeSchema(schema.items));
  }
  const types = [schema.type ?? 'any'].flat().filter((type) => type !== 'null');
  const values = schema.enum ? `: ${schema.enum.join(', ')}` : '';
  return `${types.join(' or ')}${schema.format ? ` (${schema.format})` : ''}${values}`;
}

/** @param {Content | undefined} content */
function describeContent(content) {
  const kinds = Object.entries(content?.content ?? {});
  const parts = kinds.flatMap(([kind, value]) => [element('code', {}, kind), ' ', describeSchema(value.schema), ' ']);
  return element('span', {}, ...parts);
}

/**
 * @param {string[]} heads
 * @param {(Node | string)[][]} rows
 */
function table(heads, rows) {
  const head = element('tr', {}, ...heads.map((text) => element('th', { scope: 'col' }, text)));
  const body = rows.map((cells) => element('tr', {}, ...cells.map((cell) => element('td', {}, cell))));
  return element('table', {}, element('thead', {}, head), element('tbody', {}, ...body));
}

/**
 * @param {string} path
 * @param {string} method
 * @param {Operation} operation
 */
function showOperation(path, method, operation) {
  const summary = element(
    'summary',
    {},
    element('span', { class: 'method' }, method.toUpperCase()),
    element('code', {}, path),
    ' ',
    element('span', { class: 'summary' }, operation.summary ?? ''),
  );
  const body = element('div', { class: 'operation' });
  if (operation.description) {
    body.append(element('p', {}, operation.description));
  }
  const parameters = operation.parameters ?? [];
  if (parameters.length > 0) {
    const rows = parameters.map((parameter) => [
      element('code', {}, parameter.name),
      parameter.in,
      describeSchema(parameter.schema),
      parameter.description ?? '',
    ]);
    body.append(table(['parameter', 'in', 'type', 'meaning'], rows));
  }
  if (operation.requestBody) {
    body.append(element('p', {}, 'Body: ', describeContent(operation.requestBody)));
  }
  const answers = Object.entries(operation.responses ?? {});
  body.append(
    table(
      ['status', 'answer', 'meaning'],
      answers.map(([status, answer]) => [
        status === 'default' ? 'other' : status,
        describeContent(answer),
        answer.description ?? '',
      ]),
    ),
  );
  return element('details', {}, summary, body);
}

/**
 * @param {string} name
 * @param {Schema} schema
 */
function showSchema(name, schema) {
  const fields = Object.entries(schema.properties ?? {}).map(([field, value]) => [
    element('code', {}, field),
    describeSchema(value),
    schema.required?.includes(field) ? 'always' : 'optional',
    value.description ?? '',
  ]);
  const body = element('div', { class: 'operation' }, element('p', {}, schema.description ?? ''));
  body.append(fields.length > 0 ? table(['field', 'type', '', 'meaning'], fields) : describeSchema(schema));
  const details = element('details', { id: `schema-${name}` }, element('summary', {}, element('code', {}, name)), body);
  return details;
}

/** Opens the schema that the fragment of the URL names. */
function openTarget() {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (target instanceof HTMLDetailsElement) {
    target.open = true;
  }
}

async function show() {
  const place = document.getElementById('operations');
  if (!place) {
    return;
  }
  const answer = await fetch('openapi.json');
  const description = await answer.json();
  /** @type {Map<string, Node[]>} */
  const byTag = new Map();
  for (const [path, methods] of Object.entries(description.paths)) {
    for (const [method, operation] of Object.entries(/** @type {Record<string, Operation>} */ (methods))) {
      const tag = operation.tags?.[0] ?? 'other';
      byTag.set(tag, [...(byTag.get(tag) ?? []), showOperation(path, method, operation)]);
    }
  }
  const groups = [...byTag].flatMap(([tag, nodes]) => [element('h2', {}, tag), ...nodes]);
  const schemas = Object.entries(/** @type {Record<string, Schema>} */ (description.components?.schemas ?? {}));
  const types = schemas.map(([name, schema]) => showSchema(name, schema));
  place.replaceChildren(...groups, element('h2', {}, 'Types'), ...types);
  openTarget();
  addEventListener('hashchange', openTarget);
}

await show();
