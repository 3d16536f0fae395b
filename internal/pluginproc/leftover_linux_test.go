package pluginproc

import (
	"crypto/rand"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/internal/must"
)

// A process that has left the group of its plugin is found by its mark and ended; others are left alone.
func TestLeftovers(t *testing.T) {
	start := func(mark string) (*exec.Cmd, chan struct{}) {
		cmd := exec.Command("sleep", "600")
		cmd.Env = append(os.Environ(), markKey+"="+mark)
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		must.OK(t, cmd.Start())
		ended := make(chan struct{})
		go func() { _ = cmd.Wait(); close(ended) }()
		t.Cleanup(func() { _ = cmd.Process.Kill(); <-ended })
		return cmd, ended
	}
	mine, other := rand.Text(), rand.Text()
	cmd, ended := start(mine)
	_, lives := start(other)
	if pids := killLeftovers(mine); len(pids) != 1 || pids[0] != cmd.Process.Pid {
		t.Errorf("ended %v, want %d", pids, cmd.Process.Pid)
	}
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Error("it lives on")
	}
	select {
	case <-lives:
		t.Error("a stranger was ended")
	default:
	}
}

// Numbers of processes that are others' by now do not count.
func TestMemoryOfStrangers(t *testing.T) {
	me, ours := os.Getpid(), syscall.Getpgrp()
	if got := memoryOf(ours, []int{me}); got <= 0 {
		t.Errorf("%d bytes of our own", got)
	}
	if got := memoryOf(ours+1, []int{me, 1<<22 + 1}); got != 0 {
		t.Errorf("%d bytes of processes that are not in the group", got)
	}
}
