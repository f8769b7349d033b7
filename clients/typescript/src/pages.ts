// Lists in pages.

import type { Query } from './api_request.js';
import type { Task, TaskList } from './api_types.js';
import type { Connection } from './connection.js';

/** The selection of `GET /v1/tasks`. */
export interface TaskSelection {
  session?: string;
  state?: string;
  kind?: string;
  parent?: string;
  client?: string;
  text?: string;
  /** Lists all ended tasks too. */
  ended?: boolean;
  /** `newest` lists those first that started last. */
  order?: string;
  /** The size of a page. */
  limit?: number;
}

/** Yields the tasks of all pages. */
export async function* listTasks(
  connection: Connection,
  path: string,
  selection: TaskSelection,
  signal: AbortSignal | undefined,
): AsyncGenerator<Task, void, void> {
  const query: Query = { ...selection };
  for (;;) {
    const request = { method: 'GET', path, query, isRepeatable: true, signal };
    const page = await connection.call<TaskList>(request);
    yield* page.items;
    if (page.next_page === undefined) return;
    query['page'] = page.next_page;
  }
}
