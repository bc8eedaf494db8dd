// Reports failed requests of an Express app to the sidecar; Node 18 or newer, nothing to install.
//   app.use(arbiter.results);        // first: counts requests, and every answer of 500 and above is an error
//   app.use(arbiter.errorHandler);   // last: gives that error the kind and the message of its exception
// It sends UDP to ARBITER_STATSD_LISTEN if that is set (Node has no unix datagrams); else it posts to ARBITER_SOCKET or
// ARBITER_LOCAL_LISTEN (127.0.0.1:9180; off: nowhere). Reports wait for at most 30 s while no sidecar answers.
"use strict";
const dgram = require("node:dgram");
const http = require("node:http");

const address = (text) => /^\[?(.*?)\]?:(\d+)$/.exec(text || "") ?? [];
const [, host, port] = address(process.env.ARBITER_STATSD_LISTEN);
const socket = port > 0 && port < 65536 && dgram.createSocket(host.includes(":") ? "udp6" : "udp4").unref();
if (socket) socket.on("error", () => {}); // a missing sidecar is no error of the app

const listen = process.env.ARBITER_LOCAL_LISTEN || "127.0.0.1:9180";
const [, localHost, localPort] = address(listen);
const places = [];
if (process.env.ARBITER_SOCKET) places.push({ at: process.env.ARBITER_SOCKET, socketPath: process.env.ARBITER_SOCKET });
if (listen !== "off") places.push({ at: listen, host: localHost, port: Number(localPort) });

const MOST = 1e6; // in one report
const LEVELS = ["server_error", "client_error", "investigation", "recovered"];
const KINDS = 40; // with their messages they fit into one request
let errors = new Map(); // by their fields
let counts = { ok: 0, failed: 0 };
let since, timer;
let isBusy = false;
const said = new Set();

const send = (line) => socket.send(line, Number(port), host, () => {});
const word = (text) => String(text).replace(/[^\w.:/-]/g, "_").slice(0, 64) || "unknown";
const cut = (text) => Buffer.from(String(text).slice(0, 200)).toString(); // without half a character

function say(text) {
  if (said.has(text)) return;
  said.add(text);
  console.warn(`health-arbiter: ${text}`);
}

// The message is sent over HTTP only.
function report(count = 1, { kind = "unknown", level = "server_error", fatal = false, message } = {}) {
  if (socket) return send(`errors:${count}|c|#level:${level},kind:${word(kind)}${fatal ? ",fatal:true" : ""}`);
  const known = LEVELS.includes(level) ? level : LEVELS[0];
  const whole = Math.max(0, Math.trunc(count)) || 0;
  addError({ count: whole, level: known, kind: word(kind), fatal: Boolean(fatal), message: message && cut(message) });
  later();
}

// Reports an exception, of the kind of kindOf.
function reportError(error) {
  let message;
  try {
    message = String(error);
  } catch {} // an object may have no text
  report(1, { kind: kindOf(error), message });
}

function addError(error) {
  const key = (each) => `${each.level} ${each.kind} ${each.fatal}`;
  if (errors.size >= KINDS && !errors.has(key(error))) error = { ...error, kind: "other" };
  if (errors.size > KINDS && !errors.has(key(error))) return;
  const { count = 0, message } = errors.get(key(error)) ?? {};
  const total = Math.min(MOST, error.count + count);
  errors.set(key(error), { ...error, count: total, message: error.message ?? message });
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
  if (!isTaken && keeps) {
    const newer = errors;
    errors = oldErrors;
    newer.forEach(addError); // the newest message stays
  }
  if (!isCounted && keeps) counts = { ok: counts.ok + oldCounts.ok, failed: counts.failed + oldCounts.failed };
  if (!isCounted && keeps) since = oldSince;
  if (since !== undefined) later(isCounted ? 100 : 1000);
}

async function post(path, body) {
  for (const place of places) {
    const status = await exchange(place, path, JSON.stringify(body)).catch(() => "away"); // no address at all
    if (status === "away") continue;
    if (status !== 503 && (status < 200 || status > 299))
      say(`${place.at} answers ${status}: it is not the local listener of a sidecar`);
    return status !== 503;
  }
  say(`no sidecar answers at ${places.map((place) => place.at).join(" and ")}: reports wait for at most 30 s`);
  return false;
}

// Returns the status, or "away" if nobody took the connection.
function exchange(place, path, body) {
  return new Promise((resolve) => {
    let isConnected = false;
    const headers = { "Content-Length": Buffer.byteLength(body) };
    const request = http.request({ ...place, path, method: "POST", agent: false, timeout: 1000, headers });
    request.on("socket", (opened) => opened.once("connect", () => (isConnected = true)));
    request.on("timeout", () => request.destroy());
    request.on("response", (response) => response.resume() && resolve(response.statusCode));
    request.on("error", () => resolve(isConnected ? 202 : "away")); // sent twice, it could count twice
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
    reportError(error);
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

module.exports = { report, reportError, errorHandler, results, kindOf };
