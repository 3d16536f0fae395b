package main

import (
	"context"
	"net"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/internal/pgtest"
	"github.com/ledgerd/ledgerd/internal/pgtest/cluster"
)

// TestFailover follows the steps of docs/high-availability.md, with its commands, while a daemon works.
func TestFailover(t *testing.T) {
	t.Parallel()
	primary := pgtest.Start(t, pgtest.Options{Fsync: true})
	standby := pgtest.Start(t, pgtest.Options{Fsync: true, Of: primary})
	u, err := url.Parse(primary.URL())
	must.OK(t, err)
	u.Host += "," + net.JoinHostPort("127.0.0.1", strconv.Itoa(standby.Port))
	m := newMachine(t, u.String())
	awaits(t, primary, "*")
	page, err := os.ReadFile("../../docs/high-availability.md")
	must.OK(t, err)
	commands := regexp.MustCompile(`(?m)^ *ledgerd (.*)$`).FindAllStringSubmatch(string(page), -1)
	if len(commands) != 3 {
		t.Fatalf("the page has %d commands: %q", len(commands), commands)
	}
	documented := func(n int, want int) string { return m.run(want, strings.Fields(commands[n][1])...) }
	s := m.site("listen = \"127.0.0.1:0\"\n[kinds.effect]\n")
	daemon := s.daemon()
	done := func(n int) func() bool {
		return func() bool {
			return strings.Count(m.run(failure.ExitOK, "ls", "--all", "--columns", "state"), "done") == n
		}
	}
	m.run(failure.ExitOK, "add", "effect", "a", "b")
	m.until("the items are done", done(2))

	must.OK(t, primary.Crash())
	must.OK(t, standby.Promote())
	awaits(t, standby, "")
	if report := m.run(failure.ExitError, "doctor"); !strings.Contains(report, "timeline 2") {
		t.Error(report)
	}
	documented(0, failure.ExitOK)
	m.run(failure.ExitOK, "add", "effect", "c")
	m.until("the daemon goes on", done(3))
	if report := documented(1, failure.ExitOK); !strings.Contains(report, "timeline 2 of") {
		t.Error(report)
	}
	m.stop(daemon, syscall.SIGTERM, failure.ExitOK)
	documented(2, failure.ExitOK)
}

// awaits makes commits of a server wait for these standbys.
func awaits(t *testing.T, server *cluster.Cluster, standbys string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), server.URL())
	must.OK(t, err)
	defer conn.Close(context.Background())
	must.Do(t)(conn.Exec(t.Context(), "ALTER SYSTEM SET synchronous_standby_names = '"+standbys+"'"))
	must.Do(t)(conn.Exec(t.Context(), "SELECT pg_reload_conf()"))
}
