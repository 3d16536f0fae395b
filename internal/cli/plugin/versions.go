package plugin

import (
	"context"
	"errors"
	"time"

	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/internal/pluginstore"
	"github.com/ledgerd/ledgerd/internal/report"
)

// versionRow is a version that is kept beside the current one.
type versionRow struct {
	Version string      `json:"version"`
	SHA256  string      `json:"sha256"`
	Path    string      `json:"path"`
	From    string      `json:"from"`
	Added   report.Time `json:"added_at"`
}

func newVersionRow(v pluginstore.Version) versionRow {
	return versionRow{v.Version, v.SHA256, v.Path, v.From, report.Time(v.AddedAt)}
}

// changeTime is how long another program that changes the plugins is waited for.
const changeTime = time.Minute

func beginChange(ctx context.Context, store pluginstore.Store) (*pluginstore.Change, error) {
	waiting, cancel := context.WithTimeout(ctx, changeTime)
	defer cancel()
	c, err := store.Begin(waiting)
	if err != nil && ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return c, storeError(err)
}

// storeError explains what keeps plugins from being changed.
func storeError(err error) error {
	for _, known := range []struct {
		target error
		exit   int
		code   string
		hint   string
	}{
		{pluginstore.ErrBusy, failure.ExitTaken, "busy",
			"another ledgerd plugin add or rm is at work, or waits for an answer"},
		{pluginstore.ErrNoFile, failure.ExitUsage, "bad_input", "name the program itself"},
		{pluginstore.ErrTooLarge, failure.ExitUsage, "bad_input", ""},
		{pluginstore.ErrTaken, failure.ExitUsage, "taken", "move it away; under another name (--as NAME) the plugin works " +
			"another kind, to which all work is new"},
		{pluginstore.ErrCurrent, failure.ExitUsage, "current", "add another version first, or remove the plugin as a " +
			"whole: without @"},
		{pluginstore.ErrNone, failure.ExitError, "not_found", "all plugins: ledgerd plugin ls"},
	} {
		if errors.Is(err, known.target) {
			return failure.New(known.exit, known.code, err.Error(), known.hint)
		}
	}
	return err
}
