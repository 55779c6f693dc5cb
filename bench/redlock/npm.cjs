"use strict";

// npm's redlock, measuring itself. Its arguments: how often it tries again by itself, a time-out for each command in ms
// (0 for none), and the port of each node.
// One order per line comes in as JSON, one answer per line goes out: {value} or {failed: "why"}.

const readline = require("readline");
const Redis = require("ioredis");
const { default: Redlock } = require("redlock5");

const TTL = 30000;
const PATIENCE = 10; // s after the end of a shift
const [retryCount, timeout, ...ports] = process.argv.slice(2).map(Number);
const options = timeout > 0 ? { commandTimeout: timeout } : {};
const nodes = ports.map((port) => new Redis({ host: "127.0.0.1", port, ...options }).on("error", () => {}));
const redlock = new Redlock(nodes, { retryCount });

// Seconds, by the clock that all processes of a machine share.
const now = () => Number(process.hrtime.bigint()) / 1e9;
const pause = (seconds) => new Promise((resolve) => setTimeout(resolve, seconds * 1000));

// It gives up after so many tries; whoever wants to wait asks again, after the pause that the library itself makes, but
// not for ever: a try that got a minority of the nodes keeps them until the last one, so that a few processes can keep
// each other out all the time.
async function acquire(key, patience) {
  while (now() < patience) {
    try {
      return await redlock.acquire([key], TTL);
    } catch (error) {
      if (error.name !== "ExecutionError") throw error;
      await pause(0.1 + 0.2 * Math.random());
    }
  }
  return null;
}

// It calls a release refused whose answers came too late; its documentation says to let that pass.
async function release(lock) {
  try {
    await lock.release();
  } catch (error) {
    if (error.name !== "ExecutionError") throw error;
  }
}

// Who has lost its patience counts as one that was let in then: it has waited that long.
async function turn(key, section, patience) {
  const asked = now();
  const lock = await acquire(key, patience);
  const entered = now();
  if (lock === null) return [asked, entered, entered];
  if (section > 0) await pause(section);
  const left = now();
  await release(lock);
  return [asked, entered, left];
}

const orders = {
  // How long one pair took, in seconds.
  async pairs({ key, times }) {
    const started = now();
    for (let done = 0; done < times; done++) await (await redlock.acquire([key], TTL)).release();
    return (now() - started) / times;
  },

  // How long each pair took, in seconds.
  async attempts({ key, times }) {
    const took = [];
    for (let done = 0; done < times; done++) {
      const started = now();
      await release(await acquire(key, Infinity));
      took.push(now() - started);
    }
    return took;
  },

  // All turns from the beginning to the end of a shift; at least one, however late this process comes.
  async turns({ key, begin, end, section }) {
    while (now() < begin) await pause(begin - now()); // a timer cuts off fractions of a millisecond
    const had = [await turn(key, section, end + PATIENCE)];
    while (now() < end) had.push(await turn(key, section, end + PATIENCE));
    return had;
  },
};

async function answered({ order, ...details }) {
  try {
    return { value: await orders[order](details) };
  } catch (error) {
    return { failed: String(error) };
  }
}

async function obey(line) {
  process.stdout.write(JSON.stringify(await answered(JSON.parse(line))) + "\n");
}

readline
  .createInterface({ input: process.stdin })
  .on("line", obey)
  .on("close", () => process.exit());
