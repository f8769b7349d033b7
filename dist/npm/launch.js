#!/usr/bin/env node
// Starts the program of the package for this platform in place of Node.js.
'use strict';

const { spawn } = require('node:child_process');

const PACKAGES = { 'linux x64': '@brigade-run/linux-x64' };

const platform = `${process.platform} ${process.arch}`;
const name = PACKAGES[platform];
if (!name) {
  fail(`there is no program for ${platform}; packages exist for: ${Object.keys(PACKAGES).join(', ')}`);
}

let program;
try {
  program = require.resolve(`${name}/bin/brigade`);
} catch {
  fail(
    `${name} is not installed; it needs glibc (not musl), and npm must install optional dependencies: ` +
      'reinstall brigade-run without --omit=optional'
  );
}

const args = process.argv.slice(2);
if (process.execve) {
  // The same process continues as the program, so streams, signals and the exit code are its own.
  process.execve(program, ['brigade', ...args], process.env);
}
runAsChild();

/** Runs the program as a child. Its end is the end of this process, and the other way round. */
function runAsChild() {
  // Keys on a terminal send these to both processes. A second one would mean a second key.
  const onTerminal = [0, 1, 2].some((descriptor) => require('node:tty').isatty(descriptor));
  const signals = ['SIGINT', 'SIGQUIT', 'SIGTERM', 'SIGHUP', 'SIGUSR1', 'SIGUSR2'];
  const fromKeys = new Set(['SIGINT', 'SIGQUIT']);
  let child;
  // Before the start of the child: without a handler, a signal would end only this process.
  for (const signal of signals) {
    process.on(signal, () => {
      if (!onTerminal || !fromKeys.has(signal)) child.kill(signal);
    });
  }
  child = spawn(program, args, { stdio: 'inherit', argv0: 'brigade' });
  child.on('error', (error) => fail(`${program}: ${error.message}`));
  child.on('exit', (code, signal) => {
    if (!signal) process.exit(code);
    process.removeAllListeners(signal);
    process.kill(process.pid, signal);
  });
}

function fail(message) {
  console.error(`brigade-run: ${message}`);
  process.exit(1);
}
