// Reports failed requests of an Express app to the sidecar; Node 18 or newer, nothing to install.
//   app.use(arbiter.results);        // first: counts requests and failures
//   app.use(arbiter.errorHandler);   // last: reports errors
// Node has no unix datagrams, so this is UDP. Without ARBITER_STATSD_LISTEN nothing is sent.
"use strict";
const dgram = require("node:dgram");

const [, host, port] = /^\[?(.*?)\]?:(\d+)$/.exec(process.env.ARBITER_STATSD_LISTEN ?? "") ?? [];
const socket = host && dgram.createSocket(host.includes(":") ? "udp6" : "udp4").unref();
socket?.on("error", () => {}); // a missing sidecar is no error of the app

const send = (line) => socket?.send(line, Number(port), host, () => {});
const word = (text) => String(text).replace(/[^\w.:/-]/g, "_").slice(0, 64) || "unknown";

function report(count = 1, { kind = "unknown", level = "server_error", fatal = false } = {}) {
  send(`errors:${count}|c|#level:${level},kind:${word(kind)}${fatal ? ",fatal:true" : ""}`);
}

function errorHandler(error, request, response, next) {
  const status = error?.status ?? error?.statusCode ?? 500;
  if (status >= 500) report(1, { kind: error?.code ?? error?.name ?? "Error" });
  next(error);
}

function results(request, response, next) {
  response.once("finish", () => send(response.statusCode < 500 ? "requests:1|c" : "failed:1|c"));
  next();
}

module.exports = { report, errorHandler, results };
