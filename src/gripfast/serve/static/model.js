// The rows as the server tells them, and which of them are shown in which order. No part of this touches the page.

export const KINDS = { lock: "lock", semaphore: "semaphore", rwlock: "read/write lock" };

// What looks most in need of attention comes first: the longest held, the soonest to expire, the most waited for.
const LAST = Number.MAX_VALUE;
export const ORDERS = {
  name: { title: "Name", key: (row) => row.name },
  holder: { title: "Holder", key: (row) => holderName(row.holders[0]) },
  held: { title: "Held for", key: (row) => row.since ?? LAST, numeric: true },
  expires: { title: "Expires in", key: (row) => soonest(row) ?? LAST, numeric: true },
  waiting: { title: "Waiting", key: (row) => -(row.waiters ?? -1), numeric: true },
  rate: { title: "Entries/s", key: (row) => -(row.entries_per_second ?? -1), numeric: true },
  token: { title: "Token", key: (row) => -newest(row), numeric: true },
};

export class Model {
  rows = new Map();
  kind = "";
  words = [];
  order = "held";
  isBackwards = false;

  apply({ whole, rows, gone }) {
    if (whole) this.rows.clear();
    for (const id of gone) this.rows.delete(id);
    for (const patch of rows) this.rows.set(patch.id, prepared({ ...this.rows.get(patch.id), ...patch }));
  }

  filter(text) {
    this.words = text.toLowerCase().split(/\s+/).filter(Boolean);
  }

  get isFiltered() {
    return this.kind !== "" || this.words.length > 0;
  }

  shown() {
    const rows = [...this.rows.values()].filter((row) => this.has(row));
    const { key } = ORDERS[this.order];
    const sign = this.isBackwards ? -1 : 1;
    return rows.sort((a, b) => sign * compared(key(a), key(b)) || compared(a.name, b.name) || compared(a.kind, b.kind));
  }

  has(row) {
    return (this.kind === "" || row.kind === this.kind) && this.words.every((word) => found(word, row));
  }

  figures() {
    const all = [...this.rows.values()];
    const seen = all.filter((row) => row.waiters !== null);
    return {
      held: all.length,
      waiting: all.length > seen.length ? null : seen.reduce((sum, row) => sum + row.waiters, 0),
      oldest: all.reduce((oldest, row) => Math.min(oldest, isHeld(row) ? row.since ?? LAST : LAST), LAST),
    };
  }
}

// Owners are random: two digits are in most of them.
function found(word, row) {
  return row.text.includes(word) || (word.length >= 6 && row.owners.includes(word));
}

function compared(a, b) {
  return a < b ? -1 : a > b ? 1 : 0;
}

// What is read often is made once.
function prepared(row) {
  const whose = row.holders.map((each) => `${each.label ?? ""}\n${each.host}\n${each.pid}\n${each.kept ?? ""}`);
  const moments = row.holders.filter((each) => each.since).map((each) => Date.parse(each.since) / 1000);
  row.text = `${row.name}\n${row.kind}\n${row.mode ?? ""}\n${whose.join("\n")}`.toLowerCase();
  row.owners = row.holders.map((each) => each.owner).join("\n").toLowerCase();
  row.since = moments.length > 0 ? Math.min(...moments) : null;
  return row;
}

export function soonest(row) {
  const moments = row.expires.filter((each) => each !== null);
  return moments.length > 0 ? Math.min(...moments) : null;
}

export function newest(row) {
  return row.holders[row.holders.length - 1].token;
}

function isHeld(row) {
  return !row.holders[0].kept;
}

export function holderName(holder) {
  return holder.label || (isForeign(holder) ? "other software" : holder.host || "?");
}

export function isForeign(holder) {
  return holder.since === null && !holder.kept;
}

// -- words --------------------------------------------------------------------------------------------------------------

// As `gripfast.durations.shown` writes them.
export function duration(seconds) {
  if (seconds < 1) return `${Math.max(0, seconds).toFixed(1)}s`;
  const whole = Math.floor(seconds);
  const two = (number) => String(number).padStart(2, "0");
  if (whole < 60) return `${whole}s`;
  if (whole < 3600) return `${Math.floor(whole / 60)}m ${two(whole % 60)}s`;
  if (whole < 86400) return `${Math.floor(whole / 3600)}h ${two(Math.floor((whole % 3600) / 60))}m`;
  return `${Math.floor(whole / 86400)}d ${two(Math.floor((whole % 86400) / 3600))}h`;
}

// What is acquired and released between two scans is missed: at least so many.
export function rate(perSecond) {
  if (perSecond === null || perSecond === undefined) return "–";
  if (perSecond === 0) return "0";
  return `≥${perSecond < 10 ? Number(perSecond.toPrecision(2)) : grouped(Math.round(perSecond))}`;
}

export function grouped(number) {
  return number.toLocaleString("en-US").replaceAll(",", "\u202f");
}

// Characters that can't be seen, or that turn the text around them, are written as what they are.
export function visible(text) {
  return text.replace(/[\p{Cc}\p{Cf}\p{Cs}\p{Co}\p{Cn}\p{Zl}\p{Zp}]/gu, (character) => {
    return `\\u{${character.codePointAt(0).toString(16)}}`;
  });
}

export function use(row) {
  if (row.kind === "semaphore") return `${row.in_use} of ${row.limit}`;
  if (row.kind === "rwlock") return row.mode === "write" ? "write" : `read × ${row.holders.length}`;
  return { done: "done", min_hold: "kept" }[row.holders[0].kept] ?? "";
}
