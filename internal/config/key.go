package config

import (
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/sdk/settings"
)

// key describes one key of a table, from the tags of a struct field.
type key struct {
	name     string
	doc      string
	def      string // as it is written; "" if there is none
	low, top string // range; "" if there is none
	oneOf    []string
	also     []string
	secret   string
	live     bool
	isPath   bool
	field    int // in its struct
	typ      reflect.Type
}

// keys of a struct, in the order of its fields.
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
		k.low, k.top, _ = strings.Cut(f.Tag.Get("range"), " … ")
		k.oneOf = split(f.Tag.Get("oneof"), "|")
		k.also = split(f.Tag.Get("also"), ",")
		all = append(all, k)
	}
	return all
}

func split(text, by string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(text, by)
}

// find the key of that name.
func find(all []key, name string) (key, bool) {
	i := slices.IndexFunc(all, func(k key) bool { return k.name == name })
	if i < 0 {
		return key{}, false
	}
	return all[i], true
}

// suggest the key that may have been meant.
func suggest(all []key, name string) string {
	var names []string
	for _, k := range all {
		names = append(names, k.name)
	}
	for _, k := range all {
		if slices.Contains(k.also, strings.ToLower(name)) {
			return k.name
		}
	}
	if near := settings.Suggest(name, names); near != "" {
		return near
	}
	for _, k := range all {
		if settings.Suggest(name, k.also) != "" {
			return k.name
		}
	}
	return ""
}

var (
	durationType = reflect.TypeFor[time.Duration]()
	rateType     = reflect.TypeFor[ledger.Rate]()
	sizeType     = reflect.TypeFor[Size]()
	shardType    = reflect.TypeFor[ledger.Shard]()
	stringsType  = reflect.TypeFor[[]string]()
	anyMapType   = reflect.TypeFor[map[string]any]()
)

// scalar is the type of a key's single value, nil if it holds a list or tables.
func (k key) scalar() reflect.Type {
	t := k.typ
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case t == rateType, t == shardType, t == sizeType:
		return t
	case t.Kind() == reflect.Map, t.Kind() == reflect.Slice:
		return nil
	}
	return t
}

// below is the struct of the tables that a key holds, nil if it holds none.
func (k key) below() reflect.Type {
	if k.typ != anyMapType && k.typ != stringsType && k.scalar() == nil {
		return k.typ.Elem().Elem()
	}
	return nil
}

// typeName is what a value is, as people say it.
func (k key) typeName() string {
	switch t := k.scalar(); {
	case k.typ == stringsType:
		return "list of text"
	case k.typ == anyMapType:
		return "table"
	case t == nil && k.typ.Kind() == reflect.Slice:
		return "array of tables"
	case t == nil:
		return "tables"
	case t == durationType:
		return "duration"
	case t == rateType:
		return "rate"
	case t == sizeType:
		return "size"
	case t.Kind() == reflect.Int:
		return "whole number"
	case t.Kind() == reflect.Bool:
		return "true or false"
	}
	return "text"
}
