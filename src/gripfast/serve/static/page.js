// The page: signs in, listens, and puts together what the other modules have.

import { Details } from "./details.js";
import { Model, ORDERS, duration, grouped, rate } from "./model.js";
import { Table, element, write } from "./table.js";

const of = (id) => document.getElementById(id);
const model = new Model();
const details = new Details({
  mayBreak: () => session?.may_break ?? false,
  now,
  onBreak: breakHolders,
  // Back to where the keyboard was, unless it is somewhere by now: this comes a moment after the dialog has closed.
  onClose: () => document.activeElement === document.body && table.move(0),
});
const table = new Table({ onOpen: (row) => details.open(row), onOrder: orderBy, now });

let session = null;
let events = null;
let ahead = 0; // seconds by which the server's clock is ahead of ours
let looked = null; // when the store was last seen, by the server's clock
let patience = 0; // seconds after which something new is overdue
let total = null; // entries per second, of all names
let isWanted = false; // whether something is to be drawn

function now() {
  return Date.now() / 1000 + ahead;
}

// -- asking the server --------------------------------------------------------------------------------------------------

async function ask(path, method = "GET", body = undefined) {
  const headers = { "X-Gripfast": "1", "Content-Type": "application/json" };
  const options = method === "GET" ? {} : { headers, body: JSON.stringify(body ?? {}) };
  try {
    const response = await fetch(path, { method, credentials: "same-origin", ...options });
    const isJson = (response.headers.get("Content-Type") ?? "").startsWith("application/json");
    return { status: response.status, ...(isJson ? await response.json() : {}) };
  } catch {
    return { status: 0, why: "gripfast serve does not answer." };
  }
}

async function begin() {
  const token = new URLSearchParams(location.hash.slice(1)).get("token");
  if (token) {
    history.replaceState(null, "", location.pathname); // it must not stay in the address
    await ask("session", "POST", { token });
  }
  await enter();
}

async function enter() {
  const answer = await ask("session");
  if (answer.status === 200) {
    session = answer;
    write(of("where"), session.where);
    document.title = `${session.where} – Gripfast`;
    write(of("about"), `Gripfast ${session.version} · ${session.may_break ? "breaking is allowed" : "read-only"}`);
    of("sign-out").hidden = !session.can_sign_out;
    of("sign-in").hidden = true;
    of("board").hidden = false;
    details.question.tells(session.tells_reason);
    say("waiting", "Reading the store…");
    listen();
  } else if (answer.status === 401 || answer.status === 403) {
    lock(answer.why);
  } else {
    say("gone", answer.why ?? "gripfast serve does not answer.");
    setTimeout(enter, 3000);
  }
}

function lock(why) {
  events?.close();
  session = null;
  model.rows.clear();
  of("board").hidden = true;
  of("sign-out").hidden = true;
  of("sign-in").hidden = false;
  write(of("sign-in-why"), why);
  say("gone", "Signed out");
  of("token").focus();
}

async function breakHolders(order) {
  const answer = await ask("break", "POST", order);
  return answer.status === 200 ? null : answer.why ?? "That did not work. Try again.";
}

// -- listening ----------------------------------------------------------------------------------------------------------

function listen() {
  events?.close();
  if (document.hidden || session === null) return;
  events = new EventSource("events");
  events.addEventListener("rows", (event) => received(JSON.parse(event.data)));
  events.addEventListener("trouble", (event) => troubled(JSON.parse(event.data)));
  events.addEventListener("error", failed);
}

// A browser comes again by itself, unless it was answered with an error: then we look why. Each stream ends some time, and
// the next one begins at once: nobody needs to be told.
function failed() {
  const failing = events;
  if (failing.readyState === EventSource.CLOSED) setTimeout(enter, 2000);
  setTimeout(() => {
    const isBack = failing !== events || failing.readyState === EventSource.OPEN;
    if (!isBack) say("gone", "gripfast serve does not answer. Trying again…");
  }, 4000);
}

function received(news) {
  const measured = news.at + news.took - Date.now() / 1000;
  ahead = Math.abs(measured) > 2 ? measured : 0;
  looked = news.at;
  patience = 3 * (session.every + news.took) + 5;
  total = news.rate;
  model.apply(news);
  of("trouble").hidden = true;
  document.body.classList.remove("stale");
  write(of("notes"), news.notes.join(" "));
  of("notes").hidden = news.notes.length === 0;
  say("live", "Live");
  draw();
}

function troubled({ reason }) {
  document.body.classList.add("stale");
  say("trouble", "Store unreachable");
  const age = looked === null ? "" : ` What you see is ${duration(now() - looked)} old.`;
  write(of("trouble"), `The store can't be read: ${reason.replace(/[.\s]+$/, "")}.${age} The page goes on trying.`);
  of("trouble").hidden = false;
}

function say(state, words) {
  of("state").dataset.state = state;
  write(of("state"), words);
}

// -- drawing ------------------------------------------------------------------------------------------------------------

function draw() {
  if (isWanted) return;
  isWanted = true;
  requestAnimationFrame(() => {
    isWanted = false;
    drawNow();
  });
}

function drawNow() {
  const list = model.shown();
  of("table").hidden = list.length === 0; // first: what is hidden is not drawn
  table.show(list, model.order, model.isBackwards);
  details.update(model.rows);
  write(of("count"), model.isFiltered ? `${grouped(list.length)} of ${grouped(model.rows.size)} shown` : "");
  const nothing = model.rows.size === 0 ? "Nothing is held." : "Nothing matches the filter.";
  write(of("empty"), nothing);
  of("empty").hidden = list.length > 0 || looked === null;
  drawFigures();
}

function drawFigures() {
  if (looked === null) return; // nothing is known yet: that is not 0
  const { held, waiting, oldest } = model.figures();
  write(of("held"), grouped(held));
  write(of("waiting"), waiting === null ? "?" : grouped(waiting));
  of("waiting").classList.toggle("some", waiting > 0);
  write(of("rate"), rate(total));
  write(of("longest"), oldest === Number.MAX_VALUE ? "–" : duration(now() - oldest));
}

function tick() {
  if (document.hidden || session === null || looked === null) return;
  const isLate = of("state").dataset.state === "live" && now() - looked > patience;
  if (isLate) say("waiting", "The store is slow to answer…");
  table.draw();
  details.update(model.rows);
  drawFigures();
}

// -- what a visitor does ------------------------------------------------------------------------------------------------

function orderBy(name, isBackwards = name === model.order && !model.isBackwards) {
  [model.order, model.isBackwards] = [name, isBackwards];
  of("order-choice").value = name;
  keep();
  draw();
}

function refilter() {
  model.filter(of("filter").value);
  model.kind = document.querySelector("input[name=kind]:checked").value;
  keep();
  draw();
}

// So that a reload shows the same. It stays in this tab.
function keep() {
  const { kind, order, isBackwards } = model;
  sessionStorage.setItem("gripfast", JSON.stringify({ filter: of("filter").value, kind, order, isBackwards }));
}

function restore() {
  const kept = JSON.parse(sessionStorage.getItem("gripfast") ?? "{}");
  of("filter").value = kept.filter ?? "";
  for (const each of document.querySelectorAll("input[name=kind]")) each.checked = each.value === (kept.kind ?? "");
  of("order-choice").append(...Object.entries(ORDERS).map(([name, { title }]) => element("option", { value: name }, title)));
  orderBy(kept.order in ORDERS ? kept.order : "held", kept.isBackwards ?? false);
  refilter();
}

const KEYS = {
  ArrowDown: () => table.move(1),
  ArrowUp: () => table.move(-1),
  j: () => table.move(1),
  k: () => table.move(-1),
  PageDown: () => table.move(table.page),
  PageUp: () => table.move(-table.page),
  Home: () => table.move(-Infinity),
  End: () => table.move(Infinity),
  "/": () => of("filter").focus(),
};

function pressed(event) {
  if (session === null || event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  if (event.target === of("filter")) return pressedInFilter(event);
  if (event.target.matches("input, select") || !(event.key in KEYS)) return;
  event.preventDefault();
  KEYS[event.key]();
}

function pressedInFilter(event) {
  if (event.key === "Escape") {
    of("filter").value = "";
    refilter();
  } else if (event.key === "ArrowDown" || event.key === "Enter") {
    event.preventDefault();
    table.move(0);
  }
}

addEventListener("keydown", pressed);
of("filter").addEventListener("input", refilter);
of("kinds").addEventListener("change", refilter);
of("order-choice").addEventListener("change", () => orderBy(of("order-choice").value, false));
of("sign-in").addEventListener("submit", async (event) => {
  event.preventDefault();
  const answer = await ask("session", "POST", { token: of("token").value.trim() });
  of("token").value = "";
  if (answer.status === 204) enter();
  else write(of("sign-in-why"), answer.why ?? "That did not work. Try again.");
});
of("sign-out").addEventListener("click", async () => {
  await ask("session", "DELETE");
  lock("Open the link that gripfast serve has printed, or enter its token.");
});
// Nobody looks at a page that is hidden: then the store is left alone, and browsers allow few connections to one server.
document.addEventListener("visibilitychange", () => (document.hidden ? events?.close() : listen()));
addEventListener("hashchange", begin);
setInterval(tick, 1000);
restore();
begin();
