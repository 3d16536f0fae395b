"""Works the kind page, and writes its effects to $EFFECTS. An item whose key begins with gated waits for the pipe $GATE."""

import os
import sys

import ledgerd


def work(job):
    with open(os.environ["EFFECTS"], "a") as effects:
        effects.write(f"start {job.key}\n")
    if job.key.startswith("gated"):
        open(os.environ["GATE"]).read()
        if job.stopped:
            print("stopped", job.key, flush=True)
        job.check()
    if job.key.startswith("fails"):
        raise ValueError("as it was told")
    if job.key.startswith("exits"):
        sys.exit(3)
    if job.key.startswith("snoozed"):
        raise ledgerd.End("snoozed", "later", delay_s=3600)
    if job.key.startswith("odd"):
        return {1, 2}
    with open(os.environ["EFFECTS"], "a") as effects:
        effects.write(f"done {job.key}\n")
    return {"length": len(job.key)}


worker = ledgerd.Worker(ledgerd.Client(), "page", work, concurrency=int(sys.argv[1]), ahead=int(sys.argv[2]), lease_s=int(sys.argv[3]), program="worker@1")
print(worker.agent, flush=True)
worker.run()
print("ended", flush=True)
