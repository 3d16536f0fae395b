// What ledgerd.js is, as far as it can be inferred, has all that ledgerd.d.ts declares. impl.js is a copy of it.
import * as declared from "./ledgerd.js";
import * as impl from "./impl.js";

declare const lent: declared.Lent;
export const client: declared.Client = new impl.Client("http://127.0.0.1:7374", {});
export const worker: declared.Worker = new impl.Worker(client, "page", () => null, {});
export const error: declared.LedgerdError = new impl.LedgerdError({}, 0);
export const end: declared.End = new impl.End("done", "", {});
export const stopped: declared.Stopped = new impl.Stopped("");
export const job: declared.Job = new impl.Job(lent, 0);
