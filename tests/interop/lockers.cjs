"use strict";

// Node's lock libraries for the tests. One order per line comes in as JSON, one answer per line goes out:
// {id, value} for what was done, {id, refused: true} for what the lock forbade, {id, failed: "why"} for all else.

const readline = require("readline");
const Redis = require("ioredis");
const Redlock4 = require("redlock4");
const { default: Redlock5, ResourceLockedError } = require("redlock5");

const ONCE = { retryCount: 0 };
const PAUSE = 10; // ms at most between two tries of one that counts

// Both libraries call a node that can't be asked "not locked": a test must not take that for a refusal.
const troubles = [];
const trouble = (error) => error instanceof ResourceLockedError || troubles.push(error);

const libraries = {
  redlock4: (nodes, settings) => {
    const redlock = new Redlock4(nodes, settings).on("clientError", trouble);
    return { take: (key, ms) => redlock.lock(key, ms), give: (lock) => lock.unlock() };
  },
  redlock5: (nodes, settings) => {
    const redlock = new Redlock5(nodes, settings).on("error", trouble);
    return { take: (key, ms) => redlock.acquire([key], ms), give: (lock) => lock.release() };
  },
};

const connections = new Map(); // by port
const held = new Map(); // by number
let last = 0;

function connection(port) {
  if (!connections.has(port)) connections.set(port, new Redis(port, "127.0.0.1").on("error", trouble));
  return connections.get(port);
}

const orders = {
  async acquire({ library, ports, key, ms }) {
    const locker = libraries[library](ports.map(connection), ONCE);
    const lock = await locker.take(key, ms);
    held.set(++last, { locker, lock });
    return last;
  },

  async release({ handle }) {
    const { locker, lock } = held.get(handle);
    await locker.give(lock);
  },

  async extend({ handle, ms }) {
    const entry = held.get(handle);
    entry.lock = await entry.lock.extend(ms);
  },

  // Under the lock: read a number of the first server, let a round trip pass, write the next one; so many times.
  async count({ library, ports, key, ms, counter, times }) {
    const redis = connection(ports[0]);
    const locker = libraries[library](ports.map(connection), ONCE);
    for (let done = 0; done < times; done++) {
      const lock = await patiently(() => locker.take(key, ms));
      const number = Number(await redis.get(counter));
      await redis.ping();
      await redis.set(counter, number + 1);
      await locker.give(lock);
    }
  },
};

// Version 5 gives back what a split vote gave it only when it gives up, so each of its own retries would meet the key
// of the one before. Here each try is one that gives up.
async function patiently(take) {
  for (;;) {
    try {
      return await take();
    } catch (error) {
      if (troubles.length > 0 || !isRefusal(error)) throw error;
      await new Promise((resolve) => setTimeout(resolve, Math.random() * PAUSE));
    }
  }
}

const isRefusal = (error) => ["LockError", "ExecutionError"].includes(error.name);

function verdict(error) {
  if (troubles.length > 0) return { failed: troubles.splice(0).join("; ") };
  return isRefusal(error) ? { refused: true } : { failed: error.stack };
}

async function obey(line) {
  const { id, order, ...details } = JSON.parse(line);
  const answer = await orders[order](details).then((value) => ({ value: value ?? true }), verdict);
  process.stdout.write(JSON.stringify({ id, ...answer }) + "\n");
}

readline
  .createInterface({ input: process.stdin })
  .on("line", obey)
  .on("close", () => process.exit());
