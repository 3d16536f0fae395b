package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/internal/pluginproc"
	"github.com/ledgerd/ledgerd/internal/pluginproc/conformance"
	"github.com/ledgerd/ledgerd/internal/report"
)

// checkRow is one check of a plugin.
type checkRow struct {
	Check string  `json:"check"`
	About string  `json:"about"`
	OK    bool    `json:"ok"`
	Error string  `json:"error"`
	MS    float64 `json:"ms"`
}

func (a *app) pluginCheckCommand() *cobra.Command {
	var dirs pluginDirs
	var with []string
	cmd := &cobra.Command{
		Use: "check NAME|PATH", Short: "Check how a plugin behaves; exit 1 if something is wrong", Args: arguments(1, 1),
		Long: `Starts the plugin several times and checks what ledgerd relies on: that it says what it is, refuses
what does not fit, gives every item one result, and ends when it is told to and when ledgerd is
gone. Fields: check, about, ok, error, ms.`,
		Example: "  ledgerd plugin check ./ledgerd-plugin-thumbs",
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.pluginCheck(cmd.Context(), args[0], dirs, with)
		},
	}
	dirs.define(cmd.Flags())
	cmd.Flags().StringArrayVar(&with, "with", nil, "`NAME=VALUE` of the plugin's config; repeated")
	return cmd
}

func (a *app) pluginCheck(ctx context.Context, name string, dirs pluginDirs, with []string) error {
	target, err := a.target(ctx, name, dirs, with)
	if err != nil {
		return err
	}
	p := a.printer()
	rows, err := report.NewRows[checkRow](p, []string{"check", "ok", "about", "error"}, nil)
	if err != nil {
		return err
	}
	failed, stopped := 0, ""
	for _, c := range conformance.Checks(target) {
		began := time.Now()
		row := checkRow{Check: c.Name, About: c.About, OK: true}
		neverStarts := false
		if err := c.Run(ctx, target); err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			failed++
			row.OK, row.Error = false, err.Error()
			_, neverStarts = errors.AsType[*pluginproc.StartError](err)
		}
		row.MS = float64(time.Since(began).Microseconds()) / 1000
		if err := rows.Write(row); err != nil {
			return err
		}
		if neverStarts {
			stopped = "it does not start, so nothing else can be checked"
			break
		}
	}
	if err := rows.Close(); err != nil {
		return err
	}
	if failed > 0 {
		return fail(exitError, "check_failed", fmt.Sprintf("plugin %s: %s failed", name, plural(int64(failed), "check")), stopped)
	}
	return nil
}

// target is the plugin to check: a program by its path, or one that is found by name.
func (a *app) target(ctx context.Context, name string, dirs pluginDirs, with []string) (conformance.Target, error) {
	var t conformance.Target
	if strings.ContainsRune(name, filepath.Separator) {
		path, err := filepath.Abs(name)
		if err != nil {
			return t, err
		}
		if info, err := os.Stat(path); err != nil || info.IsDir() {
			return t, usage("unknown_plugin", "name a program, or a plugin: ledgerd plugin ls", "%s: there is no such program", name)
		}
		t.Spec = pluginproc.Spec{Path: path}
		if len(with) > 0 {
			return t, usage("bad_flag", "put the program into a --plugin-dir and name the plugin", "--with goes with the name of a plugin, not with a path")
		}
	} else {
		p, err := a.findPlugin(ctx, name, dirs)
		if isNoPlugin(err) {
			return t, a.noPlugin(ctx, name, dirs)
		}
		if err != nil {
			return t, err
		}
		config, err := a.pluginConfig(name, p, with)
		if err != nil {
			return t, err
		}
		// What is bundled is no program of its own that a person could start.
		t.Spec, t.Embedded = pluginproc.Spec{Path: p.spec.Place.Path, Args: p.spec.Place.Args, SHA256: p.spec.SHA256, NoMTLS: p.spec.NoMTLS, Env: p.spec.Env, Dir: p.spec.Dir}, p.spec.Place.Origin == "bundled"
		if t.Config, t.Secrets, err = p.Config.Split(config); err != nil {
			return t, err
		}
	}
	t.Spec.OnLog = func(source, line string) { a.logger().Debug(line, "plugin", name, "from", source) }
	return t, nil
}
