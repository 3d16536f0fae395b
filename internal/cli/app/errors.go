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

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/internal/report"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/act"
	"github.com/ledgerd/ledgerd/sdk/redact"
	"github.com/ledgerd/ledgerd/sdk/settings"
)

// Conclude prints the error of a command and returns the exit code.
func (a *App) Conclude(err error) int {
	status, isStatus := errors.AsType[failure.Status](err)
	if lost := a.Stdout.Lost(); lost != nil && (err == nil || isStatus) {
		err, isStatus = lost, false
	}
	switch {
	case err == nil:
		return failure.ExitOK
	case errors.Is(err, syscall.EPIPE) && errors.Is(a.Stdout.Lost(), syscall.EPIPE): // the reader has closed stdout
		return failure.ExitError
	case isStatus:
		return int(status)
	}
	if sig := a.Got.Load(); sig != 0 && errors.Is(err, context.Canceled) {
		return 128 + int(sig)
	}
	f := failure.Explain(err)
	if !a.Parsed && f.Exit == failure.ExitError { // it is a mistake in the command line
		f.Exit, f.Code = failure.ExitUsage, "usage"
	}
	a.Tell(f)
	return f.Exit
}

// Tell writes an error to stderr: as lines for people, or as JSON with -o json and jsonl.
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

// speaksJSON reports whether the output is JSON, so that errors are JSON, too.
func (a *App) speaksJSON() bool {
	o := a.Output.String()
	if !a.Parsed {
		o = cmp.Or(a.Early, os.Getenv("LEDGERD_OUTPUT"), o)
	}
	return o == string(report.JSON) || o == string(report.JSONL)
}

// EarlyOutput finds the value of -o in a command line that may have mistakes elsewhere.
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

// FieldError turns a *ledger.InvalidError into an error in the words of the command line. names has what a command
// calls a field; without a name there, the field is the flag with its own name.
func FieldError(err error, code string, names map[string]string) error {
	if bad, ok := errors.AsType[*ledger.InvalidError](err); ok && bad.Field != "" {
		name := cmp.Or(names[bad.Field], "--"+strings.ReplaceAll(bad.Field, "_", "-"))
		return failure.Usage(code, bad.Hint, "%s: %s", name, bad.Reason)
	}
	return err
}

// FlagError explains a flag that does not exist or has a wrong value.
func FlagError(cmd *cobra.Command, err error) error {
	f := failure.Usage("bad_flag", fmt.Sprintf("flags: %s --help", cmd.CommandPath()), "%s", err.Error())
	if missing, ok := errors.AsType[*pflag.NotExistError](err); ok {
		var names []string
		cmd.Flags().VisitAll(func(fl *pflag.Flag) { names = append(names, fl.Name) })
		name := missing.GetSpecifiedName()
		if near := settings.Suggest(name, names); near != "" {
			f.Hint = "did you mean --" + near + "?   " + f.Hint
		} else if cmd.Flags().Lookup("set") != nil && cmd.Flags().Lookup("with") != nil {
			f.Hint += "   a field of the plugin is set with --set or --with: " + cmd.CommandPath() + " KIND --help"
		}
	}
	if bad, ok := errors.AsType[*strconv.NumError](err); ok {
		f.Message = strings.Replace(f.Message, bad.Error(), noNumber(bad), 1)
	}
	return f
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
	near := ""
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			names = append(names, c.Name())
		}
		if slices.Contains(c.SuggestFor, word) {
			near = c.Name()
		}
	}
	hint := fmt.Sprintf("all commands: %s --help", cmd.CommandPath())
	if near = cmp.Or(near, settings.Suggest(word, names)); near != "" {
		hint = fmt.Sprintf("did you mean %s %s?   %s", cmd.CommandPath(), near, hint)
	}
	return failure.Usage("unknown_command", hint, "no command %q", strings.TrimPrefix(cmd.CommandPath()+" "+word,
		"ledgerd "))
}

// Group is a command that only holds others.
func Group(id, use, short string, below ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use: use, Short: short, GroupID: id, Args: cobra.ArbitraryArgs,
		Annotations: map[string]string{WithoutConfig: "yes"},
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

// Arguments checks the number of arguments: least to most, or any number from least if most is negative.
func Arguments(least, most int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < least:
			return failure.Usage("usage", "", "%s needs an argument\nusage: %s", cmd.CommandPath(), cmd.UseLine())
		case most >= 0 && len(args) > most:
			hint, takes := "", "takes no argument"
			if cmd.Flags().Lookup("where") != nil {
				hint = "several terms of a filter are one word: --where 'kind:mail state:dead'"
			}
			if most > 0 {
				takes = "takes fewer arguments"
			}
			return failure.Usage("usage", hint, "%s %s: %q\nusage: %s", cmd.CommandPath(), takes, args[most], cmd.UseLine())
		}
		return nil
	}
}
