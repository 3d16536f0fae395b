"""The process of a plugin: its calls, its stream, its life. docs/plugins/any-language.md of ledgerd has the rules."""
import base64
import datetime
import json
import os
import queue
import signal
import socket
import sys
import tempfile
import threading
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable, Deque, Dict, Iterator, List, NoReturn, Tuple

import grpc

from . import HANDSHAKE, HOST, LONG, MAX_ERROR, SECRETS, Item, Plugin, Stopped, call_method, clean, wire
from .schema import dumps, fields_of, load, secrets_of, words

REASONS = {2: "lease_lost", 3: "stopping", 4: "timeout"}  # by Cancel.Reason; all others are "cancelled"
MAX_MESSAGE, FULL = 16 << 20, 1 << 20  # most bytes of a message; bytes of results after which a message ends
CREDIT_TIME, MOST_CREDITS = 0.01, 256  # seconds of work that may wait here; most credits for it
STOP_TIME, ORPHAN_TIME, LEAVE_TIME = 1.0, 0.5, 0.5  # seconds: for stopped functions, after stdin, for last answers


def spawn(function: Callable[..., Any], *args: Any) -> None:
    threading.Thread(target=function, args=args, daemon=True).start()


class Process:
    """One config and one stream: items that wait or are in work, and results and reports for the next message."""

    def __init__(self, plugin: Plugin[Any, Any]) -> None:
        self.plugin, self.calls, self.every = plugin, plugin.concurrency, 1.0
        self.config: Any = None
        self.queue: Any = queue.SimpleQueue()  # of items that wait for a thread
        self.items: Dict[Tuple[int, int], Item[Any, Any]] = {}  # those without a result
        self.results: Deque[Any] = deque()
        self.reports: Dict[Any, Any] = {}  # the newest of each item
        self.due = 0.0  # when reports may leave
        self.changed, self.filling = threading.Condition(), threading.Lock()
        # window: the most that granted may be; granted: credits of the host, and items here; busy: running calls
        self.window = self.granted = self.busy = 0
        self.each = 0.0  # seconds that an item takes, smoothed
        self.opened = self.draining = self.hung_up = self.over = self.sending = False

    def Describe(self, request: Any, context: Any) -> Any:
        p: Any = self.plugin
        fills = {f.metadata.get("input"): f.name for f, _ in fields_of(p.input)}
        kind = next((kind for kind in ("file", "url", "line") if kind in fills), None)
        if not kind and (texts := [f.name for f, of in fields_of(p.input) if of is str]):
            kind, fills["line"] = "line", texts[0]
        return wire.DescribeResponse(
            name=p.name, version=p.version, doc=p.doc, sdk="python/0.1.0", features=["previous"] * p.previous,
            match=p.match, emits=p.emits, on_lost="ON_LOST_" + p.on_lost.upper(), timeout_ms=int(p.timeout * 1000),
            max_failures=p.max_failures, concurrency=p.concurrency, max_batch=p.most, max_wait_ms=int(p.wait * 1000),
            config_schema=dumps(p.config_schema), input_schema=dumps(p.input_schema),
            output_schema=dumps(p.output_schema), secrets=secrets_of(p.config_schema),
            input=kind and dict(field=fills[kind], type=kind, modified=fills.get("modified"), owner=fills.get("owner")),
            examples=[dict(doc=e.get("doc"), payload=dumps(e["payload"]),
                           output=dumps(e["output"]) if "output" in e else b"") for e in p.examples])

    def Configure(self, request: Any, context: Any) -> Any:
        if self.config and not request.validate_only:
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, "configured already; another config, another process")
        secrets = [form for secret in request.secrets.values() if len(secret) > 3
                   for form in (secret, repr(secret)[1:-1], json.dumps(secret)[1:-1])]  # as an exception may show it
        SECRETS[:] = sorted({*SECRETS, *secrets}, key=len, reverse=True)
        config, problems = load(self.plugin.config, self.plugin.config_schema, request.config, request.secrets)
        if not problems and not request.validate_only:
            try:
                call_method(config, "open")
            except BaseException as err:  # also sys.exit: a thread that ends by it answers nothing
                problems = [("", words(err))]
            else:
                self.config, self.calls = config, request.concurrency or self.calls
                self.every = min(LONG, (request.progress_ms or 1000) / 1000)
        return wire.ConfigureResponse(problems=[dict(field=f, message=clean(what, MAX_ERROR)) for f, what in problems])

    def CheckHealth(self, request: Any, context: Any) -> Any:
        if not self.config:
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, "CheckHealth is called after Configure and before Drain")
        try:
            call_method(self.config, "check")
            return wire.CheckHealthResponse()
        except BaseException as err:
            return wire.CheckHealthResponse(problem=clean(err, MAX_ERROR))

    def Process(self, requests: Iterator[Any], context: Any) -> Iterator[Any]:
        if not self.config or self.opened:
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, "Process is called once, after Configure")
        self.opened = True
        # If effects must not be repeated, no item waits in the queue: the process may die.
        self.window = self.calls * (self.plugin.most or 1) * (1 if self.plugin.on_lost == "doubt" else 2)
        context.add_callback(self.end)
        spawn(self.read, requests)
        for _ in range(self.calls):
            spawn(self.work)
        while not self.over:
            with self.changed:
                self.sending = False
                self.changed.notify_all()
                while not (message := self.gather()).ByteSize() and not (self.hung_up and self.quiet()):
                    self.changed.wait(max(0, self.due - time.monotonic()) if self.reports else None)
                self.sending = True
            if not message.ByteSize():
                return
            yield message

    def gather(self) -> Any:
        wanted = self.window
        if self.each and self.plugin.on_lost != "doubt":
            wanted = max(wanted, min(MOST_CREDITS, int(self.calls * CREDIT_TIME / self.each)))
        message = wire.PluginMessage(credits=0 if self.draining else max(0, wanted - self.granted))
        self.granted += message.credits
        size, now = 0, time.monotonic()
        while self.results and size < FULL:
            size += self.results[0].ByteSize()
            message.results.append(self.results.popleft())
        if self.reports and now >= self.due:
            message.progress.extend(self.reports.values())
            self.reports.clear()
            self.due = now + self.every
        return message

    def report(self, item: Item[Any, Any], report: Any) -> None:
        with self.changed:
            if (item.id, item.attempt) in self.items:
                self.reports[item if self.every > 0 else len(self.reports)] = report
                self.changed.notify_all()

    def settled(self, item: Item[Any, Any], result: Any) -> None:
        with self.changed:
            self.reports.pop(item, None)
            del self.items[item.id, item.attempt]
            self.results.append(result)
            self.granted -= 1
            self.changed.notify_all()

    def quiet(self) -> bool:
        return self.over or not (self.busy or self.items or self.results or self.sending)

    def read(self, requests: Iterator[Any]) -> None:
        try:
            for sent in requests:
                with self.changed:
                    for it in sent.items:
                        item = self.items[it.id, it.attempt] = Item(it, self.plugin, self.config, self)
                        self.stop(item, "stopping") if self.draining or self.over else self.queue.put(item)
                    for c in sent.cancels:
                        if (c.id, c.attempt) in self.items:  # else its result is on its way
                            self.stop(self.items[c.id, c.attempt], REASONS.get(c.reason, "cancelled"))
        except Exception:  # the connection broke
            self.end()
        with self.changed:
            self.hung_up = True
            self.changed.notify_all()

    def work(self) -> None:
        while True:
            with self.filling:  # one batch at a time
                batch = [self.queue.get()]
                until = time.monotonic() + self.plugin.wait
                try:
                    while len(batch) < self.plugin.most:
                        batch.append(self.queue.get(timeout=max(0, until - time.monotonic())))
                except queue.Empty:
                    pass
            with self.changed:
                batch = [item for item in batch if item.begin()]
                self.busy += 1
            began = time.monotonic()
            self.plugin.call(batch)
            with self.changed:
                if batch:
                    each = (time.monotonic() - began) / len(batch)
                    self.each += (each - self.each) / (16 if self.each else 1)
                self.busy -= 1
                self.changed.notify_all()

    def stop(self, item: Item[Any, Any], reason: str) -> None:
        item.stop(reason)
        if not item.begun:
            item.settle(Stopped(reason))

    def stop_all(self, begun: bool = True) -> None:
        for item in [item for item in self.items.values() if begun or not item.begun]:
            self.stop(item, "stopping")

    def end(self) -> None:
        """Ends the stream and stops all items."""
        with self.changed:
            self.over = True
            self.stop_all()
            self.changed.notify_all()

    def Drain(self, request: Any, context: Any) -> Any:
        return wire.DrainResponse(unfinished=self.finish(request.grace_ms / 1000))

    def finish(self, grace: float) -> List[int]:
        """Hands back items that were not begun. The others get the grace to end, then are stopped. Returns the ids of
        those that do not end."""
        with self.changed:
            self.draining = True
            self.stop_all(begun=False)
            self.changed.wait_for(self.quiet, min(grace, LONG))
            self.stop_all()
            self.changed.wait_for(self.quiet, STOP_TIME)
            config, self.config = self.config, None
            unfinished = [id for id, _ in self.items]
        try:
            call_method(config, "close")
        except BaseException as err:
            print("close:", clean(err, MAX_ERROR), file=sys.stderr)
        return unfinished


def serve(plugin: Plugin[Any, Any]) -> NoReturn:
    """Serves a plugin, from the handshake to the end of the process."""
    env, process = os.environ, Process(plugin)
    if "1" not in (versions := env.get("PLUGIN_PROTOCOL_VERSIONS", "1")).split(","):
        sys.exit(f"{plugin.name} speaks protocol 1, this ledgerd speaks {versions}")
    server = grpc.server(ThreadPoolExecutor(8), options=[
        ("grpc.max_receive_message_length", MAX_MESSAGE), ("grpc.max_send_message_length", MAX_MESSAGE)])

    def leave(code: int = 0) -> NoReturn:
        server.stop(LEAVE_TIME).wait()  # sends the last answers
        sys.stderr.flush()
        os._exit(code)  # also if threads still run

    def shutdown(request: Any, context: Any) -> bytes:
        spawn(leave)
        return b""

    def orphan() -> None:
        while os.read(HOST, 1 << 16):
            pass
        threading.Timer(ORPHAN_TIME, os._exit, [1]).start()  # stdin has ended, so ledgerd is gone
        process.finish(0)
        leave(1)

    unary, stream = grpc.unary_unary_rpc_method_handler, grpc.stream_stream_rpc_method_handler
    for service, methods in {
            wire.service.full_name: {m.name: (stream if m.name == "Process" else unary)(
                getattr(process, m.name), wire.class_of(m.input_type).FromString,
                wire.class_of(m.output_type).SerializeToString) for m in wire.service.methods},
            "grpc.health.v1.Health": {"Check": unary(lambda *_: b"\x08\x01")},
            "plugin.GRPCController": {"Shutdown": unary(shutdown)}}.items():
        server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(service, methods)])
    address = tempfile.mkdtemp(prefix="py", dir=env.get("PLUGIN_UNIX_SOCKET_DIR")) + "/s"
    certificate = b""
    if client := env.get("PLUGIN_CLIENT_CERT"):
        key, pem, certificate = self_signed()
        server.add_secure_port("unix:" + address, grpc.ssl_server_credentials([(key, pem)], client.encode(), True))
    else:
        server.add_insecure_port("unix:" + address)
    for name in ("LEDGERD_PLUGIN", "PLUGIN_PROTOCOL_VERSIONS", "PLUGIN_CLIENT_CERT", "PLUGIN_UNIX_SOCKET_DIR",
                 "PLUGIN_MIN_PORT", "PLUGIN_MAX_PORT"):
        env.pop(name, None)  # a program that the plugin starts is no plugin
    server.start()
    spawn(orphan)
    # The kernel gives a signal to any thread, and only the main thread runs handlers. So it waits on a socket to which
    # Python writes each signal.
    told, tell = socket.socketpair()
    tell.setblocking(False)
    signal.set_wakeup_fd(tell.fileno(), warn_on_full_buffer=False)
    signal.signal(signal.SIGINT, lambda *_: None)  # ledgerd stops plugins
    signal.signal(signal.SIGTERM, lambda *_: None)
    os.register_at_fork(after_in_child=own_signals)
    os.write(HANDSHAKE, f"1|1|unix|{address}|grpc|{base64.b64encode(certificate).decode().rstrip('=')}\n".encode())
    terminated = False
    while True:
        if told.recv(1)[0] != signal.SIGTERM:
            continue
        if not terminated:
            spawn(lambda: (process.finish(LONG), leave()))  # begun items are finished
        else:
            with process.changed:
                process.stop_all()
        terminated = True


def own_signals() -> None:
    """Makes SIGTERM end a process that the plugin has forked."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def self_signed() -> Tuple[bytes, bytes, bytes]:
    """Makes the key and the certificate of this process, both in PEM, and the certificate in DER."""
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization as form
        from cryptography.hazmat.primitives.asymmetric import ec
    except ImportError as err:
        sys.exit(f"{err}: TLS needs it: {sys.executable} -m pip install cryptography; without TLS, set mtls = false for "
                 "the plugin")
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now, hour = datetime.datetime.now(datetime.timezone.utc), datetime.timedelta(hours=1)
    made = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number(), now - hour,
                                   now + 87600 * hour)
    made = made.add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
    signed = made.sign(key, hashes.SHA256())
    pem = form.Encoding.PEM
    return (key.private_bytes(pem, form.PrivateFormat.PKCS8, form.NoEncryption()), signed.public_bytes(pem),
            signed.public_bytes(form.Encoding.DER))
