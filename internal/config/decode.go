package config

import (
	"fmt"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/recurrence"
	"github.com/ledgerd/ledgerd/ledger/scheduler"
)

// decoder decodes the values of a file into a Config.
type decoder struct {
	config   *Config
	problems []Problem
}

// refused reports whether the value of a key has been refused already.
func (d *decoder) refused(path string) bool {
	return slices.ContainsFunc(d.problems, func(p Problem) bool { return p.Key == path })
}

// fail records a problem of a key, at the place of its value.
func (d *decoder) fail(path string, err error) {
	d.problems = append(d.problems, d.config.problem(path, err))
}

// table decodes the keys of a table into a struct.
func (d *decoder) table(path string, values map[string]any, into reflect.Value) {
	all := keys(into.Type())
	for _, name := range slices.Sorted(maps.Keys(values)) {
		at := joinPath(path, name)
		k, known := find(all, name)
		if !known {
			d.fail(at, &ledger.Error{Message: "there is no such key", Hint: suggest(all, name)})
			continue
		}
		d.value(at, k, values[name], into.Field(k.field))
	}
}

// value decodes the value of a key.
func (d *decoder) value(path string, k key, value any, into reflect.Value) {
	switch {
	case k.tableType() == nil: // a value, not a table
		if err := k.set(into, value, filepath.Dir(d.config.doc.path)); err != nil {
			d.fail(path, err)
			return
		}
		d.config.origins[path] = Origin{File: d.config.File, Line: d.config.doc.at(path).Line}
	case k.typ.Kind() == reflect.Struct:
		table, ok := value.(map[string]any)
		if !ok {
			d.fail(path, &ledger.Error{Message: "must be a table", Hint: fmt.Sprintf("write [%s]", path)})
			return
		}
		d.table(path, table, into)
	case k.typ.Kind() == reflect.Map:
		tables, ok := value.(map[string]any)
		if !ok {
			d.fail(path, &ledger.Error{Message: "must be tables", Hint: fmt.Sprintf("write [%s.NAME]", path)})
			return
		}
		into.Set(reflect.MakeMap(k.typ))
		for _, name := range slices.Sorted(maps.Keys(tables)) {
			at := joinPath(path, name)
			values, ok := tables[name].(map[string]any)
			if !ok {
				d.fail(at, &ledger.Error{Message: "must be a table", Hint: fmt.Sprintf("write [%s.NAME] above it", path)})
				continue
			}
			one := withDefaults(k.tableType())
			d.table(at, values, one.Elem())
			into.SetMapIndex(reflect.ValueOf(name), one)
		}
	default:
		list, ok := value.([]any)
		if !ok {
			d.fail(path, &ledger.Error{Message: "must be an array of tables",
				Hint: fmt.Sprintf("write [[%s]], with two brackets: there may be several", path)})
			return
		}
		for i, element := range list {
			at := fmt.Sprintf("%s[%d]", path, i)
			values, ok := element.(map[string]any)
			if !ok {
				d.fail(at, &ledger.Error{Message: "must be a table", Hint: fmt.Sprintf("write [[%s]]", path)})
				values = nil
			}
			one := withDefaults(k.tableType())
			d.table(at, values, one.Elem())
			into.Set(reflect.Append(into, one))
		}
	}
}

// withDefaults returns a pointer to a new struct of that type with the built-in values.
func withDefaults(t reflect.Type) reflect.Value {
	made := reflect.New(t)
	for _, k := range keys(t) {
		if k.typ.Kind() == reflect.Struct && k.tableType() != nil {
			made.Elem().Field(k.field).Set(withDefaults(k.typ).Elem())
		}
		if k.def == "" {
			continue
		}
		if err := k.parse(made.Elem().Field(k.field), k.def, ""); err != nil {
			panic(fmt.Sprintf("config: default of %s: %v", k.name, err)) // a mistake in the tags
		}
	}
	return made
}

// parse decodes a value from the environment or a flag. A relative path is relative to folder.
func (k key) parse(into reflect.Value, text, folder string) error {
	t := k.scalar()
	var value any = text
	switch {
	case k.typ == stringsType:
		list := []any{}
		for part := range strings.SplitSeq(text, ",") {
			list = append(list, strings.TrimSpace(part))
		}
		value = list
	case t == durationType, t == rateType, t == shardType, t == sizeType:
	case t.Kind() == reflect.Int:
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return faultf("must be a whole number, not %q", text)
		}
		value = n
	case t.Kind() == reflect.Bool:
		if text != "true" && text != "false" {
			return faultf("must be true or false, not %q", text)
		}
		value = text == "true"
	}
	return k.set(into, value, folder)
}

// set decodes a value of TOML. After an error into is unchanged.
func (k key) set(into reflect.Value, value any, folder string) error {
	if k.typ.Kind() == reflect.Pointer {
		k.typ = k.typ.Elem()
		made := reflect.New(k.typ)
		if err := k.set(made.Elem(), value, folder); err != nil {
			return err
		}
		into.Set(made)
		return nil
	}
	switch v := value.(type) {
	case map[string]any:
		if k.typ == anyMapType {
			into.Set(reflect.ValueOf(v))
			return nil
		}
	case []any:
		if k.typ == stringsType {
			return k.setList(into, v, folder)
		}
	case bool:
		if k.typ.Kind() == reflect.Bool {
			into.SetBool(v)
			return nil
		}
	case int64:
		if low, top := bound(k.least), bound(k.most); k.typ.Kind() == reflect.Int {
			if v < low || v > top {
				return faultf("must be %s, not %d", k.span(), v)
			}
			into.SetInt(v)
			return nil
		}
	case string:
		if k.isText() {
			return k.setString(into, v, folder)
		}
	}
	name, sample := k.form()
	return &ledger.Error{Message: "must be " + name + ", not " + describe(value), Hint: k.name + " = " + sample}
}

func bound(text string) int64 {
	n, _ := strconv.ParseInt(text, 10, 64) // from a tag that a test checks
	return n
}

func (k key) span() string { return k.least + " … " + k.most }

// isText reports whether the value is text in TOML.
func (k key) isText() bool {
	switch t := k.scalar(); t {
	case durationType, rateType, sizeType, shardType:
		return true
	default:
		return t != nil && t.Kind() == reflect.String
	}
}

// setString decodes a value that is text in TOML.
func (k key) setString(into reflect.Value, text, folder string) error {
	switch k.typ {
	case durationType:
		return k.setDuration(into, text)
	case rateType:
		return setParsed(into, text, scheduler.ParseRate)
	case sizeType:
		return setParsed(into, text, ParseSize)
	case shardType:
		return setParsed(into, text, ParseShard)
	}
	if k.oneOf != nil && !slices.Contains(k.oneOf, text) {
		return faultf("must be one of %s, not %q", strings.Join(k.oneOf, ", "), text)
	}
	if strings.ContainsRune(text, 0) {
		return faultf("must not hold a NUL")
	}
	if k.isPath && IsURL(text) { // the error does not repeat it, as it may hold a secret
		return k.noPath()
	}
	if k.isPath && text != "" {
		text = resolve(text, folder)
	}
	into.SetString(text)
	return nil
}

// IsURL reports whether a text is a URL of the web, and no path.
func IsURL(path string) bool {
	scheme, _, has := strings.Cut(path, "://")
	return has && (strings.EqualFold(scheme, "http") || strings.EqualFold(scheme, "https"))
}

// noPath returns the error about a URL in place of a path.
func (k key) noPath() error {
	err := faultf("must be a path, not a URL")
	if k.name == "path" { // of a source
		err.Hint = "for a list, path is a file with one input on each line; " +
			`to read the list from the web, write url = "https://…"`
	}
	return err
}

func (k key) setDuration(into reflect.Value, text string) error {
	d, err := recurrence.ParseDuration(text)
	low, _ := recurrence.ParseDuration(k.least)
	top, _ := recurrence.ParseDuration(k.most)
	switch {
	case k.name == "keep" && text == forever:
		d = ledger.KeepForever
	case err != nil && k.name == "keep":
		return faultf(`must be a duration such as "90s", "36h" or "7d", or %q, not %q`, forever, text)
	case err != nil:
		return faultf(`must be a duration such as "90s", "36h" or "7d", not %q`, text)
	case d < low || d > top:
		return faultf("must be %s, not %s", k.span(), text)
	case d%time.Microsecond != 0:
		return faultf("must be whole microseconds, not %s", text)
	}
	into.SetInt(int64(d))
	return nil
}

func setParsed[T any](into reflect.Value, text string, parse func(string) (T, error)) error {
	v, err := parse(text)
	if err == nil {
		into.Set(reflect.ValueOf(v))
	}
	return err
}

func (k key) setList(into reflect.Value, list []any, folder string) error {
	texts := make([]string, 0, len(list))
	for _, element := range list {
		text, ok := element.(string)
		if !ok || text == "" || strings.ContainsRune(text, 0) {
			return faultf("must be a list of text, and holds %s", describe(element))
		}
		if k.isPath && IsURL(text) {
			return k.noPath()
		}
		if k.isPath {
			text = resolve(text, folder)
		}
		texts = append(texts, text)
	}
	into.Set(reflect.ValueOf(texts))
	return nil
}

// describe names the type of a value. It does not repeat text, since that may be a secret.
func describe(value any) string {
	switch v := value.(type) {
	case string:
		if v == "" {
			return "empty text"
		}
		return "text"
	case int64, float64:
		return fmt.Sprintf("the number %v", v)
	case bool:
		return strconv.FormatBool(v)
	case []any:
		return "a list"
	case map[string]any:
		return "a table"
	}
	return "a date or time"
}
