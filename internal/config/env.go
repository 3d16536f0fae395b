package config

import (
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/sdk/settings"
)

const envPrefix = "LEDGERD_"

// EnvName returns the variable of a key, by its path: "kinds.urlcheck.timeout" is LEDGERD_KINDS_URLCHECK_TIMEOUT.
func EnvName(path string) string {
	return envPrefix + strings.ToUpper(strings.NewReplacer(".", "_", "-", "_").Replace(path))
}

// environment overrides values of the file with variables. There is a variable for each key with a single value that
// is not in an array of tables, and for lists at the top and in [api].
func (d *decoder) environment(environ []string) {
	set := map[string]string{}
	for _, v := range environ {
		name, value, _ := strings.Cut(v, "=")
		if rest, ours := strings.CutPrefix(name, envPrefix); ours && value != "" {
			set[rest] = value
		}
	}
	c := d.config
	for _, k := range keys(reflect.TypeFor[Config]()) {
		value := set[strings.ToUpper(k.name)]
		if value == "" || k.below() != nil {
			continue
		}
		if k.name == "db_file" && set["DB"] != "" {
			continue
		}
		d.lay(k.name, k, reflect.ValueOf(c).Elem(), value, Origin{Env: EnvName(k.name)})
	}
	for _, t := range c.tables() {
		for _, k := range keys(t.value.Type()) {
			path := joinPath(t.name, k.name)
			if value := set[strings.TrimPrefix(EnvName(path), envPrefix)]; value != "" && k.below() == nil {
				d.lay(path, k, t.value, value, Origin{Env: EnvName(path)})
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(set)) {
		from := Origin{Env: envPrefix + name}
		if rest, ok := strings.CutPrefix(name, "KINDS_"); ok {
			d.kindVariable(rest, set[name], from)
		} else if rest, ok := strings.CutPrefix(name, "PLUGINS_"); ok {
			if c.Plugins == nil {
				c.Plugins = map[string]*Plugin{}
			}
			layOne(d, "plugins", c.Plugins, rest, set[name], from)
		} else if near := suggestVariable(name); near != "" {
			c.Warnings = append(c.Warnings, Problem{Env: from.Env, Message: "means nothing", Hint: "did you mean " + near + "?"})
		}
	}
}

// suggestVariable returns the variable that an unknown variable may have meant. It knows only the variables of keys.
func suggestVariable(name string) string {
	var names []string
	for _, k := range keys(reflect.TypeFor[Config]()) {
		names = append(names, strings.ToUpper(k.name))
	}
	for _, t := range new(Config).tables() {
		for _, k := range keys(t.value.Type()) {
			names = append(names, strings.TrimPrefix(EnvName(joinPath(t.name, k.name)), envPrefix))
		}
	}
	// ledgerd may be started by a plugin, by a command of exec, or by lock run.
	ofParent := []string{"PLUGIN", "ITEM", "ATTEMPT", "KIND", "SCOPE", "KEY", "IDEMPOTENCY_KEY", "FENCE"}
	if near := settings.Suggest(name, names); near != "" && !slices.Contains(ofParent, name) &&
		!slices.Contains(names, name) {
		return envPrefix + near
	}
	return ""
}

// table is a table that a config has once.
type table struct {
	name  string
	value reflect.Value
}

func (c *Config) tables() []table {
	return []table{{"api", reflect.ValueOf(&c.API).Elem()}, {"ui", reflect.ValueOf(&c.UI).Elem()}}
}

// flags overrides values with those of the command line.
func (d *decoder) flags(values map[string]string) {
	all := keys(reflect.TypeFor[Config]())
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if k, known := find(all, name); known {
			d.lay(name, k, reflect.ValueOf(d.config).Elem(), values[name],
				Origin{Flag: "--" + strings.ReplaceAll(name, "_", "-")})
		}
	}
}

// lay overrides the value of a key with a text.
func (d *decoder) lay(path string, k key, table reflect.Value, text string, from Origin) {
	if err := k.setText(table.Field(k.field), text, ""); err != nil {
		d.problems = append(d.problems, Problem{Env: from.Env, Flag: from.Flag, Key: path, Message: err.Error(),
			Hint: ledger.Hint(err)})
		return
	}
	d.config.noteOrigin(path, from)
	// A value of db overrides one of db_file with lower precedence, and the reverse.
	switch path {
	case "db_file":
		d.config.DB = ""
		delete(d.config.origins, "db")
	case "db":
		d.config.DBFile = ""
		delete(d.config.origins, "db_file")
	}
}

// kindVariable reads NAME_KEY, NAME_SET_FIELD or NAME_WITH_FIELD.
func (d *decoder) kindVariable(rest, value string, from Origin) {
	if d.config.Kinds == nil {
		d.config.Kinds = map[string]*Kind{}
	}
	for _, table := range []string{"WITH", "SET"} {
		name, field, found := strings.Cut(rest, "_"+table+"_")
		if !found || name == "" || field == "" {
			continue
		}
		k := one(d.config.Kinds, name)
		a := Assignment{Field: strings.ToLower(field), Value: value, Env: from.Env}
		if table == "WITH" {
			k.with = append(k.with, a)
		} else {
			k.set = append(k.set, a)
		}
		return
	}
	layOne(d, "kinds", d.config.Kinds, rest, value, from)
}

// layOne decodes NAME_KEY into the table of that name. It makes the table if the file has none.
func layOne[T any](d *decoder, above string, tables map[string]*T, rest, value string, from Origin) {
	var best key
	for _, k := range keys(reflect.TypeFor[T]()) {
		suffix := "_" + strings.ToUpper(k.name)
		if k.scalar() != nil && strings.HasSuffix(rest, suffix) && len(rest) > len(suffix) && len(k.name) > len(best.name) {
			best = k
		}
	}
	if best.name == "" {
		d.problems = append(d.problems, Problem{Env: from.Env, Message: "there is no such key", Hint: "the variables of [" +
			above + ".NAME] are " + EnvName(above) + "_NAME_KEY; see docs/config.md"})
		return
	}
	name := rest[:len(rest)-len(best.name)-1]
	t := one(tables, name)
	d.lay(joinPath(above, tableName(name))+"."+best.name, best, reflect.ValueOf(t).Elem(), value, from)
}

// one returns the table for a part of a variable's name.
func one[T any](tables map[string]*T, name string) *T {
	name = tableName(name)
	if tables[name] == nil {
		tables[name] = withDefaults(reflect.TypeFor[T]()).Interface().(*T)
	}
	return tables[name]
}

// tableName converts a part of a variable's name to the name of a kind or plugin. Such names have no _.
func tableName(name string) string { return strings.ToLower(strings.ReplaceAll(name, "_", "-")) }

// readSecret reads a file that holds one value, without its line end.
func readSecret(path string) (string, error) {
	text, err := read(path)
	if err != nil {
		return "", faultf("%s: %v", path, err)
	}
	return strings.TrimRight(string(text), "\r\n"), nil
}
