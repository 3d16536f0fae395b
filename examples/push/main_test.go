package push

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/ledgerd/ledgerd/internal/exampletest"
	_ "github.com/ledgerd/ledgerd/ledger/sqlite" // the driver
)

// The test binary is also the job of the article.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "naive" {
		if err := naive(os.Args[2], os.Args[3]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(programs.Run(m))
}

// site is an application's database, with a ledger in it.
type site struct {
	t       testing.TB
	address string // as ledgerd takes it
	// other is the same database by another address, or a copy: ledgerd takes it for another one.
	other string
	db    *sql.DB
	home  string
}

// onBoth runs a test on both databases.
func onBoth(t *testing.T, test func(t *testing.T, s *site)) {
	t.Parallel()
	exampletest.Databases(t, func(t *testing.T, address string) {
		t.Parallel()
		other := ""
		if strings.HasPrefix(address, "postgres") {
			other = address + "&application_name=lists"
		}
		test(t, newSite(t, address, other))
	})
}

func newSite(t testing.TB, address, other string) *site {
	t.Helper()
	db, err := open(address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return &site{t, address, other, db, t.TempDir()}
}

func open(address string) (*sql.DB, error) {
	if path, ok := strings.CutPrefix(address, "sqlite:"); ok {
		return sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(60000)")
	}
	return sql.Open("pgx", address)
}

func (s *site) exec(statements ...string) {
	s.t.Helper()
	for _, statement := range statements {
		if _, err := s.db.ExecContext(s.t.Context(), statement); err != nil {
			s.t.Fatalf("%s: %v", statement, err)
		}
	}
}

func (s *site) number(query string) (n int) {
	s.t.Helper()
	if err := s.db.QueryRowContext(s.t.Context(), query).Scan(&n); err != nil {
		s.t.Fatalf("%s: %v", query, err)
	}
	return n
}

// file writes a file with some text and returns its path.
func (s *site) file(name, text string) string {
	s.t.Helper()
	path := filepath.Join(s.t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
	return path
}

// programs are ledgerd and a mail server.
var programs = exampletest.Build("github.com/ledgerd/ledgerd/cmd/ledgerd",
	"github.com/ledgerd/ledgerd/examples/one-mail/catcher")

// ledgerd is the program, ready to be started.
func (s *site) ledgerd(ctx context.Context, args ...string) *exec.Cmd {
	s.t.Helper()
	cmd := exec.CommandContext(ctx, programs.Path(s.t, "ledgerd"), args...)
	cmd.Env = []string{"LEDGERD_DB=" + s.address, "HOME=" + s.home, "PATH=" + os.Getenv("PATH"), "TMPDIR=" + os.TempDir()}
	return cmd
}

// run runs ledgerd, which must end with the given code, and reads what it prints as JSON into out.
// Several may run at once, so a failure does not end the test.
func (s *site) run(code int, out any, args ...string) {
	s.t.Helper()
	s.runs([]int{code}, out, args...)
}

func (s *site) runs(codes []int, out any, args ...string) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), exampletest.Patience)
	defer cancel()
	cmd := s.ledgerd(ctx, append([]string{"-o", "json"}, args...)...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	_ = cmd.Run() // the exit code tells
	if got := cmd.ProcessState.ExitCode(); !slices.Contains(codes, got) {
		s.t.Errorf("ledgerd %v: exit %d, want %d\n%s%s", args, got, codes, stdout.String(), stderr.String())
		return
	}
	if out == nil {
		return
	}
	if err := json.Unmarshal(stdout.Bytes(), out); err != nil {
		s.t.Errorf("ledgerd %v: %v\n%s", args, err, stdout.String())
	}
}

// added is what ledgerd add answers.
type added struct {
	Added, Known, Differs, Listed int
	BadLines                      []struct{ Line int } `json:"bad_lines"`
}

func (s *site) add(args ...string) (a added) {
	s.t.Helper()
	s.run(0, &a, append([]string{"add", "mail"}, args...)...)
	return a
}

// byTemplate is how many items of the scope there are with each template.
func (s *site) byTemplate(scope string) map[string]int {
	s.t.Helper()
	var stats struct {
		Groups []struct {
			Template                             string
			Done, Failed, Doubt, Left, Cancelled int
		}
	}
	s.run(0, &stats, "stats", "--by", "template", "--scope", scope)
	counts := map[string]int{}
	for _, g := range stats.Groups {
		counts[g.Template] = g.Done + g.Failed + g.Doubt + g.Left + g.Cancelled
	}
	return counts
}
