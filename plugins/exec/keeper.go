package exec

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	osexec "os/exec"
	"sync"
	"syscall"
)

// keeper cleans up after a plugin that was killed: a shell beside it, in a session of its own so that
// what ends the plugin does not end it, which is told the process groups of all commands. When its
// stdin ends, because the plugin has, it kills those that are left and removes the folder.
type keeper struct {
	folder string // for what is temporary
	cmd    *osexec.Cmd

	mu    sync.Mutex
	stdin io.WriteCloser
}

const keeperScript = `
trap '' HUP INT QUIT TERM
groups=' '
while read -r op group; do
	case $op in
	add) groups="$groups$group " ;;
	del) groups="${groups%% $group *} ${groups#* $group }" ;;
	esac
done
for group in $groups; do kill -s KILL -- "-$group"; done
rm -rf -- "$1"
`

func startKeeper() (*keeper, error) {
	folder, err := os.MkdirTemp("", "ledgerd-exec-")
	if err != nil {
		return nil, err
	}
	k := &keeper{folder: folder, cmd: osexec.Command("/bin/sh", "-c", keeperScript, "ledgerd-exec-keeper", folder)}
	k.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	k.cmd.Env = []string{"PATH=/usr/bin:/bin"}
	if k.stdin, err = k.cmd.StdinPipe(); err == nil {
		err = k.cmd.Start()
	}
	if err != nil {
		_ = os.RemoveAll(folder)
		return nil, fmt.Errorf("the shell that cleans up cannot be started: %w", err)
	}
	return k, nil
}

// temporary makes an empty folder. What cleans up /tmp may have taken ours, which nobody has used for days.
func (k *keeper) temporary() (string, error) {
	name, err := os.MkdirTemp(k.folder, "item-")
	if errors.Is(err, fs.ErrNotExist) {
		if err = os.Mkdir(k.folder, 0o700); err == nil || errors.Is(err, fs.ErrExist) {
			name, err = os.MkdirTemp(k.folder, "item-")
		}
	}
	return name, err
}

// add notes a process group that is to be killed with us, del one that has ended.
func (k *keeper) add(group int) error { return k.tell("add", group) }
func (k *keeper) del(group int) error { return k.tell("del", group) }

func (k *keeper) tell(op string, group int) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if _, err := fmt.Fprintln(k.stdin, op, group); err != nil {
		return fmt.Errorf("the shell that cleans up is gone: %w", err)
	}
	return nil
}

// close ends it, and with it what was temporary.
func (k *keeper) close() error {
	k.mu.Lock()
	_ = k.stdin.Close() // it ends at that
	k.mu.Unlock()
	return k.cmd.Wait()
}
