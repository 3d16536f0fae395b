package postgres

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/internal/pgtest"
	"github.com/ledgerd/ledgerd/ledger/finding"
	"github.com/ledgerd/ledgerd/ledger/storetest"
)

func TestExamineCopies(t *testing.T) {
	const ok, warning, problem = finding.LevelOK, finding.LevelWarning, finding.LevelProblem
	for _, c := range []struct {
		copies
		level finding.Level
		parts []string
	}{
		{copies{Commit: "on"}, ok, []string{"on this server alone"}},
		{copies{Commit: "on", Standbys: 2}, warning, []string{"no commit waits", "2 connected", "worked again"}},
		{copies{Commit: "on", Standbys: 2, Hidden: 2}, warning, []string{"no commit waits"}},
		{copies{Commit: "on", Names: "b", Standbys: 1, Sync: 1}, ok, []string{"commits wait for b", "1 connected"}},
		{copies{Commit: "on", Names: "b", Standbys: 1, Hidden: 1}, ok, []string{"commits wait for b"}},
		{copies{Commit: "on", Names: "b", Standbys: 1}, problem, []string{"none is there", "1 connected"}},
		{copies{Commit: "local", Names: "b", Standbys: 1, Sync: 1}, warning, []string{"synchronous_commit is local"}},
	} {
		t.Run(fmt.Sprintf("%+v", c.copies), func(t *testing.T) {
			c.Archive = "off"
			storetest.Finds(t, c.judge(), "standby", c.level, c.parts...)
			storetest.Finds(t, c.judge(), "archive", ok, "backups are the only copies")
			c.Archive = "on"
			storetest.Finds(t, c.judge(), "archive", ok, "on")
			c.Failing = true
			storetest.Finds(t, c.judge(), "archive", problem, "could not archive", "pg_stat_archiver")
		})
	}
}

func TestExamineStandby(t *testing.T) {
	ctx, server := t.Context(), pgtest.Start(t, pgtest.Options{})
	all, _ := Examine(ctx, server.URL(), Options{})
	storetest.Finds(t, all, "standby", finding.LevelOK, "on this server alone")
	storetest.Finds(t, all, "archive", finding.LevelOK, "off")
	config, err := pgconn.ParseConfig(server.URL())
	must.OK(t, err)
	config.RuntimeParams["replication"] = "true"
	conn, err := pgconn.ConnectConfig(ctx, config)
	must.OK(t, err)
	defer conn.Close(context.WithoutCancel(ctx))
	system, err := conn.Exec(ctx, "IDENTIFY_SYSTEM").ReadAll()
	must.OK(t, err)
	conn.Frontend().SendQuery(&pgproto3.Query{String: "START_REPLICATION PHYSICAL " + string(system[0].Rows[0][2])})
	must.OK(t, conn.Frontend().Flush())
	for {
		message, err := conn.ReceiveMessage(ctx)
		must.OK(t, err)
		if _, began := message.(*pgproto3.CopyBothResponse); began {
			break
		}
	}
	all, _ = Examine(ctx, server.URL(), Options{})
	storetest.Finds(t, all, "standby", finding.LevelWarning, "no commit waits", "1 connected")
}
