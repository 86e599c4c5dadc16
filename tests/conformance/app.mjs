// The app behind gateway and agent: echoes what it is sent, in every way that HTTP/1.1 has.
import http from "node:http";
import { WebSocketServer } from "ws";

const sockets = new WebSocketServer({ noServer: true, maxPayload: 64 << 20, perMessageDeflate: false });
const server = http.createServer((request, response) => {
  const url = new URL(request.url, "http://app");
  if (url.pathname.startsWith("/_pool/")) {
    response.writeHead(404).end();
  } else if (url.pathname === "/echo") {
    response.writeHead(200, { "content-type": "application/octet-stream" });
    request.pipe(response);
  } else if (url.pathname === "/headers") {
    response.writeHead(200, { "content-type": "application/json" });
    response.end(JSON.stringify({ method: request.method, url: request.url, headers: request.rawHeaders }));
  } else if (url.pathname === "/bytes") {
    const length = Number(url.searchParams.get("n"));
    response.writeHead(200, { "content-length": length });
    response.end(request.method === "HEAD" ? undefined : Buffer.alloc(length, "x"));
  } else if (url.pathname === "/events") {
    response.writeHead(200, { "content-type": "text/event-stream" });
    let count = 0;
    const timer = setInterval(() => {
      response.write(`data: ${(count += 1)}\n\n`);
      if (count === 3) {
        clearInterval(timer);
        response.end();
      }
    }, 20);
  } else if (url.pathname === "/trailers") {
    response.writeHead(200, { trailer: "x-sum" });
    response.write("body");
    response.addTrailers({ "x-sum": "7" });
    response.end();
  } else {
    // Whoever sends a body is answered once all of it has come.
    request.resume().on("end", () => response.writeHead(200, { "content-type": "text/plain" }).end("ok\n"));
  }
});
server.on("upgrade", (request, socket, head) => {
  sockets.handleUpgrade(request, socket, head, (client) => {
    client.on("message", (data, binary) => client.send(data, { binary }));
  });
});
server.keepAliveTimeout = 60_000;
server.listen(Number(process.env.PORT), "127.0.0.1");
