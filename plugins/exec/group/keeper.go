//go:build unix

package group

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/ledgerd/ledgerd/sdk/wire"
)

// Keeper runs commands, and cleans up if this process is killed while they run. For that it starts a shell and tells it
// the process groups of all commands. The shell has a session of its own, so it survives this process. When its stdin
// ends, because this process has ended, it kills the groups that are left and removes the folder. If the shell is
// killed, another one is started. A Keeper is safe for concurrent use.
//
// A command begins before the shell knows its group. On Linux a command is killed with the process that began it (see
// dieTogether), but processes that it has started meanwhile are not. The shell finds them in /proc, by the TMPDIR that
// they have from the command and by their session. It looks only after a kill, so this costs nothing before.
type Keeper struct {
	folder string // of all temporary folders

	mu     sync.Mutex
	groups map[int]bool // process groups of running commands
	cmd    *exec.Cmd    // the shell
	stdin  io.WriteCloser
}

const keeperScript = `
trap '' HUP INT QUIT TERM
echo ready
folder=$1 process=$2 session=$3
groups=' '
while read -r op group; do
	case $op in
	add) groups="$groups$group " ;;
	del) groups="${groups%% $group *} ${groups#* $group }" ;;
	end) process= ;; # it lives, and begins nothing more
	esac
done
for group in $groups; do kill -s KILL -- "-$group"; done

# Commands that began and were not added: each is killed when the thread of the process that began it has ended.
ended() {
	set -- "/proc/$process/task"/*
	[ $# -eq 1 ] || return 1
	read -r stat <"$1/stat" || return 0
	case ${stat##*) } in [ZX]*) return 0 ;; esac
	return 1
}
end() { # $1: the environment; then what follows the name in a stat: state, parent, group, session
	[ "$5" = "$session" ] && tr '\0' '\n' <"$1" | grep -qxF "$begun" && kill -s KILL -- "-$4"
}
# without such a folder the pattern stays as it is
begun=$(printf 'TMPDIR=%s\n' "$folder"/item-*)
if [ "$process" ] && [ -d "${begun##*TMPDIR=}" ] && [ -r /proc/self/environ ]; then
	for i in 1 2 3 4 5 6 7 8 9 10; do ended && break; sleep 0.1; done
	for file in /proc/[0-9]*/stat; do
		read -r stat <"$file" && end "${file%stat}environ" ${stat##*) }
	done
fi
rm -rf -- "$folder" || { chmod -R u+rwX -- "$folder"; rm -rf -- "$folder"; }
`

// NewKeeper starts the shell.
func NewKeeper() (*Keeper, error) {
	folder, err := os.MkdirTemp("", "ledgerd-exec-")
	if err != nil {
		return nil, err
	}
	k := &Keeper{folder: folder, groups: map[int]bool{}}
	if err := k.start(); err != nil {
		_ = os.RemoveAll(folder)
		return nil, err
	}
	return k, nil
}

// start starts the shell, waits until only SIGKILL can end it, and passes it the groups.
func (k *Keeper) start() error {
	session, err := unix.Getsid(0)
	if err != nil {
		return err
	}
	cmd := exec.Command("/bin/sh", "-c", keeperScript, "ledgerd-exec-keeper", k.folder, strconv.Itoa(os.Getpid()),
		strconv.Itoa(session))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.Env = []string{"PATH=/usr/bin:/bin", wire.HostKey + "=" + os.Getenv(wire.HostKey)}
	stdin, err1 := cmd.StdinPipe()
	stdout, err2 := cmd.StdoutPipe()
	err = errors.Join(err1, err2)
	if err == nil {
		err = cmd.Start()
	}
	if err == nil {
		if _, err = io.ReadFull(stdout, make([]byte, len("ready\n"))); err != nil {
			err = errors.Join(err, stdin.Close(), cmd.Wait())
		}
	}
	if err != nil {
		return fmt.Errorf("the shell that cleans up cannot be started: %w", err)
	}
	k.cmd, k.stdin = cmd, stdin
	for group := range k.groups {
		if _, err := fmt.Fprintln(stdin, "add", group); err != nil {
			return fmt.Errorf("the shell that cleans up is gone: %w", err)
		}
	}
	return nil
}

// Temporary makes an empty folder, the TMPDIR of one command. It is removed with the Keeper, or earlier by [RemoveAll].
// The folder of the Keeper itself is made again: a cleaner of /tmp may have removed it after days without use.
func (k *Keeper) Temporary() (string, error) {
	if err := os.MkdirAll(k.folder, 0o700); err != nil {
		return "", err
	}
	return os.MkdirTemp(k.folder, "item-")
}

// add adds a process group that is killed if this process is killed.
func (k *Keeper) add(group int) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.groups[group] = true
	if _, err := fmt.Fprintln(k.stdin, "add", group); err == nil {
		return nil
	}
	_ = k.stdin.Close()
	_ = k.cmd.Wait() // there is no reader: it has ended
	if err := k.start(); err != nil {
		delete(k.groups, group)
		return err
	}
	return nil
}

// del removes a process group that has ended. If the shell is gone, the next add starts another one.
func (k *Keeper) del(group int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.groups, group)
	_, _ = fmt.Fprintln(k.stdin, "del", group)
}

// Close ends the shell and removes the temporary folders. At its end the shell kills the groups that are left.
func (k *Keeper) Close() error {
	k.mu.Lock()
	_, _ = fmt.Fprintln(k.stdin, "end")
	_ = k.stdin.Close() // this ends the shell
	k.mu.Unlock()
	return errors.Join(k.cmd.Wait(), RemoveAll(k.folder))
}

// RemoveAll removes a folder, including read-only folders in it.
func RemoveAll(folder string) error {
	if os.RemoveAll(folder) == nil {
		return nil
	}
	_ = filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			return os.Chmod(path, 0o700)
		}
		return nil
	})
	return os.RemoveAll(folder)
}
