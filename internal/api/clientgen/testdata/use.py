from typing import Dict, List, Optional

import ledgerd

client = ledgerd.Client("http://127.0.0.1:7374", token="ldg_x", timeout=5)


def work(job: ledgerd.Job) -> Dict[str, int]:
    job.check()
    if job.attempt > 3:
        raise ledgerd.End("failed", "too often", code="often", final=True)
    return {"length": len(job.key)}


def use() -> None:
    rows: List[ledgerd.Addition] = [{"kind": "page", "key": "one", "payload": {"n": 1}}]
    verdicts: ledgerd.Verdicts = client.add_items(rows)
    print(verdicts["counts"].get("added", 0) + 1, verdicts["items"][0].get("reason"))
    for item in client.iter_items(where="state:dead", order="-ended"):
        ended: Optional[str] = item["ended_at"]
        state: ledgerd.State = item["state"]
        print(ended, state, item["took_s"])
    for event in client.follow_events():
        print(event.id, event.data["outcome"])
    try:
        client.change_kind("page", max_failures=3)
    except ledgerd.LedgerdError as error:
        print(error.code, error.hint, error.column or 0)
    ledgerd.Worker(client, "page", work, concurrency=2, ahead=4, lease_s=30).run()
