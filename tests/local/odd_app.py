"""An app whose report is whatever a file says: for what no app should say."""

import http.server
import os

REPORT = os.environ["ODD_REPORT"]
USERS = b'{"instance": "odd", "capabilities": ["snapshot"], "users": []}'


class App(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        if self.path == "/_pool/v1/users":
            body = USERS
        elif self.path == "/_pool/v1/report":
            with open(REPORT, "rb") as report:
                body = report.read()
        else:
            body = b"{}"
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments):
        pass


http.server.ThreadingHTTPServer(("127.0.0.1", int(os.environ["PORT"])), App).serve_forever()
