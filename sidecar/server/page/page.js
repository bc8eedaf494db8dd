// The status page: lays out /why, /fleet and /events, which it asks for every two seconds. Data never becomes markup, only text.
// With ?container=NAME it has what concerns that container only; of its own container also the text of /why.
"use strict";

const byId = (id) => document.getElementById(id);
const NAMED = new URLSearchParams(location.search).get("container");
const TOKEN = "arbiter-token";
const AUTHOR = "arbiter-author";
const RETRY_MS = [500, 1000, 2000, 5000, 10000];
const POLL_MS = 2000;
const ANSWER_MS = 15000;
const FEW_ROWS = 50;
const MORE_ROWS = 200;
const MOST_EVENTS = 200;
const NAMES = new Intl.Collator("en", { numeric: true });
const URGENT = ["suspect", "draining", "down", "silent", "gone", "starting", "stopping", "retiring", "up"];
const CULLED = ["suspect", "draining", "down"];
const COLORS = {
  bad: ["culled", "down", "unhelped", "paused", "not_honoured", "action_failed", "duplicate", "data_loss", "hold_lost", "redis_away"],
  warn: ["suspect", "denied", "granted", "hold", "would_cull", "unclear"],
  good: ["recovered", "replaced", "helped", "release", "revived", "restarted", "acted", "redis_back", "would_recover"],
};
const COLUMNS = [
  ["Container", "instance", (row) => row.instance],
  ["State", "state", (row) => URGENT.indexOf(row.state)],
  ["Since (UTC)", "since", (row) => -(row.since ?? 0)],
  ["Cause", "cause", (row) => row.cause || "\uffff"],
  ["Errors", "errors", (row) => -(row.errors ?? -1)],
  ["Weight", "weight", (row) => row.weight ?? 101],
  ["Version", "version", (row) => row.version],
  ["Node", "node", (row) => row.node],
  ["App", "app", (row) => row.app_version],
];
// What a sidecar tells of its container, if it does.
const NOT_TOLD = { errors: null, limit: null, weight: null, version: "", node: "", app_version: "", cause: "", duplicate: false };
const UNPRINTABLE = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/g;

let why = null; // the last answer of /why
let listed = null; // the last answer of /fleet that came from the store
let service = null; // what is known of the service
let rows = []; // the containers of the table
let events = []; // the newest entries of the ledger
let sorting = { column: 1, isReversed: false };
let mostRows = FEW_ROWS;
let failures = 0;
let isRunning = false;
let endPause = () => {};

// -- making elements --------------------------------------------------------------------------------------------

// Unprintable characters are replaced when data is received: none may move the text around it.
function printable(text) {
  return text.replace(UNPRINTABLE, "\ufffd");
}

function read(text) {
  return JSON.parse(text, (_, value) => (typeof value === "string" ? printable(value) : value));
}

// Text that may run from right to left, within text that does not.
function isolate(text) {
  return `\u2068${cut(String(text), 200)}\u2069`;
}

function cut(text, most = 1000) {
  return text.length > most ? `${text.slice(0, most)}\u2026` : text;
}

function make(name, text = "", className = "") {
  const element = document.createElement(name);
  element.textContent = cut(String(text ?? ""));
  if (className) element.className = className;
  return element;
}

// What is the same as before is left alone: it keeps the focus, the selection, and what a person has opened.
function fill(id, children) {
  const parent = byId(id);
  const focused = parent.contains(document.activeElement) ? document.activeElement.textContent : null;
  const before = [...parent.children];
  const isSame = (old, child) => ["textContent", "className", "href"].every((name) => old[name] === child[name]);
  const wanted = children.map((child) => {
    const at = before.findIndex((old) => isSame(old, child));
    return at < 0 ? child : before.splice(at, 1)[0];
  });
  for (const old of before) old.remove();
  wanted.forEach((child, at) => {
    if (parent.children[at] !== child) parent.insertBefore(child, parent.children[at] ?? null);
  });
  if (focused !== null && !parent.contains(document.activeElement)) {
    [...parent.querySelectorAll("a, button, summary")].find((element) => element.textContent === focused)?.focus();
  }
}

function setText(id, text, most) {
  const shown = cut(String(text ?? ""), most);
  if (byId(id).textContent !== shown) byId(id).textContent = shown;
}

// Every time on the page is in UTC, as in messages, events and the log.
function clock(at, isExact = true) {
  const written = new Date(at * 1000).toISOString();
  const isToday = written.slice(0, 10) === new Date(service.now * 1000).toISOString().slice(0, 10);
  return `${isToday ? "" : `${written.slice(5, 10)} `}${written.slice(11, isExact && isToday ? 19 : 16)}`;
}

function duration(seconds) {
  const s = Math.max(0, Math.round(seconds));
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min${s % 60 ? ` ${s % 60} s` : ""}`;
  return `${Math.floor(s / 3600)} h${s % 3600 < 60 ? "" : ` ${Math.floor((s % 3600) / 60)} min`}`;
}

// Only what cannot run a script becomes a link.
function makeLink(url, text) {
  if (!/^https?:\/\//i.test(url)) return make("span");
  const link = make("a", text);
  link.href = url;
  link.rel = "noreferrer noopener";
  return link;
}

// A link to the page of one container; the query keeps any name from being read as a path.
function containerLink(instance) {
  const link = make("a", cut(instance, 200));
  link.href = `?container=${encodeURIComponent(instance)}`;
  return link;
}

function joined(...texts) {
  return texts.filter(Boolean).join(", ");
}

function inWords(word) {
  return String(word).replaceAll("_", " ");
}

// -- the service --------------------------------------------------------------------------------------------------

function showBanner({ level, sentence, action, command, runbook }) {
  const sample = NAMED === null && CULLED.includes(why.state) ? why.samples.find(({ message }) => message) : undefined;
  byId("banner").className = `${level}${NAMED === null ? "" : " slim"}`;
  setText("banner-sentence", `${NAMED === null ? "" : "The service: "}${sentence}`);
  setText("banner-clue", sample ? `${why.instance}: ${sample.message}` : "", 200);
  setText("banner-action", action);
  setText("banner-command", command);
  byId("banner-more").hidden = !command && !runbook;
  fill("banner-link", runbook ? [makeLink(runbook, "Runbook")] : []);
}

// Why the newest claim of a suspect was refused.
function showRefusal() {
  const suspects = new Map(rows.filter((row) => row.state === "suspect").map((row) => [row.instance, (row.since ?? service.now - 3600) - 10]));
  const denied = NAMED === null && events.findLast((event) => event.what === "denied" && event.at >= suspects.get(event.instance));
  setText("banner-refusal", denied ? `${denied.instance} was refused a token at ${clock(denied.at)} UTC: ${denied.detail}` : "", 300);
}

function showTitle() {
  const mark = { critical: "\u2716 ", warning: "\u26a0 " }[service.banner.level] ?? "";
  const state = rows.find((row) => row.instance === NAMED)?.state ?? "not known";
  setText("title", NAMED ?? why.service, 200);
  setText("subtitle", joined(NAMED !== null && why.service, isShadow() && "shadow mode"));
  document.title = cut(`${mark}${why.service}: ${NAMED === null ? service.banner.sentence : `${state}: ${NAMED}`}`, 100);
}

function showKnown() {
  byId("board").classList.toggle("away", isAway(service));
  setText("known-text", !isAway(service) ? ""
    : service.known_at ? `What is grey was known at ${clock(service.known_at)} UTC. This container is shown as it is now.`
      : "Nothing is known of the other containers: this sidecar has had no answer from Redis yet.");
}

function isShadow() {
  return why.mode === "shadow";
}

// Whether the shared store does not answer.
function isAway({ error }) {
  return error !== undefined && error !== "alone";
}

function tile(value, label, color = "") {
  const item = make("li", "", color);
  item.append(make("b", value), make("span", label));
  return item;
}

function showTiles() {
  const count = (state) => rows.filter((row) => row.state === state).length;
  const would = isShadow() ? "would be " : "";
  const total = rows.length - count("gone") + unlisted();
  const suspect = unlisted() ? service.fleet.suspect : count("suspect");
  const draining = count("draining"), down = count("down"), silent = count("silent");
  const lighter = rows.filter((row) => row.state !== "draining" && row.state !== "down" && row.weight !== null && row.weight < 100).length;
  const errors = rows.reduce((total, row) => total + (row.errors ?? 0), 0);
  const free = freeTokens();
  fill("tiles", [
    tile(total, total === 1 ? "container" : "containers", rows.length && !suspect && !draining && !down ? "good" : ""),
    tile(suspect, "suspect", suspect ? "bad" : "good"),
    ...(draining ? [tile(draining, `${would}draining`, "bad")] : []),
    tile(down, `${would}down`, down ? "bad" : "good"),
    tile(errors, "errors in the window", errors ? "warn" : "good"),
    tile(lighter, isShadow() ? "would get fewer requests" : "get fewer requests", lighter ? "warn" : "good"),
    tile(free === null ? "?" : `${free}/${service.capacity}`, "tokens free", free === 0 ? "bad" : ""),
    ...(silent ? [tile(silent, "silent", "warn")] : []),
  ]);
}

// Containers that are known by their number only: more than the list takes, or no list has come before Redis went away.
function unlisted() {
  if (!service.fleet) return 0;
  const { alive, draining, down } = service.fleet;
  return Math.max(0, alive + draining + down - rows.filter((row) => row.state !== "gone").length);
}

function freeTokens() {
  return service.used === null || service.capacity === null ? null : Math.max(0, service.capacity - service.used);
}

function showBudget({ capacity, bound, budget_window, grants }) {
  const free = freeTokens();
  const next = grants.length ? ` The next one comes back at ${clock(grants[0] + budget_window)} UTC.` : "";
  setText("budget-text", free === null ? "The budget is not known."
    : `${free} of ${capacity} tokens are free: ${bound}. Each comes back ${duration(budget_window)} after it was taken.${next}`);
}

function showFleet(summary) {
  const trials = summary?.trials ?? [];
  fill("trials", trials.length ? trials.map(showTrial) : [make("li", "No cull is being tried.", "quiet")]);
  setText("fleet-text", summary ? joined(
    `culls so far: ${summary.helped} helped, ${summary.unhelped} did not, ${summary.unclear} unclear`,
    summary.retiring && `${summary.retiring} retiring`,
    summary.cause && `most suspects share ${isolate(summary.cause)}`,
    summary.median_errors !== null && `median of errors: ${summary.median_errors}`,
    summary.median_ratio !== null && `median of failed requests: ${Math.round(10000 * summary.median_ratio) / 100}\u00a0%`,
    summary.duplicate && "another container runs under the name of this one",
    summary.losses && `Redis lost its record ${summary.losses} time${summary.losses > 1 ? "s" : ""}`,
    summary.settings > 1 && `${summary.settings} different settings`)
    : service.error === "alone" ? "No shared store is configured: this container is on its own." : "The fleet is not known.");
}

function showTrial({ cause, limit, out, paused_s, failures, since }) {
  const before = failures > 1 ? `the last ${failures}` : "the last one";
  const begun = since ? `, its episode began at ${clock(since, false)} UTC` : "";
  const said = paused_s > 0 ? `paused until ${clock(service.at + paused_s, false)} UTC, ${before} did not help`
    : `${out} of at most ${limit} culls without an outcome${begun}`;
  return make("li", `${isolate(cause)}: ${said}`, paused_s > 0 ? "paused" : "");
}

function showHolds({ holds, local_hold }) {
  const inForce = [...holds, ...(local_hold ? [local_hold] : [])].filter(({ until }) => until > service.now);
  const concerning = inForce.filter(({ instance }) => NAMED === null || !instance || instance === NAMED);
  fill("holds", concerning.length ? concerning.map((hold) => {
    const whom = hold.instance ? isolate(hold.instance) : "The whole service";
    const here = hold === local_hold ? " (known to this sidecar only)" : "";
    const item = make("li", "", "held"), button = make("button", "Release");
    button.type = "button";
    button.setAttribute("aria-label", `Release ${whom}`);
    button.addEventListener("click", () => release(hold));
    item.append(make("span", `${whom} is held by ${isolate(hold.author)} until ${clock(hold.until)} UTC: ${isolate(hold.reason)}${here}`), button);
    return item;
  }) : [make("li", "No hold is set.", "quiet")]);
}

// -- the table ------------------------------------------------------------------------------------------------------

function showColumns() {
  byId("columns").replaceChildren(...COLUMNS.map(([label, name], column) => {
    const cell = make("th", "", `of-${name}`), button = make("button", label);
    cell.scope = "col";
    button.type = "button";
    if (sorting.column === column) cell.setAttribute("aria-sort", sorting.isReversed ? "descending" : "ascending");
    button.addEventListener("click", () => {
      sorting = { column, isReversed: sorting.column === column && !sorting.isReversed };
      showColumns();
      showContainers();
      byId("columns").children[column].firstChild.focus();
    });
    cell.append(button);
    return cell;
  }));
}

function inOrder(first, second) {
  const key = COLUMNS[sorting.column][2];
  const compare = (a, b) => (typeof a === "string" ? NAMES.compare(a, b) : a - b);
  return (sorting.isReversed ? -1 : 1) * compare(key(first), key(second))
    || URGENT.indexOf(first.state) - URGENT.indexOf(second.state) || NAMES.compare(first.instance, second.instance);
}

function showContainers() {
  const words = byId("search").value.toLowerCase().split(/\s+/).filter(Boolean);
  const matching = rows.filter((row) => {
    const text = `${row.instance} ${row.state} ${row.cause} ${row.version} ${row.node} ${row.app_version}${row.duplicate ? " duplicate" : ""}`.toLowerCase();
    return NAMED === null ? words.every((word) => text.includes(word)) : row.instance === NAMED;
  });
  fill("containers", matching.sort(inOrder).slice(0, mostRows).map(containerRow));
  setText("containers-text", NAMED === null ? joined(`${Math.min(matching.length, mostRows)} of ${rows.length} containers`,
    unlisted() && `${unlisted()} more are not listed`) : matching.length ? "" : "The fleet does not know this container now.");
  byId("more").hidden = matching.length <= mostRows;
  setText("more", `Show ${Math.min(MORE_ROWS, matching.length - mostRows)} more`);
}

function containerRow(row) {
  const element = make("tr", "", row.instance === why.instance ? "here" : "");
  const name = make("td"), state = make("td");
  name.append(containerLink(row.instance), row.duplicate ? " two containers run under this name, and neither may be culled" : "");
  state.append(make("span", row.state, `state ${row.state}`));
  const cell = (label, text, className = "") => {
    const made = make("td", text, className);
    if (text) made.dataset.label = label; // on a narrow screen, where the columns have no head
    return made;
  };
  element.append(name, state, cell("since", row.since ? clock(row.since, false) : "", "number"), cell("", cut(row.cause, 80)),
    cell("errors", row.errors === null ? "" : `${row.errors}/${row.limit}`, "number"),
    cell("weight", row.weight === null ? "" : `${row.weight}\u00a0%`, "number"), cell("version", cut(row.version, 40)),
    cell("node", row.node), cell("app", row.app_version));
  return element;
}

// -- events -------------------------------------------------------------------------------------------------------

function showEvents(isStored) {
  const concerning = events.filter((event) => NAMED === null || event.instance === NAMED);
  setText("events-title", isStored || service.error === "alone" ? "Events (UTC)"
    : "Events (UTC) that were known, and those of this container: the store does not answer");
  fill("events", concerning.length ? concerning.reverse().map(eventItem) : [make("li", "No events in the last 24 hours.", "quiet")]);
}

function eventItem(event) {
  const color = Object.keys(COLORS).find((name) => COLORS[name].includes(event.what)) ?? "";
  const item = make("li"), time = make("time", clock(event.at)), about = make("span", "", "about");
  const reason = event.reason === event.what ? "" : inWords(event.reason);
  const [detail, ...evidence] = event.detail.split("\n");
  time.dateTime = new Date(event.at * 1000).toISOString();
  for (const text of [event.instance, event.kind, reason, event.author, event.seconds && duration(event.seconds), event.node && `node ${event.node}`,
    event.app_version && `app version ${event.app_version}`, detail]) {
    if (!text) continue;
    const part = make("span");
    part.append(text === event.instance && NAMED === null ? containerLink(text) : cut(String(text), 300));
    about.append(part);
  }
  item.append(time, make("span", inWords(event.what), `what ${color}`), about);
  if (evidence.length) {
    const part = make("details"), text = make("pre");
    text.textContent = cut(evidence.join("\n"), 4000);
    part.append(make("summary", `Evidence, ${evidence.length} line${evidence.length === 1 ? "" : "s"}`), text);
    item.append(part);
  }
  return item;
}

// -- polling ----------------------------------------------------------------------------------------------------

// Draws the answers of /why, /fleet and /events, and the text of /why if the page is about its container.
function draw(whyAnswer, fleetAnswer, eventsAnswer, text = "") {
  why = whyAnswer;
  service = { ...lastKnown(fleetAnswer), now: fleetAnswer.at };
  rows = rowsOf(service);
  if (!eventsAnswer.stored) events = [...events, ...eventsAnswer.events.filter(({ at }) => at > (events.at(-1)?.at ?? 0))].slice(-MOST_EVENTS);
  byId("board").hidden = false;
  byId("hold-instance").textContent = `container ${cut(NAMED ?? why.instance, 60)}`;
  byId("why-part").hidden = NAMED !== why.instance;
  byId("elsewhere").hidden = NAMED === null || NAMED === why.instance;
  setText("why", text, 50000);
  showTitle();
  showBanner(service.banner);
  showRefusal();
  showKnown();
  showTiles();
  showBudget(service);
  showFleet(service.fleet);
  showHolds(service);
  showContainers();
  showEvents(eventsAnswer.stored);
}

// The fleet: while the store is away as it was listed last, with this container as it is now.
function lastKnown(answer) {
  if (!isAway(answer)) return (listed = answer);
  const { at, banner, local_hold, error, fleet_age_s, instance } = answer;
  if (!listed) return { ...answer, known_at: fleet_age_s === null ? null : at - fleet_age_s };
  const own = answer.members.find((member) => member.instance === instance);
  const members = listed.members.map((member) => (member.instance === instance ? own : member));
  return { ...listed, members, banner, local_hold, error, known_at: listed.at };
}

function rowsOf({ at, members, departed }) {
  const present = members.map(({ kind, about, ...member }) => ({ ...NOT_TOLD, ...about, ...member, cause: CULLED.includes(member.state) ? kind : "" }));
  return [...present, ...departed.map(({ instance, age_s }) => ({ ...NOT_TOLD, instance, state: "gone", since: at - age_s }))];
}

function headers() {
  const token = sessionStorage.getItem(TOKEN);
  return token ? { Authorization: `Bearer ${token}` } : {};
}

function live(word, className = "") {
  byId("live").className = className;
  byId("board").classList.toggle("stale", className === "lost");
  setText("live", word);
}

class TokenNeeded extends Error {}

async function get(path) {
  const response = await fetch(path, { headers: headers(), cache: "no-store", signal: AbortSignal.timeout(ANSWER_MS) });
  if (response.status === 401) throw new TokenNeeded();
  return response;
}

async function ask(path) {
  const response = await get(path);
  const value = read(await response.text());
  if (!response.ok && !("members" in value)) throw new Error(value.error);
  return value;
}

// Reads the ledger on and on, at first as far back as a day.
async function readEvents() {
  for (;;) {
    const page = await ask(`events?since=24h&after=${events.findLast(({ id }) => id)?.id ?? ""}`);
    if (!page.stored || !page.events.length) return page;
    events = [...events.filter(({ id }) => id), ...page.events].slice(-MOST_EVENTS);
  }
}

// Asks for one document after the other: then a viewer needs a single connection, which the browser keeps.
async function poll() {
  const whyAnswer = await ask("why"), fleetAnswer = await ask("fleet"), eventsAnswer = await readEvents();
  const text = NAMED === whyAnswer.instance ? printable(await (await get("why?format=text")).text()) : "";
  draw(whyAnswer, fleetAnswer, eventsAnswer, text);
  failures = 0;
  live(`live, ${clock(service.now)} UTC`, "fresh");
}

async function run() {
  if (isRunning) return;
  isRunning = true;
  for (;;) {
    let pause = POLL_MS;
    try {
      await poll();
    } catch (error) {
      if (error instanceof TokenNeeded) break;
      const said = error instanceof TypeError || error.name === "TimeoutError" ? "" : `: ${error.message}`;
      live(service ? `connection lost, as of ${clock(service.now)} UTC${said}` : `no connection${said}`, "lost");
      pause = RETRY_MS[Math.min(failures, RETRY_MS.length - 1)];
      failures += 1;
    }
    await new Promise((resolve) => {
      endPause = resolve;
      setTimeout(resolve, pause);
    });
  }
  isRunning = false;
  askForToken();
}

function askForToken(isForOrder = false) {
  if (!isForOrder) live("a token is needed", "lost");
  byId("board").hidden = !isForOrder;
  byId("login").hidden = false;
  setText("login-text", sessionStorage.getItem(TOKEN) ? "This token is wrong." : "");
  sessionStorage.removeItem(TOKEN);
  byId("token").focus();
}

// -- orders -----------------------------------------------------------------------------------------------------

async function order(method, path, value) {
  setText("order-text", "");
  const given = headers();
  const options = { method, headers: given, cache: "no-store" };
  if (value) {
    options.body = JSON.stringify(value);
    given["Content-Type"] = "application/json";
  }
  try {
    const response = await fetch(path, options);
    const answer = await response.json();
    if (response.status === 401) {
      askForToken(true);
      setText("order-text", "Not done: this needs the token. Enter it above, then try again.");
    } else if (!response.ok) setText("order-text", `Not done: ${answer.sentence ?? answer.error}`);
    else if (answer.stored === false) setText("order-text", `Only this container is held: ${answer.sentence}.`);
    else if (answer.error) setText("order-text", `Only the hold of this container has ended: ${answer.sentence}.`);
  } catch (error) {
    setText("order-text", "The sidecar did not answer: the order may have been carried out or not.");
  }
  endPause();
}

function release(hold) {
  const query = new URLSearchParams(hold.instance ? { scope: "instance", instance: hold.instance } : { scope: "service" });
  const author = localStorage.getItem(AUTHOR);
  if (author) query.set("author", author);
  byId("open-hold").focus(); // the button of this hold will be gone
  order("DELETE", `hold?${query}`);
}

function hold() {
  const author = byId("hold-author").value;
  const scope = byId("hold-scope").value;
  localStorage.setItem(AUTHOR, author);
  order("POST", "hold", { for: byId("hold-for").value, scope, author, reason: byId("hold-reason").value,
    ...(scope === "instance" ? { instance: NAMED ?? why.instance } : {}) });
  byId("hold-reason").value = "";
}

// -- user input -------------------------------------------------------------------------------------------------

byId("open-hold").addEventListener("click", () => {
  byId("hold-author").value ||= localStorage.getItem(AUTHOR) ?? "";
  byId("hold-scope").value = NAMED === null ? "service" : "instance";
  byId("hold-dialog").showModal();
});
byId("close-hold").addEventListener("click", () => byId("hold-dialog").close());
byId("hold-form").addEventListener("submit", hold);
byId("search").addEventListener("input", () => {
  mostRows = FEW_ROWS;
  showContainers();
});
byId("more").addEventListener("click", () => {
  mostRows += MORE_ROWS;
  showContainers();
});
byId("login").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem(TOKEN, byId("token").value.trim());
  byId("token").value = "";
  byId("login").hidden = true;
  run();
});

byId("back").hidden = NAMED === null;
for (const part of document.querySelectorAll(".only-service")) part.hidden = NAMED !== null;
showColumns();
live("connecting");
run();
