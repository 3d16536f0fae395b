// Package sdk turns a Go function into a ledgerd plugin: a program that ledgerd starts,
// feeds with items and watches.
//
//	type Config struct {
//		Suffix string `json:"suffix" default:"!" doc:"appended to every greeting"`
//	}
//
//	type In struct {
//		Name string `json:"name" input:"line" doc:"whom to greet"`
//	}
//
//	func greet(ctx context.Context, cfg *Config, it sdk.Item[In]) (string, error) {
//		return "hello " + it.Payload.Name + cfg.Suffix, nil
//	}
//
//	func main() { sdk.Main(sdk.New("hello", "0.1.0", greet)) }
//
// Build it as ledgerd-plugin-hello, put it into the plugins folder of ledgerd's data
// directory, and it works: ledgerd run hello Ada. Without ledgerd, too, also in a debugger:
// ledgerd-plugin-hello run Ada. Package sdktest tests it as the process that ledgerd starts.
//
// # Payload and config
//
// The payload belongs to the item: it says what is to be done and travels with it, so that
// every daemon does the same. The config belongs to the machine: limits, permissions,
// endpoints, secrets. Whatever changes the result belongs in the payload.
//
// Both are structs of the plugin's own; a payload that may have any fields is a map with string keys.
// Where no field of it is the input (see below), whoever makes the kind says what INPUT is
// (--input), and the plugin finds it in Item.Key. What is absent gets its default; what does not fit is
// refused with the name of the field before the function sees it: a config when ledgerd
// starts the plugin, a payload as an attempt that failed for good with code "payload".
//
// # Struct tags
//
//	json     the name; a field without it is not part of the schema
//	doc      one line for --help, describe and the reference
//	default  value when absent, in JSON, quotes of a string left out; durations as "30s", "7d"
//	schema   "required", "minLength=1", "maxLength=9", "min=0", "max=10", "enum=a|b",
//	         "minItems=1", "maxItems=9", "pattern=…", separated by commas; a pattern comes last
//	         and goes to the end of the tag. On a list all but required and …Items are about
//	         its entries
//	input    on one string field of the payload: "file", "url" or "line". The command line
//	         puts INPUT there and makes it the item's key: a file's absolute path, a
//	         normalised URL, a trimmed line. It is required. Beside a file, "modified" and
//	         "owner" on one string field each: when it was last changed (RFC 3339 in UTC; not
//	         with --checksum) and whose it is
//	secret   "true" on a string field of the config: given apart, never stored, logged or described
//	tune     "true" on a field of the config that decides how the work goes and never what a result
//	         means: how many at a time, how long, how large. Processes that work a kind at the same
//	         time must agree on all other fields, secrets excepted
//
// Fields may be strings, booleans, numbers, time.Duration, time.Time, lists, maps with string
// keys, structs of these, pointers to these (for "absent"), and types that write and read
// themselves as JSON or text. Durations may be given as text or as nanoseconds.
//
// # Config with a life
//
// A config type may have the methods Validate() error, Open(ctx) error (once, before the
// first item), Check(ctx) error (health, for people: ledgerd doctor asks) and Close() error (after the last item),
// all on the pointer. Clients, handles and caches live in fields of it without a json tag:
// the same *Config is handed to every call.
//
// # What the function returns
//
// A nil error is done. An error is a failed attempt: the kind's policy says whether and when it
// is tried again. [RetryAfter], [Permanent], [Snooze], [Skip] and [Doubt] say it themselves;
// they may be wrapped with %w. [Code] gives an error a class that people count and filter by.
// The output is kept whatever the error; a zero one beside an error is none.
//
// # Context
//
// The context ends when the attempt should: [context.Cause] gives [ErrCancelled],
// [ErrLeaseLost], [ErrStopping] or, after the timeout, [context.DeadlineExceeded]. An error
// returned then is put down to that cause: an item that was stopped is handed back and is no
// failure. A function that does not return in time is ended with its process.
//
// # Delivery
//
// An item may be delivered more than once: its process or machine may die after the work and
// before the report. Make the work repeatable, or hand IdempotencyKey to who receives it, or
// set OnLost to OnLostDoubt.
//
// # Memory
//
// What one round has to tell the next, such as how far it came, belongs into the output: with
// Plugin.Previous set, Item.Previous gives the output of the last completed round.
//
// # Process
//
// Print what you like to stderr: its end is kept should the process die. What belongs to an
// item goes to it.Log. Stdout is ledgerd's until Main has begun to serve; afterwards it leads
// to stderr. Stdin is ledgerd's: the process exits when it ends. Environment variables are
// not inherited, but for a few such as PATH and HOME. SIGINT is ignored (it is ledgerd that
// stops plugins), at SIGTERM what was begun is finished.
package sdk
