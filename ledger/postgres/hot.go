package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ledgerd/ledgerd/internal/pgcancel"
)

// Statements of the hot path are prepared and planned once in each session, because the server takes longer to parse
// and plan a claim than to execute it. A plan that is kept must stay good when the tables grow, so these sessions have
// settings of their own (hotSettings). They are a pool of their own, because these settings are bad for other
// statements.
//
// Nothing is prepared in a pool of the caller's, since its sessions have other settings. Nothing is prepared behind a
// pooler, since the next statement may reach another session.

// hotStatements returns the statements that are prepared.
func (s *Store) hotStatements() map[string]bool {
	hot := map[string]bool{}
	for _, template := range []string{
		claimSQL[0][0][0], claimSQL[0][0][1], claimSQL[0][1][0], claimSQL[0][1][1], resumeTemplate,
		coalescedSQL[0], coalescedSQL[1], lookSQL[0], lookSQL[1],
		completePlain, completePlainOne, completeFull, completeFullOne, renewWhole, renewRows, startTemplate,
		insertTemplate(false, false), insertTemplate(false, true), insertTemplate(true, false), insertTemplate(true, true),
		drawIDs,
		lockItems, lockBacklog, loadTemplate,
		sweepTemplate, takeExpired.tend, takeExpired.take, promoteTemplate, nextTemplate,
	} {
		hot[s.render(template)] = true
	}
	return hot
}

// hotSettings leave each statement of the hot path one plan, by its indexes. Without them the planner would read whole
// tables where its statistics were taken while the tables were small.
var hotSettings = []setting{
	{"plan_cache_mode", "force_generic_plan"},
	{"enable_seqscan", "off"},
	{"enable_hashjoin", "off"},
	{"enable_mergejoin", "off"},
	{"enable_material", "off"},
}

// hotMark is set in the sessions whose statements are prepared.
const hotMark = "ledgerd hot"

// splitPool takes a part of the connections of all for a second pool, the one of the hot path. It returns the
// configuration of that pool, or nil if all has only one connection.
func splitPool(all *pgxpool.Config) *pgxpool.Config {
	if all.MaxConns < 2 {
		return nil
	}
	hot := all.Copy()
	all.MaxConns = max(1, all.MaxConns*3/8)
	hot.MaxConns -= all.MaxConns
	for _, c := range []*pgxpool.Config{all, hot} { // pgxpool refuses a minimum above the maximum
		c.MinConns, c.MinIdleConns = min(c.MinConns, c.MaxConns), min(c.MinIdleConns, c.MaxConns)
	}
	prepare := hot.AfterConnect
	hot.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		if err := prepare(ctx, conn); err != nil {
			return err
		}
		names, values := settingsFor(conn, hotSettings)
		set, err := setUnpooled(ctx, conn, names, values)
		if err != nil {
			pgcancel.CloseUnused(conn)
		} else if set { // there is no pooler
			conn.PgConn().CustomData()[hotMark] = true
		}
		return err
	}
	return hot
}

// prepares returns the statements to prepare in this session: those of the hot path, or none.
func (s *Store) prepares(conn *pgx.Conn) map[string]bool {
	if conn.PgConn().CustomData()[hotMark] == nil {
		return nil
	}
	return s.prepared
}
