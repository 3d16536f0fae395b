// Package late shows what happens to a completion that comes too late. A worker takes an item and is paused (SIGSTOP)
// until the queue has given the item to a second worker. Then the first worker continues and reports that the item is
// done, while the second one still works on it.
//
// A queue that does not fence its writes takes that report for the end of the item, and then drops the result of the
// second worker. If it deletes ended items, that loss is not visible.
package late

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/ledgerd/ledgerd/bench/internal/ours"
)

// Outcome is the result of one queue.
type Outcome struct {
	Queue    string `json:"queue"`
	Database string `json:"database"`
	Accepted bool   `json:"accepted"` // the late completion took effect
	Told     string `json:"told"`     // the answer to the late worker
	Then     string `json:"then"`     // the item, while the second worker works on it
	End      string `json:"end"`      // the item, after the second worker has reported as well
}

// patience is the longest wait for a queue.
const patience = 2 * time.Minute

// All runs the comparison on every queue.
func All(ctx context.Context, b *ours.Bench, progress io.Writer) (all []Outcome, err error) {
	for _, one := range []func(context.Context, *ours.Bench) (Outcome, error){
		ledgerdOnPostgres, ledgerdOnSQLite, riverOnPostgres, goqiteOnSQLite} {
		attempt, cancel := context.WithTimeout(ctx, patience)
		o, err := one(attempt, b)
		cancel()
		if err != nil {
			return all, fmt.Errorf("%s: %w", o.Queue, err)
		}
		fmt.Fprintf(progress, "  %-8s on %-8s  told: %s\n     then: %s\n     in the end: %s\n", o.Queue, o.Database, o.Told,
			o.Then, o.End)
		all = append(all, o)
	}
	return all, nil
}

// Hold runs the first worker, in a process with these arguments. It takes the item, prints that, waits for a line on
// stdin and completes the item.
func Hold(args []string) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	holders := map[string]func(ctx context.Context, address string) (told string, err error){
		"ledgerd": holdLedgerd, "river": holdRiver, "goqite": holdGoqite,
	}
	if len(args) != 2 || holders[args[0]] == nil {
		return errors.New("hold QUEUE ADDRESS")
	}
	told, err := holders[args[0]](ctx, args[1])
	if err == nil {
		_, err = fmt.Println(told)
	}
	return err
}

// holding prints that the item is taken, and waits for the line on stdin.
func holding() error {
	if _, err := fmt.Println("holding"); err != nil {
		return err
	}
	_, err := bufio.NewReader(os.Stdin).ReadString('\n')
	return err
}

// holder is the process of the first worker.
type holder struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// hold starts the first worker and pauses it as soon as it has the item.
func hold(ctx context.Context, queue, address string) (h *holder, err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	h = &holder{cmd: exec.CommandContext(ctx, self, "hold", queue, address)}
	h.cmd.Stderr = os.Stderr
	if h.in, err = h.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := h.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	h.out = bufio.NewReader(out)
	if err := h.cmd.Start(); err != nil {
		return nil, err
	}
	if _, err := h.out.ReadString('\n'); err != nil {
		return nil, errors.Join(err, h.cmd.Wait())
	}
	if err := h.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		return nil, errors.Join(err, h.end())
	}
	return h, nil
}

// finish lets the first worker continue, and returns the queue's answer to it.
func (h *holder) finish() (told string, err error) {
	if err := h.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		return "", err
	}
	if _, err := io.WriteString(h.in, "finish\n"); err != nil {
		return "", err
	}
	told, err = h.out.ReadString('\n')
	return strings.TrimSpace(told), errors.Join(err, h.cmd.Wait())
}

// end kills the first worker if it has not finished because of an error.
func (h *holder) end() error {
	if h.cmd.ProcessState != nil {
		return nil
	}
	err := h.cmd.Process.Kill()
	h.cmd.Wait()
	return err
}

// poll calls ok again and again until it returns true.
func poll(ctx context.Context, ok func() (bool, error)) error {
	for {
		if done, err := ok(); done || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
}
