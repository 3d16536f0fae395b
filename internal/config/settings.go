package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/sdk/settings"
)

// Payload returns the payload of new items of a kind besides their INPUT: [kinds.K.set], checked by the schema of
// the plugin's payload; nil if there is none. Required fields may be missing. The error is an *Error.
func (c *Config) Payload(kind string, schema *settings.Schema) (json.RawMessage, error) {
	return c.table(joinPath("kinds", kind)+".set", schema).read(c.Kind(kind).Set)
}

// SourcePayload returns the payload of the items of a source: the set of its kind, overridden by its own, field by
// field also in nested tables.
func (c *Config) SourcePayload(s *Source, schema *settings.Schema) (json.RawMessage, error) {
	i := slices.Index(c.Sources, s)
	own, err := c.table(fmt.Sprintf("source[%d].set", i), schema).read(s.Set)
	if err != nil {
		return nil, err
	}
	ofKind, err := c.Payload(s.Kind, schema)
	if err != nil || len(ofKind) == 0 || len(own) == 0 {
		return slices.Concat(ofKind, own), err
	}
	merged := cloneTable(c.Kind(s.Kind).Set)
	override(merged, s.Set)
	return json.Marshal(merged)
}

// override puts the fields of over into a table. Tables in both are merged.
func override(table, over map[string]any) {
	for name, value := range over {
		inner, nested := value.(map[string]any)
		if below, both := table[name].(map[string]any); nested && both {
			override(below, inner)
		} else {
			table[name] = value
		}
	}
}

// With returns the config of a kind's plugin: [kinds.K.with], checked by the schema of the plugin's config; nil if
// there is none. A secret in a file (password = "file:PATH", password_file = "PATH") is read. Required fields may be
// missing, since the command line may have them. The error is an *Error.
func (c *Config) With(kind string, schema *settings.Schema) (json.RawMessage, error) {
	t := c.table(joinPath("kinds", kind)+".with", schema)
	t.secrets = schema.Secrets()
	return t.read(c.Kind(kind).With)
}

// HasWith reports whether this machine's configuration has settings for the plugin of a kind.
func (c *Config) HasWith(kind string) bool { return len(c.Kind(kind).With) > 0 }

// Refused returns an *Error with a plugin's complaints about its config, at the places of the values in the
// configuration. It is nil if no value is from there.
func (c *Config) Refused(kind string, schema *settings.Schema, bad *settings.Error) error {
	if c.doc == nil { // the zero Config
		return nil
	}
	t := c.table(joinPath("kinds", kind)+".with", schema)
	for _, p := range t.named(bad).Problems {
		if _, inFile := c.doc.places[t.path+"."+p.Field]; inFile {
			t.fail(p.Field, &ledger.Error{Message: p.Message, Hint: p.Hint})
		}
	}
	return asError(t.problems)
}

// settingsTable is a table of settings of a plugin.
type settingsTable struct {
	config   *Config
	path     string
	schema   *settings.Schema
	secrets  []string
	whole    bool // report missing required fields, too
	problems []Problem
}

func (c *Config) table(path string, schema *settings.Schema) *settingsTable {
	return &settingsTable{config: c, path: path, schema: schema}
}

// read returns the table as JSON.
func (t *settingsTable) read(table map[string]any) (json.RawMessage, error) {
	if table == nil && !t.whole {
		return nil, nil
	}
	values := cloneTable(table)
	for _, name := range t.secrets {
		t.openSecret(values, name)
	}
	raw, err := json.Marshal(values)
	if err != nil { // inf or nan, since JSON has neither
		t.fail("", faultf("nan and inf are no numbers of JSON"))
		return nil, asError(t.problems)
	}
	t.explain(t.schema.Validate(raw))
	return raw, asError(t.problems)
}

// secretFile returns the path in file:PATH, the form of a secret in a file.
func secretFile(value string) (path string, ok bool) { return strings.CutPrefix(value, "file:") }

// ReadSecret returns the content of the file if the value is file:PATH, else the value itself. A relative PATH is
// relative to folder.
func ReadSecret(value, folder string) (secret string, isFile bool, err error) {
	path, isFile := secretFile(value)
	if !isFile {
		return value, false, nil
	}
	secret, err = readSecret(resolve(path, folder))
	return secret, true, err
}

// openSecret replaces a secret by the content of its file, if it is in one.
func (t *settingsTable) openSecret(values map[string]any, name string) {
	table, last := values, name
	for {
		first, rest, nested := strings.Cut(last, ".")
		if !nested {
			break
		}
		inner, ok := table[first].(map[string]any)
		if !ok {
			return
		}
		table, last = inner, rest
	}
	text, _ := table[last].(string)
	field := name
	named, given := table[last+"_file"].(string)
	if given {
		field = name + "_file"
		if _, both := table[last]; both {
			t.fail(field, faultf("%s is given as well; one of them is enough", last))
		}
		delete(table, last+"_file")
		text = "file:" + named
	}
	value, isFile, err := ReadSecret(text, filepath.Dir(t.config.File))
	if !isFile {
		return
	}
	if err != nil {
		t.fail(field, err)
		value = "" // a missing field would be reported as well
	}
	table[last] = value
}

// named finds the field if a plugin names it only in the message: "host: does not answer".
func (t *settingsTable) named(bad *settings.Error) *settings.Error {
	problems := slices.Clone(bad.Problems)
	for i, p := range problems {
		field, message, found := strings.Cut(p.Message, ": ")
		if p.Field == "" && found && slices.ContainsFunc(t.schema.Fields(), func(f settings.Field) bool {
			return f.Name == field
		}) {
			problems[i].Field, problems[i].Message = field, message
		}
	}
	return &settings.Error{Problems: problems}
}

// explain records the complaints of a schema at the places of the fields.
func (t *settingsTable) explain(err error) {
	bad, ok := errors.AsType[*settings.Error](err)
	if !ok {
		return
	}
	for _, p := range bad.Problems {
		if p.Missing && !t.whole {
			continue
		}
		if p.Missing {
			p = settings.Problem{Message: p.String()}
		}
		t.fail(p.Field, &ledger.Error{Message: p.Message, Hint: p.Hint})
	}
}

// fail records a problem of a field; "" is the table.
func (t *settingsTable) fail(field string, err error) {
	path := t.path
	if field != "" {
		path += "." + field
	}
	t.problems = append(t.problems, t.config.problem(path, err))
}

func cloneTable(table map[string]any) map[string]any {
	clone := maps.Clone(table)
	if clone == nil {
		clone = map[string]any{}
	}
	for name, value := range clone {
		if inner, ok := value.(map[string]any); ok {
			clone[name] = cloneTable(inner)
		}
	}
	return clone
}
