// Calls every route of the API once, and checks that refusals have their type. The kind page exists and has no items.

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { Client, LedgerdError } from "../../../../clients/typescript/ledgerd.js";

const client = new Client();
const called = new Set();
const api = new Proxy(client, {
  get(target, name) {
    called.add(name);
    return (...args) => target[name](...args);
  },
});

async function refused(code, call, fields = {}) {
  await assert.rejects(call, (error) => {
    assert(error instanceof LedgerdError, error);
    assert.equal(error.code, code);
    assert(error.detail && !error.temporary);
    for (const [name, value] of Object.entries(fields)) assert.equal(error[name], value);
    return true;
  });
}

async function all(list) {
  const rows = [];
  for await (const row of list) rows.push(row);
  return rows;
}

assert.equal((await api.getVersion()).protocol, 1);
assert((await api.getMe()).scopes.includes("operate"));
const { paths } = await api.getDescription();
const rows = Array.from({ length: 120 }, (_, n) => ({ kind: "page", key: `k${String(n).padStart(4, "0")}`, payload: { n, text: "ü\u2028" } }));
const added = await api.addItems(rows);
assert.deepEqual(added.counts, { added: 120 });
const ids = added.items.map((row) => row.id);
const events = api.followEvents({ where: "kind:page" });
const first = events.next();

const part = await api.listItems({ limit: 50, order: "-id" });
assert.deepEqual(await api.countItems({ where: "kind:page" }), { count: 120, whole: true });
assert.equal((await api.groupItems({ by: "kind", where: "kind:page" })).items[0].left, 120);
assert(part.items.length <= 50 && part.next && part.items[0].id === ids[119]);
assert.deepEqual((await all(api.iterItems({ where: "kind:page", limit: 50 }))).map((item) => item.id), ids);
assert.deepEqual((await api.getItem(ids[1])).payload, { n: 1, text: "ü\u2028" });
assert.equal((await api.explainItem(ids[0])).state, "ready");

const got = await api.claim({ kind: "page", agent: "ann", limit: 4, lease_s: 60, wait_s: 5 });
assert.deepEqual(got.leases.map((lent) => lent.id), ids.slice(0, 4));
const tokens = got.leases.map((lent) => lent.token);
assert((await api.renewLeases({ tokens, lease_s: 90 })).answers.every((a) => a.recorded));
assert((await api.startLeases({ tokens: tokens.slice(0, 1) })).answers[0].recorded);
assert((await api.heldLeases({ tokens })).answers.every((a) => a.recorded));
assert((await api.listLeases()).items.length === 4 && (await all(api.iterLeases({ limit: 3 }))).length === 4);
assert((await api.listAgents()).items.some((row) => row.held === 4) && (await all(api.iterAgents())).length);
const ended = await api.finishLeases({ endings: [{ token: tokens[0], output: { n: [1] } },
  { token: tokens[1], outcome: "failed", code: "bad", error: "no", final: true }] });
assert.deepEqual(ended.answers.map((a) => a.state), ["done", "dead"]);
assert((await api.releaseLeases({ tokens: tokens.slice(2) })).answers[0].recorded);
await refused("lease_lost", () => client.renewLeases({ tokens: tokens.slice(0, 1) }), { status: 409 });
await refused("invalid", () => client.releaseLeases({ tokens: ["17.3"] }));

assert.equal((await api.listAttempts(ids[1])).items[0].code, "bad");
assert.deepEqual((await all(api.iterAttempts(ids[1], { limit: 1 }))).map((a) => a.outcome), ["failed"]);
assert.equal(new TextDecoder().decode(await api.getOutput(ids[0], 1)), '{"n":[1]}');
assert((await api.listRounds()).items.length === 0 && (await all(api.iterRounds({ where: "kind:page", limit: 3 }))).length === 0);
assert.equal((await api.getCauses()).items[0].code, "bad");
assert((await all(api.iterLeases({ from: "1h" }))).length > 0);
const event = (await first).value;
assert(event.id && event.data.kind === "page");
await events.return();
const stop = new AbortController();
const again = api.followEvents({ where: "kind:page", lastEventId: event.id, signal: stop.signal });
assert(ids.slice(0, 4).includes((await again.next()).value.data.id));
stop.abort();
await assert.rejects(async () => { for (;;) await again.next(); }, { name: "AbortError" });

await refused("changed", () => client.changeKind("page", { max_failures: 7 }, { ifMatch: '"x"' }));
await assert.rejects(client.changeKind("page", { max_failures: 7 }), TypeError); // it was not read
assert.notEqual((await api.getKind("page")).max_failures, 7);
assert.equal((await api.changeKind("page", { max_failures: 7 })).max_failures, 7);
await refused("changed", () => client.changeKind("page", { max_failures: 8 })); // it is no more as it was read
assert((await api.pauseKind("page", { paused: true, reason: "a test" })).paused);
assert(!(await api.pauseKind("page", { paused: false })).paused);
assert.deepEqual((await api.listKinds()).items, await all(api.iterKinds()));
assert.equal((await api.getStats()).kinds[0].kind, "page");
assert.deepEqual((await api.listLocks()).items, await all(api.iterLocks()));
assert((await api.listJournal({ limit: 1 })).next && (await all(api.iterJournal({ limit: 1 }))).length > 1);

const act = randomUUID();
const held = await api.putAct(act, { act: "cancel", where: "kind:page state:ready", hold_s: 60 });
assert(held.state === "held" && held.matched === 118 && held.id === act);
assert((await api.listActs()).items.some((a) => a.id === act));
assert((await api.getAct(act)).changed === 0 && (await api.deleteAct(act)).state === "undone");
assert.deepEqual(await api.drainAgent({ agent: "ann", drain: true }), { agent: "ann", drain: true });
assert((await api.claim({ kind: "page", agent: "ann" })).drain);

await refused("bad_filter", () => client.listItems({ where: "kind:page stat:dead" }),
  { status: 400, column: 11, length: 9, field: "where", hint: "did you mean state:?" });
await refused("bad_cursor", () => client.listItems({ cursor: "x" }));
await refused("not_found", () => client.getItem(10 ** 9), { status: 404 });
await refused("not_found", () => client.getKind("a/b?c"));
await refused("too_many_rows", () => client.addItems([]));
await refused("bad_request", () => client.addItems([{ kind: "page", key: "x", nothing: 1 }]), { field: "nothing" });
await refused("bad_request", () => client.iterItems({ limit: 0 }).next(), { field: "limit" });
await assert.rejects(new Client("http://127.0.0.1:1").getVersion(), { code: "no_answer", temporary: true });
const stopped = AbortSignal.abort();
await assert.rejects(client.getVersion({ signal: stopped }), { name: "AbortError" });

const names = Object.values(paths).flatMap((path) => Object.values(path).map((operation) => operation.operationId));
assert.deepEqual(names.filter((name) => !called.has(name)), []);
console.log(names.length, "routes");
