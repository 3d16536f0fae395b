package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ledgerd/ledgerd/internal/config"
	"github.com/ledgerd/ledgerd/internal/inputs"
	"github.com/ledgerd/ledgerd/internal/pluginproc"
	"github.com/ledgerd/ledgerd/internal/report"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/sdk/redact"
	"github.com/ledgerd/ledgerd/sdk/settings"
)

// Exit codes. Scripts rely on them.
const (
	exitOK         = 0
	exitError      = 1
	exitUsage      = 2  // usage or config
	exitUnfinished = 3  // finished, but not everything is done
	exitTemporary  = 5  // try again
	exitEmpty      = 9  // nothing to do, with --error-on-empty
	exitNoLedger   = 10 // no ledger here, or its schema does not fit
	exitTaken      = 11 // somebody else has it
	exitDenied     = 12 // not allowed
)

// status ends the program with an exit code; what there is to say has been said.
type status int

func (s status) Error() string { return fmt.Sprintf("exit %d", int(s)) }

// failure is an error as a person is told it: what and where, then what to do next.
type failure struct {
	exit    int
	code    string // for programs: "unknown_kind"
	message string
	hint    string // lines; may be empty
	cause   error  // may be nil
}

func (f *failure) Error() string { return f.message }
func (f *failure) Unwrap() error { return f.cause }

func fail(exit int, code, message, hint string) *failure {
	return &failure{exit: exit, code: code, message: message, hint: hint}
}

// usage is a mistake on the command line.
func usage(code, hint, format string, args ...any) *failure {
	return fail(exitUsage, code, fmt.Sprintf(format, args...), hint)
}

// conclude reports an error and gives the exit code.
func (a *app) conclude(err error) int {
	if err == nil {
		return exitOK
	}
	if errors.Is(err, syscall.EPIPE) { // whoever read our output has had enough
		return exitError
	}
	if s := status(0); errors.As(err, &s) {
		return int(s)
	}
	if sig := a.got.Load(); sig != 0 && errors.Is(err, context.Canceled) {
		return 128 + int(sig)
	}
	f := explain(err)
	if !a.parsed && f.exit == exitError { // all that can go wrong before is in the command line
		f.exit, f.code = exitUsage, "usage"
	}
	a.tell(f)
	return f.exit
}

// tell writes a failure to stderr.
func (a *app) tell(f *failure) {
	f.message = strings.ReplaceAll(f.message, context.DeadlineExceeded.Error(), "no answer in time")
	f.message, f.hint = redact.Text(f.message), redact.Text(f.hint)
	if a.speaksJSON() {
		type text struct {
			Code    string `json:"code"`
			Message string `json:"message"`
			Hint    string `json:"hint"`
		}
		line, _ := report.Marshal(struct { // texts and a number are always JSON
			Error text `json:"error"`
			Exit  int  `json:"exit"`
		}{text{f.code, f.message, f.hint}, f.exit})
		_, _ = a.stderr.Write(line)
		return
	}
	var lines []string
	for line := range strings.SplitSeq(f.message+"\n"+f.hint, "\n") {
		if line = report.Safe(strings.TrimRight(line, " ")); line != "" {
			lines = append(lines, line)
		}
	}
	for i, line := range lines {
		switch {
		case i == 0:
			line = "ledgerd: " + line
		case !strings.HasPrefix(line, "  "):
			line = "  " + line
		}
		fmt.Fprintln(a.stderr, line)
	}
}

// speaksJSON says whether who started us is a program.
func (a *app) speaksJSON() bool {
	o := a.output.String()
	if !a.parsed {
		o = cmp.Or(a.early, os.Getenv("LEDGERD_OUTPUT"), o)
	}
	return o == string(report.JSON) || o == string(report.JSONL)
}

// earlyOutput finds the value of -o in a command line that may be wrong elsewhere.
func earlyOutput(args []string) (value string) {
	for i, arg := range args {
		switch {
		case (arg == "-o" || arg == "--output") && i+1 < len(args):
			value = args[i+1]
		case strings.HasPrefix(arg, "--output="), strings.HasPrefix(arg, "-o="):
			_, value, _ = strings.Cut(arg, "=")
		case arg == "-ojson", arg == "-ojsonl":
			value = arg[2:]
		case arg == "--":
			return value
		}
	}
	return value
}

// explain puts an error of any package into words and decides how the program ends.
func explain(err error) *failure {
	if f, ok := errors.AsType[*failure](err); ok {
		return f
	}
	f := fail(exitError, "error", err.Error(), "")
	f.cause = err
	if arg, ok := errors.AsType[*inputs.ArgError](err); ok {
		f.exit, f.code, f.hint = exitUsage, "bad_input", arg.Hint
		if errors.Is(err, fs.ErrPermission) {
			f.exit, f.code = exitDenied, "denied"
		}
		return f
	}
	if c, ok := errors.AsType[*config.Error](err); ok {
		f.exit, f.code = exitUsage, "bad_config"
		if n := len(c.Problems); n > 1 {
			f.message = plural(int64(n), "problem") + " in the configuration"
			f.hint = err.Error()
		}
		return f
	}
	if bad, ok := errors.AsType[*ledger.FilterError](err); ok {
		return badFilter(bad)
	}
	if c, ok := errors.AsType[*report.ColumnError](err); ok {
		if near := settings.Suggest(c.Name, c.Known); near != "" {
			f.hint = "did you mean " + near + "?"
		}
		f.exit, f.code = exitUsage, "unknown_column"
		return f
	}
	for _, known := range []struct {
		target error
		exit   int
		code   string
	}{
		{pluginproc.ErrChecksum, exitDenied, "checksum"},
		{pluginproc.ErrWritable, exitDenied, "writable"},
		{ledger.ErrNotFound, exitError, "not_found"},
		{ledger.ErrNoLedger, exitNoLedger, "no_ledger"},
		{ledger.ErrSchema, exitNoLedger, "schema"},
		{ledger.ErrDenied, exitDenied, "denied"},
		{ledger.ErrUnavailable, exitTemporary, "unavailable"},
		{ledger.ErrLeaseLost, exitTaken, "lease_lost"},
		{ledger.ErrConflict, exitUsage, "conflict"},
		{ledger.ErrInvalid, exitUsage, "invalid"},
		{fs.ErrPermission, exitDenied, "denied"},
		{syscall.EROFS, exitDenied, "denied"},
		{syscall.ENOSPC, exitTemporary, "disk_full"},
	} {
		if errors.Is(err, known.target) {
			f.exit, f.code = known.exit, known.code
			f.message, f.hint, _ = strings.Cut(f.message, "; ") // what and where; what to do
			return f
		}
	}
	f.code = cmp.Or(pluginCode(err), f.code)
	return f
}

// flagError explains a flag that does not exist or has a wrong value.
func flagError(cmd *cobra.Command, err error) error {
	f := usage("bad_flag", fmt.Sprintf("flags: %s --help", cmd.CommandPath()), "%s", err.Error())
	if missing, ok := errors.AsType[*pflag.NotExistError](err); ok {
		var names []string
		cmd.Flags().VisitAll(func(fl *pflag.Flag) { names = append(names, fl.Name) })
		if near := settings.Suggest(missing.GetSpecifiedName(), names); near != "" {
			f.hint = "did you mean --" + near + "?   " + f.hint
		}
	}
	if bad, ok := errors.AsType[*strconv.NumError](err); ok {
		f.message = strings.Replace(f.message, bad.Error(), noNumber(bad), 1)
	}
	return f
}

// noNumber says what a number should be, in place of the words of package strconv.
func noNumber(err *strconv.NumError) string {
	switch {
	case err.Err == strconv.ErrRange:
		return "is out of range"
	case err.Func == "ParseBool":
		return "must be true or false"
	case err.Func == "ParseFloat":
		return "must be a number"
	}
	return "must be a whole number"
}

// unknownCommand is the error of a command group, or of the program, for a word that it does not know.
func unknownCommand(cmd *cobra.Command, word string) error {
	var names []string
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			names = append(names, c.Name())
		}
	}
	hint := fmt.Sprintf("all commands: %s --help", cmd.CommandPath())
	if usual := usualWords[word]; usual != "" && !cmd.HasParent() {
		hint = fmt.Sprintf("did you mean ledgerd %s?   %s", usual, hint)
	} else if near := settings.Suggest(word, names); near != "" {
		hint = fmt.Sprintf("did you mean %s?   %s", near, hint)
	}
	return usage("unknown_command", hint, "no command %q", strings.TrimPrefix(cmd.CommandPath()+" "+word, "ledgerd "))
}

// usualWords are what other programs call the commands, and what these were called before.
var usualWords = map[string]string{
	"list": "ls", "query": "ls", "search": "ls", "get": "show", "info": "show", "why": "show", "explain": "show", "export": "ls --all -o csv", "dump": "ls --all -o csv",
	"status": "stats", "count": "stats", "top": "stats", "ps": "agents", "workers": "agents", "failed": "errors", "failures": "errors",
	"log": "watch", "logs": "watch", "tail": "watch", "follow": "watch", "wait": "watch --until-ended", "events": "journal", "audit": "journal", "history": "journal",
	"rm": "cancel", "delete": "cancel", "remove": "cancel", "kill": "cancel", "purge": "prune", "clean": "prune", "gc": "prune", "forget": "prune",
	"release": "finish --outcome released", "done": "finish", "complete": "finish", "ack": "finish", "requeue": "retry", "reset": "retry", "redo": "retry", "rerun": "retry",
	"enqueue": "add", "push": "add", "insert": "add", "start": "serve", "daemon": "serve", "server": "serve", "worker": "work", "exec": "run", "process": "run",
	"pause": "kind pause", "stop": "kind pause", "resume": "kind resume", "kinds": "kind ls", "queues": "kind ls", "plugins": "plugin ls", "locks": "lock ls",
	"init": "config init", "check": "doctor", "health": "doctor", "migrate": "db migrate", "backup": "db backup", "copy": "db copy", "verify": "db verify",
	"version": "self version", "man": "self man", "completion": "self completion", "bench": "self bench",
}

// group is a command that only holds others.
func group(id, use, short string, below ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use: use, Short: short, GroupID: id, Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cmd.Help()
			}
			return unknownCommand(cmd, args[0])
		},
	}
	cmd.AddCommand(below...)
	return cmd
}

// arguments checks how many there are and says what is missing in the words of the command's use.
func arguments(least, most int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < least:
			return usage("usage", "", "%s: something is missing\nusage: %s", cmd.CommandPath(), cmd.UseLine())
		case most >= 0 && len(args) > most:
			return usage("usage", "", "%s: %q is too much\nusage: %s", cmd.CommandPath(), args[most], cmd.UseLine())
		}
		return nil
	}
}
