// The status page: follows one stream of states and shows it. Nothing that came from outside becomes markup: text only.
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
const TONES = {
  bad: ["culled", "down", "unhelped", "paused", "not_honoured", "duplicate", "data_loss", "redis_away"],
  warn: ["suspect", "denied", "granted", "hold", "would_cull", "unclear"],
  good: ["recovered", "replaced", "helped", "release", "revived", "redis_back", "would_recover"],
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

// What came from outside is cleaned as it comes: nothing in it moves the text around it.
function read(text) {
  return JSON.parse(text, (_, value) => (typeof value === "string" ? value.replace(UNPRINTABLE, "\ufffd") : value));
}

// Text that may run from right to left, within text that does not.
function isolated(text) {
  return `\u2068${cut(String(text), 200)}\u2069`;
}

function cut(text, most = 1000) {
  return text.length > most ? `${text.slice(0, most)}\u2026` : text;
}

function made(name, text = "", className = "") {
  const element = document.createElement(name);
  element.textContent = cut(String(text ?? ""));
  if (className) element.className = className;
  return element;
}

function drawn(name, attributes) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  return element;
}

function fill(id, children) {
  byId(id).replaceChildren(...children);
}

function say(id, text, most) {
  const shown = cut(String(text ?? ""), most);
  if (byId(id).textContent !== shown) byId(id).textContent = shown;
}

function now() {
  return Date.now() / 1000 + skew_s;
}

// The time of day, and the day too if it is another one.
function clock(at) {
  const time = new Date(at * 1000);
  const shown = time.toLocaleTimeString([], { hour12: false });
  const isToday = time.toDateString() === new Date(now() * 1000).toDateString();
  return isToday ? shown : `${time.toLocaleDateString([], { day: "numeric", month: "short" })} ${shown.slice(0, 5)}`;
}

function stamp(at) {
  const element = made("time", clock(at));
  element.dateTime = new Date(at * 1000).toISOString();
  return element;
}

function lasting(seconds) {
  const s = Math.max(0, Math.round(seconds));
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min${s % 60 ? ` ${s % 60} s` : ""}`;
  return `${Math.floor(s / 3600)} h${s % 3600 < 60 ? "" : ` ${Math.floor((s % 3600) / 60)} min`}`;
}

// The same for a narrow place.
function brief(seconds) {
  const s = Math.max(0, Math.ceil(seconds));
  return s < 3600 ? `${Math.floor(s / 60)}:${String(s % 60).padStart(2, "0")}` : `${Math.floor(s / 3600)}h ${Math.floor((s % 3600) / 60)}m`;
}

// Only what cannot run a script becomes a link.
function linked(url, text) {
  if (!/^https?:\/\//i.test(url)) return made("span");
  const link = made("a", text);
  link.href = url;
  link.rel = "noreferrer noopener";
  return link;
}

function listed(...texts) {
  return texts.filter(Boolean).join(", ");
}

function round(number) {
  return Math.round(number * 100) / 100;
}

// -- the parts --------------------------------------------------------------------------------------------------

function showState(why) {
  say("instance", why.instance);
  say("service", why.service + (why.mode === "shadow" ? ", shadow mode" : ""));
  document.title = `${why.state}: ${why.instance}`;
  byId("state-word").className = `state ${why.state}`;
  say("state-word", why.state);
  say("sentence", why.sentence);
  fill("clears", why.clears.map((sentence) => made("li", sentence)));
  byId("clears").hidden = byId("clears-title").hidden = why.state === "up";
  const health = ["haproxy", "nomad"].map((who) => `${who === "nomad" ? "Nomad" : "HAProxy"} ${why.health[who] ? "up" : "down"}`);
  const facts = [["Health", `${health.join(", ")}, weight ${why.weight}\u00a0%${why.soft_drained ? " (soft drain)" : ""}`], ["Since", clock(why.since)]];
  const isTold = why.rules.length === 1 && why.sentence.includes(why.rules[0].sentence);
  for (const rule of isTold ? [] : why.rules) facts.push([rule.rule, `${rule.sentence} (${round(rule.value)} against ${round(rule.limit)})`]);
  if (why.claim) facts.push(["Claim", listed(why.claim.outcome !== "granted" && why.claim.outcome, why.claim.sentence)]);
  if (why.spared) facts.push(["Spared", why.spared]);
  if (why.window.requests) facts.push(["Requests", `${why.window.failed} of ${why.window.requests} failed in ${why.window.seconds} s`]);
  fill("facts", facts.flatMap(([name, value]) => [made("dt", name), made("dd", value)]));
  fill("runbook", why.runbook ? [linked(why.runbook, "Runbook")] : []);
  fill("history", why.history.map((decision) => {
    const item = made("li");
    const times = decision.times > 1 ? ` (${decision.times} times)` : "";
    item.append(stamp(decision.at), made("span", `${spoken(decision.what)}${times}: ${decision.sentence}`));
    return item;
  }));
  const kinds = Object.entries(why.window.kinds).map(([kind, count]) => `${isolated(kind.replace(UNPRINTABLE, "\ufffd"))} ${count}`).join(", ");
  say("kinds", `${why.window.errors} in the last ${why.window.seconds} s${kinds ? `: ${kinds}` : ""}`);
  showSamples(why);
}

function showErrors({ limit, window_s, minutes }) {
  const height = 100;
  const scale = height / (Math.max(limit, ...minutes) * 1.1);
  const sum = minutes.reduce((total, one) => total + one, 0);
  const span = Math.max(1, Math.ceil(window_s / 60));
  const said = `${sum} in the hour, ${Math.max(...minutes)} in the worst minute; the limit is ${limit} in ${lasting(window_s)}.`;
  const picture = drawn("svg", { viewBox: `0 0 600 ${height}`, preserveAspectRatio: "none", role: "img", "aria-label": said });
  minutes.forEach((count, minute) => {
    const within = minutes.slice(Math.max(0, minute - span + 1), minute + 1).reduce((total, one) => total + one, 0);
    const tall = count * scale;
    const bar = drawn("rect", { x: minute * 10 + 1, y: height - tall, width: 8, height: tall, class: within >= limit ? "over" : "" });
    const told = drawn("title", {});
    told.textContent = `${59 - minute} min ago: ${count}`;
    bar.append(told);
    picture.append(bar);
  });
  const level = height - limit * scale;
  picture.append(drawn("line", { x1: 0, x2: 600, y1: level, y2: level }));
  const mark = made("span", `limit ${limit}`);
  mark.style.top = `${level}%`;
  mark.className = level > 20 ? "above" : "";
  fill("errors", [picture, mark]);
  say("errors-said", said);
}

function showBudget(budget) {
  const back = budget ? budget.back_at.filter((at) => at > now()) : [];
  const used = budget ? Math.max(0, budget.used - (budget.back_at.length - back.length)) : 0;
  const free = budget ? Math.max(0, budget.capacity - used) : 0;
  const tokens = [];
  for (let number = 0; budget && number < Math.min(budget.capacity, MOST_TOKENS); number += 1) {
    const at = number < free ? 0 : back[number - free];
    const token = made("li", number < free ? "free" : at ? brief(at - now()) : "used", number < free ? "" : "used");
    if (at) token.title = `back at ${clock(at)}`;
    tokens.push(token);
  }
  fill("tokens", tokens);
  const next = back.length ? ` The next one is back at ${clock(back[0])}.` : "";
  say("budget-said", budget ? `${free} of ${budget.capacity} tokens are free; each is back ${lasting(budget.window_s)} after it was taken.${next}`
    : "Nothing is known of the tokens.");
}

function spoken(word) {
  return String(word).replaceAll("_", " ");
}

function showFleet(fleet) {
  if (!fleet) {
    say("fleet-said", last.bucket?.error === "alone" ? "There is no shared bucket: this container is on its own." : "Nothing is known of the fleet.");
    for (const id of ["trials", "members", "legend", "troubled", "departed"]) fill(id, []);
    return;
  }
  say("fleet-said", listed(`${fleet.alive} alive`, `${fleet.suspect} of them suspect`, `${fleet.down} down`,
    fleet.retiring && `${fleet.retiring} retiring`,
    fleet.cause && `most because of ${isolated(fleet.cause)}`,
    fleet.median_errors !== null && `median of errors ${fleet.median_errors}`,
    fleet.median_ratio !== null && `of failed requests ${round(100 * fleet.median_ratio)}\u00a0%`,
    fleet.duplicate && "another container runs under this instance name",
    fleet.away.length && `away: ${fleet.away.join(", ")}`,
    fleet.policies > 1 && `${fleet.policies} different policies`));
  showTrials(fleet);
  showMembers(fleet);
  sayMember();
  const counts = {};
  for (const member of fleet.members) counts[look(member)] = (counts[look(member)] ?? 0) + 1;
  const legend = Object.keys(counts).sort().map((name) => {
    const item = made("li");
    const [letter, word] = PRESENCES[name] ?? ["?", name];
    item.append(made("i", letter, name in PRESENCES ? name : "gone"), `${counts[name]} ${word}`);
    return item;
  });
  const rest = fleet.alive + fleet.down - fleet.members.length;
  if (rest > 0 && fleet.members.length) legend.push(made("li", `and ${rest} more`));
  fill("legend", legend);
  fillSome("troubled", fleet.members.filter((member) => member.presence !== "well" || member.duplicate), memberSaid);
  fillSome("departed", fleet.departed, (one) => `${isolated(one.instance)}: silent for ${lasting(agedNow(one.age_s))}`);
}

// How culls for each cause are tried. The time that a pause has left passes meanwhile.
function showTrials(fleet) {
  const trials = fleet?.trials ?? [];
  byId("trials").hidden = !trials.length;
  fill("trials", trials.map((trial) => {
    const left_s = trial.paused_s > 0 ? Math.max(1, trial.paused_s - Math.max(0, now() - fleetAt)) : 0;
    const out = `${trial.out} of at most ${trial.limit} without an outcome`;
    const last = trial.failures > 1 ? `the last ${trial.failures}` : "the last one";
    const said = left_s ? `paused for ${lasting(left_s)}, ${last} did not help` : out;
    return made("li", `Culls for ${isolated(trial.cause)}: ${said}`, left_s ? "paused" : "");
  }));
}

function fillSome(id, all, said) {
  const more = all.length - MOST_TROUBLED;
  fill(id, [...all.slice(0, MOST_TROUBLED).map((one) => made("li", said(one))),
    ...(more > 0 ? [made("li", `and ${more} more`, "quiet")] : [])]);
}

// What the fleet knows of a container, or more exactly what its own sidecar says.
function look(member) {
  const state = member.about?.state;
  return member.presence === "well" && ALSO_WELL.includes(state) ? state : member.presence;
}

function agedNow(age_s) {
  return age_s + Math.max(0, now() - fleetAt);
}

// Cells stay the same elements as long as the fleet has the same members: neither focus nor tooltip is lost.
function showMembers({ members }) {
  const list = byId("members");
  list.className = members.length > MANY ? "many" : "";
  const cells = [...list.children];
  if (cells.length !== members.length || cells.some((cell, at) => cell.dataset.instance !== members[at].instance)) {
    const hadFocus = list.contains(document.activeElement);
    if (!members.some((member) => member.instance === focused)) focused = members[0]?.instance ?? "";
    fill("members", members.map((member) => {
      const cell = made("div");
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
    const name = look(member);
    const [letter] = PRESENCES[name] ?? ["?"];
    cell.className = `${name in PRESENCES ? name : "gone"}${member.instance === own ? " here" : ""}`;
    cell.textContent = letter;
    cell.title = memberSaid(member);
    cell.setAttribute("aria-label", cell.title);
    cell.setAttribute("aria-selected", String(member.instance === focused));
  });
}

function memberSaid(member) {
  const name = look(member);
  const [, word] = PRESENCES[name] ?? ["?", name];
  const age = lasting(agedNow(member.age_s));
  const here = member.instance === last.why?.instance ? " (this container)" : "";
  const known = `${isolated(member.instance)}${here}: ${listed(word, member.kind && isolated(member.kind))}, ${member.presence === "down" ? "culled" : "heard"} ${age} ago`
    + (member.duplicate ? ", two containers run under this name" : "");
  return cut(listed(known, member.about && aboutSaid(member.about)));
}

function aboutSaid(about) {
  const age = about.born ? `, age ${lasting(now() - about.born)}` : "";
  return `${about.state} since ${clock(about.since)}${age}, ${about.errors} errors of ${about.limit}, weight ${about.weight}\u00a0%, `
    + `incarnation ${isolated(about.incarnation)}, version ${isolated(about.version)}`;
}

function showHolds(holds) {
  const whom = (hold) => (hold.instance ? isolated(hold.instance) : "The whole service");
  const focusedHold = document.activeElement?.dataset?.hold;
  fill("holds", holds.length ? holds.map((hold) => {
    const item = made("li", "", "held");
    const here = hold.here_only ? " (known to this sidecar only)" : "";
    item.append(made("span", `${whom(hold)} is held by ${isolated(hold.author)} until ${clock(hold.until)}: ${isolated(hold.reason)}${here}`));
    const button = made("button", "Release");
    button.type = "button";
    button.dataset.hold = hold.instance;
    button.setAttribute("aria-label", `Release ${whom(hold)}`);
    button.addEventListener("click", () => release(hold));
    item.append(button);
    return item;
  }) : [made("li", "Nobody holds culls.", "quiet")]);
  if (focusedHold !== undefined) {
    ([...byId("holds").querySelectorAll("button")].find((button) => button.dataset.hold === focusedHold) ?? byId("open-hold")).focus();
  }
}

function tone({ what }) {
  return Object.keys(TONES).find((name) => TONES[name].includes(what)) ?? "";
}

function showEvents(events) {
  const focusedEvent = document.activeElement?.dataset?.event;
  const keys = new Set(events.map(eventKey));
  for (const key of opened) if (!keys.has(key)) opened.delete(key);
  fill("events", events.length ? [...events].reverse().map((event) => {
    const item = made("li");
    const about = made("span", "", "about");
    const reason = event.reason === event.what ? "" : spoken(event.reason);
    const [detail, ...rest] = event.detail.split("\n");
    for (const text of [event.instance, event.kind, reason, event.author, event.seconds && lasting(event.seconds), detail]) {
      if (text) about.append(made("span", cut(text, 300)));
    }
    item.append(stamp(event.at), made("span", spoken(event.what), `what ${tone(event)}`), about);
    if (rest.length) item.append(evidence(eventKey(event), rest));
    return item;
  }) : [made("li", "Nothing has happened.", "quiet")]);
  if (focusedEvent !== undefined) {
    ([...byId("events").querySelectorAll("summary")].find((one) => one.dataset.event === focusedEvent) ?? byId("events")).focus();
  }
}

function eventKey({ at, what, instance }) {
  return `${at} ${what} ${instance}`;
}

// What was kept of a cull: it stays open, and keeps the focus, when the list is made anew.
function evidence(key, lines) {
  const part = made("details");
  const summary = made("summary", `Evidence, ${lines.length} line${lines.length === 1 ? "" : "s"}`);
  const text = made("pre");
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
    const item = made("li", `${sample.count} \u00d7 ${sample.kind}, last at ${clock(sample.last)}`);
    if (sample.message) item.append(made("div", sample.message, "message"));
    return item;
  }));
  byId("capture").hidden = byId("capture-title").hidden = !why.capture;
  say("capture", why.capture ?? "", 20000);
}

function showBucket(bucket) {
  say("bucket-said", bucket && bucket.error !== "alone" ? `The bucket gives no answer: ${bucket.sentence}. What stands here is what was last heard.` : "");
}

function showStored(stored) {
  say("events-title", stored || last.bucket?.error === "alone" ? "Events" : "Events of this container, for the bucket gives no answer");
}

const SHOWN = [["why", showState], ["holds", showHolds], ["errors", showErrors], ["budget", showBudget], ["bucket", showBucket],
  ["fleet", showFleet], ["events", showEvents], ["stored", showStored]];

// A message has all parts, or those that have changed.
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
  say("live", word);
}

// EventSource cannot carry a token, so the same stream is read by hand. True when a token is wanted first.
async function follow() {
  following = new AbortController();
  const response = await fetch("page/stream", { headers: headers(), cache: "no-store", signal: following.signal });
  if (response.status === 401) {
    askForToken();
    return true;
  }
  if (!response.ok) throw new Error((await response.json()).error);
  byId("entrance").hidden = true;
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
  byId("entrance").hidden = false;
  say("entrance-said", sessionStorage.getItem(TOKEN) ? "That token is not the one." : "");
  sessionStorage.removeItem(TOKEN);
  byId("token").focus();
}

// -- orders -----------------------------------------------------------------------------------------------------

async function order(method, path, value) {
  say("order-said", "");
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
      say("order-said", "Not done: that needs the token. Enter it above, then try again.");
    } else if (!response.ok) say("order-said", `Not done: ${answer.sentence ?? answer.error}`);
    else if (answer.stored === false) say("order-said", `Only this container is held: ${answer.sentence}.`);
    else if (answer.error) say("order-said", `Only here: ${answer.sentence}.`);
  } catch (error) {
    say("order-said", "Whether that was done is not known: the sidecar did not answer.");
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

// -- hands ------------------------------------------------------------------------------------------------------

byId("open-hold").addEventListener("click", () => {
  byId("hold-author").value ||= localStorage.getItem(AUTHOR) ?? "";
  byId("hold-dialog").showModal();
});
byId("close-hold").addEventListener("click", () => byId("hold-dialog").close());
byId("hold-form").addEventListener("submit", hold);
byId("entrance").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem(TOKEN, byId("token").value.trim());
  byId("token").value = "";
  byId("entrance").hidden = true;
  run();
});

function pointAt(cell) {
  const list = byId("members");
  for (const before of list.querySelectorAll('[tabindex="0"]')) before.tabIndex = -1;
  for (const before of list.querySelectorAll('[aria-selected="true"]')) before.setAttribute("aria-selected", "false");
  cell.tabIndex = 0;
  cell.setAttribute("aria-selected", "true");
  focused = cell.dataset.instance;
  sayMember();
}

function sayMember() {
  const member = focused && byId("members").contains(document.activeElement)
    ? last.fleet?.members.find((one) => one.instance === focused) : null;
  if (member) say("member-said", memberSaid(member));
  else say("member-said", "Point at a container, or go to one with the arrow keys, to see its name.");
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

// Who does not look leaves their place to others.
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
