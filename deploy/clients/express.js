// Reports failed requests of an Express app to the sidecar; Node 18 or newer, nothing to install.
//   app.use(arbiter.results);        // first: counts requests, and every answer of 500 and above is an error
//   app.use(arbiter.errorHandler);   // last: gives that error the kind of its exception
// It sends UDP to ARBITER_STATSD_LISTEN if that is set (Node has no unix datagrams); else it posts to ARBITER_SOCKET or
// ARBITER_LOCAL_LISTEN (127.0.0.1:9180; off: nowhere). Reports wait for at most 30 s while no sidecar answers.
"use strict";
const dgram = require("node:dgram");
const http = require("node:http");

const address = (text) => /^\[?(.*?)\]?:(\d+)$/.exec(text || "") ?? [];
const [, host, port] = address(process.env.ARBITER_STATSD_LISTEN);
const socket = host && dgram.createSocket(host.includes(":") ? "udp6" : "udp4").unref();
socket?.on("error", () => {}); // a missing sidecar is no error of the app

const [, localHost, localPort] = address(process.env.ARBITER_LOCAL_LISTEN || "127.0.0.1:9180");
const places = [];
if (process.env.ARBITER_SOCKET) places.push({ socketPath: process.env.ARBITER_SOCKET });
if (localHost) places.push({ host: localHost, port: Number(localPort) });

const MOST = 1e6; // in one report
let errors = new Map(); // at most 101, by their fields
let counts = { ok: 0, failed: 0 };
let since, timer;
let isBusy = false;
let isSilent = false;

const send = (line) => socket.send(line, Number(port), host, () => {});
const word = (text) => String(text).replace(/[^\w.:/-]/g, "_").slice(0, 64) || "unknown";

function report(count = 1, { kind = "unknown", level = "server_error", fatal = false } = {}) {
  if (socket) return send(`errors:${count}|c|#level:${level},kind:${word(kind)}${fatal ? ",fatal:true" : ""}`);
  addError({ count, level, kind: word(kind), fatal });
  later();
}

function addError(error) {
  const key = (each) => `${each.level} ${each.kind} ${each.fatal}`;
  if (errors.size >= 100 && !errors.has(key(error))) error = { ...error, kind: "other" };
  if (errors.size > 100 && !errors.has(key(error))) return;
  errors.set(key(error), { ...error, count: Math.min(MOST, error.count + (errors.get(key(error))?.count ?? 0)) });
}

function addResult(ok, failed) {
  if (socket) return send(ok ? "requests:1|c" : "failed:1|c");
  counts = { ok: Math.min(MOST, counts.ok + ok), failed: Math.min(MOST, counts.failed + failed) };
  later();
}

function later(afterMs = 100) {
  since ??= Date.now();
  if (places.length && !isBusy) timer ??= setTimeout(flush, afterMs).unref();
}

async function flush() {
  clearTimeout(timer);
  timer = undefined;
  if (isBusy || !places.length || since === undefined) return;
  isBusy = true;
  const [oldErrors, oldCounts, oldSince] = [errors, counts, since];
  [errors, counts, since] = [new Map(), { ok: 0, failed: 0 }, undefined];
  const isTaken = !oldErrors.size || (await post("/errors", [...oldErrors.values()]));
  const isCounted = isTaken && (!(oldCounts.ok + oldCounts.failed) || (await post("/results", oldCounts)));
  isBusy = false;
  const keeps = Date.now() - oldSince < 30_000; // older errors would count as new ones
  if (!isTaken && keeps) oldErrors.forEach(addError);
  if (!isCounted && keeps) counts = { ok: counts.ok + oldCounts.ok, failed: counts.failed + oldCounts.failed };
  if (!isCounted && keeps) since = oldSince;
  if (since !== undefined) later(isCounted ? 100 : 1000);
}

async function post(path, body) {
  for (const place of places) {
    const answer = await exchange(place, path, JSON.stringify(body));
    if (answer !== "away") return answer === "taken";
  }
  const at = places.map((place) => place.socketPath ?? `${place.host}:${place.port}`).join(" and ");
  if (!isSilent) console.warn(`health-arbiter: no sidecar answers at ${at}: reports wait for at most 30 s`);
  isSilent = true;
  return false;
}

function exchange(place, path, body) {
  return new Promise((resolve) => {
    let isConnected = false;
    const headers = { "Content-Length": Buffer.byteLength(body) };
    const request = http.request({ ...place, path, method: "POST", agent: false, timeout: 1000, headers });
    request.on("socket", (opened) => opened.once("connect", () => (isConnected = true)));
    request.on("timeout", () => request.destroy());
    request.on("response", (response) => response.resume() && resolve(response.statusCode === 503 ? "full" : "taken"));
    request.on("error", () => resolve(isConnected ? "taken" : "away")); // sent twice, it could count twice
    request.end(body);
  });
}

process.once("beforeExit", flush);

// -- kinds

const DRIVERS = {
  redis: /^(@redis|ioredis|redis)/,
  mysql: /^(mysql|mariadb)/,
  postgres: /^(pg|postgres)/,
  mongodb: /^(mongodb|mongoose)/,
  rabbitmq: /^amqp/,
  kafka: /^(kafkajs|node-rdkafka)/,
  memcached: /^(memcached|memjs)/,
  elasticsearch: /^(@elastic|@opensearch)/,
};
const PORTS = {
  6379: "redis", 3306: "mysql", 5432: "postgres", 27017: "mongodb", 5672: "rabbitmq", 9092: "kafka",
  11211: "memcached", 9200: "elasticsearch",
};

// The driver whose own code made the error or one of its causes, or at whose usual port nobody answered; else its code
// or name.
function kindOf(error) {
  for (let cause = error, left = 8; cause && left; left -= 1) {
    const frame = String(cause.stack).split("\n").find((line) => /^ +at /.test(line) && !line.includes("node:")) ?? "";
    const library = /.*node_modules[\\/](@?[\w.-]+)/.exec(frame)?.[1] ?? "";
    const driver = Object.keys(DRIVERS).find((kind) => DRIVERS[kind].test(library)) ?? PORTS[cause.port];
    if (driver) return driver;
    if (cause.sqlMessage) return "mysql"; // mysql2 gives its errors the stack of the caller
    cause = cause.original ?? cause.cause ?? cause.errors?.[0];
  }
  return error?.code ?? error?.name ?? "Error";
}

const reported = new WeakSet();

function errorHandler(error, request, response, next) {
  const status = error?.status ?? error?.statusCode ?? 500;
  if (status >= 500) {
    reported.add(response);
    report(1, { kind: kindOf(error) });
  }
  next(error);
}

function results(request, response, next) {
  response.once("finish", () => {
    const isFailed = response.statusCode >= 500;
    if (isFailed && !reported.has(response)) report(1, { kind: `http_${response.statusCode}` });
    addResult(Number(!isFailed), Number(isFailed));
  });
  next();
}

module.exports = { report, errorHandler, results, kindOf };
