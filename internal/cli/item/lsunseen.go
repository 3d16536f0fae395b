package item

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/ledgerd/ledgerd/internal/answer"
	"github.com/ledgerd/ledgerd/internal/cli/app"
	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/internal/kinds"
	"github.com/ledgerd/ledgerd/internal/ledgers"
	"github.com/ledgerd/ledgerd/internal/report"
	"github.com/ledgerd/ledgerd/sdk/settings"
)

// unseen are columns below the payload or the output that no listed item has had so far: perhaps a mistyped name.
type unseen struct {
	columns []string
	there   map[string]bool // names that items have, of those that were looked at
	kinds   map[string]bool // of the items
}

// shownNames is how many names of fields people see.
const shownNames = 20

func newUnseen(columns []string) *unseen {
	u := &unseen{there: map[string]bool{}, kinds: map[string]bool{}}
	for _, c := range columns {
		if strings.HasPrefix(c, "output.") || strings.HasPrefix(c, "payload.") {
			u.columns = append(u.columns, c)
		}
	}
	return u
}

// watch passes rows on and looks for the columns in them, until all were seen.
func (u *unseen) watch(rows iter.Seq2[answer.Item, error]) iter.Seq2[answer.Item, error] {
	if len(u.columns) == 0 {
		return rows
	}
	return func(yield func(answer.Item, error) bool) {
		for row, err := range rows {
			if len(u.columns) > 0 && err == nil {
				u.kinds[row.Kind] = true
				u.look("output", row.Output)
				u.look("payload", row.Payload)
			}
			if !yield(row, err) {
				return
			}
		}
	}
}

// look takes the columns that a document has from those that are unseen.
func (u *unseen) look(top string, doc report.Bytes) {
	var value any
	if json.Unmarshal(doc, &value) != nil {
		return
	}
	u.fields(top, value)
}

func (u *unseen) fields(path string, value any) {
	if u.columns = slices.DeleteFunc(u.columns, func(c string) bool { return c == path }); len(u.columns) == 0 {
		return
	}
	below, ok := value.(map[string]any)
	if !ok && strings.Contains(path, ".") && len(u.there) < shownNames {
		u.there[path] = true
	}
	for name, v := range below {
		u.fields(path+"."+name, v)
	}
}

// tell names the columns that no listed item has, with those that may have been meant. It is an error where nothing
// else can have been meant: all items that match were listed, they are of one kind, and its plugin has no such field,
// but one of nearly that name. Other columns may be right: people, other versions and other plugins put out other
// fields.
func (u *unseen) tell(ctx context.Context, a *app.App, l ledgers.Any, whole bool) error {
	if len(u.columns) == 0 {
		return nil
	}
	var wrong, meant []string
	p := u.plugin(ctx, a, l)
	for _, c := range u.columns {
		near := mistyped(p, c)
		if near != "" && whole {
			wrong, meant = append(wrong, c), append(meant, near)
		} else if !a.Quiet {
			fmt.Fprintln(a.Stderr, report.Safe("no listed item has "+c+u.offer(c, near)))
		}
	}
	if len(wrong) == 0 {
		return nil
	}
	return failure.Usage("unknown_column", "did you mean "+strings.Join(meant, ", ")+"?",
		"no item has %s, and plugin %s has no such field", strings.Join(wrong, ", "), p.Name)
}

// offer is what may have been meant by a column, and what there is below the same document.
func (u *unseen) offer(column, near string) (text string) {
	top, path, _ := strings.Cut(column, ".")
	var names, paths []string
	for _, name := range slices.Sorted(maps.Keys(u.there)) {
		if below, same := strings.CutPrefix(name, top+"."); same {
			names, paths = append(names, name), append(paths, below)
		}
	}
	if near = cmp.Or(near, report.Prefixed(top+".", settings.Suggest(path, paths))); near != "" {
		text = "; did you mean " + near + "?"
	}
	return text + report.Prefixed("; there are: ", strings.Join(names, ", "))
}

// plugin is the one that works the only kind that was listed; nil if they are several, people work it, or the plugin is
// not on this machine.
func (u *unseen) plugin(ctx context.Context, a *app.App, l ledgers.Any) *kinds.Plugin {
	if len(u.kinds) != 1 {
		return nil
	}
	for name := range u.kinds {
		k, err := l.Kind(ctx, name)
		if err != nil || k.Plugin+k.Definition == "" {
			return nil
		}
		if p, err := a.FindPlugin(ctx, cmp.Or(a.Config.PluginOf(name), k.Plugin, name)); err == nil {
			return p
		}
	}
	return nil
}

// mistyped is the column that was meant by one that a plugin does not have, "" if it has it or none is alike.
func mistyped(p *kinds.Plugin, column string) string {
	if p == nil {
		return ""
	}
	top, path, _ := strings.Cut(column, ".")
	schema := p.Payload
	if top == "output" {
		schema = p.Output
	}
	return report.Prefixed(top+".", schema.Mistyped(path))
}
