// Package onemail tests the example of README.md with real processes on both databases: three programs
// that look whether a mail was sent, send it and note it, and what ledgerd does in their place. The
// mails go to a real SMTP server, which is the catcher of this example.
package onemail

import (
	"bufio"
	"fmt"
	"io"
	"net/smtp"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/internal/pgtest"
)

// The test binary is also the naive sender.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "naive" {
		if err := naive(os.Args[2], os.Args[3]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	code := m.Run()
	if built != "" {
		_ = os.RemoveAll(built)
	}
	os.Exit(code)
}

// databases runs a test on both. The address is one that ledgerd takes for --db.
func databases(t *testing.T, test func(t *testing.T, address string)) {
	t.Parallel()
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		test(t, "sqlite:"+filepath.Join(t.TempDir(), "ledger.db"))
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		u, err := url.Parse(pgtest.URL(t))
		if err != nil {
			t.Fatal(err)
		}
		q := u.Query()
		q.Set("search_path", pgtest.Schema(t))
		u.RawQuery = q.Encode()
		test(t, u.String())
	})
}

// built is the folder of the programs, if there is one.
var built string

// programs builds ledgerd and the catcher, once for all tests, and returns their folder.
var programs = sync.OnceValues(func() (dir string, err error) {
	if built, err = os.MkdirTemp("", "ledgerd-one-mail-"); err != nil {
		return "", err
	}
	build := exec.Command("go", "build", "-o", built+"/", "github.com/ledgerd/ledgerd/cmd/ledgerd", "./catcher")
	if said, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%v: %w\n%s", build.Args, err, said)
	}
	return built, nil
})

// patience is how long a process is waited for: far more than it may need.
const patience = 2 * time.Minute

// process is a program that runs. Of what it says on stdout each line comes over a channel.
type process struct {
	*exec.Cmd
	in     io.WriteCloser
	lines  chan string // closed at its end
	stderr strings.Builder
}

// start starts a program, which ends with the test at the latest.
func start(t *testing.T, cmd *exec.Cmd) *process {
	t.Helper()
	p := &process{Cmd: cmd, lines: make(chan string, 10_000)}
	cmd.Stderr = &p.stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p.in = in
	go func() {
		for s := bufio.NewScanner(out); s.Scan(); {
			p.lines <- s.Text()
		}
		_ = p.Wait() // ProcessState says it
		close(p.lines)
	}()
	t.Cleanup(func() { p.kill() })
	return p
}

// kill ends a process with SIGKILL, unless it has ended, and waits until it has.
func (p *process) kill() {
	_ = p.Process.Kill()
	for range p.lines {
	}
}

// next is the next line of a process, or false at its end.
func (p *process) next(t *testing.T) (string, bool) {
	t.Helper()
	select {
	case line, more := <-p.lines:
		return line, more
	case <-time.After(patience):
		t.Fatalf("%v says and does nothing", p.Args)
		return "", false
	}
}

// end waits for the end of a process, which must be of one of these codes, and returns what else it said.
func (p *process) end(t *testing.T, codes ...int) string {
	t.Helper()
	var said strings.Builder
	for line, more := p.next(t); more; line, more = p.next(t) {
		said.WriteString(line + "\n")
	}
	for _, code := range codes {
		if p.ProcessState.ExitCode() == code {
			return said.String()
		}
	}
	t.Fatalf("%v: %s, want exit %d\n%s%s", p.Args, p.ProcessState, codes, said.String(), p.stderr.String())
	return ""
}

// received is a mail that the catcher has taken.
type received struct{ to, subject, id string }

// server is a catcher that runs.
type server struct {
	*process
	addr string
	got  []received
}

// listen starts a catcher.
func listen(t *testing.T, args ...string) *server {
	t.Helper()
	dir, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	s := &server{process: start(t, exec.Command(filepath.Join(dir, "catcher"), append([]string{"-port", "0"}, args...)...))}
	line, _ := s.next(t)
	if _, s.addr, _ = strings.Cut(line, " on "); s.addr == "" {
		t.Fatalf("the catcher says %q", line)
	}
	return s
}

// await waits for another mail.
func (s *server) await(t *testing.T) {
	t.Helper()
	line, more := s.next(t)
	if !more {
		t.Fatalf("the catcher has ended: %s", s.stderr.String())
	}
	s.note(t, line)
}

// sync waits until the catcher has said of every mail so far that it has it.
func (s *server) sync(t *testing.T) {
	t.Helper()
	// A catcher that hangs up has it all the same.
	_ = smtp.SendMail(s.addr, nil, "a@example.com", []string{"sync@example.com"}, []byte("Subject: sync\r\n\r\n"))
	for {
		s.await(t)
		if last := len(s.got) - 1; s.got[last].to == "sync@example.com" {
			s.got = s.got[:last]
			return
		}
	}
}

func (s *server) note(t *testing.T, line string) {
	t.Helper()
	f := strings.Split(line, "\t")
	if len(f) != 4 {
		t.Fatalf("the catcher says %q", line)
	}
	s.got = append(s.got, received{f[1], f[2], strings.Trim(f[3], "<>")})
}

// close stops the catcher and returns all that it has taken.
func (s *server) close(t *testing.T) []received {
	t.Helper()
	_ = s.Process.Kill()
	for line, more := s.next(t); more; line, more = s.next(t) {
		s.note(t, line)
	}
	return s.got
}

// perUser counts mails.
func perUser(mails []received) map[string]int {
	count := map[string]int{}
	for _, m := range mails {
		count[m.to]++
	}
	return count
}

// ledgerd starts the program on a ledger.
func ledgerd(t *testing.T, address string, args ...string) *process {
	t.Helper()
	dir, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(filepath.Join(dir, "ledgerd"), args...)
	home := filepath.Dir(dir)
	cmd.Env = []string{"LEDGERD_DB=" + address, "HOME=" + home, "XDG_DATA_HOME=" + t.TempDir(), "PATH=" + os.Getenv("PATH"), "TMPDIR=" + os.TempDir()}
	return start(t, cmd)
}
