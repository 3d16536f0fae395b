// Does the work of the benchmark with graphile-worker, in one process and a schema of its own:
//
//	node main.js URL SCHEMA
//
// It makes the schema, installs graphile-worker in it and prints {}. Then each line of standard input
// is a command, answered by a line of JSON with what was measured:
//
//	add N CLIENTS   N jobs by so many clients at a time: {"add": jobs per second}
//	drain N         all jobs there are, N: {"drain": jobs per second}
//	start TRIES     one job after the other on an idle system: {"took": [milliseconds, ...]}
//
// When standard input ends, or something fails, it removes the schema.
import { createInterface } from "node:readline";
import { setTimeout } from "node:timers/promises";
import pg from "pg";

process.env.NO_LOG_SUCCESS = "1"; // graphile-worker reads it when it is loaded: no log line per job
const { Logger, run, runMigrations, runOnce } = await import("graphile-worker");

const [url, schema] = process.argv.slice(2);
const failures = []; // graphile-worker only logs that a job failed, or a connection
const fail = (error) => failures.push(String(error));
const pool = new pg.Pool({ connectionString: url, max: 10 });
pool.on("error", fail);
pool.on("connect", (client) => client.on("error", fail));

const options = (task) => ({
  pgPool: pool,
  noHandleSignals: true,
  taskList: { noop: task },
  preset: {
    worker: {
      schema,
      concurrentJobs: 24,
      localQueue: { size: 500 },
      completeJobBatchDelay: 0,
      logger: new Logger(() => (level, message) => level === "error" && fail(message)),
    },
  },
});

const payload = (i) => JSON.stringify({ path: `/data/in/2026/11/20/users-${String(i).padStart(8, "0")}.csv` });

const rate = (n, began) => (n / (performance.now() - began)) * 1000;

// A call adds as many jobs as one of the other sides. With 1,000 it costs the server 8 % more.
const addBatch = 5000;

async function add(n, clients) {
  const text = `SELECT count(*) FROM ${schema}.add_jobs(ARRAY(
    SELECT ('noop', payload, null, null, null, null, null, null)::${schema}.job_spec
    FROM json_array_elements($1) AS payload))`;
  const began = performance.now();
  await Promise.all(
    Array.from({ length: clients }, async (_, client) => {
      for (let i = client * addBatch; i < n; i += clients * addBatch) {
        const payloads = Array.from({ length: Math.min(addBatch, n - i) }, (_, k) => payload(i + k));
        await pool.query({ name: "add", text, values: [`[${payloads}]`] });
      }
    }),
  );
  return { add: rate(n, began) };
}

async function drain(n) {
  let done = 0;
  const began = performance.now();
  await runOnce(options(() => void done++)); // returns when the last end is recorded
  const drained = rate(n, began);
  const { rows } = await pool.query(`SELECT count(*)::int AS jobs FROM ${schema}._private_jobs`);
  if (done !== n || rows[0].jobs > 0) {
    throw new Error(`${done} of ${n} jobs done, ${rows[0].jobs} left`);
  }
  return { drain: drained };
}

// start adds with a connection of its own, as another process does.
async function start(tries) {
  const warmUp = 20;
  const took = [];
  let started;
  const runner = await run({ ...options(() => started(performance.now())), parsedCronItems: [] });
  const adder = new pg.Client({ connectionString: url });
  await adder.connect();
  for (let i = 0; i < warmUp + tries; i++) {
    await setTimeout(25);
    const begins = new Promise((resolve) => (started = resolve));
    const called = performance.now();
    await adder.query({ name: "add", text: `SELECT ${schema}.add_job('noop', $1::json)`, values: [payload(i)] });
    const at = await begins;
    if (i >= warmUp) took.push(at - called);
  }
  await adder.end();
  await runner.stop();
  return { took };
}

const commands = { add, drain, start };

await pool.query(`CREATE SCHEMA ${schema}`);
try {
  await runMigrations(options(() => {}));
  console.log("{}");
  for await (const line of createInterface({ input: process.stdin })) {
    const [command, ...numbers] = line.split(" ");
    const answer = await commands[command](...numbers.map(Number));
    if (failures.length > 0) throw new Error(failures.join("\n"));
    console.log(JSON.stringify(answer));
  }
} finally {
  await pool.query(`DROP SCHEMA ${schema} CASCADE`);
  await pool.end();
}
