// A small Express app whose every request needs Redis: node express_app.js PORT REDIS_PORT
// It reports by datagram (deploy/clients/express.cjs), or by POST to ERRORS_URL, and counts on /metrics for a scrape.
"use strict";
const net = require("node:net");
const express = require("express");
const arbiter = require("../../deploy/clients/express.cjs");

const [port, redisPort] = process.argv.slice(2).map(Number);
const answered = { 200: 0, 500: 0 };
const app = express();

const ping = () =>
  new Promise((resolve, reject) => {
    const socket = net.connect(redisPort, "127.0.0.1", () => socket.write("PING\r\n"));
    socket.setTimeout(1000, () => socket.destroy(Object.assign(new Error("timeout"), { code: "redis" })));
    socket.on("data", () => (socket.end(), resolve()));
    socket.on("error", (error) => reject(Object.assign(error, { code: "redis" })));
  });

app.use((request, response, next) => {
  if (request.path === "/work") response.once("finish", () => (answered[response.statusCode] += 1));
  next();
});
app.get("/work", async (request, response) => {
  await ping();
  response.end("done");
});
app.get("/metrics", (request, response) => {
  const lines = Object.entries(answered).map(([status, count]) => `http_requests_total{status="${status}"} ${count}\n`);
  response.type("text/plain; version=0.0.4").send("# TYPE http_requests_total counter\n" + lines.join(""));
});
app.use(async (error, request, response, next) => {
  if (process.env.ERRORS_URL) await fetch(process.env.ERRORS_URL, { method: "POST", body: '{"kind":"redis"}' });
  next(error);
});
app.use(arbiter.errorHandler);
app.use((error, request, response, next) => response.status(500).end("broken"));
app.listen(port, "127.0.0.1");
