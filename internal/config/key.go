package config

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/ledgerd/ledgerd/ledger/scheduler"
	"github.com/ledgerd/ledgerd/sdk/settings"
)

// key describes one key of a table, from the tags of a struct field.
type key struct {
	name        string
	doc         string
	def         string // as in a file; "" if there is none
	least, most string // range; "" if there is none
	oneOf       []string
	secret      string // "url" or "query" if the value may hold a secret, see written
	live        bool   // a change takes effect without a restart
	isPath      bool
	field       int // in its struct
	typ         reflect.Type
}

// keys returns the keys of a table, in the order of the fields of its struct.
func keys(t reflect.Type) []key {
	var all []key
	for i := range t.NumField() {
		f := t.Field(i)
		name := f.Tag.Get("toml")
		if name == "" {
			continue
		}
		k := key{name: name, doc: f.Tag.Get("doc"), def: f.Tag.Get("default"), secret: f.Tag.Get("secret"),
			live: f.Tag.Get("live") != "", isPath: f.Tag.Get("path") != "", field: i, typ: f.Type}
		k.least, k.most, _ = strings.Cut(f.Tag.Get("range"), " … ")
		if choices := f.Tag.Get("oneof"); choices != "" {
			k.oneOf = strings.Split(choices, "|")
		}
		all = append(all, k)
	}
	return all
}

// find finds a key by its name.
func find(all []key, name string) (key, bool) {
	i := slices.IndexFunc(all, func(k key) bool { return k.name == name })
	if i < 0 {
		return key{}, false
	}
	return all[i], true
}

// suggest returns a hint with the key that may have been meant.
func suggest(all []key, name string) string {
	var names []string
	for _, k := range all {
		names = append(names, k.name)
	}
	if near := settings.Suggest(name, names); near != "" {
		return fmt.Sprintf("did you mean %q?", near)
	}
	return "see docs/config.md"
}

var (
	durationType = reflect.TypeFor[time.Duration]()
	rateType     = reflect.TypeFor[scheduler.Rate]()
	sizeType     = reflect.TypeFor[Size]()
	shardType    = reflect.TypeFor[scheduler.Shard]()
	stringsType  = reflect.TypeFor[[]string]()
	anyMapType   = reflect.TypeFor[map[string]any]()
)

// scalar returns the type of a key's single value, nil if the key holds a list or tables.
func (k key) scalar() reflect.Type {
	t := k.typ
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case t == rateType, t == shardType, t == sizeType:
		return t
	case t.Kind() == reflect.Map, t.Kind() == reflect.Slice, t.Kind() == reflect.Struct:
		return nil
	}
	return t
}

// tableType returns the struct type of the tables in a key, nil if the key holds a value. Tables are a struct, a
// map[string]*struct or a []*struct.
func (k key) tableType() reflect.Type {
	switch {
	case k.typ == anyMapType, k.typ == stringsType, k.scalar() != nil:
		return nil
	case k.typ.Kind() == reflect.Struct:
		return k.typ
	}
	return k.typ.Elem().Elem()
}

// form returns the name of the key's type for people, and a sample value.
func (k key) form() (name, sample string) {
	switch t := k.scalar(); {
	case k.typ == stringsType:
		return "a list of text", `["…"]`
	case k.typ == anyMapType:
		return "a table", "{ NAME = VALUE }"
	case t == durationType:
		return "a duration", `"90s"`
	case t == rateType:
		return "a rate", `"100/s"`
	case t == sizeType:
		return "a size", `"512MiB"`
	case t.Kind() == reflect.Int:
		return "a whole number", "1"
	case t.Kind() == reflect.Bool:
		return "true or false", "true"
	}
	return "text", `"…"`
}
