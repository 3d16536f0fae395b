package config

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/ledgerd/ledgerd/ledger/scheduler"
	"github.com/ledgerd/ledgerd/sdk/redact"
)

// Setting is the effective value of a key.
type Setting struct {
	Key    string // "kinds.urlcheck.timeout"
	Value  any    // text, int, bool, []string or a value of a plugin's table; without secrets
	Origin Origin
}

// Hidden is shown in place of a secret.
const Hidden = "(secret)"

// Settings lists the effective values: all keys at the top, and in tables the keys that are set. Secrets are Hidden.
// The plugins report which fields of their config are secrets.
func (c *Config) Settings(w World) []Setting {
	x := c.plug(w)
	list := c.tableSettings("", reflect.ValueOf(c).Elem())
	for _, name := range slices.Sorted(maps.Keys(c.Kinds)) {
		path, k := joinPath("kinds", name), c.Kinds[name]
		list = append(list, c.tableSettings(path, reflect.ValueOf(k).Elem())...)
		list = append(list, c.fieldSettings(path+".set", k.Set, func(field string) bool {
			return x.secretOfPayload(name, field)
		})...)
		list = append(list, c.fieldSettings(path+".with", k.With, func(field string) bool {
			return x.secretOf(name, field)
		})...)
	}
	for i, s := range c.Sources {
		path := fmt.Sprintf("source[%d]", i)
		list = append(list, c.tableSettings(path, reflect.ValueOf(s).Elem())...)
		list = append(list, c.fieldSettings(path+".set", s.Set, func(field string) bool {
			return x.secretOfPayload(s.Kind, field)
		})...)
	}
	for _, name := range slices.Sorted(maps.Keys(c.Plugins)) {
		list = append(list, c.tableSettings(joinPath("plugins", name), reflect.ValueOf(c.Plugins[name]).Elem())...)
	}
	for _, t := range c.tables() {
		list = append(list, c.tableSettings(t.name, t.value)...)
	}
	for _, name := range slices.Sorted(maps.Keys(c.API.Tokens)) {
		list = append(list, c.tableSettings(joinPath("api.tokens", name), reflect.ValueOf(c.API.Tokens[name]).Elem())...)
	}
	return list
}

// tableSettings returns the settings of one table, without its inner tables.
func (c *Config) tableSettings(path string, table reflect.Value) (list []Setting) {
	source, isSource := table.Addr().Interface().(*Source)
	for _, k := range keys(table.Type()) {
		at := joinPath(path, k.name)
		v := table.Field(k.field)
		origin, given := c.origins[at]
		switch {
		case k.typ == anyMapType, k.tableType() != nil:
			continue
		case path != "" && !given && v.IsZero():
			continue
		case isSource && !source.has(k.name):
			continue
		// The value was read from another file.
		case !given && (at == "db" && c.DBFile != "" || path != "" && (k.name == "query" || k.name == "query_db")):
			continue
		}
		list = append(list, Setting{at, written(k, v), origin})
	}
	return list
}

// fieldSettings returns the settings of a plugin.
func (c *Config) fieldSettings(path string, table map[string]any, secret func(string) bool) (list []Setting) {
	values := map[string]Setting{}
	var note func(prefix string, table map[string]any)
	note = func(prefix string, table map[string]any) {
		for name, value := range table {
			field := strings.TrimPrefix(prefix+"."+name, ".")
			if inner, ok := value.(map[string]any); ok {
				note(field, inner)
				continue
			}
			value = withoutSecrets(value)
			if _, isFile := secretFile(fmt.Sprint(value)); secret(field) && !isFile {
				value = Hidden
			}
			values[field] = Setting{path + "." + field, value, Origin{File: c.File, Line: c.doc.at(path + "." + field).Line}}
		}
	}
	note("", table)
	for _, field := range slices.Sorted(maps.Keys(values)) {
		list = append(list, values[field])
	}
	return list
}

// withoutSecrets removes what looks like a secret from a value of a plugin's table: the arguments of a command and the
// tables of a list may contain one.
func withoutSecrets(value any) any {
	switch v := value.(type) {
	case string:
		return redact.Text(v)
	case []any:
		args, others := make([]string, len(v)), make([]any, len(v))
		isCommand := true
		for i, arg := range v {
			text, isText := arg.(string)
			args[i], others[i], isCommand = text, withoutSecrets(arg), isCommand && isText
		}
		if isCommand {
			return redact.Args(args)
		}
		return others
	case map[string]any:
		shown := maps.Clone(v)
		for name, inner := range v {
			if shown[name] = withoutSecrets(inner); redact.SecretName(name) {
				shown[name] = Hidden
			}
		}
		return shown
	}
	return value
}

// written returns a value in the form of the file, without a password.
func written(k key, v reflect.Value) any {
	if v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return ""
		}
		v = v.Elem()
	}
	switch value := v.Interface().(type) {
	case time.Duration:
		return FormatDuration(value)
	case scheduler.Rate:
		return value.String()
	case Size:
		return value.String()
	case scheduler.Shard:
		if value.Count == 0 {
			return ""
		}
		return fmt.Sprintf("%d/%d", value.Index, value.Count)
	case string:
		switch {
		case k.secret == "query" && value != "":
			return redact.URL(value)
		case k.secret == "url":
			return safeURL(value)
		}
		return redact.Text(value)
	case []string:
		return redact.Args(value)
	default:
		return value
	}
}

// Text returns the effective value of a key at the top that holds one value, in the form of the file.
func (c *Config) Text(name string) string {
	k, known := find(keys(reflect.TypeFor[Config]()), name)
	if !known {
		return ""
	}
	return fmt.Sprint(written(k, reflect.ValueOf(c).Elem().Field(k.field)))
}
