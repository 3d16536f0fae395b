package main

import (
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/ledger/sqlite"
)

// backedUp is what db backup prints.
type backedUp struct {
	Ledger  string  `json:"ledger"`
	File    string  `json:"file"`
	Bytes   int64   `json:"bytes"`
	Seconds float64 `json:"seconds"`
}

func (a *app) dbBackupCommand() *cobra.Command {
	return &cobra.Command{
		Use: "backup FILE", Short: "Write a consistent copy of a ledger on SQLite while work goes on", Args: arguments(1, 1),
		Long: `Writes the ledger as it is at one moment into a new file, while work goes on. When the command ends,
the file is complete and on the disk; until then it has another name. A file that is there already is
not touched (exit 2). The file is a ledger: ledgerd --db sqlite:FILE db verify checks it. To go back
to it, stop what uses the ledger and put the file in its place, without the -wal and -shm files of the
old one; what was done since the backup is then done again.

A ledger on Postgres is backed up with Postgres: the command says how.

With -o json: {"ledger","file","bytes","seconds"}.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			at, err := a.address()
			if err != nil {
				return err
			}
			if at.path == "" {
				return usage("use_pg_dump", pgDump(at, args[0]), "a ledger on Postgres is backed up with pg_dump: %s", at)
			}
			path, err := filepath.Abs(args[0])
			if err != nil {
				return err
			}
			if _, err := os.Stat(filepath.Dir(path)); errors.Is(err, fs.ErrNotExist) {
				return usage("bad_input", "make it first, or name another place", "the folder %s does not exist", filepath.Dir(path))
			}
			l, err := a.open(cmd.Context())
			if err != nil {
				return err
			}
			defer l.Close()
			began := time.Now()
			if err := l.store.(*sqlite.Store).Backup(cmd.Context(), path); err != nil {
				return err
			}
			info, err := os.Stat(path)
			if err != nil {
				return err
			}
			took := time.Since(began)
			return one(a, backedUp{at.String(), path, info.Size(), inSeconds(took)},
				fmt.Sprintf("%s: %s in %s", args[0], humanize.IBytes(uint64(info.Size())), seconds(took)))
		},
	}
}

// pgDump says how a ledger on Postgres is backed up and brought back. The password stays out.
func pgDump(at address, file string) string {
	from := url.URL{Scheme: "postgres"}
	if u, err := url.Parse(at.String()); err == nil { // as it was parsed before
		from = *u
		if u.User != nil {
			from.User = url.User(u.User.Username())
		}
		q := u.Query()
		for name := range q { // libpq refuses what it does not know
			if name == "search_path" || strings.HasSuffix(name, "password") || strings.HasPrefix(name, "pool_") {
				q.Del(name)
			}
		}
		from.RawQuery = q.Encode()
	}
	schema := at.schema
	if schema == "" {
		schema = "public"
	}
	return fmt.Sprintf("pg_dump --format=custom --table=%s --file=%s %s\nback, into a database without a ledger: pg_restore --single-transaction --dbname=… %[2]s",
		quoteForShell(schema+".ledger_*"), quoteForShell(file), quoteForShell(from.String()))
}
