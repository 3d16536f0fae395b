package item

import (
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/ledgerd/ledgerd/internal/answer"
	"github.com/ledgerd/ledgerd/internal/report"
)

// unseen are columns below the payload or the output that no listed item has had so far: perhaps a mistyped name.
type unseen struct {
	columns []string
	there   map[string]bool // names that items have, of those that were looked at
}

// shownNames is how many names of fields people see.
const shownNames = 20

func newUnseen(columns []string) *unseen {
	u := &unseen{there: map[string]bool{}}
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
			if len(u.columns) > 0 {
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

// tell names the columns that no item has, and those that there are below the same document.
func (u *unseen) tell(out io.Writer) {
	for _, c := range u.columns {
		top, _, _ := strings.Cut(c, ".")
		names := slices.DeleteFunc(slices.Sorted(maps.Keys(u.there)), func(name string) bool {
			return !strings.HasPrefix(name, top+".")
		})
		text := "no listed item has " + c
		if len(names) > 0 {
			text += "; there are: " + strings.Join(names, ", ")
		}
		fmt.Fprintln(out, report.Safe(text))
	}
}
