// `node clients/generate.js`: writes the generated sources of both clients, and the types of the dashboard.
//
// - The types of openapi.json, for Python and TypeScript. Run it after a change of that file.
// - The blocking half of the Python client, from the asynchronous one.
//
// `--check` writes nothing, and fails if a file differs. `--openapi FILE` reads another document than
// that of the sources, such as the one of a running server.

import { existsSync, mkdirSync, readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { TYPES_FILE, generateTypes, renderTypes } from '../crates/brigade-server/web_tests/api_types.js';
import { renderPythonTypes } from './python_types.js';
import { renderBlocking } from './python_blocking.js';

const HERE = dirname(fileURLToPath(import.meta.url));
const OPENAPI = join(HERE, '../crates/brigade-server/openapi.json');
const PYTHON = join(HERE, 'python/src/brigade_client');
const TYPES_HEAD = `// Generated from openapi.json by \`node clients/generate.js\`. Do not edit.
// Enums are open: a newer server may send values and fields that are not named here.
`;

/** Returns the paths and the texts of all generated files. */
function generateAll(document) {
  const api = JSON.parse(readFileSync(document, 'utf8'));
  const files = new Map([
    [join(HERE, 'typescript/src/api_types.ts'), renderTypes(api, TYPES_HEAD)],
    [join(PYTHON, 'api_types.py'), renderPythonTypes(api)],
    [TYPES_FILE, generateTypes()],
  ]);
  for (const name of readdirSync(join(PYTHON, '_async')).sort()) {
    if (!name.endsWith('.py')) continue;
    const source = readFileSync(join(PYTHON, '_async', name), 'utf8');
    files.set(join(PYTHON, '_sync', name), renderBlocking(source, name));
  }
  return files;
}

function isSame(path, text) {
  return existsSync(path) && readFileSync(path, 'utf8') === text;
}

function main(args) {
  const named = args.indexOf('--openapi');
  const files = generateAll(named < 0 ? OPENAPI : args[named + 1]);
  const changed = [...files].filter(([path, text]) => !isSame(path, text));
  if (args.includes('--check')) {
    for (const [path] of changed) console.error(`${relative(process.cwd(), path)} is not as generated`);
    if (changed.length > 0) console.error('run `node clients/generate.js`');
    return changed.length === 0 ? 0 : 1;
  }
  for (const [path, text] of changed) {
    mkdirSync(dirname(path), { recursive: true });
    writeFileSync(path, text);
    console.log(`wrote ${relative(process.cwd(), path)}`);
  }
  return 0;
}

process.exitCode = main(process.argv.slice(2));
