"""Works what a server lends. The key of an item tells what its handler does."""

import json
import logging
import sys
import time
import urllib.request

import ledgerd

logging.basicConfig()
url, given = sys.argv[1], json.loads(sys.argv[2])


def work(job):
    if job.key == "waits":
        urllib.request.urlopen(url + "/wait").read()
    if job.key == "obeys":
        while not job.stopped:
            time.sleep(0.01)
        job.check()
    if job.key == "snoozes":
        raise ledgerd.End("snoozed", "busy", code="http_503", at_most=3)
    if job.key == "nested":
        deep = []
        for _ in range(100_000):
            deep = [deep]
        return deep
    return {"length": len(job.key)}


client = ledgerd.Client(url, token=given.pop("token", "ldg_x"), timeout=None)
client.add_items([{"kind": "page", "key": "д", "payload": {"name": "ü\u2028", "half": "\ud800 😀"}}])
ledgerd.Worker(client, "page", work, **given).run()
