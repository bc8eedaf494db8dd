// The status page: shows the state that one stream of events sends. Data never becomes markup, only text.
"use strict";

const byId = (id) => document.getElementById(id);
const TOKEN = "arbiter-token";
const AUTHOR = "arbiter-author";
const RETRY_MS = [500, 1000, 2000, 5000, 10000];
const HIDDEN_MS = 60000;
const SVG = "http://www.w3.org/2000/svg";
const MOST_TOKENS = 50;
const MOST_TROUBLED = 12;
const MANY = 150;
const MOST_EVIDENCE = 4000;
const PRESENCES = {
  well: ["", "well"], suspect: ["!", "suspect"], down: ["\u00d7", "down"],
  starting: ["+", "starting"], retiring: ["\u2193", "retiring"],
};
const ALSO_WELL = ["starting", "retiring"];
const COLORS = {
  bad: ["culled", "down", "unhelped", "paused", "not_honoured", "action_failed", "duplicate", "data_loss", "redis_away"],
  warn: ["suspect", "denied", "granted", "hold", "would_cull", "unclear"],
  good: ["recovered", "replaced", "helped", "release", "revived", "restarted", "acted", "redis_back", "would_recover"],
};
const UNPRINTABLE = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/g;

let last = {};
let fleetAt = 0;
let skew_s = 0;
let failures = 0;
let focused = "";
let following = null;
let isRunning = false;
const opened = new Set();

// -- making elements --------------------------------------------------------------------------------------------

// Unprintable characters are replaced when data is received: none may move the text around it.
function read(text) {
  return JSON.parse(text, (_, value) => (typeof value === "string" ? value.replace(UNPRINTABLE, "\ufffd") : value));
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

function makeSvg(name, attributes) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  return element;
}

function fill(id, children) {
  byId(id).replaceChildren(...children);
}

function setText(id, text, most) {
  const shown = cut(String(text ?? ""), most);
  if (byId(id).textContent !== shown) byId(id).textContent = shown;
}

function now() {
  return Date.now() / 1000 + skew_s;
}

// The time of day, with the date unless it is today.
function clock(at) {
  const time = new Date(at * 1000);
  const shown = time.toLocaleTimeString([], { hour12: false });
  const isToday = time.toDateString() === new Date(now() * 1000).toDateString();
  return isToday ? shown : `${time.toLocaleDateString([], { day: "numeric", month: "short" })} ${shown.slice(0, 5)}`;
}

function makeTime(at) {
  const element = make("time", clock(at));
  element.dateTime = new Date(at * 1000).toISOString();
  return element;
}

function duration(seconds) {
  const s = Math.max(0, Math.round(seconds));
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min${s % 60 ? ` ${s % 60} s` : ""}`;
  return `${Math.floor(s / 3600)} h${s % 3600 < 60 ? "" : ` ${Math.floor((s % 3600) / 60)} min`}`;
}

// The same in less space.
function shortDuration(seconds) {
  const s = Math.max(0, Math.ceil(seconds));
  return s < 3600 ? `${Math.floor(s / 60)}:${String(s % 60).padStart(2, "0")}` : `${Math.floor(s / 3600)}h ${Math.floor((s % 3600) / 60)}m`;
}

// Only what cannot run a script becomes a link.
function makeLink(url, text) {
  if (!/^https?:\/\//i.test(url)) return make("span");
  const link = make("a", text);
  link.href = url;
  link.rel = "noreferrer noopener";
  return link;
}

function joined(...texts) {
  return texts.filter(Boolean).join(", ");
}

function round(number) {
  return Math.round(number * 100) / 100;
}

// -- the parts of the page --------------------------------------------------------------------------------------------------

function showState(why) {
  setText("instance", why.instance);
  setText("service", why.service + (why.mode === "shadow" ? ", shadow mode" : ""));
  document.title = `${why.state}: ${why.instance}`;
  byId("state-word").className = `state ${why.state}`;
  setText("state-word", why.state);
  setText("sentence", why.sentence);
  fill("remedies", why.remedies.map((sentence) => make("li", sentence)));
  byId("remedies").hidden = byId("remedies-title").hidden = why.state === "up";
  const health = ["haproxy", "nomad"].map((balancer) => `${balancer === "nomad" ? "Nomad" : "HAProxy"} ${why.health[balancer] ? "up" : "down"}`);
  const facts = [["Health", `${health.join(", ")}, weight ${why.weight}\u00a0%${why.soft_drained ? " (soft drain)" : ""}`], ["Since", clock(why.since)]];
  const isInSentence = why.rules.length === 1 && why.sentence.includes(why.rules[0].sentence);
  for (const rule of isInSentence ? [] : why.rules) facts.push([rule.rule, `${rule.sentence} (${round(rule.value)} against ${round(rule.limit)})`]);
  if (why.claim) facts.push(["Claim", joined(why.claim.outcome !== "granted" && why.claim.outcome, why.claim.sentence)]);
  if (why.spared) facts.push(["Spared", why.spared]);
  if (why.window.requests) facts.push(["Requests", `${why.window.failed} of ${why.window.requests} failed in ${why.window.seconds} s`]);
  fill("facts", facts.flatMap(([name, value]) => [make("dt", name), make("dd", value)]));
  fill("runbook", why.runbook ? [makeLink(why.runbook, "Runbook")] : []);
  fill("history", why.history.map((decision) => {
    const item = make("li");
    const times = decision.times > 1 ? ` (${decision.times} times)` : "";
    item.append(makeTime(decision.at), make("span", `${inWords(decision.what)}${times}: ${decision.sentence}`));
    return item;
  }));
  const kinds = Object.entries(why.window.kinds).map(([kind, count]) => `${isolate(kind.replace(UNPRINTABLE, "\ufffd"))} ${count}`).join(", ");
  setText("kinds", `${why.window.errors} in the last ${why.window.seconds} s${kinds ? `: ${kinds}` : ""}`);
  showSamples(why);
}

function showErrors({ limit, window_s, minutes }) {
  const height = 100;
  const scale = height / (Math.max(limit, ...minutes) * 1.1);
  const sum = minutes.reduce((total, one) => total + one, 0);
  const span = Math.max(1, Math.ceil(window_s / 60));
  const said = `${sum} in the hour, ${Math.max(...minutes)} in the worst minute; the limit is ${limit} in ${duration(window_s)}.`;
  const picture = makeSvg("svg", { viewBox: `0 0 600 ${height}`, preserveAspectRatio: "none", role: "img", "aria-label": said });
  minutes.forEach((count, minute) => {
    const within = minutes.slice(Math.max(0, minute - span + 1), minute + 1).reduce((total, one) => total + one, 0);
    const tall = count * scale;
    const bar = makeSvg("rect", { x: minute * 10 + 1, y: height - tall, width: 8, height: tall, class: within >= limit ? "over" : "" });
    const label = makeSvg("title", {});
    label.textContent = `${59 - minute} min ago: ${count}`;
    bar.append(label);
    picture.append(bar);
  });
  const level = height - limit * scale;
  picture.append(makeSvg("line", { x1: 0, x2: 600, y1: level, y2: level }));
  const mark = make("span", `limit ${limit}`);
  mark.style.top = `${level}%`;
  mark.className = level > 20 ? "above" : "";
  fill("errors", [picture, mark]);
  setText("errors-text", said);
}

function showBudget(budget) {
  const back = budget ? budget.back_at.filter((at) => at > now()) : [];
  const used = budget ? Math.max(0, budget.used - (budget.back_at.length - back.length)) : 0;
  const free = budget ? Math.max(0, budget.capacity - used) : 0;
  const tokens = [];
  for (let number = 0; budget && number < Math.min(budget.capacity, MOST_TOKENS); number += 1) {
    const at = number < free ? 0 : back[number - free];
    const token = make("li", number < free ? "free" : at ? shortDuration(at - now()) : "used", number < free ? "" : "used");
    if (at) token.title = `comes back at ${clock(at)}`;
    tokens.push(token);
  }
  fill("tokens", tokens);
  const next = back.length ? ` The next one comes back at ${clock(back[0])}.` : "";
  setText("budget-text", budget ? `${free} of ${budget.capacity} tokens are free; each comes back ${duration(budget.window_s)} after it was taken.${next}`
    : "The budget is not known.");
}

function inWords(word) {
  return String(word).replaceAll("_", " ");
}

function showFleet(fleet) {
  if (!fleet) {
    setText("fleet-text", last.store?.error === "alone" ? "No shared store is configured: this container is on its own." : "The fleet is not known.");
    for (const id of ["trials", "members", "legend", "troubled", "departed"]) fill(id, []);
    return;
  }
  setText("fleet-text", joined(`${fleet.alive} alive`, `${fleet.suspect} of them suspect`, `${fleet.down} down`,
    fleet.retiring && `${fleet.retiring} retiring`,
    fleet.cause && `most of them because of ${isolate(fleet.cause)}`,
    fleet.median_errors !== null && `median of errors: ${fleet.median_errors}`,
    fleet.median_ratio !== null && `median of failed requests: ${round(100 * fleet.median_ratio)}\u00a0%`,
    fleet.duplicate && "another container runs under this instance name",
    fleet.away.length && `Redis servers away: ${fleet.away.join(", ")}`,
    fleet.policies > 1 && `${fleet.policies} different sets of rules`));
  showTrials(fleet);
  showMembers(fleet);
  showFocusedMember();
  const counts = {};
  for (const member of fleet.members) counts[presenceOf(member)] = (counts[presenceOf(member)] ?? 0) + 1;
  const legend = Object.keys(counts).sort().map((name) => {
    const item = make("li");
    const [letter, word] = PRESENCES[name] ?? ["?", name];
    item.append(make("i", letter, name in PRESENCES ? name : "gone"), `${counts[name]} ${word}`);
    return item;
  });
  const rest = fleet.alive + fleet.down - fleet.members.length;
  if (rest > 0 && fleet.members.length) legend.push(make("li", `and ${rest} more`));
  fill("legend", legend);
  fillSome("troubled", fleet.members.filter((member) => member.presence !== "well" || member.duplicate), memberText);
  fillSome("departed", fleet.departed, (one) => `${isolate(one.instance)}: last heard ${duration(ageNow(one.age_s))} ago`);
}

// The trials by cause. The rest of a pause is counted down between messages.
function showTrials(fleet) {
  const trials = fleet?.trials ?? [];
  byId("trials").hidden = !trials.length;
  fill("trials", trials.map((trial) => {
    const left_s = trial.paused_s > 0 ? Math.max(1, trial.paused_s - Math.max(0, now() - fleetAt)) : 0;
    const out = `${trial.out} of at most ${trial.limit} without an outcome`;
    const last = trial.failures > 1 ? `the last ${trial.failures}` : "the last one";
    const said = left_s ? `paused for ${duration(left_s)}, ${last} did not help` : out;
    return make("li", `Culls for ${isolate(trial.cause)}: ${said}`, left_s ? "paused" : "");
  }));
}

function fillSome(id, all, said) {
  const more = all.length - MOST_TROUBLED;
  fill(id, [...all.slice(0, MOST_TROUBLED).map((one) => make("li", said(one))),
    ...(more > 0 ? [make("li", `and ${more} more`, "quiet")] : [])]);
}

// The presence of a container in the fleet, or the exact state that its own sidecar reports.
function presenceOf(member) {
  const state = member.about?.state;
  return member.presence === "well" && ALSO_WELL.includes(state) ? state : member.presence;
}

function ageNow(age_s) {
  return age_s + Math.max(0, now() - fleetAt);
}

// The elements stay while the fleet has the same members, so that focus and tooltip are kept.
function showMembers({ members }) {
  const list = byId("members");
  list.className = members.length > MANY ? "many" : "";
  const cells = [...list.children];
  if (cells.length !== members.length || cells.some((cell, at) => cell.dataset.instance !== members[at].instance)) {
    const hadFocus = list.contains(document.activeElement);
    if (!members.some((member) => member.instance === focused)) focused = members[0]?.instance ?? "";
    fill("members", members.map((member) => {
      const cell = make("div");
      cell.dataset.instance = member.instance;
      cell.setAttribute("role", "option");
      cell.tabIndex = member.instance === focused ? 0 : -1;
      return cell;
    }));
    if (hadFocus) list.querySelector('[tabindex="0"]')?.focus();
  }
  const own = last.why?.instance;
  const drawnCells = [...list.children];
  members.forEach((member, at) => {
    const cell = drawnCells[at];
    const name = presenceOf(member);
    const [letter] = PRESENCES[name] ?? ["?"];
    cell.className = `${name in PRESENCES ? name : "gone"}${member.instance === own ? " here" : ""}`;
    cell.textContent = letter;
    cell.title = memberText(member);
    cell.setAttribute("aria-label", cell.title);
    cell.setAttribute("aria-selected", String(member.instance === focused));
  });
}

function memberText(member) {
  const name = presenceOf(member);
  const [, word] = PRESENCES[name] ?? ["?", name];
  const age = duration(ageNow(member.age_s));
  const here = member.instance === last.why?.instance ? " (this container)" : "";
  const known = `${isolate(member.instance)}${here}: ${joined(word, member.kind && isolate(member.kind))}, ${member.presence === "down" ? "culled" : "heard"} ${age} ago`
    + (member.duplicate ? ", two containers run under this name" : "");
  return cut(joined(known, member.about && aboutText(member.about)));
}

function aboutText(about) {
  const age = about.born ? `, age ${duration(now() - about.born)}` : "";
  return `${about.state} since ${clock(about.since)}${age}, ${about.errors} errors of ${about.limit}, weight ${about.weight}\u00a0%, `
    + `incarnation ${isolate(about.incarnation)}, version ${isolate(about.version)}`;
}

function showHolds(holds) {
  const whom = (hold) => (hold.instance ? isolate(hold.instance) : "The whole service");
  const focusedHold = document.activeElement?.dataset?.hold;
  fill("holds", holds.length ? holds.map((hold) => {
    const item = make("li", "", "held");
    const here = hold.here_only ? " (known to this sidecar only)" : "";
    item.append(make("span", `${whom(hold)} is held by ${isolate(hold.author)} until ${clock(hold.until)}: ${isolate(hold.reason)}${here}`));
    const button = make("button", "Release");
    button.type = "button";
    button.dataset.hold = hold.instance;
    button.setAttribute("aria-label", `Release ${whom(hold)}`);
    button.addEventListener("click", () => release(hold));
    item.append(button);
    return item;
  }) : [make("li", "No hold is set.", "quiet")]);
  if (focusedHold !== undefined) {
    ([...byId("holds").querySelectorAll("button")].find((button) => button.dataset.hold === focusedHold) ?? byId("open-hold")).focus();
  }
}

function color({ what }) {
  return Object.keys(COLORS).find((name) => COLORS[name].includes(what)) ?? "";
}

function showEvents(events) {
  const focusedEvent = document.activeElement?.dataset?.event;
  const keys = new Set(events.map(eventKey));
  for (const key of opened) if (!keys.has(key)) opened.delete(key);
  fill("events", events.length ? [...events].reverse().map((event) => {
    const item = make("li");
    const about = make("span", "", "about");
    const reason = event.reason === event.what ? "" : inWords(event.reason);
    const [detail, ...rest] = event.detail.split("\n");
    for (const text of [event.instance, event.kind, reason, event.author, event.seconds && duration(event.seconds), detail]) {
      if (text) about.append(make("span", cut(text, 300)));
    }
    item.append(makeTime(event.at), make("span", inWords(event.what), `what ${color(event)}`), about);
    if (rest.length) item.append(evidence(eventKey(event), rest));
    return item;
  }) : [make("li", "No events.", "quiet")]);
  if (focusedEvent !== undefined) {
    ([...byId("events").querySelectorAll("summary")].find((one) => one.dataset.event === focusedEvent) ?? byId("events")).focus();
  }
}

function eventKey({ at, what, instance }) {
  return `${at} ${what} ${instance}`;
}

// The evidence of a cull: it stays open and keeps the focus when the list is drawn again.
function evidence(key, lines) {
  const part = make("details");
  const summary = make("summary", `Evidence, ${lines.length} line${lines.length === 1 ? "" : "s"}`);
  const text = make("pre");
  text.textContent = cut(lines.join("\n"), MOST_EVIDENCE);
  summary.dataset.event = key;
  part.open = opened.has(key);
  part.addEventListener("toggle", () => (part.open ? opened.add(key) : opened.delete(key)));
  part.append(summary, text);
  return part;
}

function showSamples(why) {
  const samples = why.samples ?? [];
  byId("samples-part").hidden = !samples.length && !why.capture;
  fill("samples", samples.map((sample) => {
    const item = make("li", `${sample.count} \u00d7 ${sample.kind}, last at ${clock(sample.last)}`);
    if (sample.message) item.append(make("div", sample.message, "message"));
    return item;
  }));
  byId("capture").hidden = byId("capture-title").hidden = !why.capture;
  setText("capture", why.capture ?? "", 20000);
}

function showStore(store) {
  setText("store-text", store && store.error !== "alone" ? `The store does not answer: ${store.sentence}. Fleet and holds are as they were last known.` : "");
}

function showStored(stored) {
  setText("events-title", stored || last.store?.error === "alone" ? "Events" : "Events of this container only: the store does not answer");
}

const SHOWN = [["why", showState], ["holds", showHolds], ["errors", showErrors], ["budget", showBudget], ["store", showStore],
  ["fleet", showFleet], ["events", showEvents], ["stored", showStored]];

// A message has all parts, or only those that have changed.
function show(parts) {
  last = { ...last, ...parts };
  skew_s = parts.now - Date.now() / 1000;
  if ("fleet" in parts) fleetAt = parts.now;
  byId("board").hidden = false;
  for (const [name, shown] of SHOWN) if (name in parts) shown(parts[name]);
}

// -- the stream -------------------------------------------------------------------------------------------------

function headers() {
  const token = sessionStorage.getItem(TOKEN);
  return token ? { Authorization: `Bearer ${token}` } : {};
}

function live(word, className = "") {
  byId("live").className = className;
  byId("board").classList.toggle("stale", className === "lost");
  setText("live", word);
}

// EventSource cannot send a token, so fetch reads the stream. Returns true if a token is needed first.
async function follow() {
  following = new AbortController();
  const response = await fetch("page/stream", { headers: headers(), cache: "no-store", signal: following.signal });
  if (response.status === 401) {
    askForToken();
    return true;
  }
  if (!response.ok) throw new Error((await response.json()).error);
  byId("login").hidden = true;
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return false;
    const blocks = (text + value).split("\n\n");
    text = blocks.pop();
    blocks.forEach(take);
  }
}

function take(block) {
  failures = 0;
  if (block.startsWith("data: ")) show(read(block.slice(6)));
  live(`live, ${clock(now())}`, "fresh");
}

async function run() {
  if (isRunning) return;
  isRunning = true;
  for (;;) {
    let said = "";
    try {
      if (await follow()) break;
    } catch (error) {
      said = error instanceof TypeError || error.name === "AbortError" ? "" : `: ${error.message}`;
    }
    if (document.hidden) await new Promise((resolve) => document.addEventListener("visibilitychange", resolve, { once: true }));
    live(last.now ? `connection lost, as of ${clock(last.now)}${said}` : `no connection${said}`, "lost");
    await new Promise((resolve) => setTimeout(resolve, RETRY_MS[Math.min(failures, RETRY_MS.length - 1)]));
    failures += 1;
  }
  isRunning = false;
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
  const given = { ...headers(), "X-Arbiter-CSRF": last.csrf ?? "" };
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
}

function release(hold) {
  const query = new URLSearchParams(hold.instance ? { scope: "instance", instance: hold.instance } : { scope: "service" });
  const author = localStorage.getItem(AUTHOR);
  if (author) query.set("author", author);
  order("DELETE", `page/hold?${query}`);
}

function hold() {
  const author = byId("hold-author").value;
  localStorage.setItem(AUTHOR, author);
  order("POST", "page/hold", { for: byId("hold-for").value, scope: byId("hold-scope").value, author, reason: byId("hold-reason").value });
  byId("hold-reason").value = "";
}

// -- user input--------------------------------------------------------------------------------------------------

byId("open-hold").addEventListener("click", () => {
  byId("hold-author").value ||= localStorage.getItem(AUTHOR) ?? "";
  byId("hold-dialog").showModal();
});
byId("close-hold").addEventListener("click", () => byId("hold-dialog").close());
byId("hold-form").addEventListener("submit", hold);
byId("login").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem(TOKEN, byId("token").value.trim());
  byId("token").value = "";
  byId("login").hidden = true;
  run();
});

function pointAt(cell) {
  const list = byId("members");
  for (const before of list.querySelectorAll('[tabindex="0"]')) before.tabIndex = -1;
  for (const before of list.querySelectorAll('[aria-selected="true"]')) before.setAttribute("aria-selected", "false");
  cell.tabIndex = 0;
  cell.setAttribute("aria-selected", "true");
  focused = cell.dataset.instance;
  showFocusedMember();
}

function showFocusedMember() {
  const member = focused && byId("members").contains(document.activeElement)
    ? last.fleet?.members.find((one) => one.instance === focused) : null;
  if (member) setText("member-text", memberText(member));
  else setText("member-text", "Point at a container, or select one with the arrow keys, to see its details.");
}

byId("members").addEventListener("focusin", (event) => { if (event.target.dataset.instance) pointAt(event.target); });
byId("members").addEventListener("click", (event) => { if (event.target.dataset.instance) event.target.focus(); });
byId("members").addEventListener("keydown", (event) => {
  const cells = [...byId("members").children];
  const at = cells.indexOf(document.activeElement);
  if (at < 0) return;
  const column = cells.findIndex((cell) => cell.offsetTop > cells[0].offsetTop);
  const row = column < 0 ? cells.length : column;
  const steps = { ArrowRight: 1, ArrowDown: row, ArrowLeft: -1, ArrowUp: -row, Home: -at, End: cells.length - 1 - at };
  if (!(event.key in steps)) return;
  event.preventDefault();
  (cells[at + steps[event.key]] ?? cells[at]).focus();
});

// A hidden page leaves its stream to other viewers.
let leaving = 0;
document.addEventListener("visibilitychange", () => {
  clearTimeout(leaving);
  if (document.hidden) leaving = setTimeout(() => following?.abort(), HIDDEN_MS);
});

setInterval(() => {
  if (last.budget) showBudget(last.budget);
  if (last.fleet?.paused.length) showTrials(last.fleet);
}, 1000);

live("connecting");
run();
