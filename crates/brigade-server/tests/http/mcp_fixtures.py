"""Forwards MCP over HTTP for the conformance suite: mcp_fixtures.py URL. Prints its own URL.

Adds the token of BRIGADE_TOKEN, which the suite cannot send. The suite calls its own tools. Those that a process can
replace become calls of run_process, in the body and in the headers.
"""

import http.client
import json
import os
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

TARGET = urlsplit(sys.argv[1])
TOKEN = os.environ["BRIGADE_TOKEN"]

FIXTURES = {
    "greet": lambda a: f"echo 'Hello, {a.get('name')}!'",
    "slow_compute": lambda a: f"sleep {a.get('seconds', 0)}; echo computed {a.get('label', '')}",
    "failing_job": lambda a: "sleep 1; echo it went wrong; exit 1",
    "test_simple_text": lambda a: "echo 'This is a simple text response for testing.'",
    "test_tool_with_progress": lambda a: "for i in 1 2 3; do echo step $i; sleep 1.1; done",
    "test_error_handling": lambda a: "   ",
}


def replace_tool(body):
    """Returns the body with a tool of this server, and the name of the tool that it replaces."""
    try:
        message = json.loads(body)
        params = message["params"]
        name = params["name"]
        command = FIXTURES[name](params.get("arguments") or {})
    except (ValueError, KeyError, TypeError):
        return body, None
    if message.get("method") != "tools/call":
        return body, None
    params.update(name="run_process", arguments={"command": command})
    return json.dumps(message).encode(), name


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def forward(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        body, replaced = replace_tool(body)
        connection = http.client.HTTPConnection(TARGET.netloc)
        connection.putrequest(self.command, TARGET.path, skip_host=True, skip_accept_encoding=True)
        for name, value in self.headers.items():
            if name.lower() == "mcp-name" and value == replaced:
                value = "run_process"
            if name.lower() not in ("content-length", "connection", "accept-encoding"):
                connection.putheader(name, value)
        connection.putheader("Authorization", f"Bearer {TOKEN}")
        connection.putheader("Content-Length", str(len(body)))
        connection.endheaders(body)
        response = connection.getresponse()
        self.send_response(response.status)
        for name, value in response.getheaders():
            if name.lower() not in ("content-length", "transfer-encoding", "connection", "date"):
                self.send_header(name, value)
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        try:
            while chunk := response.read1(65536):
                self.wfile.write(chunk)
                self.wfile.flush()
        except OSError:
            pass
        finally:
            connection.close()

    do_GET = do_POST = do_DELETE = do_PUT = do_OPTIONS = forward


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request, client_address):
        # The suite disconnects when it has read enough.
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


server = Server(("127.0.0.1", 0), Handler)
print(f"http://localhost:{server.server_address[1]}/mcp", flush=True)
server.serve_forever()
