package cluster

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
)

// lock opens a file and locks it with flock(2). The lock ends when the file is closed or the process ends.
func lock(path string, mode int) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err = flock(file, mode)
		if err == nil {
			return file, nil
		}
		if !errors.Is(err, syscall.EINTR) {
			file.Close()
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
	}
}

// keeperHome names the environment variable that tells a keeper its home.
const keeperHome = "LEDGERD_PGTEST_KEEPER_HOME"

// A keeper is this program, started again. The program may be the test of any package, so only an init function can
// make it a keeper.
func init() {
	home := os.Getenv(keeperHome)
	if home == "" {
		return
	}
	if err := keep(home); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// startKeeper starts the keeper of a home in a session of its own, so that Ctrl-C does not reach it.
func startKeeper(home string) (*exec.Cmd, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(program)
	cmd.Args[0] = "pgtest-keeper" // the name in ps
	cmd.Dir = "/"
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), keeperHome + "=" + home}
	cmd.SysProcAttr = newSession()
	return cmd, cmd.Start()
}

// keep waits for the end of the process that uses the server of a home, ends the server and deletes the home.
func keep(home string) error {
	c := &Cluster{home: home}
	unused, err := lock(c.path("use.lock"), exclusive)
	if err != nil {
		return err
	}
	defer unused.Close()
	if err := c.load(); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return cmp.Or(c.destroy(), os.RemoveAll(home))
}
