// Package exec is the plugin that runs a command for every item: a program, or a script in any
// language.
//
//	ledgerd run gzip --plugin exec --input file --with command=gzip,-kf,--,{key} ./inbox
//	ledgerd run thumbs --plugin exec --input file --set width=320 \
//	    --with command:='["convert", "-resize", "{width}x", "--", "{key}", "/srv/thumbs/{stem}.png"]' ./photos
//
// Give each command a kind of its own: the command belongs to the name. Another command under the
// same name is refused while items are left.
//
// # Input
//
// --input defines once what INPUT is: file, url or line (the default). It is kept in the ledger
// with the name. "ledgerd kind set NAME --plugin exec --input file" and input = "file" in the
// config do the same.
//
// # Payload: what is to be done (--set)
//
// Any fields; the command names those that it wants.
//
// # Config: what this machine has (--with)
//
//	command     the program and its arguments, a list. The first is found in PATH, or is a path;
//	            it has no placeholders: no payload chooses a program
//	dir         the working directory; default the one in which ledgerd runs
//	env         further variables of its environment: --with env.MODEL=small. Its PATH does not count when
//	            the program itself is looked for
//	secret_env  secret; further variables, NAME=VALUE on a line each; give it as file:/PATH
//	stay        true: the command is started once and works one item after the other; see below
//	emits       with stay, kinds of the items that answers may add; default none
//	done        exit codes that mean done; default 0
//	permanent   exit codes that mean that trying again cannot help; default 64,65,66,77,78
//	snooze      exit codes that mean "come again", not a failure; default none
//	snooze_for  when to come again; default 1m
//	grace       from SIGTERM to SIGKILL; 0s to 4s, default 2s
//
// # Arguments
//
// There is no shell. Each argument of the command may have placeholders in it. It stays one argument when they are
// filled in, with all the blanks, quotes and stars of the text:
//
//	{key}               the item's key: a file's absolute path, a URL, a line
//	{dir} {base} {stem} of a key that is a path: /in/a.b.mov has /in, a.b.mov and a.b
//	{tmp}               an empty folder of this attempt's own, removed when it ends
//	{id} {attempt} {kind} {scope} {idempotency_key}  of the item
//	{NAME} {NAME.NAME}  a field of the payload: text, a number, true or false
//
// {{ and }} stand for braces. A payload's field that has one of the names above is reached as
// {payload.NAME}.
//
// If an argument begins with a placeholder, the value must not begin with a dash, because then the item would choose
// an option: such an item is dead. After an argument "--" it may, since most programs take no options there.
//
// # What the command gets
//
// The item, on stdin, as one line of JSON; programs that read keys from there must be told not to
// (ffmpeg -nostdin):
//
//	{"id":17,"kind":"gzip","scope":"","key":"/in/a","attempt":1,"idempotency_key":"…","payload":{}}
//
// Of ledgerd's environment no more than PATH, HOME, LANG and TZ; TMPDIR, set to {tmp}; and
//
//	LEDGERD_ITEM LEDGERD_ATTEMPT LEDGERD_KIND LEDGERD_SCOPE LEDGERD_KEY LEDGERD_IDEMPOTENCY_KEY
//
// LEDGERD_ATTEMPT only grows, no matter who works the item: a store that refuses a smaller number than it
// has seen is safe from an attempt that lives on after its lease. LEDGERD_IDEMPOTENCY_KEY stays the
// same for all attempts: pass it on to services that drop duplicates. If the item is traced, TRACEPARENT
// and perhaps TRACESTATE have its trace context (W3C), for programs that record spans.
//
// # What it prints
//
// The result is what it writes to stdout: all of it if that is JSON, else its last line that is not
// empty, as JSON if it is JSON and as text if not. A result has at most 64 KiB; of more output only
// the last line counts.
//
// A line on stdout or stderr that is
//
//	progress 40/100 frames
//
// is no output but the item's progress; "/100" and "frames" may be left out.
//
// Other lines on stderr go into the attempt's log (its last 16 KiB, ledgerd show); the last of them is the error of a
// command that fails. Values of secret_env (of 4 bytes or more) are shown as "***".
//
// # How it ends
//
// The config makes an exit code done, permanent or snooze. Any other code is a failed attempt, also 75 ("try again" of
// sysexits.h): the kind's policy tries it again. The end by a signal that the plugin did not send is a failed attempt,
// too. The codes are exit_1, exit_2 …, signal_9.
//
// When the item is to end (its timeout is over, it is cancelled, its lease is lost, ledgerd stops)
// the command and all it has started get SIGTERM, after grace SIGKILL. Processes that are left when
// the command itself has ended are killed too: an item whose attempt has ended is not worked any
// more. If ledgerd or this plugin is killed, a shell beside the plugin kills the processes and
// removes {tmp}. None of this reaches a process that has left for a process group of its own (setsid, a daemon).
//
// A command may be started again for the same item, since its process may have died before its
// report. So make it repeatable (write to another name and rename the file), or pass the
// idempotency key on, or have a person decide (ledgerd kind set NAME --on-lost doubt).
//
// # A command that stays
//
// With stay=true the command is started once, and not for every item. It reads items from stdin, one line each, as
// above. A traced item has the fields traceparent and perhaps tracestate, too. "id" is the first field. For each item
// it prints one line, and flushes it:
//
//	{"id":17,"output":{"words":7}}
//	{"id":17,"error":"no such page","code":"http_404","final":true}
//
//	id       of the item
//	output   the result, any JSON; an item that failed may have one, too
//	error    the reason; with it the item has failed
//	code     the class of the error
//	final    true: trying again cannot help
//	delay_s  of failed and snoozed: not before so many seconds; without it the kind's policy and snooze_for decide
//	at_most  of snoozed with a code: so many in a row, 1 to 100, are no failure, further ones are
//	emit     of done and skipped: items to add, each with kind, key, and perhaps scope, fingerprint, payload, due and
//	         priority
//	outcome  done, skipped, failed, snoozed or unknown (a person decides); default failed with an error, else done
//
// These are the names of the HTTP API. A line has at most 64 KiB. Progress may be printed before the answer.
// Other lines on stderr before the answer are the item's log. Anything else on stdout is a mistake: the item
// has failed with the code "answer", and the process is replaced. A process that prints to stdout while it has
// no item is replaced, too; ledgerd's log tells why. Progress without an item is ignored.
//
// A process has one item at a time. There are as many processes as items are worked at a time; they are
// started when they are needed. The end of stdin asks a process to end. If an item is to end, its process is
// ended, by SIGTERM and SIGKILL as above, and no other. The time of a process's start counts for its
// first item. A process may end whenever it has no item, for example after each hundredth answer. If it ends
// before its answer, its exit code decides as above, except that 0 is a failure like others.
//
// The arguments have no placeholders, the environment has no LEDGERD_… of an item, and TMPDIR is the process's own and
// removed when it has ended. Items are added in the transaction that records the answer. Without a scope they are in
// KIND/ID of the item that adds them. A kind that is not in emits, or a mistake in such an item, fails the item for
// good with the code "emit_refused".
//
// # Codes
//
//	answer     a command that stays printed a line that is no answer
//	exit_N     it ended with N
//	signal_N   it was ended by signal N
//	start      it could not be started, now
//
// Dead at once:
//
//	field      the payload does not have a field that the command wants, or it is a list or an object
//	option     an argument would begin with a dash
//	answer     a command without stay has printed an answer of one that stays
//	output     it is done, and its result is too large
//	argument   an argument has a NUL byte, or all together are too long for the system
package exec
