// The address and the token of a server, from options, variables and files.

export const DEFAULT_URL = 'http://127.0.0.1:7777';
const TIMEOUT_MS = 30_000;
const RETRY_FOR_MS = 60_000;

export interface ClientOptions {
  /** The server; `BRIGADE_URL`, or `http://127.0.0.1:7777`. */
  url?: string;
  /** The token; `BRIGADE_TOKEN`, or the file `BRIGADE_TOKEN_FILE`. */
  token?: string;
  /** The file of the token. */
  tokenFile?: string;
  /** The time for one attempt of a request, beside the time that a wait asks for; 30 seconds. */
  timeoutMs?: number;
  /**
   * The time for which requests, waits and streams try a server again that does not answer; 60
   * seconds. A server that has never answered is tried for 3 seconds.
   */
  retryForMs?: number;
  /** Sends the token over http to another machine. */
  insecureHttp?: boolean;
  /** Another `fetch`, with other settings of TLS or proxies. */
  fetch?: typeof fetch;
}

export interface ClientSettings {
  /** The URL of the server, without a slash at its end. */
  url: string;
  token: string;
  timeoutMs: number;
  retryForMs: number;
  fetch: typeof fetch;
}

/** The parts of Node.js that are used if they are there. */
interface NodeProcess {
  env?: Record<string, string | undefined>;
  getBuiltinModule?(name: string): { readFileSync(path: string, encoding: string): string };
}

/** Returns the settings. Options come before variables. */
export function readSettings(options: ClientOptions): ClientSettings {
  const timeoutMs = options.timeoutMs ?? TIMEOUT_MS;
  const retryForMs = options.retryForMs ?? RETRY_FOR_MS;
  if (!(timeoutMs > 0) || !(retryForMs >= 0))
    throw new TypeError('timeoutMs must be above 0, and retryForMs at least 0');
  const url = checkUrl(options.url || variable('BRIGADE_URL') || DEFAULT_URL);
  if (url.protocol === 'http:' && !isLocal(url.hostname) && !options.insecureHttp)
    throw new TypeError(
      `${url}: a token over http goes to this machine only; use https, or pass insecureHttp for a network that you trust`,
    );
  return {
    url: url.href.replace(/\/+$/, ''),
    token: readToken(options),
    timeoutMs,
    retryForMs,
    // A browser calls its `fetch` only on the global object.
    fetch: options.fetch ?? ((...args) => globalThis.fetch(...args)),
  };
}

function checkUrl(text: string): URL {
  if (!URL.canParse(text) || !/^https?:$/.test(new URL(text).protocol))
    throw new TypeError(`${text} is no URL of a server; write http://HOST:PORT or https://HOST`);
  const url = new URL(text);
  if (url.username || url.password || url.search || url.hash)
    throw new TypeError('the URL of a server has no user, query or fragment');
  return url;
}

function isLocal(host: string): boolean {
  return /^(localhost|.+\.localhost|127\.\d+\.\d+\.\d+|\[::1\])$/.test(host);
}

function readToken(options: ClientOptions): string {
  if (options.token !== undefined && options.tokenFile !== undefined)
    throw new TypeError('pass either token or tokenFile');
  let { token, tokenFile } = options;
  if (token === undefined && tokenFile === undefined) {
    token = variable('BRIGADE_TOKEN');
    tokenFile = variable('BRIGADE_TOKEN_FILE');
  }
  if (!token && tokenFile) token = readText(tokenFile);
  token = (token ?? '').trim();
  if (!token)
    throw new TypeError(
      'there is no token: run `brigade token add NAME`, and pass `token`, or set BRIGADE_TOKEN or BRIGADE_TOKEN_FILE',
    );
  // The text itself is a secret, so that the error does not have it.
  if (!/^[!-~]+$/.test(token)) throw new TypeError('the token has characters that no token has');
  return token;
}

function nodeProcess(): NodeProcess | undefined {
  return (globalThis as { process?: NodeProcess }).process;
}

function variable(name: string): string | undefined {
  return nodeProcess()?.env?.[name];
}

function readText(path: string): string {
  const files = nodeProcess()?.getBuiltinModule?.('node:fs');
  if (!files) throw new TypeError('a token file needs Node.js 20.16 or later');
  return files.readFileSync(path, 'utf8');
}
