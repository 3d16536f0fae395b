package app

import (
	"fmt"
	"io"
	"strings"

	"github.com/ledgerd/ledgerd/internal/lazyregexp"
	"github.com/ledgerd/ledgerd/internal/report"
	"github.com/ledgerd/ledgerd/internal/shell"
	"github.com/ledgerd/ledgerd/ledger/act"
	"github.com/ledgerd/ledgerd/sdk/redact"
)

// Proposed matches the beginning of a command line in a hint: "ledgerd retry --where …".
var Proposed = lazyregexp.New(`\bledgerd ([a-z]+)( [^\s:;,?]\S*)?`)

// withoutLedger are the commands that open no ledger.
var withoutLedger = map[string]bool{"plugin": true, "config": true, "self": true, "docs": true, "help": true,
	"token": true}

// Typed completes the command lines in a hint so that they can be pasted: with --db and --config if they were typed,
// and with -y if there is no terminal on which to confirm. Every hint of this program goes through it, just before it
// is printed.
func (a *App) Typed(hint string) string {
	if strings.Contains(hint, " --db ") || strings.Contains(hint, " --config ") { // the hint is about another ledger
		return hint
	}
	canConfirm := IsTerminal(a.Stdin) && IsTerminal(a.Stderr)
	return Proposed().ReplaceAllStringFunc(hint, func(beginning string) string {
		m := Proposed().FindStringSubmatch(beginning)
		name, next := m[1], m[2] // next is the first argument, with a space before it
		if !a.Commands[name] {
			return beginning
		}
		line := "ledgerd"
		if a.ConfigTyped {
			line += " --config " + shell.Quote(a.ConfigFile)
		}
		if !withoutLedger[name] {
			line += report.Prefixed(" --db ", a.typedDB())
		}
		line += " " + name
		// These commands ask before they change several items.
		asks := name == "cancel" || name == "prune" || (name == "retry" || name == "finish") &&
			strings.HasPrefix(next, " -")
		if asks && next != "" && next != " -y" && next != " --help" && !canConfirm {
			line += " -y"
		}
		return line + next
	})
}

// typedDB returns the value of --db as it was typed, "" if it was not, "…" if it has a password.
func (a *App) typedDB() string {
	switch {
	case a.DbSource != DbFlag:
		return ""
	case redact.Text(a.Db) != a.Db:
		return "…"
	}
	return shell.Quote(a.Db)
}

// Words returns the commands of acts: "ledgerd retry 7, or ledgerd cancel 7". Acts without a name are left out.
func Words(acts ...act.Act) string {
	var commands []string
	for _, a := range acts {
		if a.Name != "" {
			commands = append(commands, command(a))
		}
	}
	if last := len(commands) - 1; last > 0 {
		commands[last] = "or " + commands[last]
	}
	return strings.Join(commands, ", ")
}

// Worded adds the command of an act to the first line of a hint: "make one: ledgerd db migrate".
func Worded(hint string, a act.Act) string {
	first, rest, more := strings.Cut(hint, "\n")
	first += report.Prefixed(": ", Words(a))
	if more {
		return first + "\n" + rest
	}
	return first
}

// command returns the command line that does an act.
func command(a act.Act) string {
	switch a.Name {
	case act.Retry:
		return fmt.Sprintf("ledgerd retry %d", a.Item)
	case act.Reopen:
		return fmt.Sprintf("ledgerd retry %d --again", a.Item)
	case act.Finish:
		return fmt.Sprintf("ledgerd finish %d --agent YOU", a.Item)
	case act.Cancel:
		return fmt.Sprintf("ledgerd cancel %d", a.Item)
	case act.Release:
		return "ledgerd finish --outcome released --where " + agentTerm(a.Agent) + " --force"
	case act.Resume:
		return "ledgerd kind resume " + a.Kind
	case act.SetLimit:
		value := "N"
		if strings.HasPrefix(a.Field, "rate") {
			value = "RATE"
		}
		return fmt.Sprintf("ledgerd kind set %s --%s %s", a.Kind, strings.ReplaceAll(a.Field, "_", "-"), value)
	case act.Work:
		return "ledgerd work" + report.Prefixed(" --kind ", a.Kind) + report.Prefixed(" --shard ", a.Shard)
	case act.Claim:
		return "ledgerd claim " + a.Kind + " --agent YOU"
	case act.ShowErrors:
		return "ledgerd errors --where kind:" + a.Kind
	case act.InstallPlugin:
		return "ledgerd plugin ls"
	case act.Migrate:
		return "ledgerd db migrate"
	case act.ShowSchema:
		return "ledgerd db status"
	case act.Copy:
		return "ledgerd db copy"
	case act.Examine:
		return "ledgerd doctor"
	case act.Restored:
		return "ledgerd db restored, or ledgerd db restored --nothing-lost"
	case act.Moved:
		return "ledgerd db restored --nothing-lost"
	case act.SetEnvironment:
		return "ledgerd db environment NAME"
	}
	return string(a.Name)
}

// agentTerm returns the filter term that matches the items of an agent, quoted for a shell.
func agentTerm(agent string) string {
	if strings.ContainsAny(agent, " \t\n,") { // it would end the term
		agent = `"` + agent + `"`
	}
	return shell.Quote("agent:" + agent)
}

// Advise writes a text for people and completes the command lines in it, see Typed.
func (a *App) Advise(out io.Writer, format string, args ...any) {
	fmt.Fprint(out, a.Typed(fmt.Sprintf(format, args...)))
}
