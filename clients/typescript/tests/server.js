// A real server in a directory of its own, and a proxy that loses answers.

import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import fs from 'node:fs';
import net from 'node:net';
import os from 'node:os';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';

const BINARY = process.env.BRIGADE_BIN ?? 'brigade';
const START_MS = 30_000;

const SCRIPT = `
agent *
turn
  say I run it.
  call run_process {"command": "echo allowed"}
turn
  repeat
  say It ran, or it was not allowed.
`;

/** A server on a port that stays the same across restarts. */
export class Server {
  static async start() {
    const server = new Server(await freePort());
    try {
      await server.serve();
      server.token = server.addToken('tests');
    } catch (error) {
      await server.stop();
      throw error;
    }
    return server;
  }

  constructor(port) {
    // A short name: the path of a socket is limited.
    this.root = fs.mkdtempSync(path.join(os.tmpdir(), 'brigade-ts-'));
    this.home = path.join(this.root, 'home');
    this.project = path.join(this.root, 'shop');
    this.port = port;
    this.url = `http://127.0.0.1:${port}`;
    const config = path.join(this.home, '.config/brigade');
    fs.mkdirSync(config, { recursive: true });
    fs.mkdirSync(this.project);
    const script = path.join(this.root, 'agents.script');
    fs.writeFileSync(script, SCRIPT);
    fs.writeFileSync(path.join(config, 'config.toml'), `model = "script:${script}"\n`);
  }

  async serve() {
    const log = fs.openSync(path.join(this.root, 'log'), 'a');
    const stdio = ['ignore', log, log];
    const args = ['serve', '--listen', `127.0.0.1:${this.port}`];
    this.process = spawn(BINARY, args, { env: this.#env(), cwd: this.project, stdio });
    fs.closeSync(log);
    await until('the server listens', () => isListening(this.port));
  }

  /** Kills the server with SIGKILL. */
  async kill() {
    const exit = once(this.process, 'exit');
    this.process.kill('SIGKILL');
    await exit;
  }

  async restart() {
    await this.kill();
    await this.serve();
  }

  run(...args) {
    return execFileSync(BINARY, args, { env: this.#env(), cwd: this.project, encoding: 'utf8' });
  }

  addToken(...args) {
    return JSON.parse(this.run('token', 'add', '--json', ...args)).secret;
  }

  /** Ends all processes of this server and removes its directory. */
  async stop() {
    await until('all processes have ended', () => {
      const pids = this.#pids();
      for (const pid of pids) {
        try {
          process.kill(pid, 'SIGKILL');
        } catch {
          // It has ended.
        }
      }
      return pids.length === 0;
    });
    fs.rmSync(this.root, { recursive: true, force: true });
  }

  /** Variables that every process of this server has, by which `stop` finds them. */
  #env() {
    const kept = Object.entries(process.env).filter(([name]) => !name.includes('BRIGADE'));
    const own = { HOME: this.home, XDG_CONFIG_HOME: '', BRIGADE_STATE: path.join(this.root, 'state') };
    return { ...Object.fromEntries(kept), ...own };
  }

  #pids() {
    const read = (pid, name) => {
      try {
        return fs.readFileSync(`/proc/${pid}/${name}`, 'utf8');
      } catch {
        return '';
      }
    };
    const pids = fs.readdirSync('/proc').filter((name) => /^\d+$/.test(name)).map(Number);
    return pids.filter(
      (pid) => pid !== process.pid && `${read(pid, 'environ')}${read(pid, 'cmdline')}`.includes(this.root),
    );
  }
}

/** A proxy that forwards bytes. It drops the next `lose` answers, after the server has given them. */
export class LossyProxy {
  lose = 0;
  #sockets = new Set();

  static async start(port) {
    const proxy = new LossyProxy(port);
    await new Promise((resolve) => proxy.server.listen(0, '127.0.0.1', resolve));
    proxy.url = `http://127.0.0.1:${proxy.server.address().port}`;
    return proxy;
  }

  constructor(port) {
    this.server = net.createServer((client) => {
      const server = net.connect(port, '127.0.0.1');
      for (const socket of [client, server]) {
        this.#sockets.add(socket);
        socket.on('error', () => {});
        socket.on('close', () => {
          client.destroy();
          server.destroy();
          this.#sockets.delete(socket);
        });
      }
      client.pipe(server);
      server.on('data', (data) => {
        if (this.lose === 0) {
          client.write(data);
          return;
        }
        this.lose -= 1;
        client.destroy();
      });
    });
  }

  close() {
    this.server.close();
    for (const socket of this.#sockets) socket.destroy();
  }
}

export async function until(what, isDone) {
  const end = Date.now() + START_MS;
  while (!(await isDone())) {
    if (Date.now() > end) throw new Error(`timeout: ${what}`);
    await sleep(20);
  }
}

export async function freePort() {
  const server = net.createServer();
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address();
  await new Promise((resolve) => server.close(resolve));
  return port;
}

function isListening(port) {
  return new Promise((resolve) => {
    const probe = net.connect(port, '127.0.0.1', () => {
      probe.destroy();
      resolve(true);
    });
    probe.on('error', () => resolve(false));
  });
}
