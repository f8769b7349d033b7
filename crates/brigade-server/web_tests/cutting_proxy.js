// A proxy before the server that can lose all connections, as a killed server or a sleeping laptop does.

import http from 'node:http';

export class CuttingProxy {
  #server = http.createServer((request, response) => this.#forward(request, response));
  #sockets = new Set();
  #isCut = false;
  /** Answers the next request to a path itself: `{path, status, type, body}`. */
  nextAnswer = null;
  /** The paths of all requests so far. */
  paths = [];

  constructor(target) {
    this.target = new URL(target);
    this.#server.on('connection', (socket) => {
      if (this.#isCut) socket.destroy();
      this.#sockets.add(socket);
      socket.on('close', () => this.#sockets.delete(socket));
    });
  }

  async listen() {
    await new Promise((resolve) => this.#server.listen(0, '127.0.0.1', resolve));
    return `http://127.0.0.1:${this.#server.address().port}`;
  }

  /** Loses all connections and refuses new ones. */
  cut() {
    this.#isCut = true;
    for (const socket of this.#sockets) socket.destroy();
  }

  restore() {
    this.#isCut = false;
  }

  close() {
    this.cut();
    this.#server.close();
  }

  #forward(request, response) {
    this.paths.push(request.url);
    const answer = this.nextAnswer;
    if (answer && request.url.startsWith(answer.path)) {
      this.nextAnswer = null;
      response.writeHead(answer.status, { 'content-type': answer.type });
      response.end(answer.body);
      return;
    }
    const headers = { ...request.headers, host: this.target.host };
    if (headers.origin) headers.origin = this.target.origin;
    const upstream = http.request(
      {
        host: this.target.hostname,
        port: this.target.port,
        path: request.url,
        method: request.method,
        headers,
      },
      (answered) => {
        response.writeHead(answered.statusCode, answered.headers);
        answered.pipe(response);
      },
    );
    upstream.on('error', () => response.destroy());
    response.on('close', () => upstream.destroy());
    request.pipe(upstream);
  }
}
