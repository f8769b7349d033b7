// `npm run types`: writes web/api_types.d.ts, the types of openapi.json for the sources of the page.
// `clients/generate.js` writes those of the TypeScript client with the same functions.

import { readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const SERVER = join(dirname(fileURLToPath(import.meta.url)), '..');
const HEAD = `// Generated from openapi.json by \`npm run types\` in web_tests. Do not edit.
// Enums are open: a newer server may send values that are not named here.
`;

export const TYPES_FILE = join(SERVER, 'web', 'api_types.d.ts');

/** Returns the text of the types. */
export function generateTypes() {
  return renderTypes(JSON.parse(readFileSync(join(SERVER, 'openapi.json'), 'utf8')), HEAD);
}

/**
 * Returns the types of a document as TypeScript, after a head.
 * @param {{components: {schemas: object}}} api
 * @param {string} head
 */
export function renderTypes(api, head) {
  const schemas = Object.entries(api.components.schemas);
  return [head, ...schemas.map(([name, schema]) => declaration(name, schema))].join('\n');
}

function declaration(name, schema) {
  const head = `${comment(schema.description, '')}export `;
  if (schema.properties) return `${head}interface ${name} ${typeOf(schema, '')}\n`;
  return `${head}type ${name} = ${typeOf(schema, '')};\n`;
}

/**
 * Returns the type of a schema. `null` is left out: the server omits absent fields.
 * @param {string} indent
 */
function typeOf(schema, indent) {
  if (schema.$ref) return schema.$ref.replace('#/components/schemas/', '');
  const variants = schema.oneOf ?? schema.anyOf;
  if (variants) {
    const types = variants.filter((one) => one.type !== 'null').map((one) => typeOf(one, indent));
    return types.join(' | ');
  }
  if (schema.allOf) return schema.allOf.map((one) => typeOf(one, indent)).join(' & ');
  const type = [schema.type].flat().find((name) => name !== 'null');
  switch (type) {
    case 'string':
      return stringType(schema);
    case 'boolean':
      return 'boolean';
    case 'integer':
    case 'number':
      return 'number';
    case 'array':
      return `Array<${typeOf(schema.items ?? {}, indent)}>`;
    case 'object':
      return schema.properties ? fields(schema, indent) : '{ [name: string]: unknown }';
    default:
      return 'unknown';
  }
}

/** Values of several are open. One value alone tells the variants of a request apart. */
function stringType(schema) {
  const values = (schema.enum ?? []).map((value) => `'${value}'`);
  if (values.length === 0) return 'string';
  return values.length === 1 ? values[0] : `${values.join(' | ')} | (string & {})`;
}

function fields(schema, indent) {
  const inner = `${indent}  `;
  const required = new Set(schema.required ?? []);
  const lines = Object.entries(schema.properties).map(([name, field]) => {
    const described = field.description ?? field.oneOf?.[0].description;
    const mark = required.has(name) ? '' : '?';
    return `${comment(described, inner)}${inner}${name}${mark}: ${typeOf(field, inner)};\n`;
  });
  return `{\n${lines.join('')}${indent}}`;
}

function comment(text, indent) {
  if (!text) return '';
  const lines = text.replaceAll('*/', '*\\/').split('\n');
  if (lines.length === 1) return `${indent}/** ${lines[0]} */\n`;
  return `${indent}/**\n${lines.map((line) => `${indent} * ${line}`.trimEnd()).join('\n')}\n${indent} */\n`;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) writeFileSync(TYPES_FILE, generateTypes());
