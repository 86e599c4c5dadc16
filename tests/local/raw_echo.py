"""An app that answers an upgrade with 101 and from then on sends back every byte as it came, and anything else with 200."""

import base64
import hashlib
import os
import socketserver

GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


class App(socketserver.StreamRequestHandler):
    def handle(self):
        while line := self.rfile.readline():
            headers = {}
            while (header := self.rfile.readline()) not in (b"\r\n", b""):
                name, _, value = header.partition(b":")
                headers[name.strip().lower()] = value.strip()
            if b"upgrade" in headers:
                return self.echo(headers[b"sec-websocket-key"])
            body = b"{}"
            status = b"404 Not Found" if b" /_pool/" in line else b"200 OK"
            self.wfile.write(b"HTTP/1.1 %s\r\ncontent-length: %d\r\n\r\n%s" % (status, len(body), body))

    def echo(self, key):
        accept = base64.b64encode(hashlib.sha1(key + GUID).digest())
        self.wfile.write(
            b"HTTP/1.1 101 Switching Protocols\r\nconnection: Upgrade\r\nupgrade: websocket\r\n"
            b"sec-websocket-accept: %s\r\n\r\n" % accept
        )
        while data := self.request.recv(1 << 16):
            self.request.sendall(data)


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True


Server(("127.0.0.1", int(os.environ["PORT"])), App).serve_forever()
