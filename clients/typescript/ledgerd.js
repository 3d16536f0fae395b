// Generated from the API by make generate. Not to be edited: see internal/api/clientgen.
//
// A client of ledgerd's HTTP API and a worker, without dependencies, for Node 18 or later. ledgerd.d.ts has its types.

import { hostname } from "node:os";
import { setTimeout as sleep } from "node:timers/promises";

const problem = (detail) => ({ status: 0, code: "no_answer", detail });

/** A refusal of the server, in the terms of RFC 9457. Code no_answer: there was no answer. */
export class LedgerdError extends Error {
  constructor(p, retryAfter = 0, cause = undefined) {
    super(`${p.code}: ${p.detail}${p.hint ? ` (${p.hint})` : ""}`, { cause });
    this.name = "LedgerdError";
    this.status = p.status;
    this.code = p.code;
    this.detail = p.detail;
    this.hint = p.hint ?? "";
    this.column = p.column;
    this.length = p.length;
    this.field = p.field;
    this.index = p.index ?? undefined;
    this.retryAfter = retryAfter;
  }

  get temporary() {
    return [0, 408, 429, 502, 503, 504].includes(this.status);
  }
}

/** Calls the API of a server. */
export class Client {
  #base;
  #token;
  #timeout;
  #tags = new Map(); // ETags of answers that may be changed, by path

  constructor(url = process.env.LEDGERD_URL, { token = process.env.LEDGERD_TOKEN, timeout = 60_000 } = {}) {
    const at = new URL(url ?? "");
    if (at.protocol !== "http:" && at.protocol !== "https:") throw new TypeError(`${url} is no URL of a server`);
    const path = at.pathname.replace(/\/+$/, "");
    this.#base = at.origin + path + (path.endsWith("/api/v1") ? "" : "/api/v1");
    this.#token = token?.trim();
    if (/[^!-~]/.test(this.#token ?? "")) {
      throw new TypeError("the token has a space, a line break or another character that no token has: copy it again");
    }
    this.#timeout = Math.min(timeout, 2 ** 31 - 1); // of setTimeout
  }

  // Sends a request and reads the answer with read, within the timeout. read calls alive to begin the timeout anew.
  async #send(method, path, { query = {}, body, headers = {}, accept = "application/json", signal } = {}, read) {
    const stop = new AbortController();
    const abort = () => stop.abort(signal.reason);
    if (signal?.aborted) abort();
    signal?.addEventListener("abort", abort, { once: true });
    let timer;
    const alive = () => {
      clearTimeout(timer);
      timer = setTimeout(() => stop.abort(new Error(`no answer within ${this.#timeout / 1000} s`)), this.#timeout);
    };
    alive();
    const given = (all) => Object.entries(all).filter(([, value]) => value !== undefined && value !== null);
    const sent = { Accept: accept, ...Object.fromEntries(given(headers)) };
    if (this.#token) sent.Authorization = `Bearer ${this.#token}`;
    let content;
    if (Array.isArray(body)) {
      sent["Content-Type"] = "application/x-ndjson";
      content = body.map((row) => JSON.stringify(row) + "\n").join("");
    } else if (body !== undefined) {
      sent["Content-Type"] = "application/json";
      content = JSON.stringify(body);
    }
    const asked = new URLSearchParams(given(query).map(([key, value]) => [key, String(value)])).toString();
    try {
      const response = await fetch(this.#base + path + (asked && "?" + asked),
        { method, headers: sent, body: content, signal: stop.signal, redirect: "manual" });
      if (response.ok) return await read(response, alive);
      const text = await response.text();
      let p = { status: response.status, code: `http_${response.status}`, detail: response.statusText };
      try {
        const refusal = JSON.parse(text);
        if (typeof refusal?.code === "string") p = refusal;
      } catch {
        // the answer comes from a proxy
      }
      throw new LedgerdError(p, Number(response.headers.get("Retry-After")) || 0);
    } catch (error) {
      if (error instanceof LedgerdError) throw error;
      if (signal?.aborted) throw signal.reason;
      throw new LedgerdError(problem(String(error?.cause?.message ?? error?.message ?? error)), 0, error);
    } finally {
      clearTimeout(timer);
      signal?.removeEventListener("abort", abort);
    }
  }

  #call(method, path, request = {}) {
    return this.#send(method, path, request, async (response) => {
      if (request.raw) return new Uint8Array(await response.arrayBuffer());
      const answer = await response.json();
      if (request.tagged) this.#tags.set(path, response.headers.get("ETag") ?? undefined);
      return answer;
    });
  }

  #tag(path) {
    if (!this.#tags.has(path)) throw new TypeError("read it before, or give ifMatch: a change is about what was read");
    return this.#tags.get(path);
  }

  // Yields the entries of a list, one part after the other.
  async *#parts(path, query, signal) {
    for (;;) {
      const [rows, link] = await this.#send("GET", path, { query, signal, accept: "application/x-ndjson" },
        async (response) => [
          (await response.text()).split("\n").filter((line) => line).map((line) => JSON.parse(line)),
          response.headers.get("Link") ?? "",
        ]);
      yield* rows;
      const next = /<[^>]*[?&]cursor=([^&>]*)[^>]*>; rel="next"/.exec(link);
      if (!next) return;
      query = { ...query, cursor: decodeURIComponent(next[1]) };
    }
  }

  // Yields events, and goes on after the last one when the stream ends or breaks.
  async *#events(path, query, last, signal) {
    const seen = new Set();
    for (let pause = 1000; ; pause = Math.min(2 * pause, 30_000)) {
      const ready = [];
      let wake = () => {};
      let over = false;
      let failed;
      const stop = new AbortController();
      const abort = () => stop.abort(signal.reason);
      if (signal?.aborted) throw signal.reason;
      signal?.addEventListener("abort", abort, { once: true });
      const reading = this.#send("GET", path, { query, headers: { "Last-Event-ID": last }, accept: "text/event-stream", signal: stop.signal },
        async (response, alive) => {
          let rest = "";
          const decoder = new TextDecoder();
          for await (const chunk of response.body) {
            const blocks = (rest + decoder.decode(chunk, { stream: true })).split("\n\n");
            rest = blocks.pop();
            ready.push(...blocks);
            wake();
            while (ready.length > 1000 && !stop.signal.aborted) await new Promise((resolve) => { wake = resolve; });
            alive();
          }
        }).catch((error) => { failed = error; }).finally(() => { over = true; wake(); });
      try {
        while (!over || ready.length) {
          if (!ready.length) {
            await new Promise((resolve) => { wake = resolve; });
            continue;
          }
          const block = ready.shift();
          wake();
          const fields = Object.fromEntries(block.split("\n").map((line) => {
            const at = line.indexOf(": ");
            return [line.slice(0, at), line.slice(at + 2)];
          }));
          if (!fields.id) continue;
          pause = 1000;
          if (fields.data && !seen.has(fields.id)) { // events of the last seconds come again
            seen.add(fields.id);
            if (seen.size > 10_000) seen.delete(seen.values().next().value);
            yield { id: fields.id, data: JSON.parse(fields.data) };
          }
          last = fields.id;
        }
      } finally {
        stop.abort();
        wake();
        signal?.removeEventListener("abort", abort);
        await reading;
      }
      if (failed && !failed.temporary) throw failed;
      const wait = Math.max(pause, (failed?.retryAfter ?? 0) * 1000);
      await sleep(wait, undefined, { signal }).catch(() => { throw signal.reason; });
    }
  }

  listActs({ signal } = {}) {
    return this.#call("GET", "/acts", { signal });
  }

  iterActs({ signal } = {}) {
    return this.#parts("/acts", {  }, signal);
  }

  deleteAct(uuid, { signal } = {}) {
    return this.#call("DELETE", `/acts/${encodeURIComponent(uuid)}`, { signal });
  }

  getAct(uuid, { signal } = {}) {
    return this.#call("GET", `/acts/${encodeURIComponent(uuid)}`, { signal });
  }

  putAct(uuid, body, { signal } = {}) {
    return this.#call("PUT", `/acts/${encodeURIComponent(uuid)}`, { signal, body });
  }

  listAgents({ signal } = {}) {
    return this.#call("GET", "/agents", { signal });
  }

  iterAgents({ signal } = {}) {
    return this.#parts("/agents", {  }, signal);
  }

  drainAgent(body, { signal } = {}) {
    return this.#call("POST", "/agents/drain", { signal, body });
  }

  getCauses({ where, signal } = {}) {
    return this.#call("GET", "/causes", { signal, query: { where } });
  }

  claim(body, { signal } = {}) {
    return this.#call("POST", "/claims", { signal, body });
  }

  followEvents({ where, lastEventId, signal } = {}) {
    return this.#events("/events", { where }, lastEventId, signal);
  }

  listItems({ where, order, limit, cursor, output, signal } = {}) {
    return this.#call("GET", "/items", { signal, query: { where, order, limit, cursor, output } });
  }

  iterItems({ where, order, limit, output, signal } = {}) {
    return this.#parts("/items", { where, order, limit, output }, signal);
  }

  addItems(rows, { signal } = {}) {
    return this.#call("POST", "/items", { signal, body: rows });
  }

  countItems({ where, signal } = {}) {
    return this.#call("GET", "/items/count", { signal, query: { where } });
  }

  groupItems({ by, where, limit, signal } = {}) {
    return this.#call("GET", "/items/groups", { signal, query: { by, where, limit } });
  }

  getItem(id, { signal } = {}) {
    return this.#call("GET", `/items/${encodeURIComponent(id)}`, { signal });
  }

  listAttempts(id, { limit, cursor, signal } = {}) {
    return this.#call("GET", `/items/${encodeURIComponent(id)}/attempts`, { signal, query: { limit, cursor } });
  }

  iterAttempts(id, { limit, signal } = {}) {
    return this.#parts(`/items/${encodeURIComponent(id)}/attempts`, { limit }, signal);
  }

  getOutput(id, attempt, { signal } = {}) {
    return this.#call("GET", `/items/${encodeURIComponent(id)}/attempts/${encodeURIComponent(attempt)}/output`, { signal, raw: true, accept: "*/*" });
  }

  explainItem(id, { signal } = {}) {
    return this.#call("GET", `/items/${encodeURIComponent(id)}/why`, { signal });
  }

  listJournal({ item, actor, action, since, limit, cursor, signal } = {}) {
    return this.#call("GET", "/journal", { signal, query: { item, actor, action, since, limit, cursor } });
  }

  iterJournal({ item, actor, action, since, limit, signal } = {}) {
    return this.#parts("/journal", { item, actor, action, since, limit }, signal);
  }

  listKinds({ signal } = {}) {
    return this.#call("GET", "/kinds", { signal });
  }

  iterKinds({ signal } = {}) {
    return this.#parts("/kinds", {  }, signal);
  }

  getKind(kind, { signal } = {}) {
    return this.#call("GET", `/kinds/${encodeURIComponent(kind)}`, { signal, tagged: true });
  }

  async changeKind(kind, body, { ifMatch, signal } = {}) {
    return this.#call("PATCH", `/kinds/${encodeURIComponent(kind)}`, { signal, body, headers: { "If-Match": ifMatch ?? this.#tag(`/kinds/${encodeURIComponent(kind)}`) } });
  }

  pauseKind(kind, body, { signal } = {}) {
    return this.#call("PUT", `/kinds/${encodeURIComponent(kind)}/paused`, { signal, body });
  }

  listLeases({ from, to, limit, cursor, signal } = {}) {
    return this.#call("GET", "/leases", { signal, query: { from, to, limit, cursor } });
  }

  iterLeases({ from, to, limit, signal } = {}) {
    return this.#parts("/leases", { from, to, limit }, signal);
  }

  finishLeases(body, { signal } = {}) {
    return this.#call("POST", "/leases/finish", { signal, body });
  }

  heldLeases(body, { signal } = {}) {
    return this.#call("POST", "/leases/held", { signal, body });
  }

  releaseLeases(body, { signal } = {}) {
    return this.#call("POST", "/leases/release", { signal, body });
  }

  renewLeases(body, { signal } = {}) {
    return this.#call("POST", "/leases/renew", { signal, body });
  }

  startLeases(body, { signal } = {}) {
    return this.#call("POST", "/leases/start", { signal, body });
  }

  listLocks({ signal } = {}) {
    return this.#call("GET", "/locks", { signal });
  }

  iterLocks({ signal } = {}) {
    return this.#parts("/locks", {  }, signal);
  }

  getMe({ signal } = {}) {
    return this.#call("GET", "/me", { signal });
  }

  getDescription({ signal } = {}) {
    return this.#call("GET", "/openapi.json", { signal });
  }

  listRounds({ where, from, to, limit, cursor, signal } = {}) {
    return this.#call("GET", "/rounds", { signal, query: { where, from, to, limit, cursor } });
  }

  iterRounds({ where, from, to, limit, signal } = {}) {
    return this.#parts("/rounds", { where, from, to, limit }, signal);
  }

  getStats({ wait, signal } = {}) {
    return this.#call("GET", "/stats", { signal, query: { wait } });
  }

  getVersion({ signal } = {}) {
    return this.#call("GET", "/version", { signal });
  }
}

/** The work on an item is to stop: its lease was lost, it was cancelled, or the worker ends now. */
export class Stopped extends Error {}

/** How an attempt ends, thrown by a handler. */
export class End extends Error {
  constructor(outcome, error = "", { code, final, delay_s, at_most, output } = {}) {
    super(error || outcome);
    if (at_most && !(code && Number.isInteger(at_most) && at_most > 0 && at_most <= 100)) {
      throw new TypeError("at_most is 1 to 100, with a code");
    }
    this.ending = { outcome, error, code, final, delay_s, at_most: at_most || undefined, output };
  }
}

/** One item under its lease. */
export class Job {
  #stop = new AbortController();

  constructor(lent, deadline) {
    this.lent = lent;
    this.id = lent.id;
    this.kind = lent.kind;
    this.scope = lent.scope;
    this.key = lent.key;
    this.payload = lent.payload;
    this.attempt = lent.attempt;
    this.token = lent.token;
    this.deadline = deadline; // of performance.now(): until then the lease is surely held
    this.lost = false; // the ledger reports that the lease is over
  }

  get signal() {
    return this.#stop.signal;
  }

  stop(why, lost = false) {
    this.lost ||= lost;
    this.#stop.abort(new Stopped(why));
  }

  get stopped() {
    if (performance.now() >= this.deadline) this.stop("the lease was not renewed in time"); // also after a freeze
    return this.signal.aborted;
  }

  check() {
    if (this.stopped) throw this.signal.reason;
  }
}

let workers = 0;

// Whether a call may succeed later, once the API has answered: a proxy answers 404 or 520 while the server restarts.
const passes = (error) => error.temporary || String(error.code).startsWith("http_");

/** Claims items of a kind, has a handler work them, and reports how they ended. */
export class Worker {
  #ready = []; // items that are not begun
  #held = new Map(); // items whose end is not recorded, by token
  #past = new Set(); // tokens of recorded ends and lost leases
  #ends = []; // ends that are not recorded
  #running = 0;
  #stopping = false;
  #over = false;
  #signals = 0;
  #failed;
  #poll; // aborts the claim that waits
  #waiting = new Set();

  constructor(client, kind, handler, options = {}) {
    workers++;
    const { agent = `${hostname()}/${process.pid}${workers > 1 ? `.${workers}` : ""}`, concurrency = 1, ahead = 0,
      lease_s = 60, grace_s = 30, program = "", log = console.error } = options;
    if (!(lease_s >= 3 && concurrency >= 1 && ahead >= 0)) {
      throw new TypeError("lease_s must be 3 or more, concurrency 1 or more, ahead 0 or more");
    }
    this.client = client;
    this.kind = kind;
    this.handler = handler;
    this.agent = agent;
    this.concurrency = concurrency;
    this.ahead = ahead;
    this.lease_s = lease_s;
    this.grace_s = grace_s;
    this.program = program;
    this.log = log;
  }

  stop() {
    this.#stopping = true;
    this.#poll?.abort();
    this.#notify();
  }

  async run({ signals = true } = {}) {
    const onSignal = () => {
      this.#signals++;
      this.stop();
    };
    if (signals) for (const name of ["SIGTERM", "SIGINT"]) process.on(name, onSignal);
    try {
      const report = this.#report();
      const keep = this.#keep();
      await Promise.race([this.#claim(), keep, report]);
      this.#stopping = true;
      await this.#drain();
      this.#over = true;
      this.#notify();
      await Promise.all([report, keep]);
    } finally {
      this.#stopping = this.#over = true;
      this.#notify();
      if (signals) for (const name of ["SIGTERM", "SIGINT"]) process.off(name, onSignal);
    }
    if (this.#failed) throw this.#failed;
  }

  #notify() {
    for (const go of [...this.#waiting]) go();
  }

  // Waits for #notify, for at most so many milliseconds.
  #change(ms) {
    return new Promise((resolve) => {
      const go = () => {
        clearTimeout(timer);
        this.#waiting.delete(go);
        resolve();
      };
      const timer = setTimeout(go, Math.min(ms, 2 ** 31 - 1));
      this.#waiting.add(go);
    });
  }

  // Hands back items that are not begun. Waits grace_s for the handlers, then tells them to stop and waits 5 s.
  async #drain() {
    for (const job of this.#ready.splice(0)) this.#end(job, { outcome: "released" });
    for (const seconds of [this.grace_s, 5]) {
      const until = performance.now() + seconds * 1000;
      while (this.#running > 0 && performance.now() < until && this.#signals < 2) await this.#change(until - performance.now());
      if (this.#running === 0) return;
      for (const job of this.#held.values()) job.stop("the worker ends");
    }
    this.log(`${this.#running} items are still worked: their leases end in ${this.lease_s} s`);
  }

  async #claim() {
    let resume = true; // an agent of this name may have held items
    let answered = false;
    for (let pause = 1000; ;) {
      while (!this.#stopping && this.#held.size >= this.concurrency + this.ahead) await this.#change(60_000);
      if (this.#stopping && !resume) return;
      const last = this.#stopping;
      const began = performance.now();
      this.#poll = resume ? undefined : new AbortController();
      let got;
      try {
        got = await this.client.claim({
          kind: this.kind, agent: this.agent, lease_s: this.lease_s, resume, ahead: this.ahead > 0,
          limit: Math.max(1, this.concurrency + this.ahead - (resume ? 0 : this.#held.size)),
          wait_s: resume ? 0 : Math.min(30, Math.max(1, Math.floor(this.lease_s / 3))),
        }, { signal: this.#poll?.signal });
      } catch (error) {
        resume = true; // the answer may have been lost
        if (this.#poll?.signal.aborted) continue;
        if (!(answered ? passes(error) : error.temporary) || last) {
          if (!last) this.#failed = error;
          return;
        }
        this.log(`no claim: ${error.message}`);
        await this.#pause(Math.max(pause, error.retryAfter * 1000));
        pause = Math.min(2 * pause, 30_000);
        continue;
      } finally {
        this.#poll = undefined;
      }
      resume = false;
      answered = true;
      pause = 1000;
      for (const lent of got.leases) {
        if (this.#held.has(lent.token) || this.#past.has(lent.token)) continue;
        const job = new Job(lent, began + this.lease_s * 1000);
        this.#held.set(lent.token, job);
        this.#ready.push(job);
      }
      if (got.drain) this.#stopping = true;
      this.#begin();
      this.#notify();
    }
  }

  // Waits, unless the worker is to stop.
  async #pause(ms) {
    for (const until = performance.now() + ms; !this.#stopping && performance.now() < until;) {
      await this.#change(until - performance.now());
    }
  }

  // Begins items while concurrency allows it.
  #begin() {
    while (!this.#stopping && this.#running < this.concurrency && this.#ready.length > 0) {
      const job = this.#ready.shift();
      this.#running++;
      this.#work(job).catch((error) => failure(error)).then((ending) => {
        this.#running--;
        this.#end(job, ending);
        this.#begin();
      });
    }
  }

  async #work(job) {
    if (!await this.#start(job)) return { outcome: "released" };
    try {
      return { output: await this.handler(job) };
    } catch (error) {
      if (error instanceof End) return error.ending;
      const stopped = job.stopped && [error, error?.cause].includes(job.signal.reason);
      if (!(error instanceof Stopped) && !stopped) return failure(error);
      this.log(`item ${job.id} is not worked on: ${error.message}`);
      return { outcome: "released" };
    }
  }

  // Reports the start of an item that was claimed ahead. It may have been lost or cancelled meanwhile.
  async #start(job) {
    while (this.ahead > 0 && !job.stopped) {
      const began = performance.now();
      try {
        const told = (await this.#answers("startLeases", [job.token], { tokens: [job.token], lease_s: this.lease_s })).answers[0];
        if (!told.recorded) {
          job.stop(told.message, !told.cancel && told.reason === "lease_lost");
          return false;
        }
        job.deadline = began + this.lease_s * 1000;
        break;
      } catch (error) {
        if (!passes(error)) return false;
        await sleep(Math.max(1000, error.retryAfter * 1000));
      }
    }
    return !job.stopped;
  }

  // Queues an end for #report.
  #end(job, ending) {
    let text;
    try {
      text = JSON.stringify(ending.output ?? null);
    } catch (error) {
      ending = { outcome: "failed", code: "bad_result", error: String(error.message) };
    }
    if (text === undefined || text === "null") ending = { ...ending, output: undefined };
    if (job.lost && ending.outcome === "released") this.#forget(job.token); // other late reports may end a doubt
    else this.#ends.push({ token: job.token, worker: this.program, ...ending });
    this.#notify();
  }

  #forget(token) {
    this.#held.delete(token);
    this.#past.add(token);
    if (this.#past.size > 10_000) this.#past.delete(this.#past.values().next().value);
  }

  // Calls the API about leases. It refuses a call if it refuses its only lease: then this refusal is the answer.
  async #answers(call, tokens, body, signal) {
    try {
      return await this.client[call](body, { signal });
    } catch (error) {
      const { status, code, detail, field } = error;
      const invalid = call === "finishLeases" && (status === 413 || code === "invalid" || code === "bad_request");
      const lost = code === "lease_lost" || code === "conflict" || (code === "scope" && field === "token");
      if (tokens.length > 1 || !(invalid || lost)) throw error;
      const reason = invalid ? "invalid" : code;
      return { answers: [{ token: tokens[0], recorded: false, reason, message: detail }], drain: false };
    }
  }

  // Reports ends until each is answered. Ends that come during a call are reported together by the next call.
  async #report() {
    for (let pause = 1000, most = 1000; ;) {
      while (this.#ends.length === 0) {
        if (this.#over) return;
        await this.#change(60_000);
      }
      const batch = [];
      let size = 0;
      for (const end of this.#ends) {
        size += Buffer.byteLength(JSON.stringify(end));
        if (batch.length > 0 && (size > 4 << 20 || batch.length === most)) break;
        batch.push(end);
      }
      let told;
      try {
        told = await this.#answers("finishLeases", batch.map((end) => end.token), { endings: batch });
      } catch (error) {
        if (batch.length > 1 && error.status >= 400 && error.status < 500 && !error.temporary) { // try each alone
          most = 1;
          continue;
        }
        const held = this.#ends.map((end) => this.#held.get(end.token)).filter((job) => job);
        if (!passes(error) || (this.#over && held.every((job) => performance.now() > job.deadline))) {
          this.log(`the ends of ${this.#ends.length} items are not recorded: ${error.message}`);
          this.#failed ??= error;
          this.#over = true;
          this.stop();
          return;
        }
        this.log(`no answer about ${batch.length} ends: ${error.message}`);
        this.#ends.push(...this.#ends.splice(0, batch.length)); // others first: a proxy may refuse only these
        await this.#change(Math.max(pause, error.retryAfter * 1000));
        pause = Math.min(2 * pause, 10_000);
        continue;
      }
      pause = 1000;
      most = 1000;
      told.answers.forEach((answer) => this.#recorded(this.#ends.shift(), answer));
      if (told.drain) this.stop();
      this.#notify();
    }
  }

  #recorded(end, answer) {
    if (!answer.recorded && answer.reason === "unavailable") {
      this.#ends.push(end);
      return;
    }
    if (answer.reason === "invalid" && end.code !== "bad_result") {
      this.#ends.push({ token: end.token, outcome: "failed", code: "bad_result", error: answer.message });
      return;
    }
    if (!answer.recorded) this.log(`an end is not recorded: ${answer.message}`);
    this.#forget(end.token);
  }

  // Renews held leases after a third of their time.
  async #keep() {
    const lease = this.lease_s * 1000;
    for (let pause = 0, again = 0; ;) {
      if (this.#over) return; // the leases of items that are still worked end by themselves
      const kept = [...this.#held.values()].filter((job) => !job.lost);
      const began = performance.now();
      const due = Math.max(again, Math.min(began + lease, ...kept.map((job) => job.deadline - lease * 2 / 3)));
      if (due > began) {
        await this.#change(due - began);
        continue;
      }
      for (const job of kept) job.stopped; // stops a job whose lease is over
      const tokens = kept.filter((job) => job.deadline - began < lease * 5 / 6).map((job) => job.token).slice(0, 1000);
      let told;
      try {
        told = await this.#answers("renewLeases", tokens, { tokens, lease_s: this.lease_s },
          AbortSignal.timeout(Math.ceil(lease / 3))); // if a renewal hangs, there is time for another
      } catch (error) {
        this.log(`leases are not renewed: ${error.message}`);
        pause = Math.min(Math.max(2 * pause, 500), 5000);
        again = performance.now() + pause;
        continue;
      }
      pause = 0;
      for (const answer of told.answers) {
        const job = this.#held.get(answer.token);
        if (answer.recorded && job) job.deadline = began + lease;
        if (!answer.recorded && answer.reason !== "unavailable") job?.stop(answer.message, true);
        if (answer.reason === "unavailable") again = performance.now() + 1000;
        if (answer.cancel) job?.stop("the item was cancelled");
      }
      if (told.drain) this.stop();
    }
  }
}

function failure(error) {
  const name = error?.code ?? error?.name ?? "error";
  return { outcome: "failed", error: String(error?.message || error),
    code: String(name).replace(/([a-z0-9])([A-Z])/g, "$1_$2").replace(/[^A-Za-z0-9]+/g, "_").toLowerCase().slice(0, 64),
    log: String(error?.stack ?? "").slice(-8000) };
}
