package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/internal/must"
)

// example is the home of a person who tries an example. It has the files of the example.
type example struct {
	*machine
	bin      string // folder of the programs that the examples start beside ledgerd
	home     string
	readme   string
	sessions []string // of the README
}

// TestExamples tries each example as its README describes it, and compares what is printed.
func TestExamples(t *testing.T) {
	t.Parallel()
	bin := t.TempDir()
	build := exec.Command("go", "build", "-ldflags=-s -w", "-o", bin,
		"./feeds/blogs", "./one-mail/catcher", "./photos/draw")
	build.Dir = "../../examples"
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", build.Args, err, out)
	}
	for _, x := range []struct {
		folder   string
		sessions int
		on       func(*testing.T, func(*testing.T, *machine))
		try      func(*example)
	}{
		{"agents", 3, onFile, (*example).agents},
		{"feeds", 2, onFile, (*example).feeds},
		{"nightly-files", 0, onBoth, (*example).nightlyFiles},
		{"one-mail", 3, onFile, (*example).oneMail},
		{"photos", 3, onDefault, (*example).photos},
		{"push", 3, onBoth, (*example).push},
		{"video", 2, onFile, (*example).video},
	} {
		t.Run(x.folder, func(t *testing.T) {
			x.on(t, func(t *testing.T, m *machine) {
				e := &example{machine: m, bin: bin, home: t.TempDir()}
				if m.onSQLite() {
					e.home = filepath.Dir(strings.TrimPrefix(m.db, "sqlite:"))
				}
				must.OK(t, os.CopyFS(e.home, os.DirFS("../../examples/"+x.folder)))
				e.env = []string{"HOME=" + e.home, "PATH=" + bin + ":" + os.Getenv("PATH"), "TMPDIR=" + os.TempDir()}
				if m.db != "" {
					e.set("LEDGERD_DB", m.db)
				}
				e.readme = e.file("README.md")
				e.sessions = sessions(t, e.readme, x.sessions)
				x.try(e)
			})
		})
	}
}

// onDefault runs a test with the ledger that ledgerd uses where none is named.
func onDefault(t *testing.T, test func(t *testing.T, m *machine)) {
	t.Parallel()
	test(t, newMachine(t, ""))
}

// set sets a variable of the environment. The last value of a name counts.
func (e *example) set(name, value string) { e.env = append(e.env, name+"="+value) }

// file returns the text of a file in the home.
func (e *example) file(name string) string {
	e.t.Helper()
	text, err := os.ReadFile(filepath.Join(e.home, name))
	must.OK(e.t, err)
	return string(text)
}

// sh runs a line of shell, and returns the line and its output.
func (e *example) sh(line string) string { return session(e.t, "$ "+line+"\n", e.home, e.env) }

// repeat runs a session and compares its output.
func (e *example) repeat(session string, steady ...func(string) string) {
	e.t.Helper()
	repeat(e.t, session, e.home, e.env, steady...)
}

// serve starts a program that listens on loopback, and returns its address.
func (e *example) serve(name string, args ...string) (p *started, addr string) {
	e.t.Helper()
	p = e.launch(exec.Command(filepath.Join(e.bin, name), args...))
	listens := regexp.MustCompile(`127\.0\.0\.1:[0-9]+\n`)
	e.until(name+" listens", func() bool {
		addr = strings.TrimSpace(listens.FindString(p.stdout.String()))
		return addr != ""
	})
	return p, addr
}

// printed kills a server, and returns the lines that it printed after its address. The servers print a line before they
// answer.
func (e *example) printed(p *started) []string {
	_ = p.Process.Kill()
	<-p.done
	return strings.Split(strings.TrimSpace(p.stdout.String()), "\n")[1:]
}

// recipients counts mails by recipient, in lines of catcher.
func recipients(lines []string) map[string]int {
	count := map[string]int{}
	for _, line := range lines {
		count[strings.Split(line, "\t")[1]]++
	}
	return count
}

// Times differ, and so does the number of the schema. The README leaves out where the ledger is.
func (e *example) agents() {
	for _, session := range e.sessions {
		e.repeat(session, func(s string) string {
			s = regexp.MustCompile(`(?m)^ledger: .*\n`).ReplaceAllString(s, "")
			s = regexp.MustCompile(`\b\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\b`).ReplaceAllString(s, "TIME")
			return regexp.MustCompile(`(?m)^\S+: made, with schema \d+`).ReplaceAllString(s, "LEDGER: made, with schema N")
		})
	}
	e.here(failure.ExitOK, "db", "verify")
}

// The server is asked only for what may have changed.
func (e *example) feeds() {
	blogs, addr := e.serve("blogs", "-port", "0", filepath.Join(e.home, "site"))
	for _, session := range e.sessions {
		e.repeat(strings.ReplaceAll(session, "127.0.0.1:8026", addr))
	}
	asked := e.printed(blogs)
	slices.Sort(asked[min(3, len(asked)):]) // in the second round the order is open
	want := []string{"GET /bakery.xml 200", "GET /old-tram.json 301", "GET /tram.json 200", "GET /bakery.xml 200",
		"GET /tram.json 304"}
	if diff := cmp.Diff(want, asked); diff != "" {
		e.t.Errorf("asked (-want +got):\n%s", diff)
	}
}

// The line of the README that starts four machines at once, and the one for later on the same day: each file has one
// attempt.
func (e *example) nightlyFiles() {
	atOnce := regexp.MustCompile(`(?m)^for machine in .*$`).FindString(e.readme)
	later := regexp.MustCompile(`(?m)^(ledgerd run .*?) +# (.*)$`).FindStringSubmatch(e.readme)
	if atOnce == "" || later == nil {
		e.t.Fatal("the README has no such lines")
	}
	must.OK(e.t, os.CopyFS(filepath.Join(e.home, "inbox"), os.DirFS("../../examples/inbox")))
	// A time zone in which it is noon, so that no day ends meanwhile. The sign of Etc/GMT is the opposite of the usual
	// one.
	zone := fmt.Sprintf("Etc/GMT%+d", time.Now().UTC().Hour()-12)
	sh := func(line string) string { return e.sh(strings.ReplaceAll(line, "Europe/Berlin", zone)) }
	printed := sh(atOnce)
	if n := strings.Count(printed, "failed 4 "); n != 4 {
		e.t.Errorf("%d of four machines printed the files that failed:\n%s", n, printed)
	}
	if done := e.here(failure.ExitOK, "ls", "--count", "--where", "round:done"); done != "9\n" {
		e.t.Errorf("done: %s", done)
	}
	if printed := sh(later[1]); !strings.Contains(printed, later[2]) {
		e.t.Errorf("later it printed, without %q,\n%s", later[2], printed)
	}
	attempts := e.here(failure.ExitOK, "ls", "--all", "-o", "csv", "--columns", "attempt")
	if n := strings.Count(attempts, "1\n"); n != 13 {
		e.t.Errorf("%d of 13 files have one attempt", n)
	}
	e.here(failure.ExitOK, "db", "verify")
}

// Before each session the mail server is started as the text describes.
func (e *example) oneMail() {
	port := "0" // any; after that the same port, since another server would be another setting
	for i, x := range []struct {
		args []string
		want map[string]int
	}{
		{nil, map[string]int{"ann@example.com": 1, "bob@example.com": 1}},
		{[]string{"-hang-up"}, map[string]int{"ann@example.com": 1, "bob@example.com": 1}},
		{nil, map[string]int{"bob@example.com": 1}},
	} {
		box, addr := e.serve("catcher", append(x.args, "-port", port)...)
		_, port, _ = net.SplitHostPort(addr)
		e.set("SMTP", addr)
		e.repeat(e.sessions[i])
		if diff := cmp.Diff(x.want, recipients(e.printed(box))); diff != "" {
			e.t.Errorf("session %d: -want +received\n%s", i+1, diff)
		}
	}
}

// A file of another origin is not replaced.
func (e *example) photos() {
	for _, session := range e.sessions {
		e.repeat(session)
	}
	if precious := e.file("thumbs/logo-icon.png"); precious != "not to be lost\n" {
		e.t.Errorf("the file that was there before: %q", precious)
	}
}

// After the second session two machines send the mails, as the text tells: each user gets one. On Postgres, tables and
// a list are tried.
func (e *example) push() {
	for statement := range strings.SplitSeq(e.file("users.sql"), ";\n") {
		must.Do(e.t)(e.database().Exec(statement))
	}
	e.here(failure.ExitOK, "db", "migrate")
	if !e.onSQLite() {
		e.sessions = e.sessions[:1]
	}
	for i, session := range e.sessions {
		e.repeat(session)
		if i == 1 {
			box, addr := e.serve("catcher", "-port", "0")
			e.set("SMTP", addr)
			out := e.sh("./send.sh 0/2 & ./send.sh 1/2 & wait")
			mails := e.printed(box)
			if n := len(recipients(mails)); n != 2000 || len(mails) != 2000 {
				e.t.Errorf("%d users got %d mails\n%s", n, len(mails), out)
			}
		}
	}
}

// Sizes of videos differ. "make test-video" brings ffmpeg; without it the scripts of the folder standin take the same
// arguments, print the same lines and convert nothing.
func (e *example) video() {
	if os.Getenv("LEDGERD_TEST_FFMPEG") == "" {
		e.set("PATH", filepath.Join(e.home, "standin")+":"+os.Getenv("PATH"))
	}
	size := regexp.MustCompile(`"bytes":[0-9]+`)
	for _, session := range e.sessions {
		e.repeat(session, func(s string) string {
			return size.ReplaceAllString(strings.ReplaceAll(s, e.home, "~"), `"bytes":SIZE`)
		})
	}
}
