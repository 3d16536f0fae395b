package kinds

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/internal/shell"
	"github.com/ledgerd/ledgerd/ledger/definition"
	"github.com/ledgerd/ledgerd/ledger/worker"
	"github.com/ledgerd/ledgerd/sdk/redact"
	"github.com/ledgerd/ledgerd/sdk/settings"
)

// Memory keeps the --with of the last command that worked a kind, for commands that give none. It is a folder of
// this machine's and not the ledger: what a machine allows and runs must not come from a database that others
// can write to.
type Memory struct {
	Dir    string // made when it is needed
	Ledger string // the URL of the ledger; settings are kept for each ledger and kind
}

// kept is a file of the memory.
type kept struct {
	Ledger string   `json:"ledger"`
	Kind   string   `json:"kind"`
	Dir    string   `json:"dir"`  // the working directory of the command that gave them
	With   []string `json:"with"` // assignments, without secrets
}

func (m *Memory) file(kind string) string {
	digest := sha256.Sum256([]byte(m.Ledger + "\n" + kind))
	return filepath.Join(m.Dir, kind+"-"+hex.EncodeToString(digest[:6])+".json")
}

// read returns what is kept for a kind.
func (m *Memory) read(kind string) (k kept, err error) {
	text, err := os.ReadFile(m.file(kind))
	if errors.Is(err, fs.ErrNotExist) {
		return k, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &k)
	}
	if err != nil {
		return k, failure.Usage("bad_memory", "remove that file, and give what it held once more with --with",
			"the settings that kind %q was worked with before cannot be read: %s: %v", kind, m.file(kind), err)
	}
	return k, nil
}

// path is the first path in an assignment that is relative to the working directory of then; "" if there is none, or
// that is the working directory of now.
func (k *kept) path(assignment string) string {
	now, err := os.Stat(".")
	if then, gone := os.Stat(k.Dir); k.Dir == "" || err == nil && gone == nil && os.SameFile(then, now) {
		return ""
	}
	_, args := valuesOf(assignment)
	for _, arg := range args {
		file, isFile := strings.CutPrefix(arg, "sqlite:")
		_, err := os.Stat(filepath.Join(k.Dir, file))
		if !filepath.IsAbs(file) && (strings.HasPrefix(file, "./") || strings.HasPrefix(file, "../") ||
			err == nil && (isFile || strings.Contains(file, "/"))) {
			return arg
		}
	}
	return ""
}

// write keeps assignments for a kind; none removes the file.
func (m *Memory) write(kind string, with []string) error {
	if len(with) == 0 {
		if err := os.Remove(m.file(kind)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	dir, err := os.Getwd()
	if err != nil {
		return err
	}
	text, err := json.Marshal(kept{m.Ledger, kind, dir, with})
	if err != nil {
		return err
	}
	if err := os.MkdirAll(m.Dir, 0o700); err != nil {
		return err
	}
	next := m.file(kind) + "." + uuid.NewString() // another command may write, too
	err = os.WriteFile(next, append(text, '\n'), 0o600)
	if err == nil {
		err = os.Rename(next, m.file(kind))
	}
	if err != nil {
		_ = os.Remove(next)
	}
	return err
}

// remembers reports whether --with is kept for a kind: its settings are not in the config of this machine.
func (lc *Local) remembers(kind string) bool {
	return lc.Memory != nil && !lc.Config.HasWith(kind)
}

// inForce completes --with by what is kept of the command before, and leaves out what it unsets (NAME=).
func (lc *Local) inForce(kind string, p *Plugin, with []string) ([]string, error) {
	if !lc.remembers(kind) {
		return with, nil
	}
	before, err := lc.Memory.read(kind)
	if err != nil {
		return nil, err
	}
	typed := assigned(with)
	// A working directory of its own is what paths are relative to, wherever the command is given.
	placed := slices.ContainsFunc(slices.Concat(before.With, with), func(a string) bool {
		return strings.HasPrefix(a, "dir=/")
	})
	var all, shown []string
	for _, a := range before.With {
		name := settings.Assigned(a)
		if isGiven(name, typed) {
			continue
		}
		if path := before.path(a); path != "" && !placed {
			return nil, failure.Usage("other_folder", fmt.Sprintf("run it in %s, or give the path from here: --with %s=…",
				before.Dir, name), "kind %q was worked with %s in another folder, and %s is relative to that", kind,
				shell.Quote(a), path)
		}
		all = append(all, a)
		shown = append(shown, shell.Quote(a)) // it holds no secret
	}
	if len(shown) > 0 {
		lc.notice("with: %s (kept from before; --with NAME= takes it back)", strings.Join(shown, " "))
	}
	for _, a := range with {
		if !unsets(a, p.Config) {
			all = append(all, a)
		}
	}
	return all, nil
}

// assigned are the fields that assignments are about.
func assigned(with []string) (names []string) {
	for _, a := range with {
		names = append(names, settings.Assigned(a))
	}
	return names
}

// unsets reports whether an assignment, NAME=, takes back a setting. Of a map of texts it sets an empty text.
func unsets(assignment string, schema *settings.Schema) bool {
	name, empty := strings.CutSuffix(assignment, "=")
	return empty && slices.ContainsFunc(schema.Fields(), func(f settings.Field) bool { return f.Name == name })
}

// mayBeSecret reports whether an assignment may hold a secret: by the schema, by its name, or by its value, such as
// the password of a URL or of an argument. A secret in a file is none.
func mayBeSecret(assignment string, schema *settings.Schema) bool {
	name := settings.Assigned(assignment)
	value, args := valuesOf(assignment)
	if slices.Contains(schema.Secrets(), name) {
		return !strings.HasPrefix(value, "file:/")
	}
	var object map[string]json.RawMessage
	if json.Unmarshal([]byte(value), &object) == nil {
		for inner, value := range object {
			if mayBeSecret(name+"."+inner+":="+string(value), schema) {
				return true
			}
		}
	}
	return slices.ContainsFunc(strings.Split(name, "."), redact.SecretName) || redact.Text(assignment) != assignment ||
		!slices.Equal(redact.Args(args), args)
}

// valuesOf returns the value of an assignment, and its parts if it is a list.
func valuesOf(assignment string) (value string, parts []string) {
	value = strings.TrimPrefix(strings.TrimPrefix(strings.TrimPrefix(assignment, settings.Assigned(assignment)), ":"), "=")
	if json.Unmarshal([]byte(value), &parts) == nil {
		return value, parts
	}
	return value, strings.Split(value, ",")
}

// KeepWith keeps the --with that a kind is worked with from now on. What may hold a secret is not kept.
func (lc *Local) KeepWith(kind string, p *Plugin, with []string) error {
	if !lc.remembers(kind) || len(with) == 0 {
		return nil
	}
	before, err := lc.Memory.read(kind)
	if err != nil {
		return err
	}
	all := slices.DeleteFunc(before.With, func(a string) bool { return isGiven(settings.Assigned(a), assigned(with)) })
	for _, a := range with {
		if !unsets(a, p.Config) && !mayBeSecret(a, p.Config) {
			all = append(all, a)
		}
	}
	if err := lc.Memory.write(kind, all); err != nil {
		lc.notice("warning: --with is not kept for the next command: %v", err)
	}
	return nil
}

// CheckDropped refuses a command that would work a kind without a setting that is in force and that nothing here
// gives: what is done by then, and what is tried again, would be done in another way without a word. Another
// version of the plugin may have other defaults. No command has dropped these: of that SayChanged tells.
func (lc *Local) CheckDropped(k *Kind, by worker.Defined, with []string) error {
	plugin, version, _ := definition.Split(k.Policy.Definition)
	if nowPlugin, nowVersion, _ := definition.Split(by.Definition()); k.Policy.Config == "" || plugin != nowPlugin ||
		version != nowVersion || !lc.remembers(k.Name) {
		return nil
	}
	var words, repeat, drop []string
	for _, d := range definition.Differences(k.Policy.Config, by.Config()) {
		f := slices.IndexFunc(k.Plugin.Config.Fields(), func(f settings.Field) bool {
			return isGiven(d.Name, []string{f.Name}) // also a part of an object, such as env.NAME
		})
		if f < 0 || k.Plugin.Config.Fields()[f].Tune || isGiven(d.Name, assigned(with)) || d.Have == "" || d.Have == `""` {
			continue
		}
		value := Assignment(d.Name, json.RawMessage(d.Have))
		if strings.Contains(value, redact.Mask) || strings.Contains(value, "… (") {
			words, value = append(words, d.Name+" (not shown)"), d.Name+"=…"
		} else {
			words = append(words, value)
		}
		repeat, drop = append(repeat, "--with "+shell.Quote(value)), append(drop, "--with "+d.Name+"=")
	}
	if len(words) == 0 {
		return nil
	}
	return failure.Usage("settings_dropped", fmt.Sprintf("with the same: %s   for all commands on this machine: [kinds.%s.with] "+
		"in the config   without: %s", strings.Join(repeat, " "), k.Name, strings.Join(drop, " ")),
		"kind %q was worked with %s, which was not given on this machine", k.Name, strings.Join(words, ", "))
}
