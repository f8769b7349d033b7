"""Serves MCP servers on stdio over HTTP, for the conformance suite: over_http.py PROGRAM STATE_DIR PORT.

Forwards messages to one server process per session, and to one more for requests without a session. The suite
calls its own tools. Those that a process can replace become calls of run_process.
"""

import itertools
import json
import queue
import subprocess
import sys
import threading
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PROGRAM, STATE, PORT = sys.argv[1], sys.argv[2], int(sys.argv[3])

SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"

FIXTURES = {
    "greet": lambda a: f"echo 'Hello, {a.get('name')}!'",
    "slow_compute": lambda a: f"sleep {a.get('seconds', 0)}; echo computed {a.get('label', '')}",
    "failing_job": lambda a: "sleep 1; echo it went wrong; exit 1",
    "test_simple_text": lambda a: "echo 'This is a simple text response for testing.'",
    "test_tool_with_progress": lambda a: "for i in 1 2 3; do echo step $i; sleep 1.1; done",
    "test_error_handling": lambda a: "   ",
}


class StdioServer:
    def __init__(self):
        command = [PROGRAM, STATE, "conformance"]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)
        self.numbers = itertools.count(1)
        self.waiting = {}
        self.tokens = {}
        self.lock = threading.Lock()
        threading.Thread(target=self.listen, daemon=True).start()

    def listen(self):
        for line in self.process.stdout:
            message = json.loads(line)
            if "id" in message and message["id"] in self.waiting:
                self.waiting.pop(message["id"]).put(message)
            elif message.get("method") == "notifications/progress":
                answers = self.tokens.get(json.dumps(message["params"]["progressToken"]))
                if answers:
                    answers.put(message)
            else:
                meta = message.get("params", {}).get("_meta", {})
                answers = self.waiting.get(meta.get(SUBSCRIPTION))
                if answers:
                    answers.put(message)

    def send(self, message):
        with self.lock:
            self.process.stdin.write(json.dumps(message) + "\n")
            self.process.stdin.flush()

    def listen_to(self, message):
        """Yields the messages of a subscription."""
        answers = queue.Queue()
        number, known = next(self.numbers), message["id"]
        self.waiting[number] = answers
        self.send({**message, "id": number})
        while True:
            got = answers.get(timeout=20)
            if "id" in got:
                yield {**got, "id": known}
                return
            got["params"]["_meta"][SUBSCRIPTION] = known
            yield got

    def request(self, message):
        """Returns every message that follows from a request. The last one is the response."""
        answers = queue.Queue()
        number, known = next(self.numbers), message["id"]
        token = (message.get("params") or {}).get("_meta", {}).get("progressToken")
        if token is not None:
            self.tokens[json.dumps(token)] = answers
        self.waiting[number] = answers
        self.send({**message, "id": number})
        received = []
        while True:
            got = answers.get(timeout=60)
            if "id" in got:
                return received + [{**got, "id": known}]
            received.append(got)


SESSIONS = {None: StdioServer()}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def reply(self, status, body=b"", headers=()):
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def stream(self, messages):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        try:
            for message in messages:
                self.wfile.write(f"event: message\ndata: {json.dumps(message)}\n\n".encode())
                self.wfile.flush()
        except (OSError, queue.Empty):
            pass

    def do_GET(self):
        self.reply(405)

    def do_DELETE(self):
        SESSIONS.pop(self.headers.get("mcp-session-id"), None)
        self.reply(200)

    def do_POST(self):
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        session = self.headers.get("mcp-session-id")
        if message.get("method") == "initialize":
            session = str(uuid.uuid4())
            SESSIONS[session] = StdioServer()
        if session not in SESSIONS:
            return self.reply(404)
        if message.get("method") == "tools/call":
            params = message["params"]
            if params.get("name") in FIXTURES:
                command = FIXTURES[params["name"]](params.get("arguments") or {})
                params.update(name="run_process", arguments={"command": command})
        if "id" not in message:
            SESSIONS[session].send(message)
            return self.reply(202)
        if message["method"] == "subscriptions/listen":
            return self.stream(SESSIONS[session].listen_to(message))
        messages = SESSIONS[session].request(message)
        headers = [("mcp-session-id", session)] if session else []
        # Over HTTP some errors have a status too, which the server on stdio does not know.
        code = messages[-1].get("error", {}).get("code")
        status = {-32601: 404, -32600: 400, -32602: 400, -32020: 400, -32021: 400, -32022: 400}
        if len(messages) == 1:
            headers.append(("Content-Type", "application/json"))
            status = status.get(code, 200) if session is None else 200
            return self.reply(status, json.dumps(messages[0]).encode(), headers)
        events = "".join(f"event: message\ndata: {json.dumps(one)}\n\n" for one in messages)
        self.reply(200, events.encode(), headers + [("Content-Type", "text/event-stream")])


class Server(ThreadingHTTPServer):
    def handle_error(self, request, client_address):
        # The suite disconnects when it has read enough.
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


Server(("127.0.0.1", PORT), Handler).serve_forever()
