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

// Memory keeps the --with of the last command that worked a kind, for commands that give none. It is a folder of this
// machine, not a table of the ledger: what a machine runs must not come from a database that others can write to.
type Memory struct {
	Dir    string // made when it is needed
	Ledger string // the URL of the ledger; settings are kept for each ledger and kind
}

// kept is the content of one file of the memory.
type kept struct {
	Ledger string   `json:"ledger"`
	Kind   string   `json:"kind"`
	Dir    string   `json:"dir"`  // the working directory of the command that gave them
	With   []string `json:"with"` // assignments, without secrets
}

// file returns the path of the file for a kind. Its name has a hash, since a folder serves all ledgers of a user.
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

// strayPath returns the first path in an assignment that would mean another file now: it is relative, and the command
// that gave it ran in another working directory. It returns "" if there is none.
func (k *kept) strayPath(assignment string) string {
	here, err := os.Stat(".")
	if dir, gone := os.Stat(k.Dir); k.Dir == "" || err == nil && gone == nil && os.SameFile(dir, here) {
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

// inForce returns --with and before it the assignments that are kept from earlier commands, without those that --with
// replaces. NAME= takes a setting back: it is left out.
func (lc *Local) inForce(kind string, p *Plugin, with []string) ([]string, error) {
	if !lc.remembers(kind) {
		return with, nil
	}
	before, err := lc.Memory.read(kind)
	if err != nil {
		return nil, err
	}
	typed := assigned(with)
	// With dir=/… paths are relative to that folder, wherever the command is given.
	hasDir := slices.ContainsFunc(slices.Concat(before.With, with), func(a string) bool {
		return strings.HasPrefix(a, "dir=/")
	})
	var all, quoted []string
	for _, a := range before.With {
		name := settings.Assigned(a)
		if isGiven(name, typed) {
			continue
		}
		if path := before.strayPath(a); path != "" && !hasDir {
			return nil, failure.Usage("other_folder", fmt.Sprintf("run it in %s, or give the path from here: --with %s=…",
				before.Dir, name), "kind %q was worked with %s in another folder, and %s is relative to that", kind,
				shell.Quote(a), path)
		}
		all = append(all, a)
		quoted = append(quoted, shell.Quote(a)) // KeepWith keeps no secret
	}
	if len(quoted) > 0 {
		lc.notice("with: %s (kept from before; --with NAME= takes it back)", strings.Join(quoted, " "))
	}
	for _, a := range with {
		if !unsets(a, p.Config) {
			all = append(all, a)
		}
	}
	return all, nil
}

// assigned returns the names of the fields that assignments set.
func assigned(with []string) (names []string) {
	for _, a := range with {
		names = append(names, settings.Assigned(a))
	}
	return names
}

// unsets reports whether an assignment, NAME=, takes back a setting. For an entry of a map (env.NAME=) it does not: it
// sets an empty text.
func unsets(assignment string, schema *settings.Schema) bool {
	name, empty := strings.CutSuffix(assignment, "=")
	return empty && slices.ContainsFunc(schema.Fields(), func(f settings.Field) bool { return f.Name == name })
}

// mayBeSecret reports whether an assignment may hold a secret, by the schema, by its name, or by its value (a password
// in a URL or an argument). The path of a file with a secret is no secret.
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

// isShown reports whether a value of the ledger is the whole one: no secret is masked, and no part is replaced by its
// length.
func isShown(value string) bool {
	return !strings.Contains(value, redact.Mask) && !strings.Contains(value, "… (")
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

// CheckDropped refuses a command that would work a kind without a setting that the kind was worked with before: the
// remaining items would be worked in another way, and no one would notice. It compares settings of the same version of
// a plugin only. A new version may have other defaults, and SayChanged prints those.
func (lc *Local) CheckDropped(k *Kind, by worker.Defined, with []string) error {
	plugin, version, _ := definition.Split(k.Policy.Definition)
	nowPlugin, nowVersion, _ := definition.Split(by.Definition())
	if k.Policy.Config == "" || plugin != nowPlugin || version != nowVersion || !lc.remembers(k.Name) {
		return nil
	}
	var dropped, repeat, drop []string // as messages show them, and as flags that keep or drop them
	for _, d := range definition.Differences(k.Policy.Config, by.Config()) {
		f := slices.IndexFunc(k.Plugin.Config.Fields(), func(f settings.Field) bool {
			return isGiven(d.Name, []string{f.Name}) // also a part of an object, such as env.NAME
		})
		if f < 0 || k.Plugin.Config.Fields()[f].Tune || isGiven(d.Name, assigned(with)) || d.Have == "" || d.Have == `""` {
			continue
		}
		value := Assignment(d.Name, json.RawMessage(d.Have))
		if !isShown(value) {
			dropped, value = append(dropped, d.Name+" (not shown)"), d.Name+"=…"
		} else {
			dropped = append(dropped, value)
		}
		repeat, drop = append(repeat, "--with "+shell.Quote(value)), append(drop, "--with "+d.Name+"=")
	}
	if len(dropped) == 0 {
		return nil
	}
	return failure.Usage("settings_dropped", fmt.Sprintf("with the same: %s   for all commands on this machine: [kinds.%s.with] "+
		"in the config   without: %s", strings.Join(repeat, " "), k.Name, strings.Join(drop, " ")),
		"kind %q was worked with %s, which was not given on this machine", k.Name, strings.Join(dropped, ", "))
}
