package plugin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/internal/cli/app"
	"github.com/ledgerd/ledgerd/internal/config"
	"github.com/ledgerd/ledgerd/internal/download"
	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/internal/kinds"
	"github.com/ledgerd/ledgerd/internal/pluginhost"
	"github.com/ledgerd/ledgerd/internal/pluginproc"
	"github.com/ledgerd/ledgerd/internal/pluginstore"
	"github.com/ledgerd/ledgerd/internal/report"
	"github.com/ledgerd/ledgerd/internal/shell"
	"github.com/ledgerd/ledgerd/sdk/redact"
)

// addedPlugin is what plugin add prints.
type addedPlugin struct {
	Name     string   `json:"name"`
	Version  string   `json:"version"`
	Summary  string   `json:"summary"`
	Input    string   `json:"input"` // "" if the kind declares it
	Secrets  []string `json:"secrets"`
	Emits    []string `json:"emits"`
	Env      []string `json:"env"` // names of the variables that it gets, without those of the handshake
	SHA256   string   `json:"sha256"`
	Path     string   `json:"path"`
	Replaces string   `json:"replaces"` // sha256 of the program that it replaces; "" if there was none
}

func pluginAddCommand(a *app.App) *cobra.Command {
	var want string
	cmd := &cobra.Command{
		Use: "add FILE|URL", Short: "Copy a plugin to this machine, or its next version", Args: app.Arguments(1, 1),
		Long: `FILE is the program of a plugin. Copies it, starts the copy to read what it declares, prints that, and
keeps the copy in plugins/ of the data directory. From then on commands find this plugin by its name. It comes
before a plugin of that name beside ledgerd and before a bundled one, but after one that the config or
--plugin-dir names. The SHA-256 of the copy is checked before every start. For what comes
from a URL, and if other users may write to FILE or its folder, --sha256 is required.

A plugin of that name that was added before is replaced; a ledgerd that runs changes to the new one within
seconds (docs/plugins/install.md). A program that does not start, or does not describe itself, is refused.
One that does not take the config of this machine's kinds is refused, too; -y adds it all the same. To go
back, add the old file again.

With -o json: {"name","version","summary","input","secrets","emits","env","sha256","path","replaces"}. input is ""
if the kind declares it, secrets are the fields of the config that are secret, emits the kinds to which it may
add items, and env the variables of its environment, all by name. replaces is the sha256 of the program of before.`,
		Example: "  ledgerd plugin add ./ledgerd-plugin-thumbs\n" +
			"  ledgerd plugin add https://example.org/thumbs-linux-amd64 --sha256 3fa9c1…",
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("sha256") && !config.IsSHA256(want) {
				return failure.Usage("bad_flag", "it has 64 digits, as sha256sum prints it", "--sha256 %q is not a checksum", want)
			}
			added, err := adding{app: a, from: args[0], sums: strings.Fields(want), tell: true}.add(cmd.Context())
			if err != nil {
				return err
			}
			return tellAdded(a, added)
		},
	}
	cmd.Flags().StringVar(&want, "sha256", "", "checksum that the file must have, in `hex`")
	return cmd
}

// adding is a program that is to be added.
type adding struct {
	app  *app.App
	from string   // path or URL
	sums []string // allowed checksums in hex; none: a file may have any
	name string   // that the plugin must have; "" allows any
	tell bool     // print what the plugin declares before it is added
}

// waits returns a function that prints that another program has the lock of the plugin store.
func waits(a *app.App) func() {
	return func() { fmt.Fprintln(a.Stderr, "another ledgerd changes the plugins of this machine: waiting for it") }
}

// add copies the program into the plugin store, examines the copy, and puts it in the place of the plugin.
func (n adding) add(ctx context.Context) (added addedPlugin, err error) {
	if !config.IsURL(n.from) {
		if n.from, err = filepath.Abs(n.from); err != nil {
			return added, err
		}
	}
	store, err := n.app.PluginStore()
	if err != nil {
		return added, err
	}
	change, err := store.Begin(ctx, waits(n.app))
	if err != nil {
		return added, err
	}
	defer func() { err = errors.Join(err, change.End()) }()
	copied, sum, err := n.copy(ctx, change)
	if err != nil {
		return added, err
	}
	about, err := examine(ctx, n.app, pluginhost.Place{Name: n.name, Path: copied, SHA256: sum}, n.from)
	if err == nil {
		err = refuseOther(n.app, about.Name, sum)
	}
	if err != nil {
		return added, err
	}
	if n.name != "" && about.Name != n.name {
		return added, failure.Usage("invalid", "name it so in the config: [plugins."+report.Safe(about.Name)+"]",
			"%s calls itself %s, not %s", withoutSecrets(n.from), report.Safe(about.Name), n.name)
	}
	added = declared(n.app, about)
	if n.tell {
		if err := tellDeclared(n.app, added); err != nil {
			return added, err
		}
	}
	if !n.app.Yes {
		err = refuseMisfit(ctx, n.app, pluginhost.Place{Name: about.Name, Path: copied, SHA256: sum}, about)
		if err != nil {
			return added, err
		}
	}
	now, before, err := change.Use(copied, pluginstore.Added{Name: about.Name, SHA256: sum})
	if errors.Is(err, pluginstore.ErrTaken) {
		return added, failure.Usage("taken", "move it away", "%s", err.Error())
	}
	added.SHA256, added.Path, added.Replaces = sum, now.Path, before.SHA256
	return added, err
}

// fetchTime bounds a download.
const fetchTime = 15 * time.Minute

// copy copies the program into the plugin store. It refuses a program with none of the allowed checksums.
func (n adding) copy(ctx context.Context, change *pluginstore.Change) (path, sum string, err error) {
	if config.IsURL(n.from) {
		ctx, cancel := context.WithTimeout(ctx, fetchTime)
		defer cancel()
		body, err := download.Get(ctx, n.from)
		if err != nil {
			return "", "", failure.New(failure.ExitTemporary, "unreachable", err.Error(), "nothing was added")
		}
		defer body.Close()
		path, sum, err = change.Save(body)
		if err != nil {
			return "", "", fmt.Errorf("%s: %w", withoutSecrets(n.from), err)
		}
	} else {
		if len(n.sums) == 0 {
			if err := refuseWritable(n.from); err != nil {
				return "", "", err
			}
		}
		path, sum, err = change.Copy(n.from)
	}
	switch got := func(want string) bool { return strings.EqualFold(want, sum) }; {
	case errors.Is(err, fs.ErrNotExist):
		return "", "", failure.Usage("bad_input", "", "%s: there is no such file", withoutSecrets(n.from))
	case errors.Is(err, pluginstore.ErrNoFile), errors.Is(err, pluginstore.ErrTooLarge):
		return "", "", failure.Usage("bad_input", "name the program itself", "%s", err.Error())
	case err != nil:
		return "", "", err
	case len(n.sums) == 0 && config.IsURL(n.from):
		return "", "", failure.New(failure.ExitDenied, "checksum", fmt.Sprintf("%s was not added: a download needs --sha256",
			withoutSecrets(n.from)), "if its author has published this checksum: --sha256 "+sum)
	case len(n.sums) > 0 && !slices.ContainsFunc(n.sums, got):
		return "", "", failure.New(failure.ExitDenied, "checksum", fmt.Sprintf("%s: its sha256 is %s, not %s",
			withoutSecrets(n.from), sum, strings.Join(n.sums, pluginproc.SumOr)),
			"nothing was added; get the file anew, and the checksum from where it is made")
	}
	return path, sum, nil
}

// withoutSecrets is where a program is from, as it may be printed.
func withoutSecrets(from string) string {
	if config.IsURL(from) {
		return redact.URL(from)
	}
	return from
}

// declared returns what a plugin declares, and the variables that it gets from the environment of this machine.
func declared(a *app.App, about *pluginhost.Description) addedPlugin {
	added := addedPlugin{Name: about.Name, Version: about.Version, Summary: about.Summary(),
		Input: about.Policy(about.Name).Input.Type, Secrets: report.OrEmpty(about.Config.Secrets()),
		Emits: report.OrEmpty(about.Emits)}
	spec := pluginproc.Spec{Env: a.PluginSpec(pluginhost.Place{Name: about.Name}).Env}
	for _, variable := range spec.Environ() {
		name, _, _ := strings.Cut(variable, "=")
		added.Env = append(added.Env, name)
	}
	return added
}

// tellDeclared prints what a plugin declares, if the output is for people.
func tellDeclared(a *app.App, p addedPlugin) error {
	printer := a.Printer()
	if printer.Format != report.Table {
		return nil
	}
	names := func(list []string) string { return report.Safe(cmp.Or(strings.Join(list, " "), "none")) }
	return printer.Align("", [][]string{
		{"plugin", report.Safe(p.Name + " " + p.Version + "   " + p.Summary)},
		{"input", report.Safe(cmp.Or(p.Input, "as the kind declares"))},
		{"secrets", names(p.Secrets)},
		{"emits", names(p.Emits)},
		{"environment", names(p.Env) + "   nothing else of ledgerd's"},
	})
}

// refuseWritable refuses a file that another user may have put there.
func refuseWritable(file string) error {
	_, err := pluginproc.CheckWritable(file) // a file that does not exist is reported when it is copied
	if bad, ok := errors.AsType[*pluginproc.StartError](err); ok && errors.Is(bad, pluginproc.ErrWritable) {
		return failure.New(failure.ExitDenied, "writable", fmt.Sprintf("%s was not added: %s", file, bad.Problem), bad.Hint+
			"\nor say what it must be: --sha256 HEX")
	}
	return nil
}

// examine starts the copy of a program and asks for its description. from is the path or URL of the original: the
// config may have a checksum for a plugin of that name.
func examine(ctx context.Context, a *app.App, place pluginhost.Place, from string) (*pluginhost.Description, error) {
	place.Name = cmp.Or(place.Name, strings.TrimPrefix(filepath.Base(from), pluginstore.Prefix))
	if err := refuseOther(a, place.Name, place.SHA256); err != nil {
		return nil, err
	}
	from = withoutSecrets(from)
	spec := a.PluginSpec(place)
	spec.Place.Name, spec.SHA256 = "", place.SHA256
	about, err := pluginhost.Describe(ctx, spec)
	if err != nil {
		f := failure.Explain(err)
		f.Message = strings.ReplaceAll(f.Message, place.Path, from)
		next := "try: ledgerd plugin check " + shell.Quote(from)
		if worksInPlace(ctx, spec, from, err) {
			next = "it needs the files beside it, and one file is added: make one of all (Node: node ledgerd/bundle.js FROM TO), " +
				"or name the program by command in [plugins.NAME] of the config"
		}
		f.Hint = strings.TrimPrefix(f.Hint+"\nnothing was added; "+next, "\n")
		return nil, f
	}
	// The name must be a kind's name, and no name of a link in the plugin store.
	if kinds.CheckKind(about.Name) != nil || strings.HasPrefix(about.Name, pluginstore.Prefix) {
		return nil, failure.Usage("invalid", "a name has a-z, 0-9 and -, not - first, and goes without "+pluginstore.Prefix,
			"%s: %q is not a name of a plugin", from, about.Name)
	}
	return about, nil
}

// worksInPlace reports whether a program describes itself whose copy has ended before the handshake.
func worksInPlace(ctx context.Context, spec pluginhost.Spec, from string, failed error) bool {
	start, _ := errors.AsType[*pluginproc.StartError](failed)
	if start == nil || start.Step != pluginproc.StepHandshake || start.Stderr == "" || config.IsURL(from) {
		return false
	}
	spec.Place.Path = from
	_, err := pluginhost.Describe(ctx, spec)
	return err == nil
}

// refuseOther refuses a program that has none of the checksums that the config names for a plugin.
func refuseOther(a *app.App, name, sum string) error {
	p := a.Config.Plugins[name]
	if p == nil || len(p.SHA256) == 0 || p.HasSum(sum) {
		return nil
	}
	return failure.New(failure.ExitDenied, "checksum", fmt.Sprintf("its sha256 is %s, and plugins.%s.sha256 of the config "+
		"has another", sum, name), "nothing was added; if it is meant, change the config first")
}

// refuseMisfit refuses a plugin that does not accept the config that this machine has for a kind: after the change
// nothing would work the kind.
func refuseMisfit(ctx context.Context, a *app.App, place pluginhost.Place, about *pluginhost.Description) error {
	for _, kind := range slices.Sorted(maps.Keys(a.Config.Kinds)) {
		if cmp.Or(a.Config.PluginOf(kind), kind) != place.Name {
			continue
		}
		with, err := a.PluginConfig(kind, &kinds.Plugin{Description: about}, nil)
		if err == nil {
			err = pluginhost.Validate(ctx, pluginhost.Config{Spec: a.PluginSpec(place), Settings: with})
		}
		if err != nil {
			line, _, _ := strings.Cut(failure.Explain(err).Message, "\n")
			return failure.Usage("bad_setting", "nothing was added; change the config first, or add it all the same: -y",
				"%s %s does not take the config of kind %q: %s", place.Name, report.Safe(about.Version), kind, line)
		}
	}
	return nil
}

func tellAdded(a *app.App, now addedPlugin) error {
	const shownDigits = 12
	text := fmt.Sprintf("%s %s   sha256 %s", now.Name, report.Safe(now.Version), now.SHA256)
	switch now.Replaces {
	case "":
	case now.SHA256:
		text += "   was here already"
	default:
		text += "   in place of " + now.Replaces[:shownDigits]
	}
	if err := app.One(a, now, text); err != nil || a.Quiet {
		return err
	}
	if place, err := a.Place(now.Name); err == nil && place.Path != now.Path {
		fmt.Fprintf(a.Stderr, "warning: %s is not used: %s (%s) is found before it\n", now.Name, place.Path, place.Origin)
	}
	return nil
}
