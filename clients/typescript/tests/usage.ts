// Checks the types of the package. It is compiled and never run.

import {
  ApiError,
  Client,
  type FeedItem,
  type OutputItem,
  TaskFailedError,
  type TaskHandle,
  type api,
} from '../dist/index.js';

export async function use(client: Client, signal: AbortSignal): Promise<string | undefined> {
  const session = await client.session({ workspace: '/srv/shop' }, { signal });
  const options = { shell: 'make', env: { A: 'b', C: { from: 'D' } }, deadline_ms: 1000 };
  const task: TaskHandle = await session.spawnProcess(options, { key: 'build-17', signal });
  const body: api.NewTask = { kind: 'job', job: 'bake', arguments: { loaves: 3 } };
  await session.spawn(body);
  // @ts-expect-error: a process has no prompt.
  await session.spawnProcess({ shell: 'make', prompt: 'Make.' });
  // @ts-expect-error: an agent has a prompt.
  await session.spawnAgent({ name: 'Ada' });
  // @ts-expect-error: there is no such kind.
  await session.spawn({ kind: 'dream' });
  try {
    const { tail } = await task.result<{ tail: string }>({ timeoutMs: 1000 });
    return tail;
  } catch (error) {
    if (error instanceof TaskFailedError) return error.outcome?.code;
    if (error instanceof ApiError) return error.code;
    throw error;
  }
}

export async function follow(client: Client, task: TaskHandle): Promise<void> {
  for await (const item of client.events({ after: 'cursor' })) show(item);
  for await (const part of task.followOutput({ stream: 'stdout' })) show(part);
  const { state }: { state: string } = await task.show();
  // @ts-expect-error: no field of this name is known.
  show({ type: 'change', state });
}

function show(item: FeedItem | OutputItem): string {
  switch (item.type) {
    case 'change':
      return item.change.by?.kind ?? item.cursor;
    case 'output':
      return item.text;
    case 'gap':
      return 'cursor' in item ? item.cursor : `${item.next - item.start} bytes`;
  }
}
