package cluster

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"go.uber.org/goleak"

	"github.com/ledgerd/ledgerd/internal/must"
)

// asChild makes the test program start a server (value "start") or join the one in the home that
// the value names, print the server's pid and its home, and then wait to be killed.
const asChild = "LEDGERD_CLUSTER_TEST_CHILD"

func TestMain(m *testing.M) {
	if what := os.Getenv(asChild); what != "" {
		if err := child(what); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

func child(what string) error {
	bin, err := Bin()
	if err != nil {
		return err
	}
	var c *Cluster
	if what == "start" {
		c, err = Start(Options{})
	} else {
		c, err = join(what, bin, 200*time.Millisecond)
	}
	if err != nil {
		return err
	}
	pid, err := c.PID()
	if err != nil {
		return err
	}
	fmt.Println(pid, c.home)
	_, err = bufio.NewReader(os.Stdin).ReadByte() // until the parent ends us or itself
	return err
}

// spawn starts a child; server waits until it has its server, and kill ends it.
func spawn(t *testing.T, what string) (server func() (pid int, home string), kill func()) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), asChild+"="+what)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	must.OK(t, err)
	stdout, err := cmd.StdoutPipe()
	must.OK(t, err)
	must.OK(t, cmd.Start())
	kill = func() {
		cmd.Process.Kill()
		cmd.Wait()
		stdin.Close()
	}
	t.Cleanup(kill)
	return func() (pid int, home string) {
		t.Helper()
		if _, err := fmt.Fscan(stdout, &pid, &home); err != nil {
			t.Fatalf("child printed no pid and home: %v", err)
		}
		return pid, home
	}, kill
}

// eventually polls something that another process does.
func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	tick := time.Tick(20 * time.Millisecond)
	deadline := time.After(time.Minute)
	for !done() {
		select {
		case <-tick:
		case <-deadline:
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

func gone(pid int) bool { return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }

func missing(path string) bool {
	_, err := os.Stat(path)
	return errors.Is(err, os.ErrNotExist)
}

func start(t *testing.T, o Options) *Cluster {
	t.Helper()
	c, err := Start(o)
	must.OK(t, err)
	t.Cleanup(func() { must.OK(t, c.Close()) })
	return c
}

// query returns the text of one value.
func query(t *testing.T, address, sql string) string {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), address)
	must.OK(t, err)
	defer conn.Close(context.Background())
	var text string
	if err := conn.QueryRow(t.Context(), sql).Scan(&text); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return text
}

func TestSettings(t *testing.T) {
	t.Parallel()
	fast := start(t, Options{})
	safe := start(t, Options{Fsync: true, Settings: map[string]string{"max_connections": "17",
		"application_name": "it's"}})
	for _, c := range []struct {
		server     *Cluster
		name, want string
	}{
		{fast, "fsync", "off"},
		{fast, "max_connections", "200"},
		{fast, "listen_addresses", "127.0.0.1"},
		{fast, "TimeZone", "Asia/Kathmandu"},
		{safe, "fsync", "on"},
		{safe, "full_page_writes", "on"},
		{safe, "max_connections", "17"},
		{safe, "application_name", "it's"},
	} {
		if got := query(t, c.server.URL(), "SHOW "+c.name); got != c.want {
			t.Errorf("%s is %s, want %s", c.name, got, c.want)
		}
	}
	if got := query(t, fast.URL(),
		"SELECT string_agg(s, '' ORDER BY s) FROM unnest('{b,A,a,B}'::text[]) s"); got != "aAbB" {
		t.Errorf("order is %s, want that of a language, aAbB", got)
	}
}

func TestPasswordIsAskedForOverTCPOnly(t *testing.T) {
	t.Parallel()
	c := start(t, Options{})
	if got := query(t, c.SocketURL(), "SELECT current_user"); got != User {
		t.Errorf("over the socket: user %s, want %s", got, User)
	}
	u, err := url.Parse(c.URL())
	must.OK(t, err)
	u.User = url.UserPassword(User, "wrong")
	_, err = pgx.Connect(t.Context(), u.String())
	if refused := new(pgconn.PgError); !errors.As(err, &refused) || refused.Code != "28P01" {
		t.Errorf("wrong password: %v, want SQLSTATE 28P01", err)
	}
}

func TestKilledProcessLeavesNoServer(t *testing.T) {
	t.Parallel()
	server, kill := spawn(t, "start")
	pid, home := server()
	if gone(pid) {
		t.Fatal("the child's server does not run")
	}
	kill()
	eventually(t, "server and home gone", func() bool { return gone(pid) && missing(home) })
}

func TestSharedServerIsStartedOnceAndEndsAfterItsLastUser(t *testing.T) {
	t.Parallel()
	home, err := os.MkdirTemp("/tmp", "ledgerd-pg-test-")
	must.OK(t, err)
	t.Cleanup(func() { os.RemoveAll(home) })
	must.OK(t, os.Chmod(home, 0o711))
	var servers []func() (int, string)
	var kills []func()
	for range 4 {
		server, kill := spawn(t, home)
		servers, kills = append(servers, server), append(kills, kill)
	}
	first, _ := servers[0]()
	for _, server := range servers[1:] {
		if pid, _ := server(); pid != first {
			t.Errorf("two servers, %d and %d, in one home", first, pid)
		}
	}
	for _, kill := range kills {
		if gone(first) {
			t.Fatal("server ended before its last user")
		}
		kill()
	}
	eventually(t, "shared server gone", func() bool { return gone(first) && missing(home+"/server.json") })

	server, kill := spawn(t, home)
	second, _ := server()
	if second == first || gone(second) {
		t.Errorf("no new server for the next user: pid %d after %d", second, first)
	}
	kill()
	eventually(t, "second server gone", func() bool { return gone(second) && missing(home+"/server.json") })
}

func TestOwnFolder(t *testing.T) {
	dir := t.TempDir()
	if err := ownFolder(dir + "/new"); err != nil {
		t.Errorf("new folder: %v", err)
	}
	if err := ownFolder(dir + "/new"); err != nil {
		t.Errorf("our own folder: %v", err)
	}
	must.OK(t, os.Symlink(dir+"/new", dir+"/link"))
	if err := ownFolder(dir + "/link"); err == nil {
		t.Error("a symbolic link was taken for our folder")
	}
	must.OK(t, os.Mkdir(dir+"/open", 0o700))
	must.OK(t, os.Chmod(dir+"/open", 0o777))
	if err := ownFolder(dir + "/open"); err == nil {
		t.Error("a folder that others can write was taken for ours")
	}
}
