// A client of Brigade's HTTP API.

export type * as api from './api_types.js';
export { Client } from './client.js';
export * from './errors.js';
export type { FeedChange, FeedGap, FeedItem, OutputGap, OutputItem, OutputPart } from './items.js';
export type { TaskSelection } from './pages.js';
export {
  type AgentOptions,
  type EventOptions,
  type JobOptions,
  type ProcessOptions,
  SessionHandle,
} from './session.js';
export type { ClientOptions } from './settings.js';
export { EventStream, OutputStream } from './streams.js';
export { type CallOptions, type KeyOptions, type StreamName, TaskHandle } from './task.js';
export type { WaitOptions } from './wait.js';
