// Renders the types of openapi.json as Python: dictionaries whose fields are typed. The server omits
// absent fields, so `null` does not occur, and a field that is not required may be missing.

const HEAD = `# Generated from openapi.json by \`node clients/generate.js\`. Do not edit.
"""The types of the HTTP API, as dictionaries.

Values of \`str\` fields such as \`state\` are open: a newer server may send values and fields that are
not named here.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypedDict

if sys.version_info >= (3, 11):
    from typing import NotRequired
elif TYPE_CHECKING:
    from typing_extensions import NotRequired
`;

const KEYWORDS = new Set(['from', 'in', 'is', 'class', 'def', 'global', 'import', 'pass', 'with']);

/** Returns the text of the types. */
export function renderPythonTypes(api) {
  const { schemas } = api.components;
  const requested = findRequested(schemas);
  const classes = [];
  const aliases = [];
  const declared = new Set();
  const declare = (name) => {
    if (declared.has(name)) return;
    declared.add(name);
    const schema = schemas[name];
    // A base class stands before the classes that extend it.
    for (const base of basesOf(schema)) declare(base);
    const types = new TypeWriter(requested.has(name));
    const texts = types.declare(name, schema);
    (isClass(schema) ? classes : aliases).push(...texts);
  };
  for (const name of Object.keys(schemas)) declare(name);
  return `${[HEAD, ...classes, ...aliases].join('\n\n')}`;
}

/** Returns the names of all schemas that a client writes. Their values are those of its version. */
function findRequested(schemas) {
  const found = new Set();
  const visit = (value) => {
    if (value === null || typeof value !== 'object') return;
    if (typeof value.$ref === 'string') add(nameOf(value));
    for (const part of Object.values(value)) visit(part);
  };
  const add = (name) => {
    if (found.has(name)) return;
    found.add(name);
    visit(schemas[name]);
  };
  for (const [name, schema] of Object.entries(schemas)) {
    if (schema.additionalProperties === false) add(name);
  }
  return found;
}

function isClass(schema) {
  return Boolean(schema.properties ?? schema.allOf);
}

function basesOf(schema) {
  return (schema.allOf ?? []).filter((one) => one.$ref).map(nameOf);
}

function nameOf(reference) {
  return reference.$ref.replace('#/components/schemas/', '');
}

class TypeWriter {
  constructor(isRequested) {
    this.isRequested = isRequested;
  }

  /** Returns the declarations of a schema: its own, and those of variants without a name. */
  declare(name, schema) {
    if (schema.properties) return [this.typedDict(name, [], schema)];
    if (schema.allOf) {
      const own = schema.allOf.find((one) => one.properties);
      return [this.typedDict(name, basesOf(schema), { ...own, description: schema.description })];
    }
    const variants = schema.oneOf ?? schema.anyOf;
    if (variants?.some((one) => one.properties)) return this.declareVariants(name, schema, variants);
    return [this.alias(name, this.typeOf(schema), schema.description)];
  }

  declareVariants(name, schema, variants) {
    const keysOf = (variant) => Object.keys(variant.properties);
    const named = variants.map((variant) => {
      const others = variants.filter((one) => one !== variant).flatMap(keysOf);
      const own = keysOf(variant).find((key) => !others.includes(key));
      return [`${name}${own[0].toUpperCase()}${own.slice(1)}`, variant];
    });
    const union = named.map(([name]) => name).join(' | ');
    return [
      ...named.map(([name, variant]) => this.typedDict(name, [], variant)),
      this.alias(name, union, schema.description),
    ];
  }

  alias(name, type, description) {
    return `${name}: TypeAlias = ${quote(type)}\n${docstring(description, '')}`;
  }

  typedDict(name, bases, schema) {
    const required = new Set(schema.required ?? []);
    const fields = Object.entries(schema.properties).map(([key, field]) => {
      const type = this.typeOf(field);
      const described = field.description ?? field.oneOf?.[0].description;
      return { key, type: required.has(key) ? type : `NotRequired[${type}]`, described };
    });
    const document = docstring(schema.description, '    ');
    if (fields.some(({ key }) => KEYWORDS.has(key))) return functional(name, fields, schema);
    const lines = fields.map(
      ({ key, type, described }) => `    ${key}: ${type}\n${docstring(described, '    ')}`,
    );
    const head = `class ${name}(${[...(bases.length ? bases : ['TypedDict'])].join(', ')}):\n`;
    return `${head}${document}${document && '\n'}${lines.join('')}`;
  }

  typeOf(schema) {
    if (schema.$ref) return nameOf(schema);
    const variants = schema.oneOf ?? schema.anyOf;
    if (variants) {
      const types = variants.filter((one) => one.type !== 'null').map((one) => this.typeOf(one));
      return types.join(' | ');
    }
    const type = [schema.type].flat().find((name) => name !== 'null');
    switch (type) {
      case 'string':
        if (schema.enum && (this.isRequested || schema.enum.length === 1))
          return `Literal[${schema.enum.map(quote).join(', ')}]`;
        return 'str';
      case 'boolean':
        return 'bool';
      case 'integer':
        return 'int';
      case 'number':
        return 'float';
      case 'array':
        return `list[${this.typeOf(schema.items ?? {})}]`;
      case 'object':
        return `dict[str, ${this.typeOf(schema.additionalProperties || {})}]`;
      default:
        return 'Any';
    }
  }
}

/** Returns a dictionary with a key that is a word of Python. */
function functional(name, fields, schema) {
  const lines = fields.map(({ key, type }) => `        ${quote(key)}: ${quote(type)},\n`);
  return `${name} = TypedDict(\n    ${quote(name)},\n    {\n${lines.join('')}    },\n)\n${docstring(schema.description, '')}`;
}

function quote(text) {
  return text.includes('"') ? `'${text}'` : `"${text}"`;
}

function docstring(text, indent) {
  if (!text) return '';
  const lines = text.replaceAll('\\', '\\\\').replaceAll('"""', "'''").split('\n');
  const body = lines.map((line) => (line ? `${indent}${line}` : '')).join('\n').trimStart();
  // A text that ends with a quote would end the string early.
  const end = body.endsWith('"') ? ' ' : '';
  if (lines.length === 1) return `${indent}"""${body}${end}"""\n`;
  return `${indent}"""${body}${end}\n${indent}"""\n`;
}
