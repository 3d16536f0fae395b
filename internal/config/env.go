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

// EnvName returns the variable of a key, by its path: "api.listen" is LEDGERD_API_LISTEN.
func EnvName(path string) string {
	return envPrefix + strings.ToUpper(strings.NewReplacer(".", "_", "-", "_").Replace(path))
}

// environment overrides values of the file with variables. There is a variable for each key at the top, in [api] and
// in [ui]. Kinds and plugins are in the file alone.
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
		if value == "" || k.tableType() != nil {
			continue
		}
		if k.name == "db_file" && set["DB"] != "" {
			continue
		}
		d.override(k.name, k, reflect.ValueOf(c).Elem(), value, Origin{Env: EnvName(k.name)})
	}
	for _, t := range c.tables() {
		for _, k := range keys(t.value.Type()) {
			path := joinPath(t.name, k.name)
			if value := set[strings.TrimPrefix(EnvName(path), envPrefix)]; value != "" && k.tableType() == nil {
				d.override(path, k, t.value, value, Origin{Env: EnvName(path)})
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(set)) {
		if slices.ContainsFunc([]string{"KINDS_", "PLUGINS_", "SOURCE_", "API_TOKENS_"}, func(table string) bool {
			return strings.HasPrefix(name, table)
		}) {
			d.problems = append(d.problems, Problem{Env: envPrefix + name, Message: "there is no such variable",
				Hint: "kinds, plugins, sources and tokens are set in the config file alone: [kinds.NAME] and so on"})
		} else if near := suggestVariable(name); near != "" {
			c.Warnings = append(c.Warnings, Problem{Env: envPrefix + name, Message: "means nothing",
				Hint: "did you mean " + near + "?"})
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
			d.override(name, k, reflect.ValueOf(d.config).Elem(), values[name],
				Origin{Flag: "--" + strings.ReplaceAll(name, "_", "-")})
		}
	}
}

// override replaces the value of a key by a text from a variable or a flag.
func (d *decoder) override(path string, k key, table reflect.Value, text string, from Origin) {
	if err := k.parse(table.Field(k.field), text, ""); err != nil {
		d.problems = append(d.problems, Problem{Env: from.Env, Flag: from.Flag, Key: path, Message: err.Error(),
			Hint: ledger.Hint(err)})
		return
	}
	d.config.origins[path] = from
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

// readSecret reads a file that holds one value, without its line end.
func readSecret(path string) (string, error) {
	text, err := read(path)
	if err != nil {
		return "", faultf("%s: %v", path, err)
	}
	return strings.TrimRight(string(text), "\r\n"), nil
}
