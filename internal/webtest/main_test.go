package webtest

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/chromedp/chromedp"
)

// All tests share these: a start for each test would take most of the time.
var (
	folder  string          // of the program and the ledgers
	program string          // ledgerd, just built
	browser context.Context // of Chromium
	work    *server         // of the ledger of seed; a test must undo what it changes there
)

var (
	screensInto = flag.String("screens", "", "run no test, and write the pictures of the docs into this `folder`")
	postgres    = flag.String("postgres", "", "keep the ledgers in new schemas of the Postgres database with this `URL`")
)

func TestMain(m *testing.M) {
	flag.Parse()
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "webtest:", err)
		code = 1
	}
	os.Exit(code)
}

// run builds ledgerd, starts Chromium and the server, and runs the tests.
func run(m *testing.M) (code int, err error) {
	if folder, err = os.MkdirTemp("", "webtest"); err != nil {
		return 0, err
	}
	defer os.RemoveAll(folder)
	program = filepath.Join(folder, "ledgerd")
	build := exec.Command("go", "build", "-ldflags=-s -w", "-o", program, "./cmd/ledgerd")
	build.Dir = filepath.Join("..", "..")
	if out, err := build.CombinedOutput(); err != nil {
		return 0, fmt.Errorf("go build: %w\n%s", err, out)
	}
	chromium, err := exec.LookPath("chromium")
	if err != nil {
		return 0, fmt.Errorf("the pages are tested in Chromium: apt-get install chromium (%w)", err)
	}
	opts := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(chromium), chromedp.DisableGPU)
	if os.Geteuid() == 0 {
		opts = append(opts, chromedp.NoSandbox) // Chromium has no sandbox for root
	}
	ctx, stop := chromedp.NewExecAllocator(context.Background(), opts...)
	defer stop()
	ctx, end := chromedp.NewContext(ctx)
	defer end()
	if err := chromedp.Do(ctx); err != nil {
		return 0, err
	}
	browser = ctx
	l := ledgerAt("work")
	if err := l.seed(); err != nil {
		return 0, err
	}
	if work, err = l.serve("127.0.0.1:0"); err != nil {
		return 0, err
	}
	if *screensInto != "" {
		return 0, errors.Join(takeScreens(*screensInto), work.stop())
	}
	code = m.Run()
	return code, work.stop()
}

// A ledgerURL is the URL of a ledger.
type ledgerURL string

// ledgerAt is a ledger of its own: a SQLite file, or a schema if -postgres is given.
func ledgerAt(name string) ledgerURL {
	if *postgres == "" {
		return ledgerURL("sqlite:" + filepath.Join(folder, name+".db"))
	}
	return ledgerURL(fmt.Sprintf("%s&search_path=%s_%s", *postgres, filepath.Base(folder), strings.ToLower(name)))
}

// command returns a command of ledgerd on this ledger, without the config of the user who runs the test.
func (l ledgerURL) command(args ...string) *exec.Cmd {
	cmd := exec.Command(program, append([]string{"--db", string(l)}, args...)...)
	home := filepath.Join(folder, "home")
	cmd.Env = append(os.Environ(), "HOME="+home, "XDG_CONFIG_HOME="+home, "XDG_DATA_HOME="+home)
	return cmd
}

// do runs a command and returns what it prints.
func (l ledgerURL) do(in io.Reader, args ...string) (string, error) {
	cmd := l.command(append([]string{"--quiet", "--yes"}, args...)...)
	cmd.Stdin = in
	var problems bytes.Buffer
	cmd.Stderr = &problems
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("ledgerd %.200s: %w\n%s", strings.Join(args, " "), err, problems.String())
	}
	return string(out), nil
}

// A server is a ledgerd ui.
type server struct {
	cmd  *exec.Cmd
	base string // http://host:port
	link string // logs in once
}

var linkOf = regexp.MustCompile(`http://[^/\s]+/login\?code=\S+`)

// serve starts ledgerd ui on an address. With port 0 the program chooses one.
func (l ledgerURL) serve(address string) (*server, error) {
	cmd := l.command("ui", "--no-open", "--listen", address)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	link, output := await(out, linkOf)
	if link == nil {
		return nil, errors.Join(fmt.Errorf("ledgerd ui prints no link: %s", output), cmd.Wait())
	}
	base, _, _ := strings.Cut(link[0], "/login")
	return &server{cmd, base, link[0]}, nil
}

// await reads the output of a program to the first line that matches, and drops what comes after it. match is nil if
// the program ended before.
func await(out io.Reader, form *regexp.Regexp) (match []string, output string) {
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if match = form.FindStringSubmatch(lines.Text()); match != nil {
			go func() { _, _ = io.Copy(io.Discard, out) }()
			return match, output
		}
		output += lines.Text() + "\n"
	}
	return nil, output
}

// stop ends a server as its user does, with Ctrl-C.
func (s *server) stop() error {
	if err := s.cmd.Process.Signal(syscall.SIGINT); err != nil {
		return err
	}
	_ = s.cmd.Wait() // cmd/ledgerd tests the exit code
	return nil
}
