package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/internal/report"
	"github.com/ledgerd/ledgerd/internal/shell"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/act"
	"github.com/ledgerd/ledgerd/ledger/filter"
	"github.com/ledgerd/ledgerd/sdk/redact"
	"github.com/ledgerd/ledgerd/sdk/settings"
)

// Conclude reports an error and gives the exit code.
func (a *App) Conclude(err error) int {
	if s := failure.Status(0); err == nil || errors.As(err, &s) {
		err = cmp.Or(a.Stdout.Lost(), err)
	}
	if err == nil {
		return failure.ExitOK
	}
	if errors.Is(err, syscall.EPIPE) { // the reader of our output has had enough
		return failure.ExitError
	}
	if s := failure.Status(0); errors.As(err, &s) {
		return int(s)
	}
	if sig := a.Got.Load(); sig != 0 && errors.Is(err, context.Canceled) {
		return 128 + int(sig)
	}
	f := failure.Explain(err)
	if !a.Parsed && f.Exit == failure.ExitError { // all that can go wrong before is in the command line
		f.Exit, f.Code = failure.ExitUsage, "usage"
	}
	a.Tell(f)
	return f.Exit
}

// Tell writes a failure to stderr.
func (a *App) Tell(f *failure.Error) {
	f.Message = strings.ReplaceAll(f.Message, context.DeadlineExceeded.Error(), "no answer in time")
	f.Message, f.Hint = redact.Text(f.Message), redact.Text(a.Typed(Worded(f.Hint, f.Act)))
	if a.speaksJSON() {
		type text struct {
			Code    string    `json:"code"`
			Message string    `json:"message"`
			Hint    string    `json:"hint"`
			Acts    []act.Act `json:"acts,omitempty"`
		}
		var acts []act.Act
		if f.Act.Name != "" {
			acts = []act.Act{f.Act}
		}
		line, _ := report.Marshal(struct { // texts and a number are always JSON
			Error text `json:"error"`
			Exit  int  `json:"exit"`
		}{text{f.Code, f.Message, f.Hint, acts}, f.Exit})
		_, _ = a.Stderr.Write(line)
		return
	}
	var lines []string
	for line := range strings.SplitSeq(f.Message+"\n"+f.Hint, "\n") {
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
		fmt.Fprintln(a.Stderr, line)
	}
}

// speaksJSON reports whether who started us is a program.
func (a *App) speaksJSON() bool {
	o := a.Output.String()
	if !a.Parsed {
		o = cmp.Or(a.Early, os.Getenv("LEDGERD_OUTPUT"), o)
	}
	return o == string(report.JSON) || o == string(report.JSONL)
}

// EarlyOutput finds the value of -o in a command line that may be wrong elsewhere.
func EarlyOutput(args []string) (value string) {
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

// FlagError explains a flag that does not exist or has a wrong value.
func FlagError(cmd *cobra.Command, err error) error {
	f := failure.Usage("bad_flag", fmt.Sprintf("flags: %s --help", cmd.CommandPath()), "%s", err.Error())
	if missing, ok := errors.AsType[*pflag.NotExistError](err); ok {
		var names []string
		cmd.Flags().VisitAll(func(fl *pflag.Flag) { names = append(names, fl.Name) })
		name := missing.GetSpecifiedName()
		usual := usualFlags[name]
		if near := settings.Suggest(name, names); near != "" {
			f.Hint = "did you mean --" + near + "?   " + f.Hint
		} else if word, _, _ := strings.Cut(strings.TrimPrefix(usual, "--"), " "); slices.Contains(names, word) {
			f.Hint = "did you mean " + usual + "?   " + f.Hint
		} else if cmd.Flags().Lookup("set") != nil && cmd.Flags().Lookup("with") != nil {
			f.Hint += "   a field of the plugin is set with --set or --with: " + cmd.CommandPath() + " KIND --help"
		}
	}
	if bad, ok := errors.AsType[*strconv.NumError](err); ok {
		f.Message = strings.Replace(f.Message, bad.Error(), noNumber(bad), 1)
	}
	return f
}

// usualFlags are what other programs and other commands call flags, and what is given here.
var usualFlags = map[string]string{
	"json": "--output json", "format": "--output json", "csv": "--output csv", "n": "--limit", "failed": "--state dead",
	"since": "--where since:2h", "until": "--where until:2026-11-20", "until-done": "--until-ended",
	"retries": "--max-failures", "max-retries": "--max-failures", "max-attempts": "--max-failures",
	"concurrency": "--max-running", "workers": "--concurrency", "parallel": "--concurrency",
}

// noNumber describes what a number should be, in place of the words of package strconv.
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

// UnknownCommand is the error of a command group, or of the program, for a word that it does not know.
func UnknownCommand(cmd *cobra.Command, word string) error {
	var names []string
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			names = append(names, c.Name())
		}
	}
	hint := fmt.Sprintf("all commands: %s --help", cmd.CommandPath())
	if usual := UsualWords[word]; usual != "" && !cmd.HasParent() {
		hint = fmt.Sprintf("did you mean ledgerd %s?   %s", usual, hint)
	} else if near := settings.Suggest(word, names); near != "" {
		hint = fmt.Sprintf("did you mean %s?   %s", near, hint)
	} else if near := wordsBelow[word]; cmd.HasParent() && slices.Contains(names, near) {
		hint = fmt.Sprintf("did you mean %s %s?   %s", cmd.CommandPath(), near, hint)
	} else if cmd.Name() == "kind" && isKind(word) {
		hint = fmt.Sprintf("did you mean ledgerd kind show %s?   %s", word, hint)
	}
	return failure.Usage("unknown_command", hint, "no command %q", strings.TrimPrefix(cmd.CommandPath()+" "+word,
		"ledgerd "))
}

// UsualWords are what other programs call the commands, and what these were called before.
var UsualWords = map[string]string{
	"list": "ls", "query": "ls", "search": "ls", "get": "show", "info": "show", "why": "show", "explain": "show",
	"export": "ls --all -o csv", "dump": "ls --all -o csv",
	"status": "stats", "count": "stats", "top": "stats", "ps": "agents", "workers": "agents", "failed": "errors",
	"failures": "errors",
	"log":      "watch", "logs": "watch", "tail": "watch", "follow": "watch", "wait": "watch --until-ended",
	"events": "journal", "audit": "journal", "history": "journal",
	"rm": "cancel", "delete": "cancel", "remove": "cancel", "kill": "cancel", "purge": "prune", "clean": "prune",
	"gc": "prune", "forget": "prune",
	"release": "finish --outcome released", "done": "finish", "complete": "finish", "ack": "finish", "requeue": "retry",
	"reset": "retry", "redo": "retry", "rerun": "retry",
	"enqueue": "add", "push": "add", "insert": "add", "start": "serve", "daemon": "serve", "server": "serve",
	"worker": "work", "exec": "run", "process": "run",
	"pause": "kind pause", "stop": "kind pause", "resume": "kind resume", "kinds": "kind ls", "queues": "kind ls",
	"plugins": "plugin ls", "locks": "lock ls",
	"init": "config init", "check": "doctor", "health": "doctor", "migrate": "db migrate", "backup": "db backup",
	"copy": "db copy", "verify": "db verify",
	"version": "self version", "man": "self man", "completion": "self completion",
}

// wordsBelow are what other programs call the commands of a group.
var wordsBelow = map[string]string{
	"list": "ls", "show": "print", "get": "show", "install": "add", "uninstall": "rm", "remove": "rm", "delete": "rm",
	"create": "new", "edit": "set", "update": "set",
}

// Group is a command that only holds others.
func Group(id, use, short string, below ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use: use, Short: short, GroupID: id, Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cmd.Help()
			}
			return UnknownCommand(cmd, args[0])
		},
	}
	cmd.AddCommand(below...)
	return cmd
}

// Arguments checks how many there are and describes what is missing in the words of the command's use.
func Arguments(least, most int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < least:
			return failure.Usage("usage", "", "%s needs an argument\nusage: %s", cmd.CommandPath(), cmd.UseLine())
		case most >= 0 && len(args) > most:
			hint := meant(cmd.Flags(), args[most:])
			takes := "takes no argument"
			if most > 0 {
				takes = "takes fewer arguments"
			}
			return failure.Usage("usage", hint, "%s %s: %q\nusage: %s", cmd.CommandPath(), takes, args[most], cmd.UseLine())
		}
		return nil
	}
}

// meant is a hint for words that stand where none may: terms of a filter without quotes, a state, a kind.
func meant(flags *pflag.FlagSet, words []string) string {
	switch where, err := flags.GetStringArray("where"); {
	case flags.Lookup("state") != nil && slices.Contains(ledger.States, ledger.State(words[0])):
		return "did you mean --state " + words[0] + "?"
	case err == nil && isTerm(words[0]):
		return "did you mean --where " + shell.Quote(strings.Join(append(where, words...), " ")) + "?"
	case flags.Lookup("kind") != nil && isKind(words[0]):
		return "of a kind: --kind " + words[0]
	}
	return ""
}

func isTerm(word string) bool {
	_, err := filter.Parse(word, time.Now())
	return err == nil
}

func isKind(word string) bool {
	return (ledger.Kind{Name: word}).CheckName() == nil && strings.Trim(word, "0123456789") != ""
}
