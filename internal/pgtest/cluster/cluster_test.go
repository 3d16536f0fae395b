//go:build unix

package cluster

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"github.com/ledgerd/ledgerd/internal/must"
)

// asChild names the environment variable that makes the test program start a server. Then the program prints the
// server's pid and its home, and waits to be killed.
const asChild = "LEDGERD_CLUSTER_TEST_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(asChild) != "" {
		if err := child(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

func child() error {
	c, err := Start(Options{})
	if err != nil {
		return err
	}
	pid, err := c.PID()
	if err != nil {
		return err
	}
	fmt.Println(pid, c.home)
	_, err = bufio.NewReader(os.Stdin).ReadByte() // until the parent kills this process or ends
	return err
}

func gone(pid int) bool { return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }

func missing(path string) bool {
	_, err := os.Stat(path)
	return errors.Is(err, os.ErrNotExist)
}

func TestKilledProcessLeavesNoServer(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), asChild+"=1")
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	must.OK(t, err)
	defer stdin.Close()
	stdout, err := cmd.StdoutPipe()
	must.OK(t, err)
	must.OK(t, cmd.Start())
	var pid int
	var home string
	_, err = fmt.Fscan(stdout, &pid, &home)
	running := err == nil && !gone(pid)
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if !running {
		t.Fatalf("the child's server does not run: %v", err)
	}
	must.Eventually(t, "server and home gone", func() bool { return gone(pid) && missing(home) })
}
