// A server of its own with the tasks that the tests need. Everything that it starts carries its state
// directory, and `stop` ends exactly that.

import { execFileSync, spawn } from 'node:child_process';
import {
  copyFileSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readFileSync,
  readdirSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const HERE = dirname(fileURLToPath(import.meta.url));
/** Stand-ins for the agent programs of other vendors. */
const PROGRAMS = join(HERE, '../../brigade-external/tests/fakes');
const START_MS = 30_000;
const POLL_MS = 50;
/** Requests at a time that start many tasks. */
const STARTERS = 4;

/** A program with colours, other escapes, and bytes that are no text. */
const UNIT_TESTS = [
  String.raw`\033[1m   Compiling\033[0m brigade v0.1.0\n`,
  String.raw`\033[33mwarning\033[0m: unused variable: \140count\140\n`,
  String.raw`\033[1;32m    Finished\033[0m in 4.2 s\n`,
  String.raw`test stores::a_crash_loses_nothing ... \033[32mok\033[0m\n`,
  String.raw`test stores::two_writers_do_not_mix ... \033[31mFAILED\033[0m\n`,
  String.raw`\033[48;5;24m\033[38;5;231m 256 colours \033[0m and \033[38;2;200;90;160mmore\033[0m\n`,
  String.raw`\033]0;a title\007\033[2Jneutralised escapes\n`,
  String.raw`bytes that are no text: \377\376\n`,
].join('');

/** Permission to run processes and write files after an approval. */
const ASK = {
  allow: ['run_process', 'write_file', 'list_files'],
  ask: ['run_process', 'write_file'],
};

export class World {
  /** The number of tasks of `startMany`. */
  #many = 0;

  /**
   * Starts a server and its tasks.
   * @param {string} binary
   */
  static async start(binary) {
    const root = mkdtempSync(join(tmpdir(), 'brigade-world-'));
    const world = new World(root);
    mkdirSync(join(world.home, '.config/brigade'), { recursive: true });
    mkdirSync(world.project);
    copyFileSync(join(HERE, 'world.script'), join(root, 'world.script'));
    const config = `model = "script:${join(root, 'world.script')}"\n`;
    writeFileSync(join(world.home, '.config/brigade/config.toml'), config);
    mkdirSync(join(world.home, '.config/brigade/agents'));
    const baker = `---\nname: baker\ndescription: Bakes over ACP.\nruns: { acp: [acp-agent, ${join(root, 'acp')}] }\n---\nBake.\n`;
    writeFileSync(join(world.home, '.config/brigade/agents/baker.md'), baker);
    writeFileSync(join(root, 'binary'), binary);
    const unitTests = `printf '${UNIT_TESTS}'\nprintf '1 of 2 tests failed\\n' >&2\nexit 1\n`;
    writeFileSync(join(world.project, 'unit-tests.sh'), unitTests);
    try {
      await world.#serve('127.0.0.1:0');
      world.#remember('token', world.#json('token', 'add', 'web-tests').secret);
      await world.#fill();
    } catch (error) {
      await world.stop();
      throw error;
    }
    return world;
  }

  /** @param {string} root */
  constructor(root) {
    this.root = root;
    this.home = join(root, 'home');
    this.project = join(root, 'shop');
    this.state = join(root, 'state');
  }

  get url() {
    return this.#recall('url');
  }

  get token() {
    return this.#recall('token');
  }

  /** Returns an unused code. It is valid for a minute. */
  loginCode() {
    return new URL(this.#json('dashboard', '--no-open').url).hash.replace('#code=', '');
  }

  /** The variables that the tests read. */
  variables() {
    return {
      BRIGADE_URL: this.url,
      BRIGADE_TOKEN: this.token,
      BRIGADE_CWD: this.project,
      BRIGADE_WORLD: this.root,
    };
  }

  /** Kills the server with SIGKILL, and starts another one on the same address. */
  async restart() {
    const pid = this.#json('daemon', 'status').status.pid;
    process.kill(pid, 'SIGKILL');
    await until('the server has died', () => !isAlive(pid));
    await this.#serve(new URL(this.url).host);
  }

  /** Ends all processes of this world and removes its directory. */
  async stop() {
    await until('all processes have ended', () => {
      const pids = this.#processes();
      for (const pid of pids) killNow(pid);
      return pids.length === 0;
    });
    rmSync(this.root, { recursive: true, force: true });
  }

  /** Starts a task in the session of the project. */
  async startTask(body) {
    this.session ??= (await this.api('POST', 'sessions', { workspace: this.project })).id;
    return this.api('POST', `sessions/${this.session}/tasks`, { cwd: this.project, ...body });
  }

  /**
   * Starts short processes that the list does not fold: neighbours have different names.
   * @param {number} count
   * @param {() => Promise<unknown>} [pause] Runs between two of them.
   */
  async startMany(count, pause) {
    const stems = ['build', 'test', 'check', 'deploy'];
    let started = 0;
    const startNext = async () => {
      while (started < count) {
        const name = `${stems[started % stems.length]}-${this.#many}`;
        started += 1;
        this.#many += 1;
        await this.startTask({ kind: 'process', shell: 'true', name });
        await pause?.();
      }
    };
    await Promise.all(Array.from({ length: STARTERS }, startNext));
  }

  async api(method, path, body) {
    const response = await fetch(`${this.url}/v1/${path}`, {
      method,
      headers: { authorization: `Bearer ${this.token}`, 'content-type': 'application/json' },
      body: body === undefined ? undefined : JSON.stringify(body),
    });
    const text = await response.text();
    if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${text}`);
    return text === '' ? {} : JSON.parse(text);
  }

  async #fill() {
    const agent = (name, prompt, more = {}) =>
      this.startTask({ kind: 'agent', name, prompt, ...more });
    const shell = (name, text, more = {}) =>
      this.startTask({ kind: 'process', name, shell: text, ...more });
    await shell('unit-tests', 'sh unit-tests.sh');
    await shell('lint', 'echo "no problems found"');
    await agent('Release', 'Prepare release 2.4.', {
      limits: { money: '2.50', tokens: 400_000 },
      permissions: { allow: ['run_process', 'spawn_agent', 'wait_tasks', 'list_files'] },
    });
    await agent('Research', 'Compare the three designs in docs/.', { limits: { money: '0.40' } });
    await agent('Deploy', 'Deploy the build to staging.', { permissions: ASK });
    await agent('Migration', 'Write the migration of the orders table.');
    await agent('Cleanup', 'Delete the merged branches.', { permissions: ASK });
    await agent('Format', 'Write the release note.', { permissions: ASK });
    await shell('dev-server', 'echo listening on 8000; sleep 3600', { stdin: true });
    await until('the tasks wait as the tests need it', async () => {
      const { approvals, questions } = await this.api('GET', 'pending');
      const { items } = await this.api('GET', 'tasks?ended=true&limit=1000');
      const hasChild = items.some((task) => task.name === 'checks');
      const hasFailed = items.some((task) => task.name === 'Research' && !task.alive);
      return approvals.length === 3 && questions.length === 1 && hasChild && hasFailed;
    });
  }

  /** @param {string} address */
  async #serve(address) {
    const output = join(this.root, 'serve.out');
    const errors = join(this.root, 'serve.err');
    const server = spawn(
      this.#recall('binary'),
      ['serve', '--state', this.state, '--listen', address, '--json'],
      {
        cwd: this.root,
        env: this.#env(),
        stdio: ['ignore', openSync(output, 'w'), openSync(errors, 'a')],
        detached: true,
      },
    );
    server.unref();
    await until('the server listens', () => {
      if (server.exitCode !== null) throw new Error(readFileSync(errors, 'utf8'));
      return readFileSync(output, 'utf8').includes('\n');
    });
    this.#remember('url', JSON.parse(readFileSync(output, 'utf8')).urls[0]);
  }

  #json(...args) {
    const options = { cwd: this.project, env: this.#env(), encoding: 'utf8' };
    return JSON.parse(execFileSync(this.#recall('binary'), [...args, '--json'], options));
  }

  #env() {
    return {
      PATH: `${PROGRAMS}:/usr/local/bin:/usr/bin:/bin`,
      HOME: this.home,
      BRIGADE_STATE: this.state,
    };
  }

  #remember(name, value) {
    writeFileSync(join(this.root, name), value, { mode: 0o600 });
  }

  #recall(name) {
    return readFileSync(join(this.root, name), 'utf8');
  }

  /** The daemon hides its environment and is found by its arguments. */
  #processes() {
    const has = (pid, file, word) => {
      try {
        return readFileSync(`/proc/${pid}/${file}`, 'utf8').split('\0').includes(word);
      } catch {
        return false;
      }
    };
    const pids = readdirSync('/proc').filter((name) => /^\d+$/.test(name));
    const mark = `BRIGADE_STATE=${this.state}`;
    return pids
      .map(Number)
      .filter((pid) => has(pid, 'environ', mark) || has(pid, 'cmdline', this.state))
      .filter((pid) => isAlive(pid));
  }
}

function isAlive(pid) {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
    return !stat.slice(stat.lastIndexOf(')')).startsWith(') Z');
  } catch {
    return false;
  }
}

function killNow(pid) {
  try {
    process.kill(pid, 'SIGKILL');
  } catch {
    // It has ended meanwhile.
  }
}

async function until(expected, look) {
  const deadline = Date.now() + START_MS;
  while (!(await look())) {
    if (Date.now() > deadline) throw new Error(`never happened: ${expected}`);
    await new Promise((resolve) => setTimeout(resolve, POLL_MS));
  }
}
