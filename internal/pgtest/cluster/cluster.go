package cluster

import (
	"cmp"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	mathrand "math/rand/v2"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// User is the superuser of every temporary server.
const User = "ledgerd"

// Options are the options of [Start]. With the zero value, a power failure may lose what was committed, but killed
// processes lose nothing.
type Options struct {
	// Fsync makes commits wait for the disk, as a server in production does.
	Fsync bool
	// Settings are lines of postgresql.conf, name to value. They win over those of this package.
	Settings map[string]string
	// Of is the primary of the new server, a standby; nil makes a primary.
	Of *Cluster
	// Port is where the server listens; 0 chooses a free port.
	Port int
}

// Cluster is one temporary server. Its methods may be called from any goroutine, but no two at once may start or stop
// the server.
type Cluster struct {
	record
	home   string
	use    *os.File // holds the shared lock while this process uses the server
	keeper *exec.Cmd
}

// record is what the keeper and other processes must know of a server: the file server.json in its home.
type record struct {
	Bin      string
	Port     int
	Password string
}

// Start starts a server for this process alone. The server ends with the process or with [Cluster.Close]. Start takes
// about a second.
func Start(o Options) (*Cluster, error) {
	bin, err := Bin()
	if err != nil {
		return nil, err
	}
	home, err := os.MkdirTemp(parent(), "ledgerd-pg-")
	if err != nil {
		return nil, err
	}
	c := &Cluster{record: record{Bin: bin}, home: home}
	if err := c.start(o); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// parent returns the folder of the homes. It is TMPDIR (often in memory) if the server's account can enter it and it
// has at most 40 bytes, so that the path of the socket fits into 103; otherwise /tmp.
func parent() string {
	dir := os.TempDir()
	if !filepath.IsAbs(dir) || len(dir) > 40 {
		return "/tmp"
	}
	for up := dir; up != "/"; up = filepath.Dir(up) {
		if info, err := os.Stat(up); err != nil || info.Mode().Perm()&0o001 == 0 {
			return "/tmp"
		}
	}
	return dir
}

// start takes the lock, starts the keeper, and then the server.
func (c *Cluster) start(o Options) (err error) {
	if err := os.Chmod(c.home, 0o711); err != nil {
		return err
	}
	if c.use, err = lock(c.path("use.lock"), shared); err != nil {
		return err
	}
	if c.keeper, err = startKeeper(c.home); err != nil {
		return err
	}
	return c.create(o)
}

// URL returns the URL of the database "postgres" of the server over TCP, with the superuser's password.
func (c *Cluster) URL() string {
	u := url.URL{
		Scheme:   "postgres",
		User:     url.UserPassword(User, c.Password),
		Host:     net.JoinHostPort("127.0.0.1", strconv.Itoa(c.Port)),
		Path:     "/postgres",
		RawQuery: "sslmode=disable",
	}
	return u.String()
}

// SocketURL returns the URL of the same database over the Unix socket, without a password.
func (c *Cluster) SocketURL() string {
	query := url.Values{"host": {c.path("run")}, "port": {strconv.Itoa(c.Port)}}
	u := url.URL{Scheme: "postgres", User: url.User(User), Path: "/postgres", RawQuery: query.Encode()}
	return u.String()
}

// PID returns the number of the server's first process, the postmaster. The error is os.ErrNotExist if the server was
// stopped.
func (c *Cluster) PID() (int, error) {
	text, err := os.ReadFile(c.path("data", "postmaster.pid"))
	if err != nil {
		return 0, err
	}
	first, _, _ := strings.Cut(string(text), "\n")
	return strconv.Atoi(first)
}

// Crash stops the server at once, without a checkpoint. Its next start recovers, as after a crash.
func (c *Cluster) Crash() error { return c.stop("immediate", time.Minute) }

// Stop stops the server as an operator does: with a checkpoint, so that its next start has nothing to recover.
func (c *Cluster) Stop() error { return c.stop("fast", time.Minute) }

// stop stops the server in a mode of pg_ctl, and waits for its end.
func (c *Cluster) stop(mode string, patience time.Duration) error {
	seconds := strconv.Itoa(int(patience.Seconds()))
	_, err := c.run("pg_ctl", "stop", "-D", c.path("data"), "-m", mode, "-w", "-t", seconds)
	return err
}

// Promote makes a standby a primary.
func (c *Cluster) Promote() error {
	_, err := c.run("pg_ctl", "promote", "-D", c.path("data"), "-w", "-t", "60")
	return err
}

// StartAgain starts a server that was stopped, crashed or killed, at the same address. It waits
// until the server has recovered and takes connections.
func (c *Cluster) StartAgain() error {
	deadline := time.Now().Add(time.Minute)
	for {
		logged := len(c.log())
		_, err := c.run("pg_ctl", "start", "-D", c.path("data"), "-l", c.path("run", "log"), "-w", "-t", "60")
		if err == nil {
			return nil
		}
		output := c.log()[logged:]
		err = fmt.Errorf("%w%s", err, output)
		// The sessions of a killed server need a moment to notice its end.
		if !strings.Contains(output, "pre-existing shared memory block") || time.Now().After(deadline) {
			return err
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// Close stops the server if it still runs, and deletes its data. It waits for both.
func (c *Cluster) Close() error {
	err := c.destroy()
	if c.use != nil {
		err = errors.Join(err, c.use.Close())
	}
	if c.keeper != nil {
		err = errors.Join(err, c.keeper.Wait())
	}
	return errors.Join(err, os.RemoveAll(c.home))
}

// path returns the path of a file in the home.
func (c *Cluster) path(elements ...string) string {
	return filepath.Join(append([]string{c.home}, elements...)...)
}

// create makes the data folder, starts the server and records it in its home.
func (c *Cluster) create(o Options) error {
	as, err := Account()
	if err != nil {
		return err
	}
	for _, dir := range []string{"data", "run"} {
		if err := os.Mkdir(c.path(dir), 0o700); err != nil {
			return err
		}
	}
	c.Password = rand.Text()
	if o.Of != nil {
		c.Password = o.Of.Password
	}
	if err := os.WriteFile(c.path("run", "password"), []byte(c.Password), 0o600); err != nil {
		return err
	}
	if as != nil {
		for _, name := range []string{"data", "run", "run/password"} {
			if err := os.Chown(c.path(name), int(as.Uid), int(as.Gid)); err != nil {
				return err
			}
		}
	}
	if err := c.save(); err != nil { // before there is a server, so that the keeper can clean up
		return err
	}
	if o.Of != nil {
		err = c.copyOf(o.Of)
	} else {
		err = c.initdb()
	}
	if err != nil {
		return err
	}
	// A port cannot be reserved for another process, so a taken port leads to another try.
	for try := 1; ; try++ {
		if err := c.configure(o); err != nil {
			return err
		}
		if err = c.StartAgain(); err == nil {
			return c.save()
		}
		if try == 5 || !strings.Contains(err.Error(), "could not bind") {
			return err
		}
	}
}

// initdb makes the data folder of a primary.
func (c *Cluster) initdb() error {
	version, err := c.run("postgres", "--version")
	if err != nil {
		return err
	}
	args := []string{
		"--pgdata=" + c.path("data"), "--username=" + User, "--pwfile=" + c.path("run", "password"),
		"--auth-local=trust", "--auth-host=scram-sha-256",
		"--encoding=UTF8", "--no-locale", "--no-sync",
	}
	if number(version) >= 15 {
		args = append(args, "--locale-provider=icu", "--icu-locale=en-US")
	}
	if number(version) >= 18 {
		args = append(args, "--no-data-checksums") // before 18, initdb chooses none
	}
	if _, err := c.run("initdb", args...); err != nil {
		return err
	}
	return os.Remove(c.path("run", "password"))
}

// copyOf makes the data folder of a standby of another server.
func (c *Cluster) copyOf(primary *Cluster) error {
	_, err := c.run("pg_basebackup", "--pgdata="+c.path("data"), "--dbname="+primary.SocketURL(), "--write-recovery-conf",
		"--wal-method=stream", "--checkpoint=fast", "--no-sync")
	return cmp.Or(err, os.Remove(c.path("run", "password")))
}

// configure chooses a port and writes the settings.
func (c *Cluster) configure(o Options) (err error) {
	if c.Port = o.Port; c.Port == 0 {
		c.Port, err = FreePort()
	}
	if err != nil {
		return err
	}
	settings := map[string]string{
		"listen_addresses":        "127.0.0.1",
		"port":                    strconv.Itoa(c.Port),
		"unix_socket_directories": c.path("run"),
		"max_connections":         "200",
		"password_encryption":     "scram-sha-256",
		"fsync":                   strconv.FormatBool(o.Fsync),
		"full_page_writes":        strconv.FormatBool(o.Fsync),
		"jit_above_cost":          "-1", // compiling queries took 3 % of the time of all tests
		"timezone":                "Asia/Kathmandu",
		"log_timezone":            "UTC",
	}
	maps.Copy(settings, o.Settings)
	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		fmt.Fprintf(&text, "%s = '%s'\n", name, strings.ReplaceAll(settings[name], "'", "''"))
	}
	// The last of several lines with one name counts, so these lines win over those of initdb.
	file, err := os.OpenFile(c.path("data", "postgresql.conf"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = file.WriteString(text.String())
	return errors.Join(err, file.Close())
}

// FreePort finds a free port. It is below the ports that the kernel gives to outgoing connections, so it is still free
// when a server starts on it again.
func FreePort() (port int, err error) {
	for range 100 {
		port = 15000 + mathrand.IntN(15000)
		var l net.Listener
		if l, err = net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port))); err == nil {
			return port, l.Close()
		}
	}
	return 0, err
}

// destroy stops the server if it runs, and deletes its data. It deletes the record last, so that the keeper cleans up
// if this process is killed meanwhile.
func (c *Cluster) destroy() error {
	if c.running() && c.stop("immediate", 5*time.Second) != nil { // it may be frozen by SIGSTOP
		pid, err := c.PID()
		if err != nil {
			return err
		}
		p, err := os.FindProcess(pid)
		if err != nil {
			return err
		}
		if err := p.Kill(); err != nil {
			return err
		}
	}
	return cmp.Or(
		os.RemoveAll(c.path("data")),
		os.RemoveAll(c.path("run")),
		os.RemoveAll(c.path("server.json")),
	)
}

// running reports whether the process of the server exists. It asks for a connection to the socket: the kernel answers
// even for a frozen process. The file postmaster.pid proves nothing, since after a SIGKILL it may name another process.
func (c *Cluster) running() bool {
	conn, err := net.Dial("unix", c.path("run", ".s.PGSQL."+strconv.Itoa(c.Port)))
	if err != nil {
		return false
	}
	conn.Close()
	return true
}

// save writes the record.
func (c *Cluster) save() error {
	text, err := json.Marshal(c.record)
	if err != nil {
		return err
	}
	return os.WriteFile(c.path("server.json"), text, 0o600)
}

// load reads the record. The error is os.ErrNotExist if the home has no server.
func (c *Cluster) load() error {
	text, err := os.ReadFile(c.path("server.json"))
	if err != nil {
		return err
	}
	return json.Unmarshal(text, &c.record)
}

// log returns the log of the server.
func (c *Cluster) log() string {
	text, err := os.ReadFile(c.path("run", "log"))
	if err != nil {
		return "" // it has not started yet
	}
	return string(text)
}
