package initproc_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ledgerd/ledgerd/internal/initproc"
	"github.com/ledgerd/ledgerd/internal/must"
)

const env = "LEDGERD_TEST_INITPROC"

// TestMain makes the test binary also process 1 and the program that process 1 starts. In place of process 1 it is a
// subreaper: the kernel makes orphans its children, too.
func TestMain(m *testing.M) {
	switch os.Getenv(env) {
	case "":
		os.Exit(m.Run())
	case "process 1":
		os.Setenv(env, "program")
		if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		initproc.Main()
	case "program":
		os.Exit(program())
	}
}

// program makes orphans, waits until none is left, and then for SIGTERM.
func program() int {
	terminated := make(chan os.Signal, 1)
	signal.Notify(terminated, syscall.SIGTERM)
	for range 10 {
		if err := exec.Command("sh", "-c", "sleep 0.01 & exit 0").Run(); err != nil {
			fmt.Println(err)
			return 1
		}
	}
	for began := time.Now(); orphans() > 0 && time.Since(began) < time.Minute; {
		<-time.After(10 * time.Millisecond)
	}
	if n := orphans(); n > 0 {
		fmt.Println(n, "are left")
		return 1
	}
	fmt.Println("none is left", strings.Join(os.Args[1:], " "))
	select {
	case <-terminated:
		return 7
	case <-time.After(time.Minute): // the test has gone
		return 1
	}
}

// orphans counts the children of process 1 beside this one, zombies included.
func orphans() (n int) {
	all, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range all {
		text, err := os.ReadFile(path)
		if err != nil { // it has ended
			continue
		}
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
		if parent, _ := strconv.Atoi(fields[1]); parent == os.Getppid() && pid != os.Getpid() {
			n++
		}
	}
	return n
}

// Process 1 waits for orphans, passes signals on, and ends as its program does.
func TestRun(t *testing.T) {
	for want, signal := range map[int]syscall.Signal{7: syscall.SIGTERM, 128 + int(syscall.SIGHUP): syscall.SIGHUP} {
		one := exec.Command(os.Args[0], "an", "argument")
		one.Env = append(os.Environ(), env+"=process 1")
		one.Stderr = os.Stderr
		out, err := one.StdoutPipe()
		must.OK(t, err)
		must.OK(t, one.Start())
		defer one.Process.Kill()
		if line, err := bufio.NewReader(out).ReadString('\n'); line != "none is left an argument\n" {
			t.Fatal(line, err)
		}
		must.OK(t, one.Process.Signal(signal))
		if _ = one.Wait(); one.ProcessState.ExitCode() != want {
			t.Errorf("after %v: %v, want exit code %d", signal, one.ProcessState, want)
		}
	}
}
