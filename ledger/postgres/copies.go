package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ledgerd/ledgerd/ledger/finding"
)

// copies describes where a commit is kept besides the server's disk.
type copies struct {
	Names, Commit, Archive string // synchronous_standby_names, synchronous_commit, archive_mode
	Standbys               int    // connected
	Sync                   int    // of these, commits wait for
	Hidden                 int    // of these, this user may not see their state
	Failing                bool   // the last file was not archived
}

// readCopies counts standbys only, not backups or consumers of logical slots.
const readCopies = `SELECT current_setting('synchronous_standby_names'), current_setting('synchronous_commit'), current_setting('archive_mode'),
 count(r.pid)::int, (count(r.pid) FILTER (WHERE r.sync_state IN ('sync', 'quorum')))::int, (count(r.pid) FILTER (WHERE r.sync_state IS NULL))::int,
 (SELECT coalesce(last_failed_time > coalesce(last_archived_time, '-infinity'), false) FROM pg_stat_archiver)
 FROM (SELECT pid, sync_state FROM pg_stat_replication WHERE state IS DISTINCT FROM 'backup' AND pid NOT IN
  (SELECT active_pid FROM pg_replication_slots WHERE slot_type = 'logical' AND active_pid IS NOT NULL)) r`

// examineCopies looks at standbys and the archive.
func (s *Store) examineCopies(ctx context.Context, pool *pgxpool.Pool) ([]finding.Finding, error) {
	rows, err := pool.Query(ctx, readCopies)
	if err != nil {
		return nil, err
	}
	c, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[copies])
	if err != nil {
		return nil, err
	}
	return c.judge(), nil
}

func (c copies) judge() (all []finding.Finding) {
	const again = "when a standby is promoted, the last answers may be missing there: their items are worked again, and " +
		"numbers of attempts are given a second time unless the ledger is begun anew"
	waits := c.Commit != "local" && c.Commit != "off"
	connected := fmt.Sprintf("%d connected", c.Standbys)
	switch {
	case c.Names != "" && !waits:
		all = append(all, finding.Warning("standby", "commits do not wait for a standby (synchronous_commit is "+c.Commit+")",
			again, "ALTER ROLE … SET synchronous_commit = on, for the role that works the ledger"))
	case c.Names != "" && c.Sync == 0 && c.Hidden == 0:
		all = append(all, finding.Problem("standby", fmt.Sprintf("commits wait for a standby (synchronous_standby_names is "+
			"%s), and none is there; %s", c.Names, connected), "nothing can be added or worked until one connects",
			"start the standby, or take its name out of synchronous_standby_names and reload the server"))
	case c.Names == "" && c.Standbys > 0:
		all = append(all, finding.Warning("standby", "no commit waits for a standby (synchronous_standby_names is empty); "+
			connected, again, "name a standby in synchronous_standby_names, or promote one only after it has everything"))
	case c.Names != "":
		all = append(all, finding.Fine("standby", "commits wait for "+c.Names+"; "+connected))
	default:
		all = append(all, finding.Fine("standby", "none is connected, so the ledger is on this server alone"))
	}
	switch {
	case c.Archive == "off":
		all = append(all, finding.Fine("archive", "off: backups are the only copies"))
	case c.Failing:
		all = append(all, finding.Problem("archive", "the server could not archive its last file",
			"a restore ends before it, and the log fills the server's disk",
			"see the server's log for the archive_command, or SELECT * FROM pg_stat_archiver"))
	default:
		all = append(all, finding.Fine("archive", c.Archive))
	}
	return all
}
