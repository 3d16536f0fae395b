// Generated from the API by make generate. Not to be edited: see internal/api/clientgen.

// Types of the API.

export type Outcome = "" | "done" | "skipped" | "failed" | "snoozed" | "released" | "cancelled" | "unknown" | "lost" | "crashed";
export type State = "waiting" | "ready" | "leased" | "dead" | "doubt" | "done" | "cancelled";
export type RoundState = "open" | "done" | "failed" | "doubt" | "cancelled" | "put_off";
export type OnLost = "repeat" | "doubt";

export interface Act {
  act?: string;
  item?: number;
  kind?: string;
  field?: string;
  shard?: string;
  agent?: string;
  plugin?: string;
}

export interface ActRequest {
  act: "retry" | "reopen" | "cancel" | "release" | "decide" | "prune";
  where: string;
  dry_run?: boolean;
  limit?: number;
  hold_s?: number | null;
  reason?: string;
  outcome?: "done" | "skipped" | "cancelled" | "failed";
  code?: string;
  priority?: number | null;
  due?: string;
}

export interface Addition {
  kind: string;
  scope?: string;
  key: string;
  fingerprint?: string;
  /** JSON, or {"base64": …} of what is none */
  payload?: any;
  shard_key?: string;
  priority?: number;
  due?: string;
  every?: string;
  zone?: string;
  source?: string;
  traceparent?: string;
  tracestate?: string;
  again?: boolean;
  given?: string[];
}

export interface Agent {
  agent: string;
  host: string;
  pid: number;
  version: string;
  kinds: string[];
  stalled: string[];
  state: "at_work" | "gone" | "person";
  plugins: Plugin[];
  shard: string;
  held: number;
  /** UTC, with microseconds */
  started_at: string | null;
  /** UTC, with microseconds */
  seen_at: string | null;
  heartbeat_age_s: number | null;
  clock_skew_ms: number | null;
}

export interface AgentList {
  items: Agent[];
  next: string | null;
}

export interface Attempt {
  attempt: number;
  round: string;
  agent: string;
  plugin: string;
  /** UTC, with microseconds */
  due_at: string | null;
  /** UTC, with microseconds */
  started_at: string | null;
  /** UTC, with microseconds */
  begun_at: string | null;
  /** UTC, with microseconds */
  ended_at: string | null;
  renewals: number;
  outcome: Outcome;
  code: string;
  cause: string;
  error: string;
  /** JSON, or {"base64": …} of what is none */
  output: any;
  log: string;
}

export interface AttemptList {
  items: Attempt[];
  next: string | null;
}

export interface BulkAct {
  id: string;
  act: "retry" | "reopen" | "cancel" | "release" | "decide" | "prune";
  where: string;
  by: string;
  state: "dry" | "held" | "waiting" | "running" | "stopping" | "done" | "undone" | "stopped" | "failed";
  matched: number;
  whole: boolean;
  limit: number;
  changed: number;
  /** UTC, with microseconds */
  asked_at: string | null;
  /** UTC, with microseconds */
  begins_at: string | null;
  /** UTC, with microseconds */
  ended_at: string | null;
  error: string;
}

export interface BulkActList {
  items: BulkAct[];
  next: string | null;
}

export interface Cause {
  cause: string;
  code: string;
  message: string;
  count: number;
  for_good: number;
  share: number;
  /** UTC, with microseconds */
  first_seen: string | null;
  /** UTC, with microseconds */
  last_seen: string | null;
  kinds: string[];
  plugins: string[];
  examples: Example[];
  trend: number[];
}

export interface Causes {
  items: Cause[];
  /** UTC, with microseconds */
  since: string | null;
  whole: boolean;
  /** UTC, with microseconds */
  trend_from: string | null;
  /** UTC, with microseconds */
  trend_to: string | null;
}

export interface Claim {
  kind: string;
  /** who claims: a name that no other process has */
  agent: string;
  /** most items, 1 … 1000, with resume those that the agent holds included; 1 if it is not given */
  limit?: number;
  /** seconds until the leases end unless renewed; 60 if it is not given */
  lease_s?: number;
  /** only the items with these ids; without wait_s */
  items?: number[];
  /** seconds to wait for an item, 0 … 30 */
  wait_s?: number;
  /** also return what the agent holds already, extended */
  resume?: boolean;
  /** the start of each item is reported by itself, before it begins */
  ahead?: boolean;
  /** only part i of n of the items, as i/n with i from 0 */
  shard?: string;
  /** payloads byte for byte: as {"base64": …} where JSON would change them */
  exact?: boolean;
}

export interface Claimed {
  leases: Lent[];
  drain: boolean;
  wait_s?: number;
  full?: boolean;
}

export interface Count {
  count: number;
  whole: boolean;
}

export interface Draining {
  /** an agent that claims at this server; one that works on the database does not learn of it */
  agent: string;
  /** false takes it back; true if it is not given */
  drain?: boolean | null;
}

export interface Ended {
  type: string;
  /** UTC, with microseconds */
  ended_at: string | null;
  id: number;
  kind: string;
  scope: string;
  key: string;
  outcome: Outcome;
  attempt: number;
  round: string;
  agent: string;
  plugin: string;
  code: string;
  error: string;
  ms: number | null;
}

export interface Ending {
  token: string;
  /** done if it is not given */
  outcome?: "done" | "skipped" | "failed" | "snoozed" | "released" | "cancelled" | "unknown" | "crashed";
  /** the result: any JSON, or {"base64": …} of what is none */
  output?: any;
  /** class of the failure, such as http_404 */
  code?: string;
  /** text of the failure, or the reason */
  error?: string;
  /** of a failure: it is not tried again */
  final?: boolean;
  /** of failed and snoozed: not before so many seconds; snoozed without it waits one */
  delay_s?: number;
  /** of snoozed, with a code: so many in a row are no failure, further ones are */
  at_most?: number;
  log?: string;
  /** what worked on it: NAME@VERSION */
  worker?: string;
  /** of done and skipped: items that are added with the end */
  emit?: Addition[];
  /** of a failure that the handler did not report itself */
  no_report?: boolean;
  /** the caller tallies this end itself, as workers of ledgerd do */
  tallied?: boolean;
}

export interface Example {
  id: number;
  key: string;
  error: string;
}

export interface Finish {
  endings: Ending[];
}

export interface Group {
  /** JSON, or {"base64": …} of what is none */
  value: any;
  done: number;
  failed: number;
  doubt: number;
  left: number;
  cancelled: number;
  put_off: number;
  newly_failed: number;
  recovered: number;
}

export interface Groups {
  items: Group[];
  groups: number;
  whole: boolean;
}

export interface Item {
  id: number;
  kind: string;
  scope: string;
  key: string;
  state: State;
  round: string;
  round_state: RoundState;
  attempt: number;
  failures: number;
  priority: number;
  /** UTC, with microseconds */
  due: string | null;
  agent: string;
  /** UTC, with microseconds */
  leased_at: string | null;
  /** UTC, with microseconds */
  expires: string | null;
  outcome: Outcome;
  code: string;
  cause: string;
  error: string;
  worker: string;
  plugin: string;
  /** UTC, with microseconds */
  added_at: string | null;
  source: string;
  shard_key: string;
  trace_id: string;
  /** UTC, with microseconds */
  failing_since: string | null;
  /** UTC, with microseconds */
  recovered_at: string | null;
  /** UTC, with microseconds */
  started_at: string | null;
  /** UTC, with microseconds */
  ended_at: string | null;
  /** seconds */
  took_s: number | null;
  /** JSON, or {"base64": …} of what is none */
  payload: any;
  /** JSON, or {"base64": …} of what is none */
  output: any;
}

export interface ItemDetail {
  id: number;
  kind: string;
  scope: string;
  key: string;
  state: State;
  round: string;
  round_state: RoundState;
  attempt: number;
  failures: number;
  priority: number;
  /** UTC, with microseconds */
  due: string | null;
  agent: string;
  /** UTC, with microseconds */
  leased_at: string | null;
  /** UTC, with microseconds */
  expires: string | null;
  outcome: Outcome;
  code: string;
  cause: string;
  error: string;
  worker: string;
  plugin: string;
  /** UTC, with microseconds */
  added_at: string | null;
  source: string;
  shard_key: string;
  trace_id: string;
  /** UTC, with microseconds */
  failing_since: string | null;
  /** UTC, with microseconds */
  recovered_at: string | null;
  /** UTC, with microseconds */
  started_at: string | null;
  /** UTC, with microseconds */
  ended_at: string | null;
  /** seconds */
  took_s: number | null;
  /** JSON, or {"base64": …} of what is none */
  output: any;
  fingerprint: string;
  every: string;
  zone: string;
  crashes: number;
  losses: number;
  slot: number;
  pruned: boolean;
  /** JSON, or {"base64": …} of what is none */
  payload: any;
}

export interface ItemList {
  items: Item[];
  next: string | null;
}

export interface Journal {
  id: number;
  /** UTC, with microseconds */
  at: string | null;
  actor: string;
  action: string;
  subject: string;
  detail: string;
  changed: number;
  ids: string;
  keys: string[];
}

export interface JournalList {
  items: Journal[];
  next: string | null;
}

export interface Kind {
  kind: string;
  plugin: string;
  input: string;
  input_field: string;
  match: string[];
  on_lost: OnLost;
  max_failures: number;
  max_crashes: number;
  max_lost: number;
  backoff_base_s: number;
  backoff_cap_s: number;
  timeout_s: number;
  keep_s: number | null;
  max_running: number;
  max_running_per_shard_key: number;
  rate: string;
  rate_per_shard_key: string;
  burst: number;
  limits: string;
  paused: boolean;
  definition: string;
}

export interface KindChange {
  on_lost?: OnLost;
  max_failures?: number | null;
  max_crashes?: number | null;
  max_lost?: number | null;
  backoff_base_s?: number | null;
  backoff_cap_s?: number | null;
  timeout_s?: number | null;
  keep_s?: number | null;
  keep_forever?: boolean;
  max_running?: number | null;
  max_running_per_shard_key?: number | null;
  rate?: string | null;
  rate_per_shard_key?: string | null;
  burst?: number | null;
}

export interface KindList {
  items: Kind[];
  next: string | null;
}

export interface KindStats {
  kind: string;
  ready: number;
  waiting: number;
  leased: number;
  dead: number;
  doubt: number;
  rounds_done: number;
  rounds_failed: number;
  rounds_put_off: number;
  left: number;
  done_1h: number;
  failed_1h: number;
  per_second_1m: number;
  oldest_ready_s: number;
  eta_s: number | null;
  work_ms_1h: number | null;
  wait_p50_s_1h: number | null;
  wait_p95_s_1h: number | null;
  wait_p99_s_1h: number | null;
  work_p50_s_1h: number | null;
  work_p95_s_1h: number | null;
  work_p99_s_1h: number | null;
  paused: boolean;
  workers: number;
}

export interface Lease {
  item: number;
  kind: string;
  scope: string;
  key: string;
  attempt: number;
  round: string;
  agent: string;
  /** UTC, with microseconds */
  leased_at: string | null;
  /** UTC, with microseconds */
  ended_at: string | null;
  /** UTC, with microseconds */
  expires: string | null;
  outcome: Outcome;
  code: string;
}

export interface LeaseAnswer {
  token: string;
  recorded: boolean;
  reason?: string;
  message?: string;
  holder?: string;
  /** UTC, with microseconds */
  expires_at?: string | null;
  cancel?: boolean;
  outcome?: Outcome;
  state?: State;
  round_state?: RoundState;
}

export interface LeaseAnswers {
  answers: LeaseAnswer[];
  drain: boolean;
}

export interface LeaseList {
  items: Lease[];
  next: string | null;
}

export interface Lent {
  token: string;
  id: number;
  kind: string;
  scope: string;
  key: string;
  fingerprint: string;
  round: string;
  attempt: number;
  failures: number;
  /** JSON, or {"base64": …} of what is none */
  payload: any;
  traceparent?: string;
  tracestate?: string;
  /** UTC, with microseconds */
  due: string | null;
  /** UTC, with microseconds */
  leased_at: string | null;
  /** UTC, with microseconds */
  expires_at: string | null;
  crashes: number;
  losses: number;
  idempotency_key: string;
  alone: boolean;
  resumed: boolean;
  first?: boolean;
}

export interface Lock {
  name: string;
  holder: string;
  fence: number;
  /** UTC, with microseconds */
  since: string | null;
  /** UTC, with microseconds */
  until: string | null;
}

export interface LockList {
  items: Lock[];
  next: string | null;
}

export interface Me {
  name: string;
  scopes: string[];
  kinds: string[];
  agent: string;
}

export interface Minute {
  /** UTC, with microseconds */
  at: string | null;
  kind: string;
  done: number;
  failed: number;
  waits: number[];
}

export interface Pause {
  paused: boolean;
  reason?: string;
}

export interface Plugin {
  kind: string;
  version: string;
  state: "running" | "restarting" | "crashing" | "absent";
  /** UTC, with microseconds */
  until: string | null;
  restarts: number;
  code: string;
  error: string;
  /** UTC, with microseconds */
  error_at: string | null;
  rss_bytes: number | null;
}

export interface Release {
  tokens: string[];
}

export interface Renewal {
  tokens: string[];
  /** seconds until the leases end, from now; 60 if it is not given */
  lease_s?: number;
}

export interface Round {
  item: number;
  kind: string;
  scope: string;
  key: string;
  every: string;
  zone: string;
  round: string;
  /** UTC, with microseconds */
  period: string | null;
  state: RoundState;
  outcome: Outcome;
  attempt: number;
  /** UTC, with microseconds */
  ended_at: string | null;
  code: string;
}

export interface RoundList {
  items: Round[];
  next: string | null;
}

export interface Stats {
  kinds: KindStats[];
  agents: number;
  approximate: string[];
  /** UTC, with microseconds */
  at: string | null;
  minutes: Minute[];
}

export interface Verdict {
  id: number;
  verdict: "added" | "changed" | "reopened" | "known" | "differs" | "refused";
  state?: State;
  code?: string;
  field?: string;
  reason?: string;
}

export interface Verdicts {
  items: Verdict[];
  counts: Record<string, number>;
}

export interface Version {
  version: string;
  schema: number;
  protocol: number;
  go: string;
  platform: string;
  commit: string;
  built: string;
}

export interface Why {
  id: number;
  state: State;
  code: string;
  text: string;
  /** UTC, with microseconds */
  since: string | null;
  /** UTC, with microseconds */
  until: string | null;
  acts: Act[];
}

/** An attempt that has ended, and the id after which a stream goes on. */
export interface Event { id: string; data: Ended }

/** A refusal of the server, in the terms of RFC 9457. Code no_answer: there was no answer. */
export declare class LedgerdError extends Error {
  /** Status of HTTP; 0: there was no answer. */
  readonly status: number;
  /** Class of the error, for programs: docs/api.md lists them. */
  readonly code: string;
  /** The problem. */
  readonly detail: string;
  /** The next step. */
  readonly hint: string;
  /** Place of a mistake in a filter, in characters from 1. */
  readonly column?: number;
  readonly length?: number;
  /** Field of the input that is wrong. */
  readonly field?: string;
  /** Index of the wrong entry of a list, from 0. */
  readonly index?: number;
  /** Seconds to wait, as the server asks. */
  readonly retryAfter: number;
  /** Whether the same call may succeed later. */
  get temporary(): boolean;
}

export interface Call { signal?: AbortSignal }

/** Calls the API of a server. */
export declare class Client {
  /**
   * @param url URL of the server, such as https://host or https://host/prefix; LEDGERD_URL if it is not given
   * @param options token: LEDGERD_TOKEN if it is not given; timeout: milliseconds, claims wait for up to 30,000
   */
  constructor(url?: string, options?: { token?: string; timeout?: number });
  /**
   * List the acts that have not ended, in the order in which they were asked for. Needs scope operate.
   */
  listActs(options?: Call): Promise<BulkActList>;
  /**
   * List the acts that have not ended, in the order in which they were asked for, part after part.
   */
  iterActs(options?: Call): AsyncGenerator<BulkAct, void, void>;

  /**
   * Undo an act that is held, or stop one that runs. Needs scope operate.
   * @param uuid a UUID that the caller has chosen
   */
  deleteAct(uuid: string, options?: Call): Promise<BulkAct>;

  /**
   * Get the progress of an act. Needs scope operate.
   * @param uuid a UUID that the caller has chosen
   */
  getAct(uuid: string, options?: Call): Promise<BulkAct>;

  /**
   * Act on all items that match; the same request again changes nothing more. Needs scope operate.
   * @param uuid a UUID that the caller has chosen
   * @param body what is to be done, and to which items
   */
  putAct(uuid: string, body: ActRequest, options?: Call): Promise<BulkAct>;

  /**
   * List the programs that work, and all others that hold items. Needs scope read.
   */
  listAgents(options?: Call): Promise<AgentList>;
  /**
   * List the programs that work, and all others that hold items, part after part.
   */
  iterAgents(options?: Call): AsyncGenerator<Agent, void, void>;

  /**
   * Ask an agent that works over HTTP to end its leases and to claim nothing more. Needs scope operate.
   * @param body the agent, and whether it is to end; this server forgets it when it stops
   */
  drainAgent(body: Draining, options?: Call): Promise<Draining>;

  /**
   * Group what failed by cause, the latest failures first. Needs scope read.
   * @param options.where filter; without since: or until: those of the last 24 h
   */
  getCauses(options?: Call & { where?: string }): Promise<Causes>;

  /**
   * Claim items of a kind; wait if there are none. Needs scope work.
   * @param body what is claimed, and by whom
   */
  claim(body: Claim, options?: Call): Promise<Claimed>;

  /**
   * Follow attempts as they end, as a stream of events. Needs scope read.
   * @param options.where filter
   * @param options.lastEventId go on after this event; what ended in the seconds around it may come again, with the same id
   */
  followEvents(options?: Call & { where?: string; lastEventId?: string }): AsyncGenerator<Event, void, void>;

  /**
   * List items that match a filter. Needs scope read.
   * @param options.where filter, in the language of the command line: state:dead kind:urlcheck since:2h
   * @param options.order by id, or by when the newest attempt ended; with a minus the other way round
   * @param options.limit at most this many items
   * @param options.cursor next of the part before
   * @param options.output whether items have the output of their newest attempt that has one
   */
  listItems(options?: Call & { where?: string; order?: "id" | "-id" | "ended" | "-ended"; limit?: number; cursor?: string; output?: boolean }): Promise<ItemList>;
  /**
   * List items that match a filter, part after part.
   * @param options.where filter, in the language of the command line: state:dead kind:urlcheck since:2h
   * @param options.order by id, or by when the newest attempt ended; with a minus the other way round
   * @param options.limit at most this many items
   * @param options.output whether items have the output of their newest attempt that has one
   */
  iterItems(options?: Call & { where?: string; order?: "id" | "-id" | "ended" | "-ended"; limit?: number; output?: boolean }): AsyncGenerator<Item, void, void>;

  /**
   * Add items, each with a verdict of its own; one that is known is not added twice. Needs scope add.
   * @param rows 1 … 5,000 items
   */
  addItems(rows: Addition[], options?: Call): Promise<Verdicts>;

  /**
   * Count what matches a filter, up to 10,000 and for a moment at most. Needs scope read.
   * @param options.where filter, in the language of the command line
   */
  countItems(options?: Call & { where?: string }): Promise<Count>;

  /**
   * Count what matches a filter by kind, scope, shard key or a field of the payload, for a moment at most. Needs scope read.
   * @param options.by kind, scope, shard_key, or a field of the payload: customer.country
   * @param options.where filter, in the language of the command line
   * @param options.limit at most this many groups; those with the most open items come first
   */
  groupItems(options?: Call & { by?: string; where?: string; limit?: number }): Promise<Groups>;

  /**
   * Get one item. Needs scope read.
   * @param id id of the item
   */
  getItem(id: number, options?: Call): Promise<ItemDetail>;

  /**
   * List how the attempts of an item ended, newest first. Needs scope read.
   * @param id id of the item
   * @param options.limit at most this many attempts
   * @param options.cursor next of the part before
   */
  listAttempts(id: number, options?: Call & { limit?: number; cursor?: string }): Promise<AttemptList>;
  /**
   * List how the attempts of an item ended, newest first, part after part.
   * @param id id of the item
   * @param options.limit at most this many attempts
   */
  iterAttempts(id: number, options?: Call & { limit?: number }): AsyncGenerator<Attempt, void, void>;

  /**
   * Get the output of an attempt, byte for byte. Needs scope payload.
   * @param id id of the item
   * @param attempt number of the attempt
   */
  getOutput(id: number, attempt: number, options?: Call): Promise<Uint8Array>;

  /**
   * Explain why an item is where it is, and which acts would help. Needs scope read.
   * @param id id of the item
   */
  explainItem(id: number, options?: Call): Promise<Why>;

  /**
   * List what operators and programs changed, newest first. Needs scope read.
   * @param options.item only acts on the item with this id
   * @param options.actor only acts of this actor
   * @param options.action only this action
   * @param options.since only since then: a duration such as 2h, or a time in RFC 3339
   * @param options.limit at most this many entries; the last part may have more
   * @param options.cursor next of the part before
   */
  listJournal(options?: Call & { item?: number; actor?: string; action?: string; since?: string; limit?: number; cursor?: string }): Promise<JournalList>;
  /**
   * List what operators and programs changed, newest first, part after part.
   * @param options.item only acts on the item with this id
   * @param options.actor only acts of this actor
   * @param options.action only this action
   * @param options.since only since then: a duration such as 2h, or a time in RFC 3339
   * @param options.limit at most this many entries; the last part may have more
   */
  iterJournal(options?: Call & { item?: number; actor?: string; action?: string; since?: string; limit?: number }): AsyncGenerator<Journal, void, void>;

  /**
   * List kinds and how they are treated. Needs scope read.
   */
  listKinds(options?: Call): Promise<KindList>;
  /**
   * List kinds and how they are treated, part after part.
   */
  iterKinds(options?: Call): AsyncGenerator<Kind, void, void>;

  /**
   * Get how a kind is treated. Needs scope read.
   * @param kind name of the kind
   */
  getKind(kind: string, options?: Call): Promise<Kind>;

  /**
   * Change how a kind is treated, unless it was changed since it was read. Needs scope operate.
   * @param kind name of the kind
   * @param body what is to be changed; the rest stays
   * @param options.ifMatch ETag of the kind as it was read, or *; that of the last read with this client if it is not given
   */
  changeKind(kind: string, body: KindChange, options?: Call & { ifMatch?: string }): Promise<Kind>;

  /**
   * Pause a kind, or end its pause. Needs scope operate.
   * @param kind name of the kind
   * @param body whether it is paused, and why
   */
  pauseKind(kind: string, body: Pause, options?: Call): Promise<Kind>;

  /**
   * List the leases in force; with the parameter from, the leases that ended, the latest first. Needs scope read.
   * @param options.from list those that ended since then: a duration such as 2h, or a time in RFC 3339
   * @param options.to with from: those that ended before
   * @param options.limit at most this many leases
   * @param options.cursor next of the part before
   */
  listLeases(options?: Call & { from?: string; to?: string; limit?: number; cursor?: string }): Promise<LeaseList>;
  /**
   * List the leases in force; with the parameter from, the leases that ended, the latest first, part after part.
   * @param options.from list those that ended since then: a duration such as 2h, or a time in RFC 3339
   * @param options.to with from: those that ended before
   * @param options.limit at most this many leases
   */
  iterLeases(options?: Call & { from?: string; to?: string; limit?: number }): AsyncGenerator<Lease, void, void>;

  /**
   * End attempts, each with its outcome. Needs scope work.
   * @param body how each attempt ended
   */
  finishLeases(body: Finish, options?: Call): Promise<LeaseAnswers>;

  /**
   * Hear whether leases are held still, and what was cancelled, without extending them. Needs scope work.
   * @param body the leases, by their tokens
   */
  heldLeases(body: Release, options?: Call): Promise<LeaseAnswers>;

  /**
   * Hand items back undone. Needs scope work.
   * @param body the leases, by their tokens
   */
  releaseLeases(body: Release, options?: Call): Promise<LeaseAnswers>;

  /**
   * Extend leases, and hear what was cancelled. Needs scope work.
   * @param body the leases, by their tokens
   */
  renewLeases(body: Renewal, options?: Call): Promise<LeaseAnswers>;

  /**
   * Mark items that were claimed ahead as started. Needs scope work.
   * @param body the leases, by their tokens
   */
  startLeases(body: Renewal, options?: Call): Promise<LeaseAnswers>;

  /**
   * List the named locks that are held. Needs scope read.
   */
  listLocks(options?: Call): Promise<LockList>;
  /**
   * List the named locks that are held, part after part.
   */
  iterLocks(options?: Call): AsyncGenerator<Lock, void, void>;

  /**
   * Tell who asks, and what they may do. Needs scope read.
   */
  getMe(options?: Call): Promise<Me>;

  /**
   * Get this description, OpenAPI 3.1. Needs no token.
   */
  getDescription(options?: Call): Promise<Record<string, any>>;

  /**
   * List the rounds of recurring items that were closed, the latest first. Needs scope read.
   * @param options.where filter, in the language of the command line; conditions on the newest attempt are asked of the one that closed the round
   * @param options.from list those that were closed since then: a duration such as 2h, or a time in RFC 3339
   * @param options.to list those that were closed before
   * @param options.limit at most this many rounds
   * @param options.cursor next of the part before
   */
  listRounds(options?: Call & { where?: string; from?: string; to?: string; limit?: number; cursor?: string }): Promise<RoundList>;
  /**
   * List the rounds of recurring items that were closed, the latest first, part after part.
   * @param options.where filter, in the language of the command line; conditions on the newest attempt are asked of the one that closed the round
   * @param options.from list those that were closed since then: a duration such as 2h, or a time in RFC 3339
   * @param options.to list those that were closed before
   * @param options.limit at most this many rounds
   */
  iterRounds(options?: Call & { where?: string; from?: string; to?: string; limit?: number }): AsyncGenerator<Round, void, void>;

  /**
   * Count what is open by kind, and how fast it is worked; the field at tells how old the answer is. Needs scope read.
   * @param options.wait false: wait a tenth of a second at most for a count, which takes seconds where millions of items are open; without one of the last minute the answer is too_slow then
   */
  getStats(options?: Call & { wait?: boolean }): Promise<Stats>;

  /**
   * Get the version of the server. Needs no token.
   */
  getVersion(options?: Call): Promise<Version>;
}

/** The work on an item is to stop: its lease was lost, it was cancelled, or the worker ends now. */
export declare class Stopped extends Error {}

/** How an attempt ends, thrown by a handler. */
export declare class End extends Error {
  /**
   * @param options code: class of a failure, such as http_404; final: it is not tried again; delay_s: after how many
   *   seconds a failed or snoozed item is due again; at_most (1 to 100), of snoozed with a code: so many in a row are no
   *   failure, further ones are
   */
  constructor(outcome: "done" | "skipped" | "failed" | "snoozed" | "released" | "unknown", error?: string,
    options?: { code?: string; final?: boolean; delay_s?: number; at_most?: number; output?: unknown });
}

/** One item under its lease. */
export interface Job {
  readonly lent: Lent;
  readonly id: number;
  readonly kind: string;
  readonly scope: string;
  readonly key: string;
  readonly payload: any;
  /** The fencing number of the item: a receiver may refuse smaller ones. */
  readonly attempt: number;
  /** A secret: it ends this lease, and never another. */
  readonly token: string;
  /** Is aborted when the work is to stop: the lease was lost, the item was cancelled, or the worker ends now. */
  readonly signal: AbortSignal;
  /** Whether the work is to stop; right also after a freeze, before the signal. */
  get stopped(): boolean;
  /** Throws Stopped if the work is to stop. Call it before each effect. */
  check(): void;
}

export interface WorkerOptions {
  /** A name that no other process has; host/pid if it is not given. */
  agent?: string;
  /** How many handlers run at a time; 1 if it is not given. */
  concurrency?: number;
  /** How many further items are claimed before a handler is free. Then each start is reported. */
  ahead?: number;
  /** Seconds, 3 or more; 60 if it is not given. */
  lease_s?: number;
  /** Seconds for which handlers may go on after a stop; 30 if it is not given. Then they are told to stop, and get 5 more. */
  grace_s?: number;
  /** The program that works on the items: NAME@VERSION. */
  program?: string;
  /** Called with errors and warnings; console.error if it is not given. */
  log?: (message: string) => void;
}

/** Claims items of a kind, has a handler work them, and reports how they ended. */
export declare class Worker {
  /** The result of the handler is the output, as JSON. An exception is a failure; End ends an attempt in another way. */
  constructor(client: Client, kind: string, handler: (job: Job) => unknown, options?: WorkerOptions);
  readonly agent: string;
  /**
   * Works until stop, SIGTERM, SIGINT, or until the server asks the agent to end. A second signal ends it now. It
   * rejects with LedgerdError if the server refuses its claims for good, or if ends are not recorded.
   */
  run(options?: { signals?: boolean }): Promise<void>;
  /** Makes run claim nothing more, hand back items that are not begun, and return when all handlers have ended. */
  stop(): void;
}
