package pluginhost

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/sdk/settings"
)

// Change is a difference between two versions of a plugin that those notice who use it.
type Change struct {
	Part string `json:"part"` // "input", "config", "output" (fields), "emits", "takes" or "policy"
	Name string `json:"name"` // of the field or kind; "" where there is none
	What string `json:"what"` // "is new: text, required", "gone", "number → text"
}

// String is the change as a line: "config size: new, whole number, default 10".
func (c Change) String() string {
	if c.Name == "" {
		return c.Part + ": " + c.What
	}
	return c.Part + " " + c.Name + ": " + c.What
}

// Compare describes what is different in a new version, for those who add items, configure the plugin, read
// its output or work what it emits. Neither may be nil.
func Compare(old, now *Description) (all []Change) {
	note := func(part, name, before, after string) {
		switch {
		case before == after:
		case before == "":
			all = append(all, Change{part, name, "new, " + after})
		case after == "":
			all = append(all, Change{part, name, "gone"})
		default:
			all = append(all, Change{part, name, before + " → " + after})
		}
	}
	for _, part := range []struct {
		name   string
		before *settings.Schema
		after  *settings.Schema
	}{{"input", old.Payload, now.Payload}, {"config", old.Config, now.Config}, {"output", old.Output, now.Output}} {
		before, after := fieldTexts(part.before), fieldTexts(part.after)
		for _, name := range both(before, after) {
			note(part.name, name, before[name], after[name])
		}
	}
	for _, kind := range slices.Sorted(slices.Values(slices.Concat(old.Emits, now.Emits))) {
		switch was, is := slices.Contains(old.Emits, kind), slices.Contains(now.Emits, kind); {
		case is && !was:
			all = append(all, Change{"emits", kind, "new"})
		case was && !is:
			all = append(all, Change{"emits", kind, "gone"})
		}
	}
	a, b := old.policy, now.policy
	note("takes", "", a.Input.Type+" as "+a.Input.Field, b.Input.Type+" as "+b.Input.Field)
	note("takes", "", "files "+strings.Join(a.Input.Match, " "), "files "+strings.Join(b.Input.Match, " "))
	onLost := func(k ledger.Kind) string { return string(cmp.Or(k.OnLost, ledger.OnLostRepeat)) }
	note("policy", "on_lost", onLost(a), onLost(b))
	return slices.Compact(all)
}

// fieldTexts describes the fields of a schema, by name.
func fieldTexts(s *settings.Schema) map[string]string {
	texts := map[string]string{}
	for _, f := range s.Fields() {
		text := f.Type
		if len(f.Enum) > 0 {
			text = strings.Join(f.Enum, "|")
		}
		if f.Secret {
			text += ", secret"
		}
		if f.Required {
			text += ", required"
		} else if f.Default != "" && !f.Secret {
			value := f.Default
			if f.Type == "text" {
				value = strconv.Quote(value)
			}
			text += ", default " + value
		}
		texts[f.Name] = text
	}
	return texts
}

// both are the names in one map or the other, sorted.
func both(a, b map[string]string) []string {
	var names []string
	for _, m := range []map[string]string{a, b} {
		for name := range m {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
