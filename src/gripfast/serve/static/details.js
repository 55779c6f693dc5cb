// One row in full, and the question before it is broken.

import { KINDS, duration, holderName, isForeign, use, visible } from "./model.js";
import { element, write } from "./table.js";

const SHOWN_MOST = 100; // holders of one name

const of = (id) => document.getElementById(id);

export class Details {
  #dialog = of("details");
  #row = null;
  #shown = "";

  constructor({ mayBreak, now, onBreak, onClose }) {
    this.mayBreak = mayBreak;
    this.now = now;
    this.question = new Question(onBreak);
    of("break-all").addEventListener("click", () => this.question.ask(this.#row, this.#row.holders));
    this.#dialog.addEventListener("close", () => {
      this.#row = null;
      onClose();
    });
    this.#dialog.addEventListener("click", (event) => event.target === this.#dialog && this.#dialog.close());
  }

  open(row) {
    this.#row = row;
    this.#shown = "";
    write(of("details-name"), visible(row.name));
    this.#fill(row);
    this.#dialog.showModal();
  }

  // Called with every change, and every second.
  update(rows) {
    if (this.#row === null) return;
    const row = rows.get(this.#row.id);
    if (row) this.#row = row;
    this.#fill(this.#row, row === undefined);
  }

  #fill(row, isGone = false) {
    write(of("details-use"), [KINDS[row.kind], use(row), waiting(row)].filter(Boolean).join(" · "));
    const left = row.holders.length - SHOWN_MOST;
    write(of("details-state"), isGone ? "Nobody holds it any more." : left > 0 ? `And ${left} more holders.` : "");
    this.#dialog.classList.toggle("gone", isGone);
    const holders = row.holders.slice(0, SHOWN_MOST);
    const shown = JSON.stringify(holders);
    if (shown !== this.#shown) of("details-holders").replaceChildren(...holders.map((each) => this.#holder(row, each)));
    this.#shown = shown;
    holders.forEach((each, index) => this.#pass(of("details-holders").children[index], each, row.expires[index]));
    const all = of("break-all");
    all.hidden = !this.#offers(row) || isGone;
    write(all, row.holders.length > 1 ? `Break all ${row.holders.length} holders…` : "Break…");
  }

  #offers(row) {
    return this.mayBreak() && row.holders[0].kept !== "done";
  }

  #holder(row, holder) {
    const card = element("div", { class: "card" });
    const facts = element("dl");
    facts.append(...said(row, holder).map((each) => fact(...each)));
    card.append(facts);
    if (row.holders.length > 1 && this.#offers(row)) {
      const button = element("button", { type: "button", class: "danger" }, "Break…");
      button.setAttribute("aria-label", `Break the hold of ${visible(holderName(holder))}, token ${holder.token}…`);
      button.addEventListener("click", () => this.question.ask(row, [holder]));
      card.append(button);
    }
    return card;
  }

  // What changes as time passes.
  #pass(card, holder, end) {
    const now = this.now();
    const since = holder.since && Date.parse(holder.since) / 1000;
    write(card.querySelector(".since dd"), since ? `${moment(holder.since)} (${duration(now - since)})` : "unknown");
    const rest = end === null ? "never" : duration(end - now);
    write(card.querySelector(".expires dd"), end === null || holder.kept ? rest : `${rest}, unless renewed`);
  }
}

// Nobody holds what is kept.
const SINCE = { held: "held since", done: "done at", min_hold: "released at" };

function said(row, holder) {
  const kept = { done: "nobody: it was done once", min_hold: "nobody: released, kept for its min_hold" }[holder.kept];
  const who = kept ?? (isForeign(holder) ? "software other than Gripfast" : `pid ${holder.pid} on ${holder.host || "?"}`);
  return [
    ["label", holder.label],
    ["holder", who],
    ["host", kept ? holder.host : null],
    ["permits", holder.slots?.length > 0 ? `${holder.n}, ${slots(holder.slots)}` : null],
    [SINCE[holder.kept ?? "held"], " ", "since"],
    ["expires in", " ", "expires"],
    ["token", String(holder.token)],
    ["owner", holder.owner],
    ["trace", holder.trace],
  ].filter(([, value]) => value);
}

function slots(numbers) {
  return `${numbers.length === 1 ? "slot" : "slots"} ${numbers.join(", ")}`;
}

function fact(title, value, kind = title) {
  const pair = element("div", { class: kind });
  pair.append(element("dt", {}, title), element("dd", {}, visible(value)));
  return pair;
}

function waiting(row) {
  if (row.waiters === null) return "? waiting";
  return row.waiters === 0 ? "nobody waits" : `${row.waiters} waiting`;
}

function moment(text) {
  return new Date(text).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "medium" });
}

// Only those holders lose it that were shown when the question was asked.
class Question {
  #dialog = of("question");
  #row = null;
  #holders = [];
  #tells = true; // whether the store can tell a holder the reason

  constructor(onBreak) {
    this.onBreak = onBreak;
    of("question-no").addEventListener("click", () => this.#dialog.close());
    of("question-yes").addEventListener("click", () => this.#yes());
  }

  tells(reason) {
    this.#tells = reason;
  }

  ask(row, holders) {
    [this.#row, this.#holders] = [row, holders];
    const [isOne, isPart, isKept] = [holders.length === 1, holders.length < row.holders.length, Boolean(holders[0].kept)];
    write(of("question-title"), `Break ${isPart ? "this hold of " : ""}${visible(row.name)}?`);
    write(of("question-whom"), `${isPart ? "Its holder is" : "It is held by"} ${holders.map(described).join("; ")}.`);
    write(of("question-text"), isKept ? KEPT : isOne ? AT_WORK : ALL_AT_WORK);
    const toWhom = this.#tells && !isKept ? (isOne ? "the old holder and " : "the old holders and ") : "";
    write(of("reason-label"), `Reason, for ${toWhom}the log`);
    write(of("question-state"), "");
    of("reason").value = "";
    of("question-yes").disabled = false;
    this.#dialog.showModal();
  }

  async #yes() {
    of("question-yes").disabled = true;
    const owners = this.#holders.map((each) => each.owner);
    const why = await this.onBreak({ kind: this.#row.kind, name: this.#row.name, owners, reason: of("reason").value });
    of("question-yes").disabled = false;
    write(of("question-state"), why ?? "");
    if (why === null) this.#dialog.close();
  }
}

const AT_WORK =
  "The next waiter gets it at once. The old holder may still be at work, and notices only at its next renewal: " +
  "make sure first that it is gone.";
const ALL_AT_WORK =
  "The next waiters get it at once. The old holders may still be at work, and notice only at their next renewals: " +
  "make sure first that they are gone.";
const KEPT = "Then it can be acquired at once, although its min_hold is not over.";

function described(holder) {
  if (holder.kept) return "nobody: released, but kept for its min_hold";
  if (isForeign(holder)) return "software other than Gripfast";
  const label = holder.label ? `“${visible(holder.label)}”, ` : "";
  return `${label}pid ${holder.pid} on ${visible(holder.host) || "?"}`;
}
