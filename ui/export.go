package ui

import (
	"bytes"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/ledgerd/ledgerd/internal/answer"
	"github.com/ledgerd/ledgerd/internal/report"
)

// Bounds of an export. It is in memory before it is sent, so that its name tells whether it is complete.
const (
	mostExported = 10_000
	exportBytes  = 16 << 20
	exportTime   = 5 * time.Second
)

// export sends the matching items as a file, in the format of the command line. If they are more than the bounds, the
// name of the file begins with "first".
func (s *site) export(w http.ResponseWriter, r *http.Request) {
	v, in := s.looks(w, r)
	if !in {
		return
	}
	format := r.PathValue("format")
	media, known := map[string]string{"csv": "text/csv; charset=utf-8", "jsonl": "application/x-ndjson"}[format]
	if !known {
		s.nowhere(w, r)
		return
	}
	var text bytes.Buffer
	n, whole, err := v.exported(&text, report.Format(format))
	if err != nil {
		s.fail(w, r, "/items", err)
		return
	}
	name := "items." + format
	if !whole {
		name = fmt.Sprintf("first-%d-%s", n, name)
	}
	w.Header().Set("Content-Type", media)
	w.Header().Set("Content-Disposition", `attachment; filename="`+name+`"`)
	deliver(w, r, http.StatusOK, text.Bytes())
}

// exported writes what matches, part by part, up to its bounds.
func (v *view) exported(to *bytes.Buffer, format report.Format) (n int, whole bool, err error) {
	rows, err := report.NewRows[answer.Item](&report.Printer{Out: to, Format: format}, nil, nil)
	if err != nil {
		return 0, false, err
	}
	asked := url.Values{"limit": {"1000"}}
	for _, name := range []string{"where", "order"} {
		if value := v.URL.Query().Get(name); value != "" {
			asked.Set(name, value)
		}
	}
	for began := time.Now(); ; {
		part, err := get[answer.List[answer.Item]](v, "/items", asked)
		if err != nil {
			return n, false, err
		}
		for _, it := range part.Items {
			if err := rows.Write(it); err != nil {
				return n, false, err
			}
		}
		n += len(part.Items)
		switch {
		case part.Next == nil:
			return n, true, rows.Close()
		case n >= mostExported || to.Len() >= exportBytes || time.Since(began) > exportTime:
			return n, false, rows.Close()
		}
		asked.Set("cursor", *part.Next)
	}
}
