// Works what a server lends. The key of an item tells what its handler does.

import { setTimeout as sleep } from "node:timers/promises";
import { Client, End, Worker } from "../../../../clients/typescript/ledgerd.js";

const [url, options] = process.argv.slice(2);
const { token = "ldg_x", ...given } = JSON.parse(options);

async function work(job) {
  if (job.key === "waits") await (await fetch(url + "/wait")).text();
  if (job.key === "obeys") await sleep(60_000, undefined, { signal: job.signal });
  if (job.key === "snoozes") throw new End("snoozed", "busy", { code: "http_503", at_most: 3 });
  if (job.key === "nested") {
    let deep = [];
    for (let i = 0; i < 100_000; i++) deep = [deep];
    return deep;
  }
  return { length: job.key.length };
}

const client = new Client(url, { token, timeout: Infinity });
await client.addItems([{ kind: "page", key: "д", payload: { name: "ü\u2028", half: "\ud800 😀" } }]);
await new Worker(client, "page", work, given).run();
