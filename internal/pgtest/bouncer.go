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

	"github.com/ledgerd/ledgerd/internal/apt"
	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/internal/pgtest/cluster"
)

// Bouncer starts a PgBouncer in transaction mode in front of the server of a URL. It returns the URL of the same
// database through PgBouncer. PgBouncer listens on the loopback address and ends with the test.
func Bouncer(t testing.TB, server string) string {
	t.Helper()
	return BouncerIn(t, "transaction", server)
}

// BouncerIn is Bouncer in a mode of PgBouncer: transaction, session or statement. In session mode a client keeps its
// connection to the server. Statement mode allows no transactions.
func BouncerIn(t testing.TB, mode, server string) string {
	t.Helper()
	u, err := url.Parse(server)
	must.OK(t, err)
	program, err := apt.LookPath("pgbouncer")
	if err != nil {
		t.Fatal("pgtest: there is no pgbouncer here: apt-get install pgbouncer")
	}
	dir, err := os.MkdirTemp("/tmp", "ledgerd-bouncer-") // a folder that the server's account can enter
	must.OK(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	port, err := cluster.FreePort()
	must.OK(t, err)
	password, _ := u.User.Password()
	poolSize := 8
	if mode == "session" { // each client keeps its connection
		poolSize = 64
	}
	for name, text := range map[string]string{
		"users": fmt.Sprintf("%q %q\n", u.User.Username(), password),
		"ini": fmt.Sprintf("[databases]\n* = host=%s port=%s\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = %d\n"+
			"unix_socket_dir =\npool_mode = %s\ndefault_pool_size = %d\nauth_type = md5\nauth_file = %s\n",
			u.Hostname(), u.Port(), port, mode, poolSize, filepath.Join(dir, "users")),
	} {
		must.OK(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	startBouncer(t, program, dir)
	u.Host = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	plain := *u
	plain.RawQuery = "sslmode=disable" // PgBouncer refuses parameters that it does not know
	awaitServer(t, plain.String())
	return u.String()
}

// startBouncer starts PgBouncer with the settings in a folder, until the test ends.
func startBouncer(t testing.TB, program, dir string) {
	t.Helper()
	as, err := cluster.Account()
	must.OK(t, err)
	must.OK(t, os.Chmod(dir, 0o755))
	var output bytes.Buffer
	cmd := exec.Command(program, filepath.Join(dir, "ini"))
	cmd.Dir, cmd.Stdout, cmd.Stderr = "/", &output, &output
	cmd.SysProcAttr = cluster.As(as)
	must.OK(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("pgbouncer: %s", output.String())
		}
	})
}

// awaitServer waits until a server answers at a URL.
func awaitServer(t testing.TB, url string) {
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
