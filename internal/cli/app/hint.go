package app

import (
	"fmt"
	"io"
	"regexp"
	"strings"
	"sync"

	"github.com/ledgerd/ledgerd/internal/report"
	"github.com/ledgerd/ledgerd/internal/shell"
	"github.com/ledgerd/ledgerd/ledger/act"
	"github.com/ledgerd/ledgerd/sdk/redact"
)

// Proposed is the begin of a command line in a hint: "ledgerd retry --where …".
var Proposed = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\bledgerd ([a-z]+)( [^\s:;,?]\S*)?`) })

// withoutLedger are the commands that open no ledger.
var withoutLedger = map[string]bool{"plugin": true, "config": true, "self": true, "docs": true, "help": true,
	"token": true}

// Typed is a hint with its command lines as they work when they are pasted: with the --db and --config that were
// typed (the environment is there the next time, too), and with -y where no person could be asked. Every
// hint of this program goes through it, just before it is printed.
func (a *App) Typed(hint string) string {
	if strings.Contains(hint, " --db ") || strings.Contains(hint, " --config ") { // it names a ledger of its own
		return hint
	}
	asked := IsTerminal(a.Stdin) && IsTerminal(a.Stderr)
	return Proposed().ReplaceAllStringFunc(hint, func(begin string) string {
		m := Proposed().FindStringSubmatch(begin)
		name, next := m[1], m[2] // the begin of its first argument
		if !a.Commands[name] {
			return begin
		}
		line := "ledgerd" + report.Prefixed(" --config ", a.typedConfig())
		if !withoutLedger[name] {
			line += report.Prefixed(" --db ", a.typedDB())
		}
		line += " " + name
		// it may be about many
		asks := name == "cancel" || name == "prune" || name == "retry" && strings.HasPrefix(next, " -")
		if asks && next != "" && next != " -y" && next != " --help" && !asked {
			line += " -y"
		}
		return line + next
	})
}

// typedDB is the value of --db as it was typed, "" if it was not. A password is not repeated.
func (a *App) typedDB() string {
	switch {
	case a.DbSource != DbFlag:
		return ""
	case redact.Text(a.Db) != a.Db:
		return "…"
	}
	return shell.Quote(a.Db)
}

// typedConfig is the value of --config as it was typed, "" if it was not.
func (a *App) typedConfig() string {
	if !a.ConfigTyped {
		return ""
	}
	return shell.Quote(a.ConfigFile)
}

// Words are the commands of acts: "ledgerd retry 7, or ledgerd cancel 7". An act without a name has none.
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

// Worded is a hint with the command that does what its first line advises: "make one: ledgerd db migrate".
func Worded(hint string, does act.Act) string {
	first, rest, more := strings.Cut(hint, "\n")
	first += report.Prefixed(": ", Words(does))
	if more {
		return first + "\n" + rest
	}
	return first
}

// command is the command of an act.
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
	}
	return string(a.Name)
}

// agentTerm is the term of a filter that matches the items of an agent, for a shell.
func agentTerm(agent string) string {
	if strings.ContainsAny(agent, " \t\n,") { // it would end the term
		agent = `"` + agent + `"`
	}
	return shell.Quote("agent:" + agent)
}

// Advise writes a text with command lines for people.
func (a *App) Advise(out io.Writer, format string, args ...any) {
	fmt.Fprint(out, a.Typed(fmt.Sprintf(format, args...)))
}
