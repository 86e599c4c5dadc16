"use strict";
// Shows counter and worker as the WebSocket tells them, and connects again whenever it ends.
const at = (id) => document.getElementById(id);
const note = (text) => {
  const line = document.createElement("li");
  line.textContent = new Date().toLocaleTimeString() + "  " + text;
  at("log").prepend(line);
  while (at("log").children.length > 50) at("log").lastChild.remove();
};
const show = (told) => {
  const before = at("worker").textContent;
  if (told.worker !== before) note("moved from " + before + " to " + told.worker);
  at("counter").textContent = told.counter;
  at("worker").textContent = told.worker;
};
let wait = 100;
const connect = () => {
  const scheme = location.protocol === "https:" ? "wss://" : "ws://";
  const socket = new WebSocket(scheme + location.host + "/ws");
  socket.onopen = () => {
    wait = 100;
    at("link").textContent = "open";
  };
  socket.onmessage = (event) => show(JSON.parse(event.data));
  socket.onclose = (event) => {
    at("link").textContent = "connecting";
    note("connection ended (" + event.code + ")");
    setTimeout(connect, wait);
    wait = Math.min(wait * 2, 5000);
  };
};
const work = async (query) => {
  const started = performance.now();
  const answer = await fetch("/work" + query, { method: "POST" });
  const body = await answer.json();
  if (!answer.ok) return note("refused: " + body.error);
  show(body);
  note("counter " + body.counter + " after " + Math.round(performance.now() - started) + " ms");
};
at("count").onclick = () => work("");
at("burn").onclick = () => work("?cpu_ms=500");
connect();
