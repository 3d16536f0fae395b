// Follows events of a server that is a function here.

import assert from "node:assert";
import { setImmediate as turn } from "node:timers/promises";
import { Client } from "../../../../clients/typescript/ledgerd.js";

const client = new Client("http://127.0.0.1:1");
const answer = (body) => ({ ok: true, headers: new Headers(), body });

// A reader that is slow holds back what is read.
let read = 0;
globalThis.fetch = async () => answer((async function* () {
  for (; read < 3000; read++) yield new TextEncoder().encode(`id: ${read}\ndata: {}\n\n`);
})());
let taken = 0;
for await (const event of client.followEvents()) {
  assert.equal(event.id, String(taken++));
  if (taken === 1) await turn();
  assert(read - taken < 1100, `${read} are read, ${taken} are taken`);
  if (taken === 3000) break;
}

// The end of a signal ends the pause between two connections.
const stop = new AbortController();
globalThis.fetch = async () => {
  setImmediate(() => stop.abort(new Error("enough")));
  return new Response("{}", { status: 503, headers: { "Retry-After": "3600" } });
};
await assert.rejects(client.followEvents({ signal: stop.signal }).next(), /enough/);
console.log("followed");
