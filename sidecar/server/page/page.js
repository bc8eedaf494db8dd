// The status page: lays out /why, /fleet and /events, which it asks for every two seconds. Data never becomes markup, only text.
// Without a query it is about the service; ?container=NAME is about one container.
"use strict";

const byId = (id) => document.getElementById(id);
const TOKEN = "arbiter-token";
const AUTHOR = "arbiter-author";
const RETRY_MS = [500, 1000, 2000, 5000, 10000];
const POLL_MS = 2000;
const ANSWER_MS = 15000;
const MOST_TOKENS = 50;
const MOST_ROWS = 50;
const MOST_EVIDENCE = 4000;
const MOST_LISTED = 2000;
const MOST_EVENTS = 200;
const ENOUGH_EVENTS = 50;
const MOST_DEPARTED = 20;
const NAMES = new Intl.Collator("en", { numeric: true });
const NAMED = new URLSearchParams(location.search).get("container");
const URGENT = ["suspect", "draining", "down", "silent", "starting", "stopping", "retiring", "up"];
const COLORS = {
  bad: ["culled", "down", "unhelped", "paused", "not_honoured", "action_failed", "duplicate", "data_loss", "hold_lost", "redis_away"],
  warn: ["suspect", "denied", "granted", "hold", "would_cull", "unclear"],
  good: ["recovered", "replaced", "helped", "release", "revived", "restarted", "acted", "redis_back", "would_recover"],
};
// What a sidecar describes of its container, if it does.
const NOT_DESCRIBED = { errors: null, limit: null, weight: null, version: "", incarnation: "", born: 0, node: "", app_version: "" };
const CULLED = ["suspect", "draining", "down"];
const COLUMNS = [
  ["Container", "instance", (one) => one.instance],
  ["State", "state", (one) => URGENT.indexOf(one.state)],
  ["Since (UTC)", "since", (one) => -(one.since ?? 0)],
  ["Cause", "cause", (one) => one.cause || "\uffff"],
  ["Errors", "errors", (one) => -(one.errors ?? -1)],
  ["Weight", "weight", (one) => one.weight ?? 101],
  ["Version", "version", (one) => one.version],
  ["Node", "node", (one) => one.node],
  ["App", "app", (one) => one.app_version],
];
const UNPRINTABLE = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/g;

let last = {};
let listed = null; // the last answer of /fleet that came from the store
let known = []; // the newest entries of the ledger
let isLedgerRead = false;
let rows = [];
let sorting = { column: 1, isReversed: false };
let shownRows = MOST_ROWS;
let skew_s = 0;
let failures = 0;
let shownTexts = {};
let isRunning = false;
let endPause = () => {};

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

// Every time on the page is in UTC, as in messages, events and the log.
function clock(at, isExact = true) {
  const written = new Date(at * 1000).toISOString();
  const isToday = written.slice(0, 10) === new Date(now() * 1000).toISOString().slice(0, 10);
  return `${isToday ? "" : `${written.slice(5, 10)} `}${written.slice(11, isExact && isToday ? 19 : 16)}`;
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

// A link to the page of one container; the query keeps any name from being read as a path.
function containerLink(instance) {
  const element = make("a", cut(instance, 200));
  element.href = `?container=${encodeURIComponent(instance)}`;
  return element;
}

function inWords(word) {
  return String(word).replaceAll("_", " ");
}

function sum(numbers) {
  return numbers.reduce((total, one) => total + one, 0);
}

// -- the service --------------------------------------------------------------------------------------------------

function showBanner(banner) {
  byId("banner").className = `${banner.level}${NAMED === null ? "" : " slim"}`;
  setText("banner-sentence", `${NAMED === null ? "" : "The service: "}${banner.sentence}`);
  setText("banner-action", banner.action);
  setText("banner-command", banner.command);
  byId("banner-more").hidden = !banner.command && !banner.runbook;
  fill("banner-link", banner.runbook ? [makeLink(banner.runbook, "Runbook")] : []);
  showTitle();
}

// The first clue to what is to be repaired: what the app said last if it is this container that is in trouble.
function showClue(why) {
  const sample = NAMED === null && CULLED.includes(why.state) ? why.samples.find((one) => one.message) : undefined;
  setText("banner-clue", sample ? `${why.instance}: ${sample.message}` : "", 200);
}

// Why the newest claim of a suspect was refused.
function showRefusal() {
  const since = new Map(rows.filter((one) => one.state === "suspect").map((one) => [one.instance, (one.since ?? now() - 3600) - 10]));
  const denied = NAMED === null && last.events?.findLast((event) => event.what === "denied" && event.at >= since.get(event.instance));
  setText("banner-refusal", denied ? `${denied.instance} was refused a token at ${clock(denied.at)} UTC: ${denied.detail}` : "", 300);
}

function showTitle() {
  const service = last.why?.service ?? "health-arbiter";
  const mode = isShadow() ? "shadow mode" : "";
  setText("title", NAMED ?? service, 200);
  setText("subtitle", NAMED === null ? mode : joined(service, mode));
  const mark = { critical: "\u2716 ", warning: "\u26a0 " }[last.banner?.level] ?? "";
  const what = NAMED === null ? last.banner?.sentence : `${found()?.state ?? "not known"}: ${NAMED}`;
  document.title = cut(`${mark}${service}: ${what ?? ""}`, 100);
}

function showKnown() {
  const at = last.known_at;
  byId("board").classList.toggle("away", isAway());
  setText("known-text", !isAway() ? ""
    : at ? `What is grey was known at ${clock(at)} UTC, ${now() - at < 60 ? "less than a minute" : duration(60 * Math.floor((now() - at) / 60))} ago. This container is shown as it is now.`
      : "Nothing is known of the other containers: this sidecar has had no answer from Redis yet.");
}

// Whether the shared store does not answer.
function isAway() {
  return Boolean(last.store) && last.store.error !== "alone";
}

function tile(value, label, color = "") {
  const item = make("li", "", color);
  item.append(make("b", value), make("span", label));
  return item;
}

function showTiles() {
  const count = (...states) => rows.filter((one) => states.includes(one.state)).length;
  const total = rows.length + unlisted();
  const suspect = Math.max(count("suspect"), unlisted() ? last.fleet.suspect : 0);
  const lighter = rows.filter((one) => one.state !== "draining" && one.state !== "down" && one.weight !== null && one.weight < 100).length;
  const errors = sum(rows.map((one) => one.errors ?? 0));
  const free = last.budget ? tokens(last.budget).free : null;
  const draining = count("draining"), down = count("down");
  fill("tiles", [
    tile(total, total === 1 ? "container" : "containers", rows.length && !suspect && !draining && !down ? "good" : ""),
    tile(suspect, "suspect", suspect ? "bad" : "good"),
    ...(draining ? [tile(draining, wouldBe("draining"), "bad")] : []),
    tile(down, wouldBe("down"), down ? "bad" : "good"),
    tile(errors, "errors in the window", errors ? "warn" : "good"),
    tile(lighter, isShadow() ? "would get fewer requests" : "get fewer requests", lighter ? "warn" : "good"),
    tile(free === null ? "?" : `${free}/${last.budget.capacity}`, "tokens free", free === 0 ? "bad" : ""),
    ...(count("silent") ? [tile(count("silent"), "silent", "warn")] : []),
  ]);
}

// Containers that are known by their number only: more than the list takes, or no list has come before Redis went away.
function unlisted() {
  const isListed = rows.length < MOST_LISTED && !(last.store && rows.length <= 1);
  return isListed || !last.fleet ? 0 : Math.max(0, last.fleet.alive + last.fleet.draining + last.fleet.down - rows.length);
}

function isShadow() {
  return last.why?.mode === "shadow";
}

function wouldBe(word) {
  return isShadow() ? `would be ${word}` : word;
}

function weightInWords(percent, isSoftDrained) {
  return `weight ${percent}\u00a0%${isSoftDrained ? " (soft drain)" : ""}`;
}

function tokens(budget) {
  const at = (isAway() && last.known_at) || now(); // what is grey is shown as it was
  const back = budget.back_at.filter((back_at) => back_at > at);
  const used = Math.max(0, budget.used - (budget.back_at.length - back.length));
  return { back, used, free: Math.max(0, budget.capacity - used) };
}

function showBudget(budget) {
  if (!budget) {
    fill("tokens", []);
    setText("budget-text", "The budget is not known.");
    return;
  }
  const { back, free } = tokens(budget);
  fill("tokens", Array.from({ length: Math.min(budget.capacity, MOST_TOKENS) }, (_, number) => {
    const at = number < free ? 0 : back[number - free];
    const token = make("li", number < free ? "free" : at ? shortDuration(at - now()) : "used", number < free ? "" : "used");
    if (at) token.title = `comes back at ${clock(at)} UTC`;
    return token;
  }));
  const next = back.length ? ` The next one comes back at ${clock(back[0])} UTC.` : "";
  setText("budget-text", `${free} of ${budget.capacity} tokens are free: ${budget.bound}. Each comes back ${duration(budget.window_s)} after it was taken.${next}`);
}

function showFleet(fleet) {
  showTrials(fleet);
  if (!fleet) {
    setText("fleet-text", last.store?.error === "alone" ? "No shared store is configured: this container is on its own." : "The fleet is not known.");
    fill("departed", []);
    return;
  }
  const outcomes = `culls so far: ${fleet.helped} helped, ${fleet.unhelped} did not, ${fleet.unclear} unclear`;
  setText("fleet-text", joined(outcomes,
    fleet.retiring && `${fleet.retiring} retiring`,
    fleet.cause && `most suspects share ${isolate(fleet.cause)}`,
    fleet.median_errors !== null && `median of errors: ${fleet.median_errors}`,
    fleet.median_ratio !== null && `median of failed requests: ${round(100 * fleet.median_ratio)}\u00a0%`,
    fleet.duplicate && "another container runs under the name of this one",
    fleet.losses && `Redis lost its record ${fleet.losses} time${fleet.losses > 1 ? "s" : ""}`,
    fleet.settings > 1 && `${fleet.settings} different settings`));
  const more = fleet.departed_count - fleet.departed.length;
  fill("departed", [...fleet.departed.map((one) => make("li", `${isolate(one.instance)}: last heard at ${clock(one.at)} UTC`)),
    ...(more > 0 ? [make("li", `and ${more} more that have left`)] : [])]);
}

// The rest of a pause is counted down between two answers.
function showTrials(fleet) {
  const trials = fleet?.trials ?? [];
  fill("trials", trials.length ? trials.map((trial) => {
    const isPaused = trial.paused_until !== null && trial.paused_until > now();
    const since = trial.since ? `, its episode began at ${clock(trial.since, false)} UTC` : "";
    const out = `${trial.out} of at most ${trial.limit} culls without an outcome${since}`;
    const before = trial.failures > 1 ? `the last ${trial.failures}` : "the last one";
    const said = isPaused ? `paused until ${clock(trial.paused_until, false)} UTC (${duration(trial.paused_until - now())}), ${before} did not help` : out;
    return make("li", `${isolate(trial.cause)}: ${said}`, isPaused ? "paused" : "");
  }) : [make("li", "No cull is being tried.", "quiet")]);
}

function showHolds(holds) {
  const whom = (hold) => (hold.instance ? isolate(hold.instance) : "The whole service");
  const focusedHold = document.activeElement?.dataset?.hold;
  const concerning = holds.filter((hold) => NAMED === null || !hold.instance || hold.instance === NAMED);
  fill("holds", concerning.length ? concerning.map((hold) => {
    const item = make("li", "", "held");
    const here = hold.here_only ? " (known to this sidecar only)" : "";
    item.append(make("span", `${whom(hold)} is held by ${isolate(hold.author)} until ${clock(hold.until)} UTC: ${isolate(hold.reason)}${here}`));
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

function showVersions() {
  const versions = new Map();
  for (const { version } of rows) if (version) versions.set(version, (versions.get(version) ?? 0) + 1);
  const most = [...versions].sort((a, b) => b[1] - a[1]).slice(0, 8);
  setText("versions", versions.size > 1 ? most.map(([version, count]) => `version ${isolate(version)}: ${count}`).join(", ") : "");
}

// -- the table ------------------------------------------------------------------------------------------------------

function showColumns() {
  fill("columns", COLUMNS.map(([label, name], column) => {
    const cell = make("th", "", `of-${name}`);
    const button = make("button", label);
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

function sorted(found) {
  const [, , key] = COLUMNS[sorting.column];
  const direction = sorting.isReversed ? -1 : 1;
  const compare = (a, b) => (typeof a === "string" ? NAMES.compare(a, b) : a - b);
  return found.map((one) => [key(one), one]).sort(([a, one], [b, other]) => direction * compare(a, b)
    || compare(URGENT.indexOf(one.state), URGENT.indexOf(other.state)) || compare(one.instance, other.instance)).map(([, one]) => one);
}

function showContainers() {
  const words = byId("search").value.toLowerCase().split(/\s+/).filter(Boolean);
  const found = rows.filter((one) => {
    const text = `${one.instance} ${one.state} ${one.cause} ${one.version} ${one.node} ${one.app_version}${one.duplicate ? " duplicate" : ""}`.toLowerCase();
    return words.every((word) => text.includes(word));
  });
  byId("containers").closest("table").classList.toggle("no-traits", !rows.some((one) => one.node || one.app_version));
  const focusedLink = document.activeElement?.dataset?.container;
  fill("containers", sorted(found).slice(0, shownRows).map(containerRow));
  if (focusedLink !== undefined) byId("containers").querySelector(`[data-container="${CSS.escape(focusedLink)}"]`)?.focus();
  setText("containers-text", joined(`${Math.min(found.length, shownRows)} of ${rows.length} containers`,
    unlisted() > 0 && `${unlisted()} more are not listed`));
  byId("more").hidden = found.length <= shownRows;
  setText("more", `Show ${Math.min(200, found.length - shownRows)} more`);
}

function containerRow(one) {
  const row = make("tr", "", one.instance === last.why?.instance ? "here" : "");
  const link = containerLink(one.instance);
  link.dataset.container = one.instance;
  const name = make("td");
  name.append(link);
  if (one.duplicate) name.append(" two containers run under this name");
  const state = make("td");
  state.append(make("span", one.state, `state ${one.state}`));
  const cell = (label, text, className = "") => {
    const made = make("td", text, className);
    if (text) made.dataset.label = label;
    return made;
  };
  row.append(name, state, cell("since", one.since ? clock(one.since, false) : "", "number"), cell("", cut(one.cause, 80)),
    cell("errors", one.errors === null ? "" : `${one.errors}/${one.limit}`, "number"),
    cell("weight", one.weight === null ? "" : `${one.weight}\u00a0%`, "number"), cell("version", cut(one.version, 40)),
    cell("node", one.node, "of-node"), cell("app", one.app_version, "of-app"));
  return row;
}

function showRows(containers) {
  rows = containers;
  if (NAMED === null) {
    showTiles();
    showVersions();
    showContainers();
    showRefusal();
  } else if (NAMED !== last.why?.instance) showOther();
  showTitle();
}

// -- one container ----------------------------------------------------------------------------------------------------

function found() {
  return NAMED === last.why?.instance ? last.why : rows.find((one) => one.instance === NAMED);
}

function showState(why) {
  showClue(why);
  byId("hold-instance").textContent = `container ${cut(NAMED ?? why.instance, 60)}`;
  if (NAMED === null || NAMED !== why.instance) return;
  showStateWord(why.state, why.sentence);
  fill("remedies", why.remedies.map((sentence) => make("li", sentence)));
  byId("remedies").hidden = byId("remedies-title").hidden = why.state === "up";
  const health = ["haproxy", "nomad"].map((balancer) => `${balancer === "nomad" ? "Nomad" : "HAProxy"} ${why.health[balancer] ? "up" : "down"}`);
  const facts = [["Health", `${health.join(", ")}, ${weightInWords(why.weight, why.soft_drained)}`], ["Since", `${clock(why.since)} UTC`]];
  if (why.would && why.would.weight < 100) facts.push(["In enforce mode", weightInWords(why.would.weight, why.would.soft_drained)]);
  const isInSentence = why.rules.length === 1 && why.sentence.includes(why.rules[0].sentence);
  for (const rule of isInSentence ? [] : why.rules) facts.push([rule.rule, `${rule.sentence} (${round(rule.value)} against ${round(rule.limit)})`]);
  if (why.claim) facts.push(["Claim", joined(why.claim.outcome !== "granted" && why.claim.outcome, why.claim.sentence)]);
  if (why.spared) facts.push(["Spared", why.spared]);
  const kinds = Object.entries(why.window.kinds).map(([kind, count]) => `${isolate(kind.replace(UNPRINTABLE, "\ufffd"))} ${count}`).join(", ");
  facts.push(["Errors", `${why.window.errors} in the last ${why.window.seconds} s${kinds && `: ${kinds}`}${why.window.limit ? `, the limit is ${why.window.limit}` : ""}`]);
  if (why.window.requests) facts.push(["Requests", `${why.window.failed} of ${why.window.requests} failed in ${why.window.seconds} s`]);
  showFacts(facts);
  fill("runbook", why.runbook ? [makeLink(why.runbook, "Runbook")] : []);
  showSamples(why);
}

// Another container: what the fleet's records have of it. Its own sidecar knows more.
function showOther() {
  const one = found();
  byId("samples-part").hidden = true;
  byId("remedies").hidden = byId("remedies-title").hidden = true;
  if (!one) showStateWord("unknown", "The fleet does not know this container now; below are its events of the last week.");
  else {
    showStateWord(one.state, joined(one.cause && `because of ${isolate(one.cause)}`, one.since && `since ${clock(one.since)} UTC`,
      one.duplicate && "two containers run under this name, and neither may be culled"));
    showFacts([["Errors", one.errors === null ? "not known" : `${one.errors} in the window, the limit is ${one.limit}`],
      [isShadow() ? "Weight in enforce mode" : "Weight", one.weight === null ? "not known" : `${one.weight}\u00a0%`],
      ["Incarnation", one.incarnation && joined(isolate(one.incarnation), one.born && `since ${clock(one.born)} UTC`)],
      ["Version", one.version && isolate(one.version)], ["Node", one.node && isolate(one.node)],
      ["Version of the app", one.app_version && isolate(one.app_version)]].filter(([, value]) => value));
  }
  fill("elsewhere", ["Its own sidecar knows more: errors by kind, samples and decisions. In its allocation: ", make("code", "health-arbiter why")]);
}

function showStateWord(word, sentence) {
  byId("state-word").className = `state ${word}`;
  setText("state-word", word);
  setText("sentence", sentence);
}

function showFacts(facts) {
  fill("facts", facts.flatMap(([name, value]) => [make("dt", name), make("dd", value)]));
}

// -- events -------------------------------------------------------------------------------------------------------

function color({ what }) {
  return Object.keys(COLORS).find((name) => COLORS[name].includes(what)) ?? "";
}

function showEvents(events) {
  showRefusal();
  const focusedEvent = document.activeElement?.dataset?.event;
  // Read here: the "toggle" event comes later, and a list drawn before it would close what was just opened.
  const opened = new Set([...byId("events").querySelectorAll("details[open] summary")].map((one) => one.dataset.event));
  const concerning = events.filter((event) => NAMED === null || event.instance === NAMED);
  fill("events", concerning.length ? [...concerning].reverse().map((event) => {
    const item = make("li");
    const about = make("span", "", "about");
    const reason = event.reason === event.what ? "" : inWords(event.reason);
    const [detail, ...rest] = event.detail.split("\n");
    for (const text of [event.instance, event.kind, reason, event.author, event.seconds && duration(event.seconds), event.node && `node ${event.node}`,
      event.app_version && `app version ${event.app_version}`, detail]) {
      if (!text) continue;
      const part = make("span");
      part.append(text === event.instance && NAMED === null ? containerLink(text) : cut(String(text), 300));
      about.append(part);
    }
    item.append(makeTime(event.at), make("span", inWords(event.what), `what ${color(event)}`), about);
    if (rest.length) item.append(evidence(eventKey(event), rest, opened));
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
function evidence(key, lines, opened) {
  const part = make("details");
  const summary = make("summary", `Evidence, ${lines.length} line${lines.length === 1 ? "" : "s"}`);
  const text = make("pre");
  text.textContent = cut(lines.join("\n"), MOST_EVIDENCE);
  summary.dataset.event = key;
  part.open = opened.has(key);
  part.append(summary, text);
  return part;
}

function showSamples(why) {
  const { samples } = why;
  byId("samples-part").hidden = !samples.length && !why.capture;
  fill("samples", samples.map((sample) => {
    const item = make("li", `${sample.count} \u00d7 ${sample.kind}, last at ${clock(sample.last)} UTC`);
    if (sample.message) item.append(make("div", sample.message, "message"));
    return item;
  }));
  byId("capture").hidden = byId("capture-title").hidden = !why.capture;
  setText("capture", why.capture ?? "", 20000);
}

function showStored(stored) {
  const isWhole = stored || last.store?.error === "alone";
  setText("events-title", isWhole ? "Events (UTC)" : "Events (UTC) that were known, and those of this container: the store does not answer");
}

const SHOWN = [["why", showState], ["banner", showBanner], ["store", showKnown], ["known_at", showKnown], ["holds", showHolds],
  ["budget", showBudget], ["fleet", showFleet], ["events", showEvents], ["stored", showStored], ["containers", showRows]];

// The parts that differ from those shown: what is drawn again loses the focus and the place where it was scrolled to.
function changed(parts) {
  return Object.fromEntries(Object.entries(parts).filter(([name, part]) => {
    const text = JSON.stringify(part);
    const isNew = shownTexts[name] !== text;
    shownTexts[name] = text;
    return isNew;
  }));
}

function show(parts) {
  last = { ...last, ...parts };
  if ("now" in parts) skew_s = parts.now - Date.now() / 1000; // two polls may get one answer
  byId("board").hidden = false;
  for (const [name, shown] of SHOWN) if (name in parts) shown(parts[name]);
  if ("fleet" in parts && !("containers" in parts) && NAMED === null) showTiles();
}

// -- polling ----------------------------------------------------------------------------------------------------

function headers() {
  const token = sessionStorage.getItem(TOKEN);
  return token ? { Authorization: `Bearer ${token}` } : {};
}

function live(word, className = "") {
  byId("live").className = className;
  byId("board").classList.toggle("stale", className === "lost");
  setText("live", word);
}

// Instants that are known by an age only are rounded, because they would differ at every answer.
function steady(at) {
  return 10 * Math.round(at / 10);
}

// The parts of the page. While the store is away, the fleet is what was known last.
function layOut({ at, ...why }, fleet, { events, stored }) {
  const isAway = "error" in fleet && fleet.error !== "alone";
  if (!("error" in fleet)) listed = fleet;
  const shown = (isAway && listed) || fleet;
  const heardAt = fleet.fleet_age_s === null ? null : at - fleet.fleet_age_s;
  const own = fleet.members.find((member) => member.instance === why.instance);
  const members = shown.members.map((member) => (member.instance === why.instance ? own : member));
  return {
    now: at,
    why,
    banner: fleet.banner,
    store: "error" in fleet ? { error: fleet.error, sentence: fleet.sentence } : null,
    known_at: isAway ? listed?.at ?? heardAt : null,
    holds: holdsOf(shown, fleet.local_hold, at),
    budget: shown.used === null || shown.capacity === null ? null
      : { used: shown.used, capacity: shown.capacity, bound: shown.bound, window_s: shown.budget_window, back_at: shown.grants.map((taken) => taken + shown.budget_window) },
    fleet: fleetOf(shown),
    events: eventsOf(events, stored),
    stored,
    containers: members.map(({ kind, about, state, ...rest }) => ({ ...NOT_DESCRIBED, ...about, ...rest, state, cause: CULLED.includes(state) ? kind : "" })),
  };
}

function holdsOf({ holds, fleet, at: heardAt }, local, at) {
  const isLocal = (hold) => local && hold.until === local.until && hold.instance === local.instance;
  const stored = holds.length || !fleet?.hold ? holds : [fleet.hold];
  const shared = stored.filter((hold) => hold.until > at && !isLocal(hold)).map((hold) => ({ ...hold, here_only: false }));
  return local ? [...shared, { ...local, here_only: true }] : shared;
}

function fleetOf({ fleet, departed, at }) {
  if (!fleet) return null;
  const trials = fleet.trials.map(({ paused_s, ...trial }) => ({ ...trial, paused_until: paused_s > 0 ? steady(at + paused_s) : null }));
  const gone = departed.slice(0, MOST_DEPARTED).map((one) => ({ instance: one.instance, at: steady(at - one.age_s) }));
  return { ...fleet, trials, departed: gone, departed_count: departed.length };
}

// Without an answer of the store: what was known, and what this sidecar itself has noted since.
function eventsOf(events, stored) {
  if (stored) return known;
  const since = known.at(-1)?.at ?? 0;
  return [...known, ...events.filter((event) => event.at > since)].slice(-MOST_EVENTS);
}

async function ask(path) {
  const response = await fetch(path, { headers: headers(), cache: "no-store", signal: AbortSignal.timeout(ANSWER_MS) });
  const value = read(await response.text());
  if (response.status === 401) throw new TokenNeeded();
  if (!response.ok && !("fleet" in value)) throw new Error(value.error);
  return value;
}

class TokenNeeded extends Error {}

// Reads the ledger on and on; at first as far back as it takes to have enough entries to show.
async function readEvents() {
  let page;
  for (const since of isLedgerRead ? ["168h"] : ["1h", "24h", "168h"]) {
    if (!isLedgerRead) known = [];
    do {
      page = await ask(`events?since=${since}&after=${known.at(-1)?.id ?? ""}`);
      if (!page.stored) return page;
      known = [...known, ...page.events].slice(-MOST_EVENTS);
    } while (page.events.length);
    if (known.length >= ENOUGH_EVENTS) break;
  }
  isLedgerRead = true;
  return page;
}

// Returns whether to go on: not before a token is entered, if one is needed.
async function poll() {
  try {
    show(changed(layOut(...await Promise.all([ask("why"), ask("fleet"), readEvents()]))));
  } catch (error) {
    if (!(error instanceof TokenNeeded)) throw error;
    askForToken();
    return false;
  }
  failures = 0;
  live(`live, ${clock(now())} UTC`, "fresh");
  return true;
}

async function run() {
  if (isRunning) return;
  isRunning = true;
  for (;;) {
    let pause = POLL_MS;
    try {
      if (!await poll()) break;
    } catch (error) {
      const said = error instanceof TypeError || error.name === "TimeoutError" ? "" : `: ${error.message}`;
      live(last.now ? `connection lost, as of ${clock(last.now)} UTC${said}` : `no connection${said}`, "lost");
      pause = RETRY_MS[Math.min(failures, RETRY_MS.length - 1)];
      failures += 1;
    }
    await new Promise((resolve) => {
      endPause = resolve;
      setTimeout(resolve, pause);
    });
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
  order("DELETE", `hold?${query}`);
}

function hold() {
  const author = byId("hold-author").value;
  const scope = byId("hold-scope").value;
  localStorage.setItem(AUTHOR, author);
  order("POST", "hold", { for: byId("hold-for").value, scope, author, reason: byId("hold-reason").value,
    ...(scope === "instance" ? { instance: NAMED ?? last.why.instance } : {}) });
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
  shownRows = MOST_ROWS;
  showContainers();
});
byId("more").addEventListener("click", () => {
  shownRows += 200;
  showContainers();
});
byId("login").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem(TOKEN, byId("token").value.trim());
  byId("token").value = "";
  byId("login").hidden = true;
  run();
});

setInterval(() => {
  if (last.budget) showBudget(last.budget);
  if (last.fleet?.paused.length) showTrials(last.fleet);
  if (last.store) showKnown();
}, 1000);

byId("of-container").hidden = byId("back").hidden = NAMED === null;
byId("of-service").hidden = NAMED !== null;
for (const part of document.querySelectorAll(".only-service")) part.hidden = NAMED !== null;
showColumns();
live("connecting");
run();
