# Generated from the API by make generate. Not to be edited: see internal/api/clientgen.
"""A client of ledgerd's HTTP API and a worker, with the standard library alone (Python 3.9 or later).

    client = Client("http://127.0.0.1:7374", token="ldg_...")
    for item in client.iter_items(where="state:dead"):
        print(item["key"], item["error"])

    Worker(client, "article", lambda job: {"length": len(job.key)}).run()

Answers are dictionaries, with the fields that docs/api.md lists. A refused call raises LedgerdError.
"""

from __future__ import annotations

import collections
import http.client
import json
import logging
import os
import re
import signal
import socket
import ssl
import threading
import time
import traceback
import urllib.parse
from typing import Any, Callable, Deque, Dict, Iterable, Iterator, List, Literal, Mapping, NamedTuple, Optional, TypedDict

__all__ = ["Client", "End", "Event", "Job", "LedgerdError", "Stopped", "Worker"]

# Types of the API.

Outcome = Literal["", "done", "skipped", "failed", "snoozed", "released", "cancelled", "unknown", "lost", "crashed"]
State = Literal["waiting", "ready", "leased", "dead", "doubt", "done", "cancelled"]
RoundState = Literal["open", "done", "failed", "doubt", "cancelled", "put_off"]
OnLost = Literal["repeat", "doubt"]


class Act(TypedDict, total=False):
    act: str
    item: int
    kind: str
    field: str
    shard: str
    agent: str
    plugin: str


class _Addition(TypedDict):
    kind: str
    key: str


class Addition(_Addition, total=False):
    scope: str
    fingerprint: str
    payload: Any  # JSON, or {"base64": …} of what is none
    shard_key: str
    priority: int
    due: str
    every: str
    zone: str
    source: str
    traceparent: str
    tracestate: str
    again: bool
    given: List[str]


class Agent(TypedDict):
    agent: str
    host: str
    pid: int
    version: str
    kinds: List[str]
    stalled: List[str]
    state: Literal["at_work", "gone", "person"]
    plugins: List[Plugin]
    shard: str
    held: int
    started_at: str | None  # UTC, with microseconds
    seen_at: str | None  # UTC, with microseconds
    heartbeat_age_s: float | None
    clock_skew_ms: float | None


class AgentList(TypedDict):
    items: List[Agent]
    next: str | None


class Attempt(TypedDict):
    attempt: int
    round: str
    agent: str
    plugin: str
    due_at: str | None  # UTC, with microseconds
    started_at: str | None  # UTC, with microseconds
    begun_at: str | None  # UTC, with microseconds
    ended_at: str | None  # UTC, with microseconds
    renewals: int
    outcome: Outcome
    code: str
    cause: str
    error: str
    output: Any  # JSON, or {"base64": …} of what is none
    log: str


class AttemptList(TypedDict):
    items: List[Attempt]
    next: str | None


class BulkAct(TypedDict):
    id: str
    act: Literal["retry", "reopen", "cancel", "release", "decide", "prune"]
    where: str
    by: str
    state: Literal["dry", "held", "waiting", "running", "stopping", "done", "undone", "stopped", "failed"]
    matched: int
    whole: bool
    limit: int
    changed: int
    asked_at: str | None  # UTC, with microseconds
    begins_at: str | None  # UTC, with microseconds
    ended_at: str | None  # UTC, with microseconds
    error: str


class BulkActList(TypedDict):
    items: List[BulkAct]
    next: str | None


class Cause(TypedDict):
    cause: str
    code: str
    message: str
    count: int
    for_good: int
    share: float
    first_seen: str | None  # UTC, with microseconds
    last_seen: str | None  # UTC, with microseconds
    kinds: List[str]
    plugins: List[str]
    examples: List[Example]
    trend: List[int]


class Causes(TypedDict):
    items: List[Cause]
    since: str | None  # UTC, with microseconds
    whole: bool
    trend_from: str | None  # UTC, with microseconds
    trend_to: str | None  # UTC, with microseconds


class _Claimed(TypedDict):
    leases: List[Lent]
    drain: bool


class Claimed(_Claimed, total=False):
    wait_s: float
    full: bool


class Count(TypedDict):
    count: int
    whole: bool


class _Draining(TypedDict):
    agent: str  # an agent that claims at this server; one that works on the database does not learn of it


class Draining(_Draining, total=False):
    drain: bool | None  # false takes it back; true if it is not given


class Ended(TypedDict):
    type: str
    ended_at: str | None  # UTC, with microseconds
    id: int
    kind: str
    scope: str
    key: str
    outcome: Outcome
    attempt: int
    round: str
    agent: str
    plugin: str
    code: str
    error: str
    ms: int | None


class _Ending(TypedDict):
    token: str


class Ending(_Ending, total=False):
    outcome: Literal["done", "skipped", "failed", "snoozed", "released", "cancelled", "unknown", "crashed"]  # done if it is not given
    output: Any  # the result: any JSON, or {"base64": …} of what is none
    code: str  # class of the failure, such as http_404
    error: str  # text of the failure, or the reason
    final: bool  # of a failure: it is not tried again
    delay_s: float  # of failed and snoozed: not before so many seconds; snoozed without it waits one
    at_most: int  # of snoozed, with a code: so many in a row are no failure, further ones are
    log: str
    worker: str  # what worked on it: NAME@VERSION
    emit: List[Addition]  # of done and skipped: items that are added with the end
    no_report: bool  # of a failure that the handler did not report itself
    tallied: bool  # the caller tallies this end itself, as workers of ledgerd do


class Example(TypedDict):
    id: int
    key: str
    error: str


class Group(TypedDict):
    value: Any  # JSON, or {"base64": …} of what is none
    done: int
    failed: int
    doubt: int
    left: int
    cancelled: int
    put_off: int
    newly_failed: int
    recovered: int


class Groups(TypedDict):
    items: List[Group]
    groups: int
    whole: bool


class Item(TypedDict):
    id: int
    kind: str
    scope: str
    key: str
    state: State
    round: str
    round_state: RoundState
    attempt: int
    failures: int
    priority: int
    due: str | None  # UTC, with microseconds
    agent: str
    leased_at: str | None  # UTC, with microseconds
    expires: str | None  # UTC, with microseconds
    outcome: Outcome
    code: str
    cause: str
    error: str
    worker: str
    plugin: str
    added_at: str | None  # UTC, with microseconds
    source: str
    shard_key: str
    trace_id: str
    failing_since: str | None  # UTC, with microseconds
    recovered_at: str | None  # UTC, with microseconds
    started_at: str | None  # UTC, with microseconds
    ended_at: str | None  # UTC, with microseconds
    took_s: float | None  # seconds
    payload: Any  # JSON, or {"base64": …} of what is none
    output: Any  # JSON, or {"base64": …} of what is none


class ItemDetail(TypedDict):
    id: int
    kind: str
    scope: str
    key: str
    state: State
    round: str
    round_state: RoundState
    attempt: int
    failures: int
    priority: int
    due: str | None  # UTC, with microseconds
    agent: str
    leased_at: str | None  # UTC, with microseconds
    expires: str | None  # UTC, with microseconds
    outcome: Outcome
    code: str
    cause: str
    error: str
    worker: str
    plugin: str
    added_at: str | None  # UTC, with microseconds
    source: str
    shard_key: str
    trace_id: str
    failing_since: str | None  # UTC, with microseconds
    recovered_at: str | None  # UTC, with microseconds
    started_at: str | None  # UTC, with microseconds
    ended_at: str | None  # UTC, with microseconds
    took_s: float | None  # seconds
    output: Any  # JSON, or {"base64": …} of what is none
    fingerprint: str
    every: str
    zone: str
    crashes: int
    losses: int
    slot: int
    pruned: bool
    payload: Any  # JSON, or {"base64": …} of what is none


class ItemList(TypedDict):
    items: List[Item]
    next: str | None


class Journal(TypedDict):
    id: int
    at: str | None  # UTC, with microseconds
    actor: str
    action: str
    subject: str
    detail: str
    changed: int
    ids: str
    keys: List[str]


class JournalList(TypedDict):
    items: List[Journal]
    next: str | None


class Kind(TypedDict):
    kind: str
    plugin: str
    input: str
    input_field: str
    match: List[str]
    on_lost: OnLost
    max_failures: int
    max_crashes: int
    max_lost: int
    backoff_base_s: float
    backoff_cap_s: float
    timeout_s: float
    keep_s: float | None
    max_running: int
    max_running_per_shard_key: int
    rate: str
    rate_per_shard_key: str
    burst: int
    limits: str
    paused: bool
    definition: str


class KindList(TypedDict):
    items: List[Kind]
    next: str | None


class KindStats(TypedDict):
    kind: str
    ready: int
    waiting: int
    leased: int
    dead: int
    doubt: int
    rounds_done: int
    rounds_failed: int
    rounds_put_off: int
    left: int
    done_1h: int
    failed_1h: int
    per_second_1m: float
    oldest_ready_s: float
    eta_s: float | None
    work_ms_1h: float | None
    wait_p50_s_1h: float | None
    wait_p95_s_1h: float | None
    wait_p99_s_1h: float | None
    work_p50_s_1h: float | None
    work_p95_s_1h: float | None
    work_p99_s_1h: float | None
    paused: bool
    workers: int


class Lease(TypedDict):
    item: int
    kind: str
    scope: str
    key: str
    attempt: int
    round: str
    agent: str
    leased_at: str | None  # UTC, with microseconds
    ended_at: str | None  # UTC, with microseconds
    expires: str | None  # UTC, with microseconds
    outcome: Outcome
    code: str


class _LeaseAnswer(TypedDict):
    token: str
    recorded: bool


class LeaseAnswer(_LeaseAnswer, total=False):
    reason: str
    message: str
    holder: str
    expires_at: str | None  # UTC, with microseconds
    cancel: bool
    outcome: Outcome
    state: State
    round_state: RoundState


class LeaseAnswers(TypedDict):
    answers: List[LeaseAnswer]
    drain: bool


class LeaseList(TypedDict):
    items: List[Lease]
    next: str | None


class _Lent(TypedDict):
    token: str
    id: int
    kind: str
    scope: str
    key: str
    fingerprint: str
    round: str
    attempt: int
    failures: int
    payload: Any  # JSON, or {"base64": …} of what is none
    due: str | None  # UTC, with microseconds
    leased_at: str | None  # UTC, with microseconds
    expires_at: str | None  # UTC, with microseconds
    crashes: int
    losses: int
    idempotency_key: str
    alone: bool
    resumed: bool


class Lent(_Lent, total=False):
    traceparent: str
    tracestate: str
    first: bool


class Lock(TypedDict):
    name: str
    holder: str
    fence: int
    since: str | None  # UTC, with microseconds
    until: str | None  # UTC, with microseconds


class LockList(TypedDict):
    items: List[Lock]
    next: str | None


class Me(TypedDict):
    name: str
    scopes: List[str]
    kinds: List[str]
    agent: str


class Minute(TypedDict):
    at: str | None  # UTC, with microseconds
    kind: str
    done: int
    failed: int
    waits: List[int]


class Plugin(TypedDict):
    kind: str
    version: str
    state: Literal["running", "restarting", "crashing", "absent"]
    until: str | None  # UTC, with microseconds
    restarts: int
    code: str
    error: str
    error_at: str | None  # UTC, with microseconds
    rss_bytes: int | None


class Round(TypedDict):
    item: int
    kind: str
    scope: str
    key: str
    every: str
    zone: str
    round: str
    period: str | None  # UTC, with microseconds
    state: RoundState
    outcome: Outcome
    attempt: int
    ended_at: str | None  # UTC, with microseconds
    code: str


class RoundList(TypedDict):
    items: List[Round]
    next: str | None


class Stats(TypedDict):
    kinds: List[KindStats]
    agents: int
    approximate: List[str]
    at: str | None  # UTC, with microseconds
    minutes: List[Minute]


class _Verdict(TypedDict):
    id: int
    verdict: Literal["added", "changed", "reopened", "known", "differs", "refused"]


class Verdict(_Verdict, total=False):
    state: State
    code: str
    field: str
    reason: str


class Verdicts(TypedDict):
    items: List[Verdict]
    counts: Dict[str, int]


class Version(TypedDict):
    version: str
    schema: int
    protocol: int
    go: str
    platform: str
    commit: str
    built: str


class Why(TypedDict):
    id: int
    state: State
    code: str
    text: str
    since: str | None  # UTC, with microseconds
    until: str | None  # UTC, with microseconds
    acts: List[Act]


class Event(NamedTuple):
    """An attempt that has ended, and the id after which a stream goes on."""

    id: str
    data: Ended


class LedgerdError(Exception):
    """A refusal of the server, in the terms of RFC 9457. Code no_answer: there was no answer."""

    def __init__(self, problem: Mapping[str, Any], retry_after: float = 0) -> None:
        self.status: int = problem.get("status", 0)  # status of HTTP; 0: there was no answer
        self.code: str = problem.get("code", "")  # class of the error, for programs: docs/api.md lists them
        self.detail: str = problem.get("detail", "")  # the problem
        self.hint: str = problem.get("hint", "")  # the next step
        self.column: Optional[int] = problem.get("column")  # place of a mistake in a filter, in characters from 1
        self.length: Optional[int] = problem.get("length")
        self.field: Optional[str] = problem.get("field")  # the field of the input that is wrong
        self.index: Optional[int] = problem.get("index")  # index of the wrong entry of a list, from 0
        self.retry_after = retry_after  # seconds to wait, as the server asks
        super().__init__(f"{self.code}: {self.detail}" + (f" ({self.hint})" if self.hint else ""))

    @property
    def temporary(self) -> bool:
        """Whether the same call may succeed later."""
        return self.status in (0, 408, 429, 502, 503, 504)


def _json(value: Any) -> bytes:
    """Encodes as the client in JavaScript does, except fractions, because the ledger compares payloads byte by byte."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.encode("utf-8", "backslashreplace")  # half of a surrogate pair is escaped


def _unanswered(error: Exception) -> LedgerdError:
    return LedgerdError({"code": "no_answer", "detail": str(error) or type(error).__name__})


_IDLE = 30.0  # seconds after which a connection is not used again; the server closes it after two minutes


class _Connection:
    """A connection that is opened when it is needed."""

    def __init__(self, url: urllib.parse.SplitResult, timeout: Optional[float], context: Optional[ssl.SSLContext]) -> None:
        host = url.hostname or ""
        self.http: http.client.HTTPConnection
        if url.scheme == "https":
            self.http = http.client.HTTPSConnection(host, url.port, timeout=timeout, context=context)
        else:
            self.http = http.client.HTTPConnection(host, url.port, timeout=timeout)
        self.used = 0.0

    def ask(self, method: str, target: str, body: Optional[bytes], headers: Dict[str, str]) -> http.client.HTTPResponse:
        if time.monotonic() - self.used > _IDLE:
            self.http.close()
        self.http.request(method, target, body, headers)
        response = self.http.getresponse()
        self.used = time.monotonic()
        return response

    def cut(self) -> None:
        """Ends a call that waits, from another thread."""
        sock = self.http.sock
        if sock is not None:
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # it was not connected


class Client:
    """Calls the API of a server. It is safe for several threads, each of which has a connection of its own.

    url is the URL of the server, such as https://host or https://host/prefix; $LEDGERD_URL if it is not given. token is
    $LEDGERD_TOKEN if it is not given. timeout is in seconds, None for none; claims wait for up to 30.
    """

    def __init__(self, url: Optional[str] = None, token: Optional[str] = None, *, timeout: Optional[float] = 60.0,
                 context: Optional[ssl.SSLContext] = None) -> None:
        text = (url or os.environ["LEDGERD_URL"]).rstrip("/")
        self._url = urllib.parse.urlsplit(text)
        if self._url.scheme not in ("http", "https") or not self._url.hostname:
            raise ValueError(f"{text!r} is no URL of a server: https://host or http://host:port")
        self._base = self._url.path + ("" if self._url.path.endswith("/api/v1") else "/api/v1")
        self._token = (os.environ.get("LEDGERD_TOKEN", "") if token is None else token).strip()
        if re.search("[^!-~]", self._token):
            raise ValueError("the token has a space, a line break or another character that no token has: copy it again")
        self._timeout, self._context = timeout, context
        self._local = threading.local()
        self._tags: Dict[str, str] = {}  # ETags of answers that may be changed, by path

    def __repr__(self) -> str:
        return f"Client({self._url.scheme}://{self._url.hostname}{self._base})"  # without the token

    def _connection(self, most: Optional[float] = None) -> _Connection:
        timeout = min((t for t in (self._timeout, most) if t is not None), default=None)
        return _Connection(self._url, timeout, self._context)

    def _send(self, connection: _Connection, method: str, path: str, query: Optional[Dict[str, Any]], body: Any,
              headers: Optional[Dict[str, Optional[str]]], accept: str) -> http.client.HTTPResponse:
        """Sends a request; an answer that is an error is raised."""
        asked = {k: str(v).lower() if isinstance(v, bool) else v for k, v in (query or {}).items() if v is not None}
        target = self._base + path + ("?" + urllib.parse.urlencode(asked) if asked else "")
        sent = {"Accept": accept, **{k: v for k, v in (headers or {}).items() if v is not None}}
        if self._token:
            sent["Authorization"] = "Bearer " + self._token
        content: Optional[bytes] = None
        if isinstance(body, dict):
            sent["Content-Type"] = "application/json"
            content = _json({k: v for k, v in body.items() if v is not None})
        elif body is not None:
            sent["Content-Type"] = "application/x-ndjson"
            content = b"".join(_json(row) + b"\n" for row in body)
        try:
            response = connection.ask(method, target, content, sent)
            if response.status < 300:
                return response
            text = response.read()
        except (OSError, http.client.HTTPException) as error:
            connection.http.close()
            raise _unanswered(error) from error
        try:
            problem = json.loads(text)
            problem["code"]
        except (ValueError, TypeError, KeyError):  # it comes from something between
            problem = {"status": response.status, "code": f"http_{response.status}", "detail": response.reason}
        wait = response.getheader("Retry-After") or ""
        raise LedgerdError(problem, float(wait) if wait.isdigit() else 0)

    def _call(self, method: str, path: str, query: Optional[Dict[str, Any]] = None, body: Any = None,
              headers: Optional[Dict[str, Optional[str]]] = None, *, raw: bool = False, tagged: bool = False,
              connection: Optional[_Connection] = None) -> Any:
        if connection is None:
            connection = getattr(self._local, "connection", None)
            if connection is None:
                connection = self._local.connection = self._connection()
        response = self._send(connection, method, path, query, body, headers, "*/*" if raw else "application/json")
        try:
            text = response.read()
        except (OSError, http.client.HTTPException) as error:
            connection.http.close()
            raise _unanswered(error) from error
        if tagged:
            self._tags[path] = response.getheader("ETag") or ""
        if raw:
            return text
        try:
            return json.loads(text)
        except ValueError as error:
            raise _unanswered(error) from error

    def _tag(self, path: str) -> str:
        if path not in self._tags:
            raise ValueError("read it before, or give if_match: a change is about what was read")
        return self._tags[path]

    def _parts(self, path: str, query: Dict[str, Any]) -> Iterator[Any]:
        """Yields the entries of a list, one part after the other."""
        connection = self._connection()
        try:
            while True:
                response = self._send(connection, "GET", path, query, None, None, "application/x-ndjson")
                try:
                    rows = [json.loads(line) for line in response.read().split(b"\n") if line]
                except (OSError, http.client.HTTPException, ValueError) as error:
                    raise _unanswered(error) from error
                yield from rows
                link = re.match(r'<[^>]*[?&]cursor=([^&>]*)[^>]*>; rel="next"', response.getheader("Link") or "")
                if link is None:
                    return
                query["cursor"] = urllib.parse.unquote(link.group(1))
        finally:
            connection.http.close()

    def _events(self, path: str, query: Dict[str, Any], last: Optional[str]) -> Iterator[Event]:
        """Yields events, and goes on after the last one when the stream ends or breaks."""
        seen: "collections.OrderedDict[str, None]" = collections.OrderedDict()
        pause = 1.0
        while True:
            connection = self._connection()
            try:
                response = self._send(connection, "GET", path, query, None, {"Last-Event-ID": last}, "text/event-stream")
                pause, name, data = 1.0, "", ""
                for raw in response:
                    line = raw.decode().rstrip("\r\n")
                    key, _, value = line.partition(": ")
                    if key == "id":
                        name = value
                    elif key == "data":
                        data = value
                    elif line == "" and name:
                        if data and name not in seen:  # events of the last seconds come again
                            seen[name] = None
                            if len(seen) > 10_000:
                                seen.popitem(last=False)
                            yield Event(name, json.loads(data))
                        last, name, data = name, "", ""
            except (OSError, http.client.HTTPException):
                pass  # it broke
            except LedgerdError as error:
                if not error.temporary:
                    raise
                pause = max(pause, error.retry_after)
            finally:
                connection.http.close()
            time.sleep(pause)
            pause = min(2 * pause, 30.0)

    def list_acts(self) -> BulkActList:
        """List the acts that have not ended, in the order in which they were asked for. Needs scope operate."""
        answer: BulkActList = self._call("GET", "/acts")
        return answer

    def iter_acts(self) -> Iterator[BulkAct]:
        """List the acts that have not ended, in the order in which they were asked for, part after part."""
        return self._parts("/acts", {})

    def delete_act(self, uuid: str) -> BulkAct:
        """Undo an act that is held, or stop one that runs. Needs scope operate.

        uuid: a UUID that the caller has chosen
        """
        answer: BulkAct = self._call("DELETE", f"/acts/{_segment(uuid)}")
        return answer

    def get_act(self, uuid: str) -> BulkAct:
        """Get the progress of an act. Needs scope operate.

        uuid: a UUID that the caller has chosen
        """
        answer: BulkAct = self._call("GET", f"/acts/{_segment(uuid)}")
        return answer

    def put_act(self, uuid: str, *, act: Literal["retry", "reopen", "cancel", "release", "decide", "prune"], where: str, dry_run: bool | None = None, limit: int | None = None, hold_s: float | None = None, reason: str | None = None, outcome: Literal["done", "skipped", "cancelled", "failed"] | None = None, code: str | None = None, priority: int | None = None, due: str | None = None) -> BulkAct:
        """Act on all items that match; the same request again changes nothing more. Needs scope operate.

        uuid: a UUID that the caller has chosen
        """
        answer: BulkAct = self._call("PUT", f"/acts/{_segment(uuid)}", body={"act": act, "where": where, "dry_run": dry_run, "limit": limit, "hold_s": hold_s, "reason": reason, "outcome": outcome, "code": code, "priority": priority, "due": due})
        return answer

    def list_agents(self) -> AgentList:
        """List the programs that work, and all others that hold items. Needs scope read."""
        answer: AgentList = self._call("GET", "/agents")
        return answer

    def iter_agents(self) -> Iterator[Agent]:
        """List the programs that work, and all others that hold items, part after part."""
        return self._parts("/agents", {})

    def drain_agent(self, *, agent: str, drain: bool | None = None) -> Draining:
        """Ask an agent that works over HTTP to end its leases and to claim nothing more. Needs scope operate.

        agent: an agent that claims at this server; one that works on the database does not learn of it
        drain: false takes it back; true if it is not given
        """
        answer: Draining = self._call("POST", "/agents/drain", body={"agent": agent, "drain": drain})
        return answer

    def get_causes(self, *, where: str | None = None) -> Causes:
        """Group what failed by cause, the latest failures first. Needs scope read.

        where: filter; without since: or until: those of the last 24 h
        """
        answer: Causes = self._call("GET", "/causes", {"where": where})
        return answer

    def claim(self, *, kind: str, agent: str, limit: int | None = None, lease_s: int | None = None, items: List[int] | None = None, wait_s: int | None = None, resume: bool | None = None, ahead: bool | None = None, shard: str | None = None, exact: bool | None = None) -> Claimed:
        """Claim items of a kind; wait if there are none. Needs scope work.

        agent: who claims: a name that no other process has
        limit: most items, 1 … 1000, with resume those that the agent holds included; 1 if it is not given
        lease_s: seconds until the leases end unless renewed; 60 if it is not given
        items: only the items with these ids; without wait_s
        wait_s: seconds to wait for an item, 0 … 30
        resume: also return what the agent holds already, extended
        ahead: the start of each item is reported by itself, before it begins
        shard: only part i of n of the items, as i/n with i from 0
        exact: payloads byte for byte: as {"base64": …} where JSON would change them
        """
        answer: Claimed = self._call("POST", "/claims", body={"kind": kind, "agent": agent, "limit": limit, "lease_s": lease_s, "items": items, "wait_s": wait_s, "resume": resume, "ahead": ahead, "shard": shard, "exact": exact})
        return answer

    def follow_events(self, *, where: str | None = None, last_event_id: str | None = None) -> Iterator[Event]:
        """Follow attempts as they end, as a stream of events. Needs scope read.

        where: filter
        last_event_id: go on after this event; what ended in the seconds around it may come again, with the same id
        """
        return self._events("/events", {"where": where}, last_event_id)

    def list_items(self, *, where: str | None = None, order: Literal["id", "-id", "ended", "-ended"] | None = None, limit: int | None = None, cursor: str | None = None, output: bool | None = None) -> ItemList:
        """List items that match a filter. Needs scope read.

        where: filter, in the language of the command line: state:dead kind:urlcheck since:2h
        order: by id, or by when the newest attempt ended; with a minus the other way round
        limit: at most this many items
        cursor: next of the part before
        output: whether items have the output of their newest attempt that has one
        """
        answer: ItemList = self._call("GET", "/items", {"where": where, "order": order, "limit": limit, "cursor": cursor, "output": output})
        return answer

    def iter_items(self, *, where: str | None = None, order: Literal["id", "-id", "ended", "-ended"] | None = None, limit: int | None = None, output: bool | None = None) -> Iterator[Item]:
        """List items that match a filter, part after part.

        where: filter, in the language of the command line: state:dead kind:urlcheck since:2h
        order: by id, or by when the newest attempt ended; with a minus the other way round
        limit: at most this many items
        output: whether items have the output of their newest attempt that has one
        """
        return self._parts("/items", {"where": where, "order": order, "limit": limit, "output": output})

    def add_items(self, rows: Iterable[Addition]) -> Verdicts:
        """Add items, each with a verdict of its own; one that is known is not added twice. Needs scope add.

        rows: 1 … 5,000 items
        """
        answer: Verdicts = self._call("POST", "/items", body=rows)
        return answer

    def count_items(self, *, where: str | None = None) -> Count:
        """Count what matches a filter, up to 10,000 and for a moment at most. Needs scope read.

        where: filter, in the language of the command line
        """
        answer: Count = self._call("GET", "/items/count", {"where": where})
        return answer

    def group_items(self, *, by: str | None = None, where: str | None = None, limit: int | None = None) -> Groups:
        """Count what matches a filter by kind, scope, shard key or a field of the payload, for a moment at most. Needs scope read.

        by: kind, scope, shard_key, or a field of the payload: customer.country
        where: filter, in the language of the command line
        limit: at most this many groups; those with the most open items come first
        """
        answer: Groups = self._call("GET", "/items/groups", {"by": by, "where": where, "limit": limit})
        return answer

    def get_item(self, id: int) -> ItemDetail:
        """Get one item. Needs scope read.

        id: id of the item
        """
        answer: ItemDetail = self._call("GET", f"/items/{_segment(id)}")
        return answer

    def list_attempts(self, id: int, *, limit: int | None = None, cursor: str | None = None) -> AttemptList:
        """List how the attempts of an item ended, newest first. Needs scope read.

        id: id of the item
        limit: at most this many attempts
        cursor: next of the part before
        """
        answer: AttemptList = self._call("GET", f"/items/{_segment(id)}/attempts", {"limit": limit, "cursor": cursor})
        return answer

    def iter_attempts(self, id: int, *, limit: int | None = None) -> Iterator[Attempt]:
        """List how the attempts of an item ended, newest first, part after part.

        id: id of the item
        limit: at most this many attempts
        """
        return self._parts(f"/items/{_segment(id)}/attempts", {"limit": limit})

    def get_output(self, id: int, attempt: int) -> bytes:
        """Get the output of an attempt, byte for byte. Needs scope payload.

        id: id of the item
        attempt: number of the attempt
        """
        answer: bytes = self._call("GET", f"/items/{_segment(id)}/attempts/{_segment(attempt)}/output", raw=True)
        return answer

    def explain_item(self, id: int) -> Why:
        """Explain why an item is where it is, and which acts would help. Needs scope read.

        id: id of the item
        """
        answer: Why = self._call("GET", f"/items/{_segment(id)}/why")
        return answer

    def list_journal(self, *, item: int | None = None, actor: str | None = None, action: str | None = None, since: str | None = None, limit: int | None = None, cursor: str | None = None) -> JournalList:
        """List what operators and programs changed, newest first. Needs scope read.

        item: only acts on the item with this id
        actor: only acts of this actor
        action: only this action
        since: only since then: a duration such as 2h, or a time in RFC 3339
        limit: at most this many entries; the last part may have more
        cursor: next of the part before
        """
        answer: JournalList = self._call("GET", "/journal", {"item": item, "actor": actor, "action": action, "since": since, "limit": limit, "cursor": cursor})
        return answer

    def iter_journal(self, *, item: int | None = None, actor: str | None = None, action: str | None = None, since: str | None = None, limit: int | None = None) -> Iterator[Journal]:
        """List what operators and programs changed, newest first, part after part.

        item: only acts on the item with this id
        actor: only acts of this actor
        action: only this action
        since: only since then: a duration such as 2h, or a time in RFC 3339
        limit: at most this many entries; the last part may have more
        """
        return self._parts("/journal", {"item": item, "actor": actor, "action": action, "since": since, "limit": limit})

    def list_kinds(self) -> KindList:
        """List kinds and how they are treated. Needs scope read."""
        answer: KindList = self._call("GET", "/kinds")
        return answer

    def iter_kinds(self) -> Iterator[Kind]:
        """List kinds and how they are treated, part after part."""
        return self._parts("/kinds", {})

    def get_kind(self, kind: str) -> Kind:
        """Get how a kind is treated. Needs scope read.

        kind: name of the kind
        """
        answer: Kind = self._call("GET", f"/kinds/{_segment(kind)}", tagged=True)
        return answer

    def change_kind(self, kind: str, *, on_lost: OnLost | None = None, max_failures: int | None = None, max_crashes: int | None = None, max_lost: int | None = None, backoff_base_s: float | None = None, backoff_cap_s: float | None = None, timeout_s: float | None = None, keep_s: float | None = None, keep_forever: bool | None = None, max_running: int | None = None, max_running_per_shard_key: int | None = None, rate: str | None = None, rate_per_shard_key: str | None = None, burst: int | None = None, if_match: str | None = None) -> Kind:
        """Change how a kind is treated, unless it was changed since it was read. Needs scope operate.

        kind: name of the kind
        if_match: ETag of the kind as it was read, or *; if it is not given, the ETag of the last read with this client
        """
        if_match = self._tag(f"/kinds/{_segment(kind)}") if if_match is None else if_match
        answer: Kind = self._call("PATCH", f"/kinds/{_segment(kind)}", body={"on_lost": on_lost, "max_failures": max_failures, "max_crashes": max_crashes, "max_lost": max_lost, "backoff_base_s": backoff_base_s, "backoff_cap_s": backoff_cap_s, "timeout_s": timeout_s, "keep_s": keep_s, "keep_forever": keep_forever, "max_running": max_running, "max_running_per_shard_key": max_running_per_shard_key, "rate": rate, "rate_per_shard_key": rate_per_shard_key, "burst": burst}, headers={"If-Match": if_match})
        return answer

    def pause_kind(self, kind: str, *, paused: bool, reason: str | None = None) -> Kind:
        """Pause a kind, or end its pause. Needs scope operate.

        kind: name of the kind
        """
        answer: Kind = self._call("PUT", f"/kinds/{_segment(kind)}/paused", body={"paused": paused, "reason": reason})
        return answer

    def list_leases(self, *, from_: str | None = None, to: str | None = None, limit: int | None = None, cursor: str | None = None) -> LeaseList:
        """List the leases in force; with the parameter from, the leases that ended, the latest first. Needs scope read.

        from_: list those that ended since then: a duration such as 2h, or a time in RFC 3339
        to: with from: those that ended before
        limit: at most this many leases
        cursor: next of the part before
        """
        answer: LeaseList = self._call("GET", "/leases", {"from": from_, "to": to, "limit": limit, "cursor": cursor})
        return answer

    def iter_leases(self, *, from_: str | None = None, to: str | None = None, limit: int | None = None) -> Iterator[Lease]:
        """List the leases in force; with the parameter from, the leases that ended, the latest first, part after part.

        from_: list those that ended since then: a duration such as 2h, or a time in RFC 3339
        to: with from: those that ended before
        limit: at most this many leases
        """
        return self._parts("/leases", {"from": from_, "to": to, "limit": limit})

    def finish_leases(self, *, endings: List[Ending]) -> LeaseAnswers:
        """End attempts, each with its outcome. Needs scope work."""
        answer: LeaseAnswers = self._call("POST", "/leases/finish", body={"endings": endings})
        return answer

    def held_leases(self, *, tokens: List[str]) -> LeaseAnswers:
        """Hear whether leases are held still, and what was cancelled, without extending them. Needs scope work."""
        answer: LeaseAnswers = self._call("POST", "/leases/held", body={"tokens": tokens})
        return answer

    def release_leases(self, *, tokens: List[str]) -> LeaseAnswers:
        """Hand items back undone. Needs scope work."""
        answer: LeaseAnswers = self._call("POST", "/leases/release", body={"tokens": tokens})
        return answer

    def renew_leases(self, *, tokens: List[str], lease_s: int | None = None) -> LeaseAnswers:
        """Extend leases, and hear what was cancelled. Needs scope work.

        lease_s: seconds until the leases end, from now; 60 if it is not given
        """
        answer: LeaseAnswers = self._call("POST", "/leases/renew", body={"tokens": tokens, "lease_s": lease_s})
        return answer

    def start_leases(self, *, tokens: List[str], lease_s: int | None = None) -> LeaseAnswers:
        """Mark items that were claimed ahead as started. Needs scope work.

        lease_s: seconds until the leases end, from now; 60 if it is not given
        """
        answer: LeaseAnswers = self._call("POST", "/leases/start", body={"tokens": tokens, "lease_s": lease_s})
        return answer

    def list_locks(self) -> LockList:
        """List the named locks that are held. Needs scope read."""
        answer: LockList = self._call("GET", "/locks")
        return answer

    def iter_locks(self) -> Iterator[Lock]:
        """List the named locks that are held, part after part."""
        return self._parts("/locks", {})

    def get_me(self) -> Me:
        """Tell who asks, and what they may do. Needs scope read."""
        answer: Me = self._call("GET", "/me")
        return answer

    def get_description(self) -> Dict[str, Any]:
        """Get this description, OpenAPI 3.1. Needs no token."""
        answer: Dict[str, Any] = self._call("GET", "/openapi.json")
        return answer

    def list_rounds(self, *, where: str | None = None, from_: str | None = None, to: str | None = None, limit: int | None = None, cursor: str | None = None) -> RoundList:
        """List the rounds of recurring items that were closed, the latest first. Needs scope read.

        where: filter, in the language of the command line; conditions on the newest attempt are asked of the one that closed the round
        from_: list those that were closed since then: a duration such as 2h, or a time in RFC 3339
        to: list those that were closed before
        limit: at most this many rounds
        cursor: next of the part before
        """
        answer: RoundList = self._call("GET", "/rounds", {"where": where, "from": from_, "to": to, "limit": limit, "cursor": cursor})
        return answer

    def iter_rounds(self, *, where: str | None = None, from_: str | None = None, to: str | None = None, limit: int | None = None) -> Iterator[Round]:
        """List the rounds of recurring items that were closed, the latest first, part after part.

        where: filter, in the language of the command line; conditions on the newest attempt are asked of the one that closed the round
        from_: list those that were closed since then: a duration such as 2h, or a time in RFC 3339
        to: list those that were closed before
        limit: at most this many rounds
        """
        return self._parts("/rounds", {"where": where, "from": from_, "to": to, "limit": limit})

    def get_stats(self, *, wait: bool | None = None) -> Stats:
        """Count what is open by kind, and how fast it is worked; the field at tells how old the answer is. Needs scope read.

        wait: false: wait a tenth of a second at most for a count, which takes seconds where millions of items are open; without one of the last minute the answer is too_slow then
        """
        answer: Stats = self._call("GET", "/stats", {"wait": wait})
        return answer

    def get_version(self) -> Version:
        """Get the version of the server. Needs no token."""
        answer: Version = self._call("GET", "/version")
        return answer


def _segment(value: object) -> str:
    return urllib.parse.quote(str(value), safe="")


class Stopped(Exception):
    """The work on an item is to stop: its lease was lost, it was cancelled, or the worker ends now."""


class End(Exception):
    """How an attempt ends, raised by a handler: done, skipped, failed, snoozed, released or unknown.

    code is the class of a failure, such as http_404. A failure that is final is not tried again. delay_s is after how
    many seconds a failed or snoozed item is due again. at_most (1 to 100), of snoozed with a code: so many in a row are
    no failure, further ones are.
    """

    def __init__(self, outcome: Literal["done", "skipped", "failed", "snoozed", "released", "unknown"], error: str = "",
                 *, code: str = "", final: bool = False, delay_s: float = 0, at_most: int = 0,
                 output: Any = None) -> None:
        super().__init__(error or outcome)
        if at_most and not (code and at_most in range(1, 101)):
            raise ValueError("at_most is 1 to 100, with a code")
        self.ending: Dict[str, Any] = {"outcome": outcome, "error": error, "code": code, "final": final,
                                       "delay_s": delay_s}
        if at_most:  # an older server refuses the field
            self.ending["at_most"] = at_most
        if output is not None:
            self.ending["output"] = output


class Job:
    """One item under its lease."""

    def __init__(self, lent: Lent, deadline: float) -> None:
        self.lent = lent
        self.id, self.kind, self.scope, self.key = lent["id"], lent["kind"], lent["scope"], lent["key"]
        self.payload: Any = lent["payload"]
        self.attempt = lent["attempt"]  # the fencing number of the item: a receiver may refuse smaller ones
        self.token = lent["token"]  # a secret: it ends this lease, and never another
        self.deadline = deadline  # of the monotonic clock: until then the lease is surely held
        self.lost = False  # the ledger reports that the lease is over
        self._stop = threading.Event()
        self._why = ""

    def stop(self, why: str, lost: bool = False) -> None:
        self._why, self.lost = self._why or why, self.lost or lost
        self._stop.set()

    @property
    def stopped(self) -> bool:
        """Whether the work is to stop. It is cheap: ask before each effect."""
        if time.monotonic() >= self.deadline:  # also right after a freeze, before anything else has noticed
            self.stop("the lease was not renewed in time")
        return self._stop.is_set()

    def check(self) -> None:
        """Raises Stopped if the work is to stop. Call it before each effect."""
        if self.stopped:
            raise Stopped(self._why)


_log = logging.getLogger("ledgerd")
_workers = 0


def _passes(error: LedgerdError) -> bool:
    """Whether a call may succeed later, once the API has answered: a proxy answers 404 while the server restarts."""
    return error.temporary or error.code.startswith("http_")


class Worker:
    """Claims items of a kind, has a handler work them, and reports how they ended.

    The result of the handler is the output, as JSON. An exception is a failure; End ends an attempt in another way. Up to
    concurrency handlers run at a time, each in a thread. Up to ahead further items are claimed before a thread is free;
    then each start is reported. agent is a name that no other process has.
    """

    def __init__(self, client: Client, kind: str, handler: Callable[[Job], Any], *, agent: Optional[str] = None,
                 concurrency: int = 1, ahead: int = 0, lease_s: int = 60, grace_s: float = 30.0,
                 program: str = "") -> None:
        global _workers
        if lease_s < 3 or concurrency < 1 or ahead < 0:
            raise ValueError("lease_s must be 3 or more, concurrency 1 or more, ahead 0 or more")
        _workers += 1
        name = f"{socket.gethostname()}/{os.getpid()}" + (f".{_workers}" if _workers > 1 else "")
        self.client, self.kind, self.handler, self.agent = client, kind, handler, agent or name
        self.concurrency, self.ahead, self.lease_s, self.grace_s, self.program = concurrency, ahead, lease_s, grace_s, program
        self._poll = client._connection()
        self._renewing = client._connection(lease_s / 3)  # if a renewal hangs, there is time for another
        self._changed = threading.Condition()  # guards the following
        self._ready: Deque[Job] = collections.deque()  # items that are not begun
        self._held: Dict[str, Job] = {}  # items whose end is not recorded, by token
        self._running = 0
        self._ends: Deque[Dict[str, Any]] = collections.deque()  # ends that are not recorded
        self._past: "collections.OrderedDict[str, None]" = collections.OrderedDict()  # tokens of recorded ends and lost leases
        self._polling = self._stopping = self._over = False
        self._failed: Optional[BaseException] = None
        self._signals = 0

    def stop(self) -> None:
        """Makes run claim nothing more, hand back items that are not begun, and return when all handlers have ended."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()

    def run(self, *, signals: bool = True) -> None:
        """Works until stop, SIGTERM, SIGINT, or until the server asks the agent to end. A second signal ends it now.

        It raises LedgerdError if the server refuses its claims for good, or if ends are not recorded.
        """
        before: Dict[signal.Signals, Any] = {}
        if signals and threading.current_thread() is threading.main_thread():
            for name in (signal.SIGTERM, signal.SIGINT):
                before[name] = signal.signal(name, self._signalled)
        bodies = [self._claim, self._report, self._keep, *[self._work] * self.concurrency]
        threads = [threading.Thread(target=self._guard, args=(body,), daemon=True) for body in bodies]
        claim, report = threads[:2]
        try:
            for thread in threads:
                thread.start()
            while not self._stopping:
                self._await(0.2)  # a signal handler may take no lock, so it is asked for
            while claim.is_alive() and self._signals < 2:
                with self._changed:
                    if self._polling:  # it waits for items that nothing will work on
                        self._poll.cut()
                claim.join(0.05)
            self._drain()
        finally:
            with self._changed:
                self._stopping = self._over = True
                self._changed.notify_all()
            report.join(self.lease_s)
            for name, handler in before.items():
                signal.signal(name, handler)
        if self._failed is None and self._ends:
            detail = f"the ends of {len(self._ends)} items are not recorded"
            self._failed = LedgerdError({"code": "no_answer", "detail": detail})
        if self._failed is not None:
            raise self._failed

    def _guard(self, body: Callable[[], None]) -> None:
        try:
            body()
        except BaseException as error:  # run raises it
            self._failed = self._failed or error
            self.stop()

    def _signalled(self, number: int, frame: object) -> None:
        self._signals += 1

    def _await(self, seconds: float) -> None:
        with self._changed:
            if self._signals and not self._stopping:
                self._stopping = True
                self._changed.notify_all()  # the thread that claims may wait for room
            if not self._stopping or self._running or self._ends:
                self._changed.wait(seconds)

    def _drain(self) -> None:
        """Hands back items that are not begun. Waits grace_s for the handlers, then tells them to stop and waits 5 s."""
        for seconds in (self.grace_s, 5.0):
            until = time.monotonic() + seconds
            while True:
                with self._changed:
                    while self._ready:
                        self._end(self._ready.popleft(), {"outcome": "released"})
                    if not self._running:
                        return
                if time.monotonic() > until or self._signals > 1:
                    break
                self._await(0.2)
            with self._changed:
                for job in self._held.values():
                    job.stop("the worker ends")
        _log.warning("%d items are still worked: their leases end in %d s", self._running, self.lease_s)

    def _claim(self) -> None:
        resume, pause, answered = True, 1.0, False  # an agent of this name may have held items
        while True:
            with self._changed:
                while not self._stopping and len(self._held) >= self.concurrency + self.ahead:
                    self._changed.wait()
                if self._stopping and not resume:
                    return
                most = self.concurrency + self.ahead
                last, room = self._stopping, most if resume else max(1, most - len(self._held))
                self._polling = not resume
            began = time.monotonic()
            try:
                got: Claimed = self.client._call("POST", "/claims", None, {
                    "kind": self.kind, "agent": self.agent, "limit": room, "lease_s": self.lease_s,
                    "wait_s": 0 if resume else min(30, max(1, self.lease_s // 3)), "resume": resume, "ahead": self.ahead > 0,
                }, connection=self._poll)
            except LedgerdError as error:
                resume = True  # the answer may have been lost
                passes = _passes(error) if answered else error.temporary
                if not passes or last:
                    self._failed = self._failed if last else error
                    self.stop()
                    return
                with self._changed:
                    if not self._stopping:
                        _log.warning("no claim: %s", error)
                        self._changed.wait(max(pause, error.retry_after))
                pause = min(2 * pause, 30.0)
                continue
            resume, pause, answered = False, 1.0, True
            with self._changed:
                for lent in got["leases"]:
                    if lent["token"] not in self._held and lent["token"] not in self._past:
                        self._held[lent["token"]] = job = Job(lent, began + self.lease_s)
                        self._ready.append(job)
                if got["drain"]:
                    self._stopping = True
                self._changed.notify_all()

    def _work(self) -> None:
        while True:
            with self._changed:
                while not self._ready:
                    if self._over:
                        return
                    self._changed.wait()
                if self._stopping:  # it is handed back
                    self._changed.wait(0.1)
                    continue
                job = self._ready.popleft()
                self._running += 1
            ending: Optional[Dict[str, Any]] = None
            try:
                if self._begin(job):
                    ending = self._handle(job)
            finally:
                with self._changed:
                    self._running -= 1
                    self._end(job, {"outcome": "released"} if ending is None else ending)

    def _begin(self, job: Job) -> bool:
        """Reports the start of an item that was claimed ahead. It may have been lost or cancelled meanwhile."""
        while self.ahead > 0 and not job.stopped:
            began = time.monotonic()
            try:
                told = self._leases("start", [job.token])["answers"][0]
            except LedgerdError as error:
                if not _passes(error):
                    return False
                time.sleep(max(1.0, error.retry_after))
                continue
            if not told["recorded"]:
                job.stop(told.get("message", ""), lost=not told.get("cancel") and told.get("reason") == "lease_lost")
                return False
            job.deadline = began + self.lease_s
            break
        return not job.stopped

    def _handle(self, job: Job) -> Dict[str, Any]:
        try:
            output = self.handler(job)
            return {} if output is None else {"output": output}
        except Stopped as stopped:
            _log.warning("item %d is not worked on: %s", job.id, stopped)
            return {"outcome": "released"}
        except End as end:
            return end.ending
        except BaseException as error:  # sys.exit, too: the thread goes on
            code = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|[^A-Za-z0-9]+", "_", type(error).__name__).lower()[:64]
            return {"outcome": "failed", "code": code, "error": str(error) or type(error).__name__,
                    "log": traceback.format_exc()[-16_000:]}

    def _end(self, job: Job, ending: Dict[str, Any]) -> None:
        """Queues an end for _report; the caller holds _changed."""
        try:
            _json(ending)
        except (TypeError, ValueError, RecursionError) as error:
            ending = {"outcome": "failed", "code": "bad_result", "error": str(error)}
        if job.lost and ending.get("outcome") == "released":
            self._forget(job.token)
        else:  # also of a lost lease: a late report ends a doubt
            self._ends.append({"token": job.token, "worker": self.program, **ending})
        self._changed.notify_all()

    def _forget(self, token: str) -> None:
        self._held.pop(token, None)
        self._past[token] = None
        if len(self._past) > 10_000:
            self._past.popitem(last=False)

    def _leases(self, what: str, tokens: List[str], connection: Optional[_Connection] = None) -> LeaseAnswers:
        return self._answers(what, tokens, {"tokens": tokens, "lease_s": self.lease_s}, connection)

    def _answers(self, what: str, tokens: List[str], body: Dict[str, Any],
                 connection: Optional[_Connection] = None) -> LeaseAnswers:
        """Calls the API about leases. It refuses a call if it refuses its only lease: then this refusal is the answer."""
        try:
            answers: LeaseAnswers = self.client._call("POST", "/leases/" + what, None, body, connection=connection)
            return answers
        except LedgerdError as error:
            invalid = what == "finish" and (error.status == 413 or error.code in ("invalid", "bad_request"))
            if len(tokens) > 1 or not (invalid or error.code in ("lease_lost", "conflict")
                                       or error.code == "scope" and error.field == "token"):
                raise
            return {"answers": [{"token": tokens[0], "recorded": False, "reason": "invalid" if invalid else error.code,
                                 "message": error.detail}], "drain": False}

    def _report(self) -> None:
        """Reports ends until each is answered. Ends that come during a call are reported together by the next call."""
        pause, most = 1.0, 1000
        while True:
            with self._changed:
                while not self._ends:
                    if self._over and not self._ready:
                        return
                    self._changed.wait(1.0)
                batch: List[Dict[str, Any]] = []
                size = 0
                for end in self._ends:
                    size += len(_json(end))
                    if batch and (size > 4 << 20 or len(batch) == most):
                        break
                    batch.append(end)
            try:
                told = self._answers("finish", [end["token"] for end in batch], {"endings": batch})
            except LedgerdError as error:
                if len(batch) > 1 and 400 <= error.status < 500 and not error.temporary:  # try each alone
                    most = 1
                    continue
                with self._changed:
                    held = [self._held[e["token"]] for e in self._ends if e["token"] in self._held]
                    if not _passes(error) or self._over and all(time.monotonic() > job.deadline for job in held):
                        _log.error("the ends of %d items are not recorded: %s", len(self._ends), error)
                        self._failed = self._failed or error
                        self._stopping = self._over = True
                        self._changed.notify_all()
                        return
                    _log.warning("no answer about %d ends: %s", len(batch), error)
                    self._ends.rotate(-len(batch))  # others first: a proxy may refuse only these
                    self._changed.wait(max(pause, error.retry_after))
                pause = min(2 * pause, 10.0)
                continue
            pause, most = 1.0, 1000
            with self._changed:
                for end, answer in zip(batch, told["answers"]):
                    self._ends.popleft()
                    self._recorded(end, answer)
                self._stopping = self._stopping or told["drain"]
                self._changed.notify_all()

    def _recorded(self, end: Dict[str, Any], answer: LeaseAnswer) -> None:
        if answer.get("reason") == "unavailable":
            self._ends.append(end)
            return
        if answer.get("reason") == "invalid" and end.get("code") != "bad_result":
            self._ends.append({"token": end["token"], "outcome": "failed", "code": "bad_result",
                               "error": answer.get("message", "")})
            return
        if not answer["recorded"]:
            _log.warning("an end is not recorded: %s", answer.get("message"))
        self._forget(end["token"])

    def _keep(self) -> None:
        """Renews held leases after a third of their time."""
        pause = again = 0.0
        while True:
            with self._changed:
                now = time.monotonic()
                due = min((job.deadline - self.lease_s * 2 / 3 for job in self._held.values() if not job.lost),
                          default=now + self.lease_s)
                if max(due, again) > now:
                    self._changed.wait(max(due, again) - now)
                if self._over:  # the leases of items that are still worked end by themselves
                    return
                began = time.monotonic()
                if began < max(due, again):
                    continue
                for job in self._held.values():
                    job.stopped  # stops a job whose lease is over
                tokens = [token for token, job in self._held.items()
                          if not job.lost and job.deadline - began < self.lease_s * 5 / 6][:1000]
            if not tokens:
                continue
            try:
                told = self._leases("renew", tokens, self._renewing)
            except LedgerdError as error:
                _log.warning("leases are not renewed: %s", error)
                pause = min(max(2 * pause, 0.5), 5.0)
                again = time.monotonic() + pause
                continue
            pause = 0.0
            with self._changed:
                for answer in told["answers"]:
                    self._renewed(answer, began)
                if any(answer.get("reason") == "unavailable" for answer in told["answers"]):
                    again = time.monotonic() + 1.0
                self._stopping = self._stopping or told["drain"]
                self._changed.notify_all()

    def _renewed(self, answer: LeaseAnswer, began: float) -> None:
        job = self._held.get(answer["token"])
        if job is None:
            return
        if answer["recorded"]:
            job.deadline = began + self.lease_s
        elif answer.get("reason") != "unavailable":
            job.stop(answer.get("message", ""), lost=True)
        if answer.get("cancel"):
            job.stop("the item was cancelled")
