// The table. However many rows there are, only those in sight are in the document.

import { ORDERS, duration, holderName, isForeign, newest, rate, soonest, use, visible } from "./model.js";

const MARGIN = 8; // rows above and below the window, so that scrolling shows no gaps
const COLUMNS = Object.keys(ORDERS);

export class Table {
  #body = document.getElementById("rows");
  #table = document.getElementById("table");
  #heads = document.getElementById("heads");
  #above = space();
  #below = space();
  #lines = new Map(); // by id: a row in sight, with its element
  #list = [];
  #current = null; // the id of the row that the keyboard is at

  constructor({ onOpen, onOrder, now }) {
    this.onOpen = onOpen;
    this.onOrder = onOrder;
    this.now = now;
    this.#heads.append(...COLUMNS.map((name) => this.#head(name)));
    this.#body.append(this.#above, this.#below);
    addEventListener("scroll", () => this.draw(), { passive: true });
    addEventListener("resize", () => this.draw());
    this.#body.addEventListener("click", (event) => this.#clicked(event));
    this.#body.addEventListener("focusin", (event) => this.#focused(event));
  }

  show(list, order, isBackwards) {
    this.#list = list;
    this.#table.setAttribute("aria-rowcount", list.length + 1);
    for (const head of this.#heads.children) {
      const isSorted = head.dataset.order === order;
      const direction = isBackwards !== startsHigh(order) ? "descending" : "ascending";
      head.ariaSort = isSorted ? direction : "none";
    }
    this.draw();
  }

  // Called again every second: times pass.
  draw() {
    if (this.#table.offsetParent === null) return;
    const height = parseFloat(getComputedStyle(this.#table).getPropertyValue("--row"));
    const top = this.#body.getBoundingClientRect().top;
    const first = clamp(Math.floor(-top / height) - MARGIN, 0, this.#list.length);
    const last = clamp(Math.ceil((innerHeight - top) / height) + MARGIN, first, this.#list.length);
    this.#above.stretch(first * height);
    this.#below.stretch((this.#list.length - last) * height);
    this.#place(first, this.#list.slice(first, last));
  }

  #place(first, rows) {
    const before = this.#lines;
    const hadFocus = this.#body.contains(document.activeElement);
    this.#lines = new Map(rows.map((row) => [row.id, before.get(row.id) ?? new Line()]));
    for (const [id, line] of before) if (!this.#lines.has(id)) line.element.remove();
    let next = this.#above.nextSibling;
    rows.forEach((row, index) => {
      const line = this.#lines.get(row.id);
      line.fill(row, first + index, this.now());
      if (line.element === next) next = next.nextSibling;
      else this.#body.insertBefore(line.element, next);
    });
    this.#offer(rows, hadFocus);
  }

  // One row can be reached with Tab: the current one, or the first in sight. Moving an element takes its focus away.
  #offer(rows, hadFocus) {
    const at = this.#lines.get(this.#current) ?? this.#lines.get(rows[0]?.id);
    for (const line of this.#lines.values()) line.button.tabIndex = line === at ? 0 : -1;
    const isLost = hadFocus && !this.#body.contains(document.activeElement);
    if (isLost && this.#lines.has(this.#current)) at.button.focus({ preventScroll: true });
  }

  move(step) {
    const at = this.#list.findIndex((row) => row.id === this.#current);
    const to = clamp(at < 0 && Number.isFinite(step) ? 0 : at + step, 0, this.#list.length - 1);
    if (this.#list.length > 0) this.#goTo(to);
  }

  // The row may be out of sight, and then it is not in the document yet.
  #goTo(index) {
    this.#current = this.#list[index].id;
    const height = parseFloat(getComputedStyle(this.#table).getPropertyValue("--row"));
    const top = this.#body.getBoundingClientRect().top + index * height;
    const ceiling = this.#heads.getBoundingClientRect().bottom;
    if (top < ceiling) scrollBy({ top: top - ceiling, behavior: "instant" });
    else if (top + height > innerHeight) scrollBy({ top: top + height - innerHeight + 8, behavior: "instant" });
    this.draw();
    this.#lines.get(this.#current)?.button.focus({ preventScroll: true });
  }

  get page() {
    return Math.max(1, Math.floor(innerHeight / parseFloat(getComputedStyle(this.#table).getPropertyValue("--row"))) - 2);
  }

  #clicked(event) {
    const row = event.target.closest("tr")?.row;
    if (!row || !getSelection().isCollapsed) return;
    this.#current = row.id;
    this.onOpen(row);
  }

  #focused(event) {
    this.#current = event.target.closest("tr")?.row?.id ?? this.#current;
  }

  #head(name) {
    const head = element("th", { role: "columnheader", scope: "col" });
    const button = element("button", { type: "button" }, ORDERS[name].title);
    head.dataset.order = name;
    head.className = ORDERS[name].numeric ? "number" : "";
    button.addEventListener("click", () => this.onOrder(name));
    head.append(button);
    return head;
  }
}

// One row of the table. Cells are written only if their text has changed: so a selection in them stays.
class Line {
  constructor() {
    this.element = element("tr", { role: "row" });
    this.button = element("button", { type: "button", class: "name" });
    this.use = element("span", { class: "use" });
    this.cells = Object.fromEntries(COLUMNS.map((name) => [name, element("td", { role: "cell", class: name })]));
    this.cells.name = element("th", { role: "rowheader", scope: "row", class: "name" });
    this.who = element("span", { class: "who" });
    this.from = element("span", { class: "from" });
    const title = element("div", { class: "title" });
    title.append(this.button, this.use);
    this.cells.name.append(title);
    this.cells.holder.append(this.who, this.from);
    this.element.append(...COLUMNS.map((name) => this.cells[name]));
  }

  fill(row, index, now) {
    this.element.row = row;
    this.element.ariaRowIndex = index + 2;
    write(this.button, visible(row.name));
    this.button.title = this.button.textContent; // it may be too long for its column
    write(this.use, use(row));
    this.use.dataset.kind = row.kind;
    this.use.hidden = this.use.textContent === "";
    this.element.classList.toggle("kept", Boolean(row.holders[0].kept));
    this.#fillHolder(row);
    const end = soonest(row);
    write(this.cells.held, row.since === null ? "?" : duration(now - row.since));
    write(this.cells.expires, end === null ? "never" : duration(end - now));
    this.cells.expires.classList.toggle("late", end !== null && end < now && !row.holders[0].kept);
    write(this.cells.waiting, row.waiters === null ? "?" : String(row.waiters));
    this.cells.waiting.classList.toggle("some", row.waiters > 0);
    write(this.cells.rate, rate(row.entries_per_second));
    write(this.cells.token, String(newest(row)));
  }

  #fillHolder(row) {
    const [holder, ...others] = row.holders;
    write(this.who, visible(holderName(holder)) + (others.length > 0 ? ` + ${others.length} more` : ""));
    const pid = holder.kept || isForeign(holder) ? "" : ` · ${holder.pid}`;
    write(this.from, holder.label ? visible(holder.host) + pid : pid.slice(3) && `pid ${holder.pid}`);
  }
}

function startsHigh(order) {
  return ["held", "waiting", "rate", "token"].includes(order);
}

function space() {
  const row = element("tr", { "aria-hidden": "true", class: "space" });
  const cell = element("td");
  row.append(cell);
  row.stretch = (height) => {
    row.hidden = height === 0;
    cell.style.height = `${height}px`;
  };
  return row;
}

export function element(tag, attributes = {}, text = "") {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.textContent = text;
  return made;
}

export function write(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

function clamp(value, least, most) {
  return Math.max(least, Math.min(value, most));
}
