package pgtest

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/internal/pgtest/cluster"
)

// Bouncer starts a PgBouncer in transaction mode before the server of a URL and returns the URL of
// the same database behind it. It listens on the loopback address and ends with the test.
func Bouncer(t testing.TB, server string) string {
	t.Helper()
	return BouncerIn(t, "transaction", server)
}

// BouncerIn is Bouncer in a mode of PgBouncer: transaction, session or statement. In session a client keeps its
// session. statement allows no transactions.
func BouncerIn(t testing.TB, mode, server string) string {
	t.Helper()
	u, err := url.Parse(server)
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	program, err := exec.LookPath("pgbouncer")
	if err != nil { // Debian's folder is not in every PATH
		if program, err = exec.LookPath("/usr/sbin/pgbouncer"); err != nil {
			t.Fatal("pgtest: there is no pgbouncer here: apt-get install pgbouncer")
		}
	}
	dir, err := os.MkdirTemp("/tmp", "ledgerd-bouncer-") // where the server's account gets
	must.OK(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	free, err := net.Listen("tcp", "127.0.0.1:0")
	must.OK(t, err)
	port := free.Addr().(*net.TCPAddr).Port
	free.Close()
	password, _ := u.User.Password()
	for name, text := range map[string]string{
		"users": fmt.Sprintf("%q %q\n", u.User.Username(), password),
		"ini": fmt.Sprintf("[databases]\n* = host=%s port=%s\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = "+
			"%d\nunix_socket_dir =\n"+
			"pool_mode = %s\ndefault_pool_size = %d\nauth_type = md5\nauth_file = %s\n", u.Hostname(), u.Port(), port,
			mode, map[string]int{"statement": 8, "transaction": 8, "session": 64}[mode], filepath.Join(dir, "users")),
	} {
		must.OK(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	startBouncer(t, program, dir)
	u.Host = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	plain := *u
	plain.RawQuery = "sslmode=disable" // of parameters it refuses those that it does not know
	answers(t, plain.String())
	return u.String()
}

func startBouncer(t testing.TB, program, dir string) {
	t.Helper()
	as, err := cluster.Account()
	if err == nil {
		err = os.Chmod(dir, 0o755)
	}
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	var said bytes.Buffer
	cmd := exec.Command(program, filepath.Join(dir, "ini"))
	cmd.Dir, cmd.Stdout, cmd.Stderr = "/", &said, &said
	cmd.SysProcAttr = cluster.As(as)
	if err := cmd.Start(); err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("pgbouncer: %s", said.String())
		}
	})
}

// answers waits until there is a server at a URL.
func answers(t testing.TB, url string) {
	t.Helper()
	look := time.Tick(10 * time.Millisecond)
	for late := time.After(patience); ; {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		conn, err := pgx.Connect(ctx, url)
		if err == nil {
			_ = conn.Close(ctx)
		}
		cancel()
		if err == nil {
			return
		}
		select {
		case <-look:
		case <-late:
			t.Fatalf("pgtest: no answer through pgbouncer: %v", err)
		}
	}
}
