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
	"time"

	"go.uber.org/goleak"

	"github.com/ledgerd/ledgerd/internal/must"
)

// asChild names the environment variable that makes the test program start a server (value "start") or join the server
// in the home that is the value. Then the program prints the server's pid and its home, and waits to be killed.
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
	_, err = bufio.NewReader(os.Stdin).ReadByte() // until the parent kills this process or ends
	return err
}

// spawn starts a child. server waits until the child has its server, and kill kills the child.
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

func gone(pid int) bool { return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }

func missing(path string) bool {
	_, err := os.Stat(path)
	return errors.Is(err, os.ErrNotExist)
}

func TestKilledProcessLeavesNoServer(t *testing.T) {
	t.Parallel()
	server, kill := spawn(t, "start")
	pid, home := server()
	if gone(pid) {
		t.Fatal("the child's server does not run")
	}
	kill()
	must.Eventually(t, "server and home gone", func() bool { return gone(pid) && missing(home) })
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
	must.Eventually(t, "shared server gone", func() bool { return gone(first) && missing(home+"/server.json") })

	server, kill := spawn(t, home)
	second, _ := server()
	if second == first || gone(second) {
		t.Errorf("no new server for the next user: pid %d after %d", second, first)
	}
	kill()
	must.Eventually(t, "second server gone", func() bool { return gone(second) && missing(home+"/server.json") })
}
