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

// lock opens a file and locks it with flock(2); closing the file or the end of the process frees
// it. With tryOnly the error is syscall.EWOULDBLOCK if another process has it.
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
// run. It stays for a minute after the last of them has ended.
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

// join becomes a user of the server in a home, and starts the server and its keeper unless they
// are there.
func join(home, bin string, idle time.Duration) (*Cluster, error) {
	c := &Cluster{home: home}
	var err error
	if c.use, err = lock(c.path("use.lock"), shared); err != nil {
		return nil, err
	}
	// Tells the keeper that the server was used, even if we are gone when it looks.
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

// ownFolder makes a folder at a guessable name in /tmp, or makes sure that the one there is ours.
func ownFolder(path string) error {
	if err := os.Mkdir(path, 0o711); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	if !info.IsDir() || !isOurs(info) || info.Mode().Perm()&0o022 != 0 {
		return fmt.Errorf("%s belongs to somebody else or can be written by others: remove it", path)
	}
	return nil
}

// The environment of a keeper.
const (
	keeperHome = "LEDGERD_PGTEST_KEEPER_HOME"
	keeperIdle = "LEDGERD_PGTEST_KEEPER_IDLE"
)

// A keeper is this program, started again; the program may be the test of any package. So nothing but an init function
// can turn it into one.
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
// it. The error is syscall.EWOULDBLOCK if the home has one: a keeper inherits the lock taken
// here and holds it all its life.
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

// keep waits until the server was not used for the idle time, and ends it. A home with an idle time
// is shared. It stays, with its lock files, because deleting a lock file while another process
// opens it would make two locks of one.
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
	// In this order: who gets the use lock must be able to start the next keeper.
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

// awaitUnused returns with the exclusive lock once there was no shared one for the given time.
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
