package config

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/sdk/settings"
)

// decoder puts the values of a file into a Config.
type decoder struct {
	config   *Config
	problems []Problem
}

// fault is what is wrong with a value.
type fault struct{ message, hint string }

func (f *fault) Error() string { return f.message }

// refused tells whether the value of a key has been refused already.
func (d *decoder) refused(path string) bool {
	return slices.ContainsFunc(d.problems, func(p Problem) bool { return p.Key == path })
}

func faultf(format string, args ...any) *fault { return &fault{message: fmt.Sprintf(format, args...)} }

// fail notes a problem of a key, at the place where its value is from.
func (d *decoder) fail(path string, err error) {
	if from := d.config.origins[path]; from.Env != "" || from.Flag != "" {
		d.problems = append(d.problems, problemFrom(from, path, err))
		return
	}
	p := d.config.doc.problem(d.config.doc.at(path), "%s", err.Error())
	if f, ok := errors.AsType[*fault](err); ok {
		p.Hint = f.hint
	}
	p.Key, p.text = path, hideValues(path, p.text)
	d.problems = append(d.problems, p)
}

// table reads the keys of a table into a struct.
func (d *decoder) table(path string, values map[string]any, into reflect.Value) {
	all := keys(into.Type())
	for _, name := range slices.Sorted(maps.Keys(values)) {
		at := joinPath(path, name)
		k, known := find(all, name)
		if !known {
			bad := faultf("unknown key %q", name)
			if near := suggest(all, name); near != "" {
				bad.hint = fmt.Sprintf("did you mean %q?", near)
			} else {
				bad.hint = "there is no such key here; see docs/config.md"
			}
			d.fail(at, bad)
			continue
		}
		d.value(at, k, values[name], into.Field(k.field))
	}
}

// value reads the value of a key.
func (d *decoder) value(path string, k key, value any, into reflect.Value) {
	switch {
	case k.below() == nil:
		if err := k.set(into, value, filepath.Dir(d.config.doc.path)); err != nil {
			d.fail(path, err)
			return
		}
		d.config.noteOrigin(path, Origin{File: d.config.File, Line: d.config.doc.at(path).line})
	case k.typ.Kind() == reflect.Map:
		tables, ok := value.(map[string]any)
		if !ok {
			d.fail(path, &fault{"must be tables", fmt.Sprintf("write [%s.NAME]", k.name)})
			return
		}
		into.Set(reflect.MakeMap(k.typ))
		for _, name := range slices.Sorted(maps.Keys(tables)) {
			at := joinPath(path, name)
			values, ok := tables[name].(map[string]any)
			if !ok {
				d.fail(at, &fault{"must be a table", fmt.Sprintf("write [%s.NAME] above it, where NAME is that of the %s", k.name, strings.TrimSuffix(k.name, "s"))})
				continue
			}
			one := withDefaults(k.below())
			d.table(at, values, one.Elem())
			into.SetMapIndex(reflect.ValueOf(name), one)
		}
	default:
		list, ok := value.([]any)
		if !ok {
			d.fail(path, &fault{"must be an array of tables", fmt.Sprintf("write [[%s]], with two brackets: there may be several", k.name)})
			return
		}
		for i, element := range list {
			at := fmt.Sprintf("%s[%d]", path, i)
			values, ok := element.(map[string]any)
			if !ok {
				d.fail(at, &fault{"must be a table", fmt.Sprintf("write [[%s]]", k.name)})
				values = nil
			}
			one := withDefaults(k.below())
			d.table(at, values, one.Elem())
			into.Set(reflect.Append(into, one))
		}
	}
}

// withDefaults makes a pointer to a struct of that type with the built-in values.
func withDefaults(t reflect.Type) reflect.Value {
	made := reflect.New(t)
	for _, k := range keys(t) {
		if k.def == "" {
			continue
		}
		if err := k.setText(made.Elem().Field(k.field), k.def, ""); err != nil {
			panic(fmt.Sprintf("config: default of %s: %v", k.name, err)) // a mistake in the tags
		}
	}
	return made
}

// setText reads a value from the environment or a flag; what is relative is to folder.
func (k key) setText(into reflect.Value, text, folder string) error {
	t := k.scalar()
	var value any = text
	switch {
	case k.typ == stringsType:
		list := []any{}
		for part := range strings.SplitSeq(text, ",") {
			list = append(list, part)
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

// set reads a value as TOML has it. What is wrong is a *fault; into is then as it was.
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
	switch {
	case k.typ == anyMapType:
		table, ok := value.(map[string]any)
		if !ok {
			return &fault{fmt.Sprintf("must be a table, not %s", describe(value)), fmt.Sprintf("write %s = { NAME = VALUE }", k.name)}
		}
		into.Set(reflect.ValueOf(table))
	case k.typ == stringsType:
		return k.setList(into, value, folder)
	case k.typ.Kind() == reflect.Bool:
		b, ok := value.(bool)
		if !ok {
			return &fault{fmt.Sprintf("must be true or false, not %s", describe(value)), without(value)}
		}
		into.SetBool(b)
	case k.typ.Kind() == reflect.Int:
		n, ok := value.(int64)
		if !ok {
			return &fault{fmt.Sprintf("must be a whole number, not %s", describe(value)), without(value)}
		}
		if low, top := bound(k.low), bound(k.top); k.top != "" && (n < low || n > top) {
			return faultf("must be %s, not %d", k.span(), n)
		}
		into.SetInt(n)
	default:
		return k.setFromText(into, value, folder)
	}
	return nil
}

func bound(text string) int64 {
	n, _ := strconv.ParseInt(text, 10, 64) // of a tag, which a test reads
	return n
}

func (k key) span() string { return k.low + " … " + k.top }

// spelled are durations as people say them.
var spelled = regexp.MustCompile(`(?i)^\s*(\d+)\s*(s|m|h|d|w)(?:(?:ec|econd|in|inute|r|our|ay|eek)s?)?\s*$`)

// noDuration is what is wrong with a text that is none, and what it may have been meant for.
func (k key) noDuration(text string) error {
	also := ""
	if k.name == "keep" {
		also = fmt.Sprintf(", or %q", forever)
	}
	bad := faultf("must be a duration such as \"90s\", \"36h\" or \"7d\"%s, not %q", also, text)
	if m := spelled.FindStringSubmatch(text); m != nil {
		bad.hint = fmt.Sprintf("did you mean %q?", m[1]+strings.ToLower(m[2]))
	}
	return bad
}

// setFromText reads what TOML has as text.
func (k key) setFromText(into reflect.Value, value any, folder string) error {
	text, ok := value.(string)
	switch {
	case !ok && k.typ == durationType:
		bad := faultf("must be a duration such as \"90s\", \"36h\" or \"7d\", not %s", describe(value))
		if n, isNumber := value.(int64); isNumber {
			bad.hint = fmt.Sprintf("with its unit, in quotes: \"%ds\"", n)
		}
		return bad
	case !ok:
		return &fault{fmt.Sprintf("must be text, not %s", describe(value)), "in quotes"}
	}
	switch k.typ {
	case durationType:
		if k.name == "keep" && text == forever {
			into.SetInt(int64(ledger.KeepForever))
			break
		}
		d, err := ledger.ParseDuration(text)
		low, _ := ledger.ParseDuration(k.low)
		top, _ := ledger.ParseDuration(k.top)
		switch {
		case err != nil:
			return k.noDuration(text)
		case d < low || d > top:
			return faultf("must be %s, not %s", k.span(), text)
		case d%time.Microsecond != 0:
			return faultf("must be whole microseconds, not %s", text)
		}
		into.SetInt(int64(d))
	case rateType:
		r, err := ledger.ParseRate(text)
		if err != nil {
			return faultf("%v", err)
		}
		into.Set(reflect.ValueOf(r))
	case sizeType:
		s, err := ParseSize(text)
		if err != nil {
			return faultf("%v", err)
		}
		into.Set(reflect.ValueOf(s))
	case shardType:
		s, err := ParseShard(text)
		if err != nil {
			return faultf("%v", err)
		}
		into.Set(reflect.ValueOf(s))
	default:
		if k.oneOf != nil && !slices.Contains(k.oneOf, text) {
			bad := faultf("must be one of %s, not %q", strings.Join(k.oneOf, ", "), text)
			near := settings.Suggest(text, k.oneOf)
			if i := slices.IndexFunc(k.oneOf, func(one string) bool { return strings.HasPrefix(text, one) }); near == "" && i >= 0 {
				near = k.oneOf[i]
			}
			if near != "" {
				bad.hint = fmt.Sprintf("did you mean %q?", near)
			}
			return bad
		}
		if strings.ContainsRune(text, 0) {
			return faultf("must not hold a NUL")
		}
		if k.isPath && text != "" {
			text = resolve(text, folder)
		}
		into.SetString(text)
	}
	return nil
}

func (k key) setList(into reflect.Value, value any, folder string) error {
	list, ok := value.([]any)
	if !ok {
		bad := faultf("must be a list of text, not %s", describe(value))
		if text, isText := value.(string); isText {
			bad.hint = fmt.Sprintf("in brackets: [%q]", text)
		}
		return bad
	}
	texts := make([]string, 0, len(list))
	for _, element := range list {
		text, ok := element.(string)
		if !ok || text == "" || strings.ContainsRune(text, 0) {
			return faultf("must be a list of text, and holds %s", describe(element))
		}
		if k.isPath {
			text = resolve(text, folder)
		}
		texts = append(texts, text)
	}
	into.Set(reflect.ValueOf(texts))
	return nil
}

// without quotes is how numbers, true and false are written.
func without(value any) string {
	if text, ok := value.(string); ok && (text == "true" || text == "false" || bound(text) != 0 || text == "0") {
		return "without quotes: " + text
	}
	return ""
}

// describe says what a value is; text is not repeated, for it may be a secret.
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
