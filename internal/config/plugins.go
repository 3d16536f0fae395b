package config

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/ledgerd/ledgerd/internal/api/access"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/recurrence"
	"github.com/ledgerd/ledgerd/sdk/redact"
	"github.com/ledgerd/ledgerd/sdk/settings"
	"github.com/ledgerd/ledgerd/ui"
)

// About is the part of a plugin's description that a configuration depends on.
type About struct {
	Input   string // "file", "url" or "line"
	Payload *settings.Schema
	Config  *settings.Schema
}

// ErrNoPlugin means that there is no plugin of that name.
var ErrNoPlugin = errors.New("no such plugin")

// World has the plugins and kinds with which a configuration is checked.
type World struct {
	// Describe returns the description of a plugin. The error is ErrNoPlugin if there is no such plugin, else why it
	// does not start. Like Validate it is called for several plugins at the same time. It may be nil if the
	// configuration names no plugins.
	Describe func(plugin string) (*About, error)
	// Validate lets a plugin check a whole config that fits its schema, secrets included. If the plugin refuses the
	// config, the error is a *settings.Error. If Validate is nil, only schemas are checked.
	Validate func(plugin string, config []byte) error
	// Plugins are the names of the plugins found here.
	Plugins []string
	// Kinds are the kinds of the ledger, each with the plugin that it names, or "".
	Kinds map[string]string
}

// Check checks what only plugins and the ledger know: whether every kind and plugin exists, and whether the plugins
// accept [kinds.K.set], [kinds.K.with] and the set of sources. It asks each plugin once, all at the same time. known
// is the error of Load; the *Error of Check includes it. A Config that Load has refused is checked as far as possible.
func (c *Config) Check(w World, known error) error {
	x := c.plug(w)
	for _, name := range slices.Sorted(maps.Keys(c.Plugins)) {
		if _, err := x.ask(name); err != nil && !errors.Is(err, ErrNoPlugin) {
			x.sick(joinPath("plugins", name), err)
		} else if err != nil && c.Plugins[name].Source != "" {
			x.fail(joinPath("plugins", name), &ledger.Error{Message: "is not on this machine",
				Hint: "ledgerd plugin fetch gets it"})
		} else if err != nil {
			x.fail(joinPath("plugins", name), x.unknown("plugin", name, w.Plugins,
				`give the command that starts it: command = ["/PATH/PROGRAM"]`))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.Kinds)) {
		x.kind(joinPath("kinds", name), name, c.Kinds[name])
	}
	for i, s := range c.Sources {
		x.source(fmt.Sprintf("source[%d]", i), s)
	}
	x.checkAPI()
	x.validateAll()
	if found, ok := errors.AsType[*Error](known); ok {
		x.problems = append(x.problems, found.Problems...)
	}
	return asError(x.problems)
}

// checkAPI refuses an API that no program could ask, or that other machines could ask without a token.
func (x *plugged) checkAPI() {
	api := &x.config.API
	switch open := api.Auth == "none"; {
	case api.Listen == "":
	case !open && len(api.Tokens) == 0:
		x.fail("api.listen", &ledger.Error{Message: "there is no token in [api.tokens], so no program could ask",
			Hint: "make one: ledgerd token new NAME; for a trial on this machine: auth = \"none\""})
	case open && !access.IsLoopback(api.Listen):
		x.fail("api.auth", &ledger.Error{Message: fmt.Sprintf("none goes with a loopback address only, not with %s", api.Listen),
			Hint: "take listen = \"127.0.0.1:7374\", or tokens: ledgerd token new NAME"})
	}
	if err := ui.CheckPrefix(api.Prefix); err != nil && x.config.UI.Serve {
		x.fail("api.prefix", err)
	}
}

// plug gets the descriptions of all plugins that a configuration names, at the same time.
func (c *Config) plug(w World) *plugged {
	x := &plugged{decoder: decoder{config: c}, world: w, asked: map[string]answer{}}
	if w.Describe == nil {
		return x
	}
	names := slices.Collect(maps.Keys(c.Plugins))
	for kind := range c.Kinds {
		plugin, _ := x.pluginOf(kind)
		names = append(names, plugin)
	}
	for _, s := range c.Sources {
		plugin, _ := x.pluginOf(s.Kind)
		names = append(names, plugin)
	}
	slices.Sort(names)
	names = slices.DeleteFunc(slices.Compact(names), func(name string) bool { return name == "" })
	answers := make([]answer, len(names))
	var asking sync.WaitGroup
	for i, name := range names {
		asking.Go(func() { answers[i].about, answers[i].err = w.Describe(name) })
	}
	asking.Wait()
	for i, name := range names {
		x.asked[name] = answers[i]
	}
	return x
}

// plugged is a check that has the answers of the plugins.
type plugged struct {
	decoder
	world World
	asked map[string]answer
	// whole are the configs of kinds that fit their schemas. The plugins check them, too.
	whole []*wholeConfig
}

// wholeConfig is the config of a kind as its plugin gets it.
type wholeConfig struct {
	table  *settingsTable
	plugin string
	config []byte
	err    error // of the plugin
}

// answer is what World.Describe returned for a plugin.
type answer struct {
	about *About
	err   error
}

// ask returns the description of a plugin. It is asked only once.
func (x *plugged) ask(plugin string) (*About, error) {
	a, known := x.asked[plugin]
	if !known {
		a.about, a.err = x.world.Describe(plugin)
		x.asked[plugin] = a
	}
	return a.about, a.err
}

// unknown returns the error for an unknown name, with a suggestion if a known name is similar.
func (x *plugged) unknown(what, name string, known []string, otherwise string) error {
	if near := settings.Suggest(name, known); near != "" {
		otherwise = fmt.Sprintf("did you mean %q?", near)
	}
	return &ledger.Error{Message: fmt.Sprintf("there is no %s %q", what, name), Hint: otherwise}
}

// kinds returns the names of existing kinds and of kinds that plugins here can work.
func (x *plugged) kinds() []string {
	return slices.Concat(x.world.Plugins, slices.Sorted(maps.Keys(x.world.Kinds)),
		slices.Sorted(maps.Keys(x.config.Kinds)))
}

// pluginOf returns the plugin that works a kind, and the key that names it, "" if none does.
func (x *plugged) pluginOf(kind string) (plugin, key string) {
	if plugin := x.config.PluginOf(kind); plugin != "" {
		return plugin, joinPath("kinds", kind) + ".plugin"
	}
	return cmp.Or(x.world.Kinds[kind], kind), ""
}

// ofLedger reports whether the ledger knows a kind.
func (x *plugged) ofLedger(kind string) bool { _, known := x.world.Kinds[kind]; return known }

// kind checks a kind: whether its plugin exists and accepts its set and with.
func (x *plugged) kind(path, name string, k *Kind) {
	if x.config.failed[path] || x.config.failed[path+".plugin"] || x.config.failed[path+".input"] {
		return
	}
	plugin, key := x.pluginOf(name)
	about, err := x.ask(plugin)
	switch {
	case err != nil && key != "" && errors.Is(err, ErrNoPlugin):
		x.fail(key, x.unknown("plugin", plugin, x.world.Plugins, "all plugins: ledgerd plugin ls"))
	case err != nil && errors.Is(err, ErrNoPlugin):
		if k.Input == nil && !x.ofLedger(name) {
			x.fail(path, x.unknown("plugin or kind", name, slices.Concat(x.world.Plugins,
				slices.Collect(maps.Keys(x.world.Kinds))), `a kind that people work names its input: input = "line"`))
		}
	case err != nil && (key != "" || x.config.Plugins[plugin] == nil): // otherwise it has been reported
		x.sick(path, err)
	case err == nil:
		_, err := x.config.Payload(name, about.Payload)
		x.join(err)
		t := x.config.table(path+".with", about.Config)
		t.secrets, t.whole = about.Config.Secrets(), true
		whole, err := t.read(k.With)
		if err == nil && x.world.Validate != nil {
			x.whole = append(x.whole, &wholeConfig{table: t, plugin: plugin, config: whole})
		}
		x.join(err)
	}
}

// validateAll lets the plugins check the configs of their kinds, all at the same time.
func (x *plugged) validateAll() {
	var asking sync.WaitGroup
	for _, w := range x.whole {
		asking.Go(func() { w.err = x.world.Validate(w.plugin, w.config) })
	}
	asking.Wait()
	for _, w := range x.whole {
		if refused, ok := errors.AsType[*settings.Error](w.err); ok {
			w.table.explain(w.table.named(refused))
			x.join(asError(w.table.problems))
		} else if w.err != nil {
			x.sick(w.table.path, w.err)
		}
	}
}

// sick records that a plugin gave no answer. The file may be correct.
func (x *plugged) sick(path string, err error) {
	x.fail(path, err)
	x.problems[len(x.problems)-1].Sick = true
}

// join adds the problems of an *Error.
func (x *plugged) join(err error) {
	if bad, ok := errors.AsType[*Error](err); ok {
		x.problems = append(x.problems, bad.Problems...)
	}
}

// source checks a source: whether its kind exists, takes its type of input, and accepts its set.
func (x *plugged) source(path string, s *Source) {
	if s.Kind == "" || x.config.failed[path+".kind"] || x.config.failed[joinPath("kinds", s.Kind)+".plugin"] {
		return
	}
	plugin, key := x.pluginOf(s.Kind)
	about, err := x.ask(plugin)
	input := ""
	switch k := x.config.Kinds[s.Kind]; {
	case err == nil:
		i := slices.Index(x.config.Sources, s)
		_, err := x.config.table(fmt.Sprintf("source[%d].set", i), about.Payload).read(s.Set)
		x.join(err)
		if input = about.Input; input == "" && k != nil && k.Input != nil {
			input = *k.Input
		}
	case errors.Is(err, ErrNoPlugin) && key == "" && k == nil && !x.ofLedger(s.Kind):
		x.fail(path+".kind", x.unknown("kind", s.Kind, x.kinds(), "all kinds: ledgerd plugin ls and ledgerd kind ls"))
	case k == nil && !errors.Is(err, ErrNoPlugin) && x.config.Plugins[plugin] == nil:
		x.sick(path+".kind", err)
	case k != nil && k.Input != nil:
		input = *k.Input
	}
	switch {
	case s.Type == "folder" && input != "" && input != "file":
		x.fail(path+".kind", faultf("%s takes %s, not files", s.Kind, map[string]string{"url": "URLs",
			"line": "lines of text"}[input]))
	case s.Type != "folder" && err == nil && input == "url":
		x.workedOnce(path, s)
	}
}

// workedOnce warns of a source of URLs that is read again and again although each URL is worked only once. Files need
// no such warning: a changed file is worked again.
func (x *plugged) workedOnce(path string, s *Source) {
	if _, given := x.config.doc.places[joinPath("kinds", s.Kind)+".every"]; given || x.config.Kind(s.Kind).Every != "" {
		return
	}
	at, every := path+".kind", `every = "day"`
	if _, given := x.config.doc.places[path+".schedule"]; given {
		at = path + ".schedule"
		if _, err := recurrence.Parse(s.Schedule, s.Zone); err == nil {
			every = fmt.Sprintf("every = %q", s.Schedule)
		}
		if s.Zone != "" {
			every += fmt.Sprintf(" and zone = %q", s.Zone)
		}
	}
	x.warn(at, &ledger.Error{
		Message: fmt.Sprintf("source %s is looked at again and again (schedule %q), but each URL in it is worked once only",
			s.Name, s.Schedule),
		Hint: fmt.Sprintf(`again in every period: %s in [kinds.%s]; if once is right: every = ""`, every, s.Kind)})
}

// secretOf reports whether a field of a plugin's config is or may be a secret.
// An undeclared field may be one, and so may a field with such a name.
func (x *plugged) secretOf(kind, field string) bool {
	if strings.HasSuffix(field, "_file") {
		return false
	}
	plugin, _ := x.pluginOf(kind)
	about, err := x.ask(plugin)
	if err != nil || redact.SecretName(field) {
		return true
	}
	return !slices.ContainsFunc(about.Config.Fields(), func(f settings.Field) bool {
		return f.Name == field && !f.Secret
	})
}

// secretOfPayload reports whether a field of a kind's payload is or may be a secret: the plugin marks it, or cannot be
// asked, or the field has such a name.
func (x *plugged) secretOfPayload(kind, field string) bool {
	plugin, key := x.pluginOf(kind)
	about, err := x.ask(plugin)
	unknown := err != nil && (key != "" || !errors.Is(err, ErrNoPlugin)) // a kind that people work has no plugin
	return unknown || err == nil && slices.Contains(about.Payload.Secrets(), field) ||
		slices.ContainsFunc(strings.Split(field, "."), redact.SecretName)
}
