package onemail

import (
	"fmt"
	"net/smtp"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/internal/exampletest"
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
	os.Exit(programs.Run(m))
}

// databases runs a test on both, at the same time.
func databases(t *testing.T, test func(t *testing.T, address string)) {
	t.Parallel()
	exampletest.Databases(t, func(t *testing.T, address string) {
		t.Parallel()
		test(t, address)
	})
}

// programs are ledgerd and the catcher.
var programs = exampletest.Build("github.com/ledgerd/ledgerd/cmd/ledgerd", "./catcher")

// received is a mail that the catcher has taken.
type received struct{ to, subject, id string }

// server is a catcher that runs.
type server struct {
	*exampletest.Program
	addr string
	got  []received
}

// listen starts a catcher.
func listen(t *testing.T, args ...string) *server {
	t.Helper()
	s := &server{Program: exampletest.Start(t, exec.Command(programs.Path(t, "catcher"), append([]string{"-port", "0"},
		args...)...))}
	line, _ := s.Next(t)
	if _, s.addr, _ = strings.Cut(line, " on "); s.addr == "" {
		t.Fatalf("the catcher printed %q", line)
	}
	return s
}

// await waits for another mail.
func (s *server) await(t *testing.T) {
	t.Helper()
	line, more := s.Next(t)
	if !more {
		t.Fatalf("the catcher has ended: %s", s.Stderr.String())
	}
	s.note(t, line)
}

// sync waits until the catcher has reported every mail so far.
func (s *server) sync(t *testing.T) {
	t.Helper()
	// A catcher that hangs up still has it.
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
		t.Fatalf("the catcher printed %q", line)
	}
	s.got = append(s.got, received{f[1], f[2], strings.Trim(f[3], "<>")})
}

// close stops the catcher and returns all that it has taken.
func (s *server) close(t *testing.T) []received {
	t.Helper()
	_ = s.Process.Kill()
	for line, more := s.Next(t); more; line, more = s.Next(t) {
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
func ledgerd(t *testing.T, address string, args ...string) *exampletest.Program {
	t.Helper()
	cmd := exec.Command(programs.Path(t, "ledgerd"), args...)
	cmd.Env = []string{"LEDGERD_DB=" + address, "HOME=" + t.TempDir(), "XDG_DATA_HOME=" + t.TempDir(), "PATH=" +
		os.Getenv("PATH"), "TMPDIR=" + os.TempDir()}
	return exampletest.Start(t, cmd)
}
