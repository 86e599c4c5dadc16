// Node's undici (HTTP/1.1, pipelined and not) and its WebSocket against the address given.
import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { Client, WebSocket, request } from "undici";

const url = `http://${process.argv[2]}`;
const body = randomBytes(2_000_000);
const echoed = await request(`${url}/echo`, { method: "POST", body });
assert.deepEqual(Buffer.from(await echoed.body.arrayBuffer()), body);
const client = new Client(url, { pipelining: 10 });
const many = Array.from({ length: 200 }, async (_, number) => {
  const { body } = await client.request({ path: `/headers?${number}`, method: "GET" });
  return (await body.json()).url;
});
assert.deepEqual(await Promise.all(many), Array.from({ length: 200 }, (_, number) => `/headers?${number}`));
const trailed = await client.request({ path: "/trailers", method: "GET", headers: { te: "trailers" } });
assert.equal(await trailed.body.text(), "body");
assert.equal(trailed.trailers["x-sum"], "7");
await client.close();
console.log("pass undici HTTP/1.1");

await new Promise((resolve, reject) => {
  const socket = new WebSocket(url.replace("http", "ws"));
  const messages = ["one", "two".repeat(50_000)];
  const got = [];
  socket.onopen = () => messages.forEach((message) => socket.send(message));
  socket.onmessage = ({ data }) => got.push(data) === messages.length && socket.close(1000);
  socket.onclose = ({ code }) => {
    assert.deepEqual(got, messages);
    assert.equal(code, 1000);
    resolve();
  };
  socket.onerror = reject;
});
console.log("pass undici WebSocket");
