"""Turns a Python function into a plugin of ledgerd: a program that ledgerd starts, feeds with items and watches."""
from __future__ import annotations

import errno
import json
import math
import os
import re
import sys
import threading
import time
import traceback
from dataclasses import dataclass
from datetime import datetime, timezone
from types import SimpleNamespace
from typing import Any, Callable, Dict, Generic, List, Mapping, Optional, Sequence, Type, TypeVar

from . import wire
from .schema import culprit, dumps, load, schema, words

COOKIE = "6a0b4f0e-ledgerd"
MAX_OUTPUT, MAX_ERROR, MAX_LOG, MAX_WORD = 1 << 20, 8 << 10, 16 << 10, 64  # bytes
MOST_DELAY, LONG = 10.0 * 365 * 86400, 1e6  # seconds

# The real stdin and stdout. They are for the protocol, so modules that print or read get others.
HOST, HANDSHAKE = -1, -1
if os.environ.get("LEDGERD_PLUGIN") == COOKIE:
    HOST, HANDSHAKE = os.dup(0), os.dup(1)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    sys.stdout.flush()
    sys.stdout = sys.stderr

C = TypeVar("C")
I = TypeVar("I")
F = TypeVar("F", bound=Callable[..., Any])


class Failure(Exception):
    """The item has failed. permanent: trying again cannot help. retry_after: seconds until it may be tried again."""
    outcome = "FAILED"
    at_most = 0

    def __init__(self, why: object = "", *, code: str = "", permanent: bool = False, retry_after: float = 0,
                 output: Any = None) -> None:
        super().__init__(str(why))
        self.code, self.final, self.output = code, permanent, output
        self.delay = min(max(float(retry_after), 0.0), MOST_DELAY)
        if math.isnan(self.delay):  # an error here shows the author the line
            raise ValueError("retry_after is not a number")


class Refused(Failure):
    """An item to add was refused; refused is the item whose attempt ends by it."""
    refused: Any = None


class Skip(Failure):
    """The item is completed: there was nothing to do."""
    outcome = "SKIPPED"


class Doubt(Failure):
    """The effect may or may not have happened: a person decides."""
    outcome = "UNKNOWN"


class Snooze(Failure):
    """The item is asked for again after these seconds, one at least. It is no failure. With at_most (1 to 100) and a
    code, further attempts in a row are failures."""
    outcome = "SNOOZED"

    def __init__(self, seconds: float, why: object = "", *, code: str = "", at_most: int = 0) -> None:
        super().__init__(why, code=code, retry_after=max(float(seconds), 1.0))
        if at_most and not (code and at_most in range(1, 101)):
            raise ValueError("at_most is 1 to 100, with a code")
        self.at_most = at_most


class Stopped(Exception):
    """The attempt should end; raised by Item.check and Item.sleep. Its text is Item.reason."""


STOPPED: Dict[str, Dict[str, str]] = {
    "cancelled": {"outcome": "CANCELLED"}, "lease_lost": {"outcome": "RELEASED"}, "stopping": {"outcome": "RELEASED"},
    "timeout": {"outcome": "FAILED", "ending": "ENDING_TIMED_OUT", "code": "timeout"}}
SECRETS: List[str] = []  # values of secrets of the config, the longest first


def clean(text: object, most: int) -> str:
    """Text that ledgers keep: valid, without NUL and secrets, at most so many bytes."""
    plain = (words(text) if isinstance(text, BaseException) else str(text)).replace("\0", "\ufffd")
    for secret in SECRETS:
        plain = plain.replace(secret, "***")
    return plain.encode("utf-8", "replace")[:most].decode("utf-8", "ignore")


class Item(Generic[C, I]):
    """One attempt. config and payload are checked, and have their defaults."""
    payload: I

    def __init__(self, it: Any, plugin: Plugin[C, I], config: C, host: Any) -> None:
        self.id, self.kind, self.scope, self.key, self.attempt = it.id, it.kind, it.scope, it.key, it.attempt
        self.idempotency_key: str = it.idempotency_key  # the same for all attempts of one round
        self.traceparent, self.tracestate = it.traceparent, it.tracestate  # W3C trace context; empty: not traced
        self.previous: Any = None  # output of the last completed round
        self.config, self._it, self._plugin, self._host = config, it, plugin, host
        self.deadline: Optional[float] = None  # by time.monotonic
        self._result = wire.Result(id=it.id, attempt=it.attempt, lock_id=it.lock_id)
        self._reason, self._end, self._lock = "", threading.Event(), threading.Lock()
        self._log, self._emitted, self._settled, self.begun = b"", 0, False, False

    @property
    def reason(self) -> str:
        """Why the attempt should end: cancelled, lease_lost, stopping or timeout; empty if it may go on."""
        return self._reason or ("timeout" if self.remaining == 0 else "")

    @property
    def cancelled(self) -> bool:
        """Whether the attempt should end."""
        return self.reason != ""

    @property
    def remaining(self) -> Optional[float]:
        """The seconds that are left, None without a limit: a timeout for what waits."""
        return None if self.deadline is None else max(0.0, self.deadline - time.monotonic())

    def check(self) -> None:
        """Raises Stopped if the attempt should end."""
        if self.cancelled:
            raise Stopped(self.reason)

    def sleep(self, seconds: float) -> None:
        """Waits, and raises Stopped as soon as the attempt should end."""
        self._end.wait(min(seconds, LONG if self.remaining is None else self.remaining))
        self.check()

    def log(self, message: object, **fields: object) -> None:
        """Adds a line to the log of the attempt, whose last 16 KiB are kept."""
        now = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
        text = " ".join([now, str(message), *(f"{name}={value}" for name, value in fields.items())])
        with self._lock:
            self._log = (self._log + clean(text, sys.maxsize).encode() + b"\n")[-MAX_LOG:]

    def progress(self, done: float, total: float = 0, unit: str = "") -> None:
        """Reports how far the work is; the newest report is passed on, once a second at most."""
        if math.isfinite(done) and math.isfinite(total):
            self._host.report(self, wire.Progress(id=self.id, attempt=self.attempt, done=int(done), total=int(total),
                                                  unit=clean(unit, MAX_WORD)))

    def emit(self, kind: str, key: str, payload: Any = None, *, scope: Optional[str] = None, fingerprint: str = "",
             due: Optional[datetime] = None, priority: int = 0) -> None:
        """Adds an item if and only if this attempt ends as done or skipped."""
        scope = f"{self.kind}/{self.id}" if scope is None else scope
        try:
            raw = b"" if payload is None else dumps(payload)
            names = [part.encode() for part in (key, scope, fingerprint)]
        except UnicodeEncodeError as err:
            raise self._refuse(f"emit {kind}: {err}") from err
        emitted = self._emitted + len(raw) + sum(map(len, names)) + 64
        if (kind not in self._plugin.emits or not 0 < len(names[0]) <= 2048 or len(names[1]) > 256 or len(raw) > 1 << 20
                or any(b"\0" in name for name in names) or abs(priority) > 2 or self._settled
                or len(self._result.emit) >= 10_000 or emitted > 8 << 20):
            raise self._refuse(f"emit {kind} {key[:80]!r}: kind must be in emits, key have 1 to 2,048 bytes, scope at "
                               "most 256, payload 1 MiB, no NUL; priority is -2 to 2; at most 10,000 items and 8 MiB "
                               "an attempt")
        self._result.emit.add(kind=kind, key=key, scope=scope, fingerprint=fingerprint, payload=raw, priority=priority,
                              due_us=int(due.timestamp() * 1e6) if due else 0)
        self._emitted = emitted

    def _refuse(self, why: str) -> Failure:
        refused = Refused(why, code="emit_refused", permanent=True)  # it would be the same at the next attempt
        refused.refused = self
        return refused

    def settle(self, value: Any = None) -> None:
        """Ends the attempt of an item of a batch, by its output or an exception. Only the first call counts."""
        if isinstance(value, Refused) and value.refused is not self:  # it is about another item of the batch
            value = RuntimeError(words(value))
        try:
            ended = self._judge(value) if isinstance(value, BaseException) else output_of(value)
            result = wire.Result(**{**ended, "outcome": "OUTCOME_" + ended["outcome"]})
        except BaseException as err:  # an exception whose own methods raise must not end the thread
            ended = self._judge(TypeError(f"{type(value).__name__}: {words(err)}"))
            result = wire.Result(**{**ended, "outcome": "OUTCOME_" + ended["outcome"]})
        with self._lock:
            if self._settled:
                return
            self._settled = True
        self._result.MergeFrom(result)
        self._result.log = self._log.decode("utf-8", "ignore")
        if ended["outcome"] not in ("DONE", "SKIPPED"):
            del self._result.emit[:]
        self._host.settled(self, self._result)

    def begin(self) -> bool:
        """Begins the time of the attempt, unless it has ended already."""
        if self._it.timeout_ms > 0:
            self.deadline = time.monotonic() + self._it.timeout_ms / 1000
        self.begun = not self._settled
        return self.begun

    def stop(self, reason: str) -> None:
        """Tells the function to end."""
        self._reason = self._reason or reason
        self._end.set()

    def _judge(self, err: BaseException) -> Dict[str, Any]:
        code, output = getattr(err, "code", ""), output_of(getattr(err, "output", None))
        if not (code and isinstance(code, str)):
            code = errno.errorcode.get(getattr(err, "errno", 0) or 0, "")
        origin = "" if isinstance(err, (Failure, Stopped)) else type(err).__name__ + ": "
        ended = {"error": clean(origin + clean(err, MAX_ERROR), MAX_ERROR),
                "output": output.get("output", b""), "code": re.sub("[^a-z0-9_]", "_", code.lower())[:MAX_WORD]}
        if isinstance(err, Failure):
            return {**ended, "outcome": err.outcome, "final": err.final, "at_most": err.at_most,
                    "delay_ms": max(0, math.ceil(err.delay * 1000))}
        if self.cancelled:
            told = STOPPED[self.reason]
            return {**ended, **told, "code": ended["code"] or told.get("code", "")}
        self.log("".join(traceback.format_exception(type(err), err, err.__traceback__)).rstrip())
        if self._plugin.on_lost == "doubt":  # an exception of unknown origin tells nothing of the effect
            ended.update(code="panic", ending="ENDING_PANICKED")
        return {**ended, "outcome": "FAILED"}


def output_of(value: Any) -> Dict[str, Any]:
    try:
        raw = b"" if value is None else dumps(value)
        if len(raw) <= MAX_OUTPUT:
            return {"outcome": "DONE", "output": raw}
        problem = f"output has {len(raw)} bytes, at most {MAX_OUTPUT}; write it to a file and return its path"
    except Exception as err:
        problem = f"{culprit(value)}: {words(err)}"
    return {"outcome": "FAILED", "final": True, "code": "output", "error": clean(problem, MAX_ERROR)}


def call_method(config: Any, method: str) -> None:
    """Calls a method of a config, if it has one. A field may have the same name."""
    found = getattr(config, method, None)
    if callable(found):
        found()


@dataclass
class Empty:
    """A config or payload without fields."""


class Plugin(Generic[C, I]):
    """A plugin: its description and its function. timeout is in seconds; on_lost is repeat or doubt.

    The class of the config may have methods: open, called before the first item; close, called after the last; check,
    to raise an exception if a dependency of the plugin does not work. Its __post_init__ may refuse a config.
    """

    def __init__(self, name: str, version: str, *, input: Type[I] = Empty, config: Type[C] = Empty,  # type: ignore
                 output: Any = Any, doc: str = "", match: Sequence[str] = (), emits: Sequence[str] = (),
                 previous: bool = False, on_lost: str = "repeat", concurrency: int = 8, timeout: float = 0,
                 max_failures: int = 0, examples: Sequence[Mapping[str, Any]] = ()) -> None:
        for what, values in (("match", match), ("emits", emits), ("examples", examples)):
            if isinstance(values, (str, Mapping)):
                raise TypeError(f"{what} must be a list")
        for what, number in (("concurrency", concurrency), ("timeout", timeout), ("max_failures", max_failures)):
            if not isinstance(number, (int, float)):
                raise TypeError(f"{what} must be a number" + " of seconds" * (what == "timeout"))
        if on_lost not in ("repeat", "doubt") or concurrency < 1:
            raise ValueError("on_lost is repeat or doubt, concurrency 1 or more")
        self.name, self.version, self.doc, self.match, self.emits = name, version, doc, match, emits
        self.input, self.config, self.output_schema = input, config, schema(output, given=False)
        self.input_schema, self.config_schema = schema(input), schema(config)
        self.previous, self.on_lost, self.concurrency, self.timeout = previous, on_lost, concurrency, timeout
        self.max_failures, self.examples, self.most, self.wait = max_failures, examples, 0, 0.0
        self.function: Any = None

    def work(self, function: F) -> F:
        """Decorates the function that works an item: it returns the output, or raises."""
        self.function = function
        return function

    def batch(self, most: int = 100, wait: float = 0.02) -> Callable[[F], F]:
        """Decorates a function that settles each item of a list with at most so many items; wait is in seconds."""
        self.most, self.wait = most, wait
        return self.work

    def call(self, items: List[Item[C, I]]) -> None:
        """Works the items of one call and settles each. It never raises."""
        fitting = []
        for item in items:
            item.payload, problems = load(self.input, self.input_schema, item._it.payload)
            try:
                item.previous = json.loads(item._it.previous or b"null")
            except (ValueError, RecursionError) as err:
                problems.append(("", f"previous: {words(err)}"))
            if problems:
                text = "; ".join(f"{field}: {what}" if field else what for field, what in problems)
                item.settle(Failure(f"payload: {text}", code="payload", permanent=True))
            else:
                fitting.append(item)
        try:
            if self.most and fitting:
                self.function(fitting)
                value: Any = Failure("the function returned without having settled the item", code="unsettled")
            elif fitting:
                value = self.function(fitting[0])
        except BaseException as err:
            value = err
        for item in fitting:  # the function may have returned because its items were told to end
            unsettled = isinstance(value, Failure) and value.code == "unsettled"
            item.settle(Stopped(item.reason) if unsettled and item.cancelled else value)

    def attempt(self, payload: Any, config: Any = None, **fields: Any) -> Any:
        """Works one payload in this process, for tests, and returns the protocol's Result. fields: of its Item."""
        opened, problems = load(self.config, self.config_schema, dumps(config or {}))
        if problems:
            raise ValueError(f"config: {problems}")
        call_method(opened, "open")
        it = wire.Item(**{"id": 1, "attempt": 1, "kind": self.name, "key": "1", "payload": dumps(payload), **fields})
        results: List[Any] = []
        host = SimpleNamespace(settled=lambda _, result: results.append(result), report=lambda *_: None)
        item = Item(it, self, opened, host)
        item.begin()
        self.call([item])
        call_method(opened, "close")
        return results[0]

    def main(self) -> None:
        """Serves the plugin; the program's last call."""
        if HANDSHAKE < 0:
            sys.exit(f"{self.name} {self.version} is a plugin; ledgerd starts it:\n\n"
                     f"  ledgerd run {self.name} INPUT…\n  ledgerd plugin check {sys.argv[0]}")
        if not self.function:
            sys.exit(f"{self.name} has no function: decorate one with plugin.work or plugin.batch")
        from .process import serve  # not before: tests need no gRPC
        serve(self)
