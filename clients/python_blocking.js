// Renders the blocking half of the Python client from the asynchronous one. The sources are written
// for this: names differ only by these words, and both halves have the same lines.

const WORDS = [
  [/\basync (def|for|with)\b/g, '$1'],
  [/\bawait /g, ''],
  [/\bAsyncIterator\b/g, 'Iterator'],
  [/\bStopAsyncIteration\b/g, 'StopIteration'],
  [/\bhttpx\.AsyncClient\b/g, 'httpx.Client'],
  [/\bhttpx\.AsyncHTTPTransport\b/g, 'httpx.HTTPTransport'],
  [/\bAsync([A-Z])/g, '$1'],
  [/\b__a(enter|exit|iter|next)__\b/g, '__$1__'],
  [/\baiter_bytes\b/g, 'iter_bytes'],
  [/\baclose\b/g, 'close'],
  [/\basyncio\.sleep\b/g, 'time.sleep'],
  [/^import asyncio\nimport time$/gm, 'import time'],
  [/^import asyncio$/gm, 'import time'],
  [/\b_async\b/g, '_sync'],
];

/** Returns the blocking form of a source. */
export function renderBlocking(source, name) {
  const text = WORDS.reduce((text, [word, form]) => text.replace(word, form), source);
  const remains = /\b(async|await|asyncio)\b/.exec(text);
  if (remains) throw new Error(`_async/${name}: ${remains[0]} has no blocking form`);
  return `# Generated from _async/${name} by \`node clients/generate.js\`. Do not edit.\n${text}`;
}
