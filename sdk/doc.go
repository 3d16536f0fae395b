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
// directory, and it works: ledgerd run hello Ada. Package sdktest tests it as the process that ledgerd starts, or in
// the process of the test, for example in a debugger.
//
// # Payload and config
//
// The payload belongs to the item: it is the work to do and travels with it, so that every daemon
// does the same. The config belongs to the machine: limits, permissions, endpoints, secrets. Every
// value that changes the result belongs in the payload.
//
// Both are structs that the plugin defines. For a payload with arbitrary fields, use a map with string
// keys. A payload without an input field (see below) gets no INPUT. Then the user of the kind sets its
// type with --input, and the plugin reads INPUT from Item.Key. An absent field gets its default. A
// field that does not fit is refused by its name before the function is called. For a config, this
// happens when ledgerd starts the plugin. For a payload, the attempt fails for good with code "payload".
//
// # Struct tags
//
//	json     the name; a field without it is not part of the schema
//	doc      one line for --help, describe and the reference
//	default  the value of an absent field, in JSON; a string is written without quotes, a duration
//	         as "30s" or "7d"
//	schema   "required", "minLength=1", "maxLength=9", "min=0", "max=10", "enum=a|b",
//	         "minItems=1", "maxItems=9", "pattern=…", separated by commas; pattern must be the
//	         last: it extends to the end of the tag. On a list, required, minItems and maxItems
//	         are about the list, all others about its entries
//	input    on one string field of the payload: "file", "url" or "line". The command line
//	         puts INPUT there and makes it the item's key: a file's absolute path, a
//	         normalised URL, a trimmed line. It is required. If the input is a file, two more
//	         string fields may be tagged: "modified" gets the time of its last change (RFC 3339
//	         in UTC; empty with --checksum), "owner" its owner
//	secret   "true" on a string field of the config: it is sent separately from the rest of the
//	         config, and never stored, logged or shown
//	tune     "true" on a field of the config that changes only how the work is done (how many at a
//	         time, how long, how large), never the result. Processes that work a kind at the same
//	         time must agree on all other fields, except secrets
//	single   "true" on a field of the payload that is about one input, such as its encoding. A kind
//	         remembers the last --set, but if a command sets this field, nothing of that command is
//	         remembered
//
// Fields may be strings, booleans, numbers, time.Duration, time.Time, lists, maps with string keys,
// structs of these, pointers to these (nil means absent), and types that marshal themselves to JSON
// or text. Durations may be given as text or as nanoseconds.
//
// # Methods of the config
//
// A config type may have these methods, all on the pointer: Validate() error; Open(ctx) error, called once before the
// first item; Check(ctx) error, called by ledgerd doctor to find out whether the plugin can work; Close() error, called
// after the last item. Keep clients, handles and caches in fields of the config that have no json tag: every call gets
// the same *Config.
//
// # What the function returns
//
// A nil error is done. An error is a failed attempt: the kind's policy decides whether and when it
// is tried again. [RetryAfter], [Permanent], [Snooze], [Skip] and [Doubt] decide it themselves;
// they may be wrapped with %w. [Code] gives an error a class, by which people count and filter.
// The output is kept also if there is an error; but with an error, a zero output counts as no output.
//
// # Context
//
// The context ends when the attempt should: [context.Cause] gives [ErrCancelled], [ErrLeaseLost],
// [ErrStopping] or, after the timeout, [context.DeadlineExceeded]. An error that is
// returned after that counts as an effect of that cause: an item that was stopped is handed back, and
// this is no failure. If the function does not return in time, its process is killed.
//
// # Delivery
//
// An item may be delivered more than once: its process or machine may die after the work and
// before the report. So make the work repeatable, or pass IdempotencyKey on to the system that
// receives the effect, or set OnLost to OnLostDoubt.
//
// # Memory
//
// A value for the next round, such as the position that this round reached, belongs in the output:
// with Plugin.Previous set, Item.Previous gives the output of the last completed round.
//
// # Process
//
// A plugin may print to stderr; the last part of it is kept if the process dies. Messages about an
// item go to it.Log. Do not print to stdout before Main serves: ledgerd reads it for the handshake.
// After that, what you print there goes to stderr. Do not read stdin: when it ends, the process
// exits. Environment variables are not inherited, except a few such as PATH and HOME. SIGINT is
// ignored, because ledgerd stops plugins. At SIGTERM the plugin finishes the items that it has begun.
package sdk
