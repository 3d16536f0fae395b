package kinds

import (
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"

	"github.com/ledgerd/ledgerd/internal/config"
	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/internal/pluginhost"
	"github.com/ledgerd/ledgerd/internal/version"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/process"
)

// Local is what this machine has and allows: its config, and the plugins that are found here. Every
// command and daemon works kinds through a Local.
type Local struct {
	Config *config.Config
	Log    *slog.Logger
	// Notices gets lines for a person; nil if there is none, and they are logged instead.
	Notices io.Writer
	Dirs    []string                     // folders with plugins, looked at before the others
	Bundled map[string]pluginhost.Linked // the plugins of this program, by name
	// Policies remembers which policies of the config this process has written to the ledger; nil writes all each time.
	Policies *PolicyWriter
	// Memory keeps --with for the next command; nil keeps nothing.
	Memory *Memory
}

// NewLocal returns a machine with an empty config. bundled are the plugins of this program, by name.
func NewLocal(bundled map[string]pluginhost.Linked) Local {
	return Local{Config: &config.Config{}, Log: slog.New(slog.DiscardHandler), Notices: io.Discard, Bundled: bundled}
}

// notice prints a line for a person, or logs it if Notices is nil.
func (lc *Local) notice(format string, args ...any) {
	if lc.Notices == nil {
		lc.Log.Info(fmt.Sprintf(format, args...))
		return
	}
	fmt.Fprintf(lc.Notices, format+"\n", args...)
}

// DataDir returns the folder with the ledgers and plugins of this user.
func (lc *Local) DataDir() (string, error) {
	if lc.Config.DataDir != "" {
		return lc.Config.DataDir, nil
	}
	if dir := os.Getenv("XDG_DATA_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "ledgerd"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", failure.Usage("no_home", "say where it is: --db sqlite:/path/to/ledger.db",
			"there is no home directory for the ledger: %v", err)
	}
	return filepath.Join(home, ".local", "share", "ledgerd"), nil
}

// Process names this process in the journal and as the holder of locks: "host/pid".
func Process() string {
	host, err := os.Hostname()
	if err != nil {
		host = "localhost"
	}
	return fmt.Sprintf("%.200s/%d", host, os.Getpid())
}

// AsAgent describes this process as the agent of a name.
func AsAgent(name string) ledger.Agent {
	host, _ := os.Hostname() // "": not known
	return ledger.Agent{Name: name, Host: host, PID: os.Getpid(), Process: process.This(), Version: version.String(),
		Kinds: map[string]string{}, Configs: map[string]string{}}
}

// AgentName returns a new name for an agent: "host/pid/random".
func AgentName() string { return fmt.Sprintf("%s/%06x", Process(), rand.IntN(1<<24)) }
