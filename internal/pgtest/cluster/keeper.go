package cluster

import (
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// idle is how long an unused shared server stays: longer than `go test ./...` takes to build the
// next package.
const idle = time.Minute

// lock opens a file and locks it with flock(2). The lock ends when the file is closed or the process ends. With tryOnly
// the error is syscall.EWOULDBLOCK if another process has the lock.
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

// Shared returns the server that all processes of this user share, and starts it if it does not
// run. The server ends a minute after the last of these processes.
func Shared() (*Cluster, error) {
	bin, err := Bin()
	if err != nil {
		return nil, err
	}
	hash := fnv.New32a()
	hash.Write([]byte(bin))
	home := filepath.Join("/tmp", fmt.Sprintf("ledgerd-pg-%d-%08x", os.Geteuid(), hash.Sum32()))
	if err := ownFolder(home); err != nil {
		return nil, err
	}
	return join(home, bin, idle)
}

// join makes this process a user of the server in a home. It starts the server and its keeper if they do not run.
func join(home, bin string, idle time.Duration) (*Cluster, error) {
	c := &Cluster{home: home}
	var err error
	if c.use, err = lock(c.path("use.lock"), shared); err != nil {
		return nil, err
	}
	// The time of the file shows the keeper that the server was used, even if this process ends before the keeper looks.
	now := time.Now()
	if err := os.Chtimes(c.use.Name(), now, now); err != nil {
		return nil, err
	}
	starting, err := lock(c.path("start.lock"), exclusive)
	if err != nil {
		return nil, err
	}
	defer starting.Close()
	if _, err := startKeeper(home, idle); err != nil && !errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, err
	}
	if c.load() == nil && c.answers() {
		return c, nil
	}
	if err := c.destroy(); err != nil {
		return nil, err
	}
	c.Bin = bin
	return c, c.create(Options{})
}

// ownFolder makes a folder in /tmp, where its name can be guessed. If there is one, ownFolder makes sure that it
// belongs to this user and no other user can write to it.
func ownFolder(path string) error {
	if err := os.Mkdir(path, 0o711); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	if !info.IsDir() || !isOurs(info) || info.Mode().Perm()&0o022 != 0 {
		return fmt.Errorf("%s belongs to another user or can be written by others: remove it", path)
	}
	return nil
}

// The environment of a keeper.
const (
	keeperHome = "LEDGERD_PGTEST_KEEPER_HOME"
	keeperIdle = "LEDGERD_PGTEST_KEEPER_IDLE"
)

// A keeper is this program, started again. The program may be the test of any package, so only an init function can
// make it a keeper.
func init() {
	home := os.Getenv(keeperHome)
	if home == "" {
		return
	}
	if err := keep(home, os.Getenv(keeperIdle)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// startKeeper starts the keeper of a home in a session of its own, so that Ctrl-C does not reach
// it. The keeper inherits the lock that is taken here and holds it until it ends. So the error is syscall.EWOULDBLOCK
// if the home has a keeper.
func startKeeper(home string, idle time.Duration) (*exec.Cmd, error) {
	held, err := lock(filepath.Join(home, "keeper.lock"), tryOnly)
	if err != nil {
		return nil, err
	}
	defer held.Close()
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(program)
	cmd.Args[0] = "pgtest-keeper" // the name in ps
	cmd.Dir = "/"
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), keeperHome + "=" + home, keeperIdle + "=" + idle.String()}
	cmd.ExtraFiles = []*os.File{held}
	cmd.SysProcAttr = newSession()
	return cmd, cmd.Start()
}

// keep waits until no process used the server for the idle time, and ends the server. An idle time of 0 means that the
// server is not shared; then keep also deletes the home. A shared home stays with its lock files: if a lock file were
// deleted while another process opens it, there would be two locks.
func keep(home, idle string) error {
	wait, err := time.ParseDuration(idle)
	if err != nil {
		return err
	}
	c := &Cluster{home: home}
	unused, err := awaitUnused(c.path("use.lock"), wait)
	if err != nil {
		return err
	}
	// Closed in the opposite order, keeper.lock first: a process that gets the use lock must be able to start a keeper.
	defer unused.Close()
	defer os.NewFile(3, "keeper.lock").Close()
	if err := c.load(); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := c.destroy(); err != nil {
		return err
	}
	if wait == 0 {
		return os.RemoveAll(home)
	}
	return nil
}

// awaitUnused waits until no process had a shared lock for a time, and returns the file with the exclusive lock.
func awaitUnused(path string, wait time.Duration) (*os.File, error) {
	for {
		unused, err := lock(path, exclusive)
		if err != nil || wait == 0 {
			return unused, err
		}
		since := time.Now()
		unused.Close()
		time.Sleep(wait)
		unused, err = lock(path, tryOnly)
		if errors.Is(err, syscall.EWOULDBLOCK) {
			continue
		}
		if err != nil {
			return nil, err
		}
		info, err := unused.Stat()
		if err == nil && info.ModTime().Before(since) {
			return unused, nil
		}
		unused.Close()
		if err != nil {
			return nil, err
		}
	}
}
