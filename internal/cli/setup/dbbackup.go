package setup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/internal/cli/app"
	"github.com/ledgerd/ledgerd/internal/dburl"
	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/internal/report"
)

// backedUp is what db backup prints.
type backedUp struct {
	Ledger  string  `json:"ledger"`
	File    string  `json:"file"`
	Bytes   int64   `json:"bytes"`
	Seconds float64 `json:"seconds"`
}

func dbBackupCommand(a *app.App) *cobra.Command {
	return &cobra.Command{
		Use: "backup FILE", Short: "Write a consistent copy of a ledger on SQLite while work goes on", Args: app.Arguments(1,
			1),
		Long: `Writes the ledger as it is at one moment into a new file, while work goes on. When the command ends,
the file is complete and on the disk; until then it has another name. A file that is there already is
not touched (exit 2). The file is a ledger: ledgerd --db sqlite:FILE db verify checks it, and db restore FILE
goes back to it. A ledger of an older schema is written as it is.

A ledger on Postgres is backed up with Postgres: the command prints how.

With -o json: {"ledger","file","bytes","seconds"}.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			at, err := a.Address()
			if err != nil {
				return err
			}
			path, err := filepath.Abs(args[0])
			if err != nil {
				return err
			}
			if _, err := os.Stat(filepath.Dir(path)); errors.Is(err, fs.ErrNotExist) {
				return failure.Usage("bad_input", "make it first, or name another place", "the folder %s does not exist",
					filepath.Dir(path))
			}
			began := time.Now()
			if err := at.Backup(cmd.Context(), args[0]); err != nil {
				if tool, ok := errors.AsType[*dburl.ToolError](err); ok {
					return failure.Usage(tool.Code, tool.Command, "%s", tool.Message)
				}
				return a.ExplainOpen(at, err)
			}
			info, err := os.Stat(path)
			if err != nil {
				return err
			}
			took := time.Since(began)
			return app.One(a, backedUp{at.String(), path, info.Size(), report.InSeconds(took)},
				fmt.Sprintf("%s: %s in %s", args[0], humanize.IBytes(uint64(info.Size())), report.Seconds(took)))
		},
	}
}
