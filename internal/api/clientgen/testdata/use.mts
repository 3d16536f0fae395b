import { Client, End, Event, Job, LedgerdError, State, Verdicts, Worker } from "./ledgerd.js";

const client = new Client("http://127.0.0.1:7374", { token: "ldg_x", timeout: 5000 });

export async function use(): Promise<void> {
  const verdicts: Verdicts = await client.addItems([{ kind: "page", key: "one", payload: { n: 1 } }]);
  console.log(verdicts.counts["added"] ?? 0, verdicts.items[0]?.reason?.length);
  for await (const item of client.iterItems({ where: "state:dead", order: "-ended" })) {
    const ended: string | null = item.ended_at;
    const state: State = item.state;
    console.log(ended, state, item.took_s);
  }
  for await (const event of client.followEvents({ signal: AbortSignal.timeout(1000) })) {
    const e: Event = event;
    console.log(e.id, e.data.outcome);
  }
  try {
    await client.changeKind("page", { max_failures: 3 });
  } catch (error) {
    if (error instanceof LedgerdError) console.log(error.code, error.hint, error.column ?? 0);
  }
  const worker = new Worker(client, "page", async (job: Job) => {
    job.check();
    if (job.attempt > 3) throw new End("failed", "too often", { code: "often", final: true });
    return (await fetch(job.key, { signal: job.signal })).status;
  }, { concurrency: 2, ahead: 4 });
  await worker.run();
  // @ts-expect-error: there is no such order
  await client.listItems({ order: "name" });
  // @ts-expect-error: an agent is needed
  await client.claim({ kind: "page" });
}
