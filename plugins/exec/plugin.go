package exec

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	osexec "os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/ledgerd/ledgerd/internal/lazyregexp"
	"github.com/ledgerd/ledgerd/plugins/exec/group"
	"github.com/ledgerd/ledgerd/sdk"
	"github.com/ledgerd/ledgerd/sdk/redact"
	"github.com/ledgerd/ledgerd/sdk/wire"
)

const doc = `Runs a command for every item: a program, or a script in any language.

    ledgerd run gzip --plugin exec --input file --with command=gzip,-kf,--,{key} ./inbox

{key} is the INPUT and {NAME} a field of the payload; there is no shell. The item is on stdin as JSON.
The last line on stdout is the result, lines such as "progress 40/100 frames" are progress. Exit code 0 is
done, 64, 65, 66, 77 and 78 are failed for good, others are tried again.

With stay=true the command is started once. It reads a line of JSON for each item, and prints a line
such as {"id":17,"output":"hello"} or {"id":17,"error":"no such page","final":true} for it.
`

// Config is what this machine runs. The package comment explains it.
type Config struct {
	Command   []string          `json:"command" schema:"required,minItems=1,maxItems=1000,maxLength=10000" doc:"the program and its arguments; {key} and {FIELD} in them are filled in"`
	Dir       string            `json:"dir" default:"" doc:"the working directory; none means ledgerd's"`
	Env       map[string]string `json:"env" doc:"further variables of its environment: env.NAME=VALUE"`
	SecretEnv string            `json:"secret_env" secret:"true" doc:"further variables, NAME=VALUE on a line each"`
	Stay      bool              `json:"stay" default:"false" doc:"start the command once; it reads items and prints answers, a line of JSON each"`
	Emit      []string          `json:"emits" default:"[]" schema:"maxItems=100" doc:"kinds of the items that answers may add; only with stay"`
	Done      []int             `json:"done" default:"[0]" schema:"min=0,max=255" doc:"exit codes that mean done"`
	Permanent []int             `json:"permanent" default:"[64,65,66,77,78]" schema:"min=0,max=255" doc:"exit codes that mean that trying again cannot help"`
	Snooze    []int             `json:"snooze" default:"[]" schema:"min=0,max=255" doc:"exit codes that mean to come again later, which is no failure"`
	SnoozeFor time.Duration     `json:"snooze_for" tune:"true" default:"1m" doc:"when to come again; 1s to 30d"`
	Grace     time.Duration     `json:"grace" tune:"true" default:"2s" doc:"from SIGTERM to SIGKILL; 0s to 4s"`

	argv      []template
	env       []string
	secrets   *redact.Secrets // of secret_env
	keeper    *group.Keeper
	processes processes // of a command that stays
}

// In is the payload: what the command wants.
type In map[string]json.RawMessage

// passedOn are the variables of the plugin's environment that a command gets.
var passedOn = []string{"PATH", "HOME", "LANG", "TZ"}

var variable = lazyregexp.New(`^[A-Za-z_][A-Za-z0-9_]*$`)

// Validate refuses a config with which no item can be worked.
func (c *Config) Validate() (err error) {
	if c.argv, err = parseCommand(c.Command); err != nil {
		return err
	}
	if err := c.validateStay(); err != nil {
		return err
	}
	for _, code := range c.Permanent {
		if slices.Contains(c.Done, code) {
			return fmt.Errorf("permanent: exit code %d has another meaning already", code)
		}
	}
	for _, code := range c.Snooze {
		if slices.Contains(c.Done, code) || slices.Contains(c.Permanent, code) {
			return fmt.Errorf("snooze: exit code %d has another meaning already", code)
		}
	}
	switch {
	case c.SnoozeFor < time.Second || c.SnoozeFor > 30*24*time.Hour:
		return fmt.Errorf("snooze_for: %s is not between 1s and 30d", c.SnoozeFor)
	case c.Grace < 0 || c.Grace > 4*time.Second: // ledgerd ends a plugin that takes 5 s to stop an item
		return fmt.Errorf("grace: %s is not between 0s and 4s", c.Grace)
	}
	return c.environment()
}

// validateStay refuses settings that do not go with stay, or only with it.
func (c *Config) validateStay() error {
	if !c.Stay {
		if len(c.Emit) > 0 {
			return errors.New("emits: only answers add items, and without stay there are none: set stay, or leave it out")
		}
		return nil
	}
	for i, t := range c.argv {
		if len(t.names) > 0 {
			return fmt.Errorf("command[%d]: {%s} is of one item, and with stay the command is started once for many: take it "+
				"from the line on stdin, or write {{ and }} for braces", i, t.names[0])
		}
	}
	for _, kind := range c.Emit {
		if !wire.NameForm().MatchString(kind) {
			return fmt.Errorf("emits: %q is not a name of a kind", kind)
		}
	}
	if !slices.Equal(c.Done, []int{0}) {
		return errors.New("done: with stay the answer reports that an item is done, not an exit code; leave it out")
	}
	return nil
}

// environment makes the environment that all commands get.
func (c *Config) environment() error {
	var env, values []string
	for _, name := range passedOn {
		if v, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+v)
		}
	}
	for name, v := range c.Env {
		if !variable().MatchString(name) || strings.Contains(v, "\x00") {
			return fmt.Errorf("env.%s: is not a variable", name)
		}
		env = append(env, name+"="+v)
	}
	for i, line := range strings.Split(c.SecretEnv, "\n") {
		line = strings.TrimSuffix(line, "\r")
		if line == "" || line[0] == '#' {
			continue
		}
		name, v, found := strings.Cut(line, "=")
		if !found || !variable().MatchString(name) || strings.Contains(v, "\x00") {
			return fmt.Errorf("secret_env: line %d is not NAME=VALUE", i+1)
		}
		env = append(env, line)
		values = append(values, v)
	}
	for _, set := range env {
		if name, _, _ := strings.Cut(set, "="); name == "TMPDIR" || strings.HasPrefix(name, "LEDGERD_") {
			return fmt.Errorf("%s is set for every item: take it out of env and secret_env", name)
		}
	}
	if host := os.Getenv(wire.HostKey); host != "" {
		env = append(env, wire.HostKey+"="+host)
	}
	c.env, c.secrets = env, redact.New(values...)
	return nil
}

// Emits are the kinds that answers may add items of.
func (c *Config) Emits() []string { return c.Emit }

// Open finds the program and gets ready to clean up.
func (c *Config) Open(context.Context) (err error) {
	if info, err := os.Stat(c.Dir); c.Dir != "" && (err != nil || !info.IsDir()) {
		return fmt.Errorf("dir: %s is not a folder", c.Dir)
	}
	if _, err = c.program(); err != nil {
		return err
	}
	c.keeper, err = group.NewKeeper()
	return err
}

// Check reports whether the program is there.
func (c *Config) Check(context.Context) error {
	_, err := c.program()
	return err
}

// program returns the path of the program.
func (c *Config) program() (string, error) {
	name := c.argv[0].text[0] // it has no placeholders
	if strings.Contains(name, "/") && !filepath.IsAbs(name) {
		name = filepath.Join(c.Dir, name)
		if !filepath.IsAbs(name) {
			name = "./" + name
		}
	}
	path, err := osexec.LookPath(name)
	if err != nil {
		if e, ok := errors.AsType[*osexec.Error](err); ok {
			err = e.Err
		}
		return "", fmt.Errorf("command[0]: %s: %w", name, err)
	}
	return path, nil
}

// Close ends what is still running.
func (c *Config) Close() error {
	c.processes.close()
	return c.keeper.Close()
}

// Plugin is the exec plugin.
func Plugin() *sdk.Plugin {
	p := sdk.New("exec", "0.1.0", work)
	p.Doc = doc
	return p
}

func work(ctx context.Context, cfg *Config, it sdk.Item[In]) (json.RawMessage, error) {
	if cfg.Stay {
		return stay(ctx, cfg, it)
	}
	r := &run{cfg: cfg, item: it}
	var err error
	if r.tmp, err = cfg.keeper.Temporary(); err != nil {
		return nil, sdk.Code("start", err)
	}
	defer func() {
		if err := group.RemoveAll(r.tmp); err != nil {
			it.Log.Warn("the folder for temporary files is not removed", "error", err)
		}
	}()
	end, err := r.command(ctx)
	if err != nil {
		return nil, err
	}
	return r.judge(ctx, end)
}

// judge returns the result of an item whose command has ended. A command that was asked to end has not done its work,
// even if its exit code is 0: a script may end so when it is interrupted.
func (r *run) judge(ctx context.Context, end ending) (json.RawMessage, error) {
	if end.stopped {
		return nil, fmt.Errorf("%w%s", context.Cause(ctx), r.lastWords())
	}
	c, why := r.cfg, end.text+r.lastWords()
	if end.code == 127 && c.carriageReturn() { // env has not found its argument
		why = end.text + ": the first line of the script ends with a carriage return"
	}
	result, err := r.out.json(c.secrets)
	failure := sdk.Code(end.name, errors.New(why))
	switch {
	case slices.Contains(c.Done, end.code) && !c.Stay:
		// The command prints answers as if it had been started with stay. As a result, such a line would hide a failure.
		if r.out.looksLikeAnswer(r.item.ID) {
			return nil, refuse("answer", "its last line is an answer of a worker that stays: --with stay=true")
		}
		return result, err
	case slices.Contains(c.Snooze, end.code):
		return result, sdk.Snooze(c.SnoozeFor, why)
	case slices.Contains(c.Permanent, end.code):
		return result, sdk.Permanent(failure)
	}
	return result, failure
}

// carriageReturn reports whether the program is a script whose first line ends with a carriage return.
func (c *Config) carriageReturn() bool {
	path, err := c.program()
	if err != nil {
		return false
	}
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	line, _ := bufio.NewReader(io.LimitReader(f, 256)).ReadString('\n') // a longer line is no name of an interpreter
	return strings.HasPrefix(line, "#!") && strings.HasSuffix(line, "\r\n")
}

// lastWords is the last line on stderr, as the end of an error.
func (r *run) lastWords() string {
	if r.last == "" {
		return ""
	}
	return ": " + r.last
}
