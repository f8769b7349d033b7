import assert from 'node:assert/strict';
import { test } from 'node:test';
import { AnswerError } from '../dist/index.js';
import { MAX_EVENT_CHARS, SseParser, parseData } from '../dist/sse.js';

const STREAM = new TextEncoder().encode(
  '\ufeff: a comment\r\n' +
    'id: 1\nevent: change\ndata: {}\n\n' +
    'retry: 10\rdata:two\rdata: lines\rdata\r\r' +
    'id: 3\r\nevent: output\r\ndata:  ünïcödé 🦀\r\n\r\n' +
    'event: without data\n\n' +
    'id: 4\nunknown: x\n:\ndata: last\n\n' +
    'id: 5\ndata: not finished\n',
);
const EVENTS = [
  { name: 'change', data: '{}', id: '1' },
  { name: 'message', data: 'two\nlines\n', id: '1' },
  { name: 'output', data: ' ünïcödé 🦀', id: '3' },
  { name: 'message', data: 'last', id: '4' },
];

function parse(...chunks) {
  const parser = new SseParser();
  return chunks.flatMap((chunk) => parser.push(chunk));
}

function pieces(size) {
  const found = [];
  for (let at = 0; at < STREAM.length; at += size) found.push(STREAM.subarray(at, at + size));
  return found;
}

test('chunks may end anywhere', () => {
  assert.deepEqual(parse(STREAM), EVENTS);
  for (const size of [1, 2, 3, 5, 7]) assert.deepEqual(parse(...pieces(size)), EVENTS, `${size}`);
  for (let at = 0; at < STREAM.length; at += 1) {
    const chunks = [STREAM.subarray(0, at), new Uint8Array(), STREAM.subarray(at)];
    assert.deepEqual(parse(...chunks), EVENTS, `${at}`);
  }
});

test('an id with NUL is ignored', () => {
  const events = parse(new TextEncoder().encode('id: a\0b\ndata: x\n\n'));
  assert.deepEqual(events, [{ name: 'message', data: 'x', id: '' }]);
});

test('a large event is refused, and many small ones are not', () => {
  const encoder = new TextEncoder();
  const eighth = 'x'.repeat(MAX_EVENT_CHARS / 8);
  const pushAll = (text) => {
    const parser = new SseParser();
    const chunk = encoder.encode(text);
    return Array.from({ length: 9 }, () => parser.push(chunk).length);
  };
  assert.throws(() => pushAll(`data: ${eighth}\n`), AnswerError);
  assert.throws(() => pushAll(eighth), AnswerError);
  assert.deepEqual(pushAll(`:${eighth}\ndata: ${eighth}\n\n`), Array(9).fill(1));
  assert.deepEqual(pushAll(`:${eighth}\n`), Array(9).fill(0));
});

test('data is an object', () => {
  assert.deepEqual(parseData({ name: 'change', data: '{"a": 1}', id: '' }), { a: 1 });
  for (const data of ['', '[1]', '{', 'null'])
    assert.throws(() => parseData({ name: 'change', data, id: '' }), AnswerError);
});
