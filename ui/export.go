package ui

import (
	"bytes"
	"fmt"
	"net/http"
	"time"

	"github.com/ledgerd/ledgerd/internal/answer"
	"github.com/ledgerd/ledgerd/internal/report"
)

// Bounds of an export. It is in memory before it is sent, so that its name tells whether it is complete.
const (
	maxExported = 10_000
	exportBytes = 16 << 20
	exportTime  = 5 * time.Second
)

// export sends the matching items as a file, in the format of the command line. If they are more than the bounds, the
// name of the file begins with "first".
func (s *site) export(w http.ResponseWriter, v *view) {
	format := v.PathValue("format")
	p := report.Printer{Format: report.CSV, Excel: format == "excel"}
	media := "text/csv; charset=utf-8"
	switch format {
	case "csv", "excel":
	case "jsonl":
		p.Format, media = report.JSONL, "application/x-ndjson"
	default:
		s.notFound(w, v.Request)
		return
	}
	var text bytes.Buffer
	p.Out = &text
	n, whole, err := v.exported(&text, &p)
	if err != nil {
		s.fail(w, v.Request, "/items", err)
		return
	}
	name := "items." + string(p.Format)
	if !whole {
		name = fmt.Sprintf("first-%d-%s", n, name)
	}
	w.Header().Set("Content-Type", media)
	w.Header().Set("Content-Disposition", `attachment; filename="`+name+`"`)
	deliver(w, v.Request, http.StatusOK, text.Bytes())
}

// exported writes the matching items, part by part, up to the bounds.
func (v *view) exported(to *bytes.Buffer, p *report.Printer) (n int, whole bool, err error) {
	rows, err := report.NewRows[answer.Item](p, nil, nil)
	if err != nil {
		return 0, false, err
	}
	asked := given(v.URL.Query(), "where", "order")
	asked.Set("limit", "1000")
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
		case n >= maxExported || to.Len() >= exportBytes || time.Since(began) > exportTime:
			return n, false, rows.Close()
		}
		asked.Set("cursor", *part.Next)
	}
}
