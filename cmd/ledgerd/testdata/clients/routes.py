"""Calls every route of the API once, and checks that refusals have their type. The kind page exists and has no items."""

import re
import threading
import uuid

import ledgerd

client = ledgerd.Client()
called = set()


class Recorded:
    def __getattr__(self, name):
        called.add(name)
        return getattr(client, name)


api = Recorded()


def refused(code, call, **fields):
    try:
        call()
    except ledgerd.LedgerdError as error:
        assert error.code == code and error.detail and not error.temporary, error
        for name, value in fields.items():
            assert getattr(error, name) == value, (name, getattr(error, name))
        return error
    raise AssertionError("not refused: " + code)


started = threading.Event()
events = []


def follow():
    for event in client.follow_events(where="kind:page"):
        events.append(event)
        started.set()


assert api.get_version()["protocol"] == 1
assert "operate" in api.get_me()["scopes"]
paths = api.get_description()["paths"]
added = api.add_items([{"kind": "page", "key": f"k{n:04}", "payload": {"n": n, "text": "ü\u2028"}} for n in range(120)])
assert added["counts"] == {"added": 120}, added
assert api.add_items([{"kind": "page", "key": "k0000"}, {"kind": "none", "key": "x"}])["counts"] == {"known": 1, "refused": 1}
ids = [row["id"] for row in added["items"]]
threading.Thread(target=follow, daemon=True).start()

part = api.list_items(limit=50, order="-id")
assert api.count_items(where="kind:page") == {"count": 120, "whole": True}
assert [(g["value"], g["left"]) for g in api.group_items(where="kind:page")["items"]] == [("page", 120)]
assert len(part["items"]) <= 50 and part["next"] and part["items"][0]["id"] == ids[-1]
assert [item["id"] for item in api.iter_items(where="kind:page", limit=50)] == ids
assert api.get_item(ids[1])["payload"] == {"n": 1, "text": "ü\u2028"}
assert api.explain_item(ids[0])["state"] == "ready"

got = api.claim(kind="page", agent="ann", limit=4, lease_s=60, wait_s=5)
assert not got["drain"] and [lent["id"] for lent in got["leases"]] == ids[:4]
tokens = [lent["token"] for lent in got["leases"]]
assert all(a["recorded"] for a in api.renew_leases(tokens=tokens, lease_s=90)["answers"])
assert api.start_leases(tokens=tokens[:1])["answers"][0]["recorded"]
assert all(a["recorded"] for a in api.held_leases(tokens=tokens)["answers"])
assert len(api.list_leases()["items"]) == 4 and len(list(api.iter_leases(limit=3))) == 4
assert any(row["held"] == 4 for row in api.list_agents()["items"]) and list(api.iter_agents())
ended = api.finish_leases(endings=[{"token": tokens[0], "output": {"n": [1]}},
                                   {"token": tokens[1], "outcome": "failed", "code": "bad", "error": "no", "final": True}])
assert [a.get("state") for a in ended["answers"]] == ["done", "dead"], ended
assert api.release_leases(tokens=tokens[2:])["answers"][0]["recorded"]
assert refused("lease_lost", lambda: client.renew_leases(tokens=tokens[:1])).status == 409
refused("invalid", lambda: client.release_leases(tokens=["17.3"]))

assert api.list_attempts(ids[1])["items"][0]["code"] == "bad"
assert [a["outcome"] for a in api.iter_attempts(ids[1], limit=1)] == ["failed"]
assert api.get_output(ids[0], 1) == b'{"n":[1]}'  # as it was sent
assert not api.list_rounds()["items"] and not list(api.iter_rounds(where="kind:page", limit=3))
assert api.get_causes()["items"][0]["code"] == "bad"
assert list(api.iter_leases(from_="1h"))
assert started.wait(60) and events[0].data["kind"] == "page" and events[0].id
again = next(api.follow_events(where="kind:page", last_event_id=events[0].id))
assert again.data["id"] in ids[:4]

refused("changed", lambda: client.change_kind("page", max_failures=7, if_match='"x"'))
assert api.get_kind("page")["max_failures"] != 7
assert api.change_kind("page", max_failures=7)["max_failures"] == 7
refused("changed", lambda: client.change_kind("page", max_failures=8))  # it is no more as it was read
assert api.pause_kind("page", paused=True, reason="a test")["paused"]
assert not api.pause_kind("page", paused=False)["paused"]
assert [k["kind"] for k in api.list_kinds()["items"]] == [k["kind"] for k in api.iter_kinds()] == ["page"]
assert api.get_stats()["kinds"][0]["kind"] == "page"
assert api.list_locks()["items"] == list(api.iter_locks())
assert api.list_journal(limit=1)["next"] and len(list(api.iter_journal(limit=1))) > 1

act = str(uuid.uuid4())
held = api.put_act(act, act="cancel", where="kind:page state:ready", hold_s=60)
assert held["state"] == "held" and held["matched"] == 118 and held["id"] == act
assert any(a["id"] == act for a in api.list_acts()["items"])
assert api.get_act(act)["changed"] == 0 and api.delete_act(act)["state"] == "undone"
assert api.drain_agent(agent="ann", drain=True) == {"agent": "ann", "drain": True}
assert api.claim(kind="page", agent="ann")["drain"]

error = refused("bad_filter", lambda: client.list_items(where="kind:page stat:dead"), status=400, column=11, length=9, field="where")
assert "state" in error.hint, error
refused("bad_cursor", lambda: client.list_items(cursor="x"))
refused("not_found", lambda: client.get_item(10**9), status=404)
refused("not_found", lambda: client.get_kind("a/b?c"))
refused("too_many_rows", lambda: client.add_items([]))
refused("bad_request", lambda: client.add_items([{"kind": "page", "key": "x", "nothing": 1}]), field="nothing")
refused("bad_request", lambda: next(client.iter_items(limit=0)), field="limit")
try:
    ledgerd.Client("http://127.0.0.1:1").get_version()
    raise AssertionError("there is a server at port 1")
except ledgerd.LedgerdError as nothing:
    assert nothing.code == "no_answer" and nothing.temporary, nothing

names = {re.sub("([a-z])([A-Z])", r"\1_\2", operation["operationId"]).lower()
         for path in paths.values() for operation in path.values()}
assert names <= called, names - called
print(len(names), "routes")
