package cluster

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
)

// BinEnv names the environment variable with the folder of Postgres programs to use, for users who
// have several.
const BinEnv = "LEDGERD_TEST_POSTGRES_BIN"

// ErrMissing means that this machine has no Postgres server programs, and explains what to do.
var ErrMissing = errors.New("no Postgres server programs (initdb, pg_ctl, postgres) found: " +
	"apt-get install postgresql, or name their folder in " + BinEnv +
	", or name a running server in LEDGERD_TEST_POSTGRES (postgres://user:password@host/database)")

// installed lists where packages put the server programs when they keep them out of PATH.
var installed = []string{
	"/usr/lib/postgresql/*/bin",          // Debian, Ubuntu
	"/usr/pgsql-*/bin",                   // Fedora, Red Hat
	"/opt/homebrew/opt/postgresql@*/bin", // Homebrew on Apple silicon
	"/usr/local/opt/postgresql@*/bin",    // Homebrew on Intel
	"/Library/PostgreSQL/*/bin",          // EDB's installer on macOS
	"/usr/local/pgsql/bin", "/usr/bin",   // built from source; Arch, Alpine
}

// Bin finds the folder of the server programs: the folder that [BinEnv] names, else that of the
// pg_ctl in PATH, else the newest of the folders in installed. The error is [ErrMissing] if there is none.
func Bin() (string, error) {
	if dir := os.Getenv(BinEnv); dir != "" {
		if !complete(dir) {
			return "", fmt.Errorf("%s=%s: initdb, pg_ctl and postgres must be in this folder", BinEnv, dir)
		}
		return filepath.Abs(dir)
	}
	if path, err := exec.LookPath("pg_ctl"); err == nil {
		if path, err = filepath.EvalSymlinks(path); err == nil && complete(filepath.Dir(path)) {
			return filepath.Dir(path), nil
		}
	}
	var found []string
	for _, pattern := range installed {
		dirs, err := filepath.Glob(pattern)
		if err != nil {
			return "", err
		}
		found = append(found, slices.DeleteFunc(dirs, func(dir string) bool { return !complete(dir) })...)
	}
	if len(found) == 0 {
		return "", ErrMissing
	}
	return slices.MaxFunc(found, func(a, b string) int { return cmp.Compare(number(a), number(b)) }), nil
}

// complete reports whether a folder holds the three programs that a server needs.
func complete(dir string) bool {
	for _, name := range []string{"initdb", "pg_ctl", "postgres"} {
		if _, err := exec.LookPath(filepath.Join(dir, name)); err != nil {
			return false
		}
	}
	return true
}

var digits = regexp.MustCompile(`[0-9]+`)

// number returns the first number in s, 0 if there is none. In a package's folder and in the output of `postgres
// --version` it is the major version.
func number(s string) int {
	n, err := strconv.Atoi(digits.FindString(s))
	if err != nil {
		return 0
	}
	return n
}

// Account returns the user that the server runs as; nil means the caller.
func Account() (*Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err := strconv.ParseUint(u.Uid, 10, 32)
		if err != nil {
			return nil, err
		}
		gid, err := strconv.ParseUint(u.Gid, 10, 32)
		if err != nil {
			return nil, err
		}
		return &Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
	}
	return nil, errors.New("a Postgres server refuses to run as root, and this machine has neither a user postgres nor " +
		"nobody: adduser --system postgres")
}

// run runs one of the server programs as the server's account, without the caller's environment
// (PGDATA, PGOPTIONS and similar variables would change its behaviour), and returns its output.
func (c *Cluster) run(program string, args ...string) (string, error) {
	as, err := Account()
	if err != nil {
		return "", err
	}
	cmd := exec.Command(filepath.Join(c.Bin, program), args...)
	cmd.Dir = "/"
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C", "HOME=/"}
	cmd.SysProcAttr = As(as)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		if errors.Is(err, os.ErrPermission) && as != nil {
			err = fmt.Errorf("%w: the server does not run as root, but as user %d, who must be able to enter this folder", err, as.Uid)
		}
		return out.String(), fmt.Errorf("%s: %w\n%s", cmd.Path, err, out.String())
	}
	return out.String(), nil
}
