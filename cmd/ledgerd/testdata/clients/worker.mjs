// Works the kind page, and writes its effects to $EFFECTS. An item whose key begins with gated waits for the pipe $GATE.

import { appendFileSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { Client, End, Worker } from "../../../../clients/typescript/ledgerd.js";

async function work(job) {
  appendFileSync(process.env.EFFECTS, `start ${job.key}\n`);
  if (job.key.startsWith("gated")) {
    await readFile(process.env.GATE);
    if (job.stopped) console.log("stopped", job.key);
    job.check();
  }
  if (job.key.startsWith("fails")) throw new RangeError("as it was told");
  if (job.key.startsWith("exits")) throw Object.assign(new Error("3"), { name: "SystemExit" });
  if (job.key.startsWith("snoozed")) throw new End("snoozed", "later", { delay_s: 3600 });
  if (job.key.startsWith("odd")) return { n: 1n };
  appendFileSync(process.env.EFFECTS, `done ${job.key}\n`);
  return { length: job.key.length };
}

const [concurrency, ahead, lease_s] = process.argv.slice(2).map(Number);
const worker = new Worker(new Client(), "page", work, { concurrency, ahead, lease_s, program: "worker@1" });
console.log(worker.agent);
await worker.run();
console.log("ended");
