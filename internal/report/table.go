package report

import (
	"bufio"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/rivo/uniseg"
	"golang.org/x/text/language"
	"golang.org/x/text/message"
)

// table aligns text in columns.
type table struct {
	indent string
	header []string // upper-cased when written; nil for none
	rows   [][]string
	middle []int // columns that are cut in their middle: the end of a path tells more than its middle
	tidy   bool  // leave out columns that tell nothing
}

const (
	gap      = "  "
	minWidth = 12 // a column is not cut below
)

func (t *table) add(cells []string) {
	for i := range cells {
		cells[i] = Safe(cells[i])
	}
	t.rows = append(t.rows, cells)
}

// alignRight moves the text of a column to its right edge.
func (t *table) alignRight(column int) {
	widest := 0
	for _, row := range t.rows {
		widest = max(widest, uniseg.StringWidth(row[column]))
	}
	for _, row := range t.rows {
		row[column] = strings.Repeat(" ", widest-uniseg.StringWidth(row[column])) + row[column]
	}
}

// write writes the rows; the widest columns are cut until a row fits into width cells.
func (t *table) write(out io.Writer, width int) error {
	if len(t.rows) == 0 {
		return nil
	}
	w := bufio.NewWriter(out)
	if t.tidy && width > 0 {
		if alike := t.dropColumns(); alike != "" {
			w.WriteString(Cut(alike, width) + "\n")
		}
	}
	rows := t.rows
	if t.header != nil {
		header := make([]string, len(t.header))
		for i, h := range t.header {
			header[i] = strings.ToUpper(h)
		}
		rows = append([][]string{header}, rows...)
	}
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], uniseg.StringWidth(cell))
		}
	}
	if width > 0 {
		fit(widths, width-len(t.indent))
	}
	for _, row := range rows {
		var line strings.Builder
		line.WriteString(t.indent)
		for i, cell := range row {
			if slices.Contains(t.middle, i) {
				cell = cutMiddle(cell, widths[i])
			}
			cell = Cut(cell, widths[i])
			line.WriteString(cell)
			line.WriteString(strings.Repeat(" ", widths[i]-uniseg.StringWidth(cell)))
			line.WriteString(gap)
		}
		w.WriteString(strings.TrimRight(line.String(), " "))
		w.WriteByte('\n')
	}
	return w.Flush()
}

// dropColumns leaves out columns that are empty, and those whose cells are all alike; it returns what
// the latter have: "all: kind filecsv, state dead". The first column stays.
func (t *table) dropColumns() string {
	var alike []string
	for i := len(t.header) - 1; i > 0; i-- {
		value := t.rows[0][i]
		same := !slices.ContainsFunc(t.rows, func(row []string) bool { return row[i] != value })
		if !same || value != "" && len(t.rows) == 1 {
			continue
		}
		if value != "" {
			alike = append(alike, t.header[i]+" "+value)
		}
		t.header = slices.Delete(t.header, i, i+1)
		for r := range t.rows {
			t.rows[r] = slices.Delete(t.rows[r], i, i+1)
		}
		t.middle = slices.DeleteFunc(t.middle, func(m int) bool { return m == i })
		for m := range t.middle {
			if t.middle[m] > i {
				t.middle[m]--
			}
		}
	}
	if len(alike) == 0 {
		return ""
	}
	slices.Reverse(alike)
	return "all: " + strings.Join(alike, ", ")
}

// fit makes the widest column narrower, cell by cell, until all fit.
func fit(widths []int, width int) {
	total := len(gap) * (len(widths) - 1)
	for _, w := range widths {
		total += w
	}
	for ; total > width; total-- {
		widest := 0
		for i, w := range widths {
			if w > widths[widest] {
				widest = i
			}
		}
		if widths[widest] <= minWidth {
			return
		}
		widths[widest]--
	}
}

// Cut shortens text to a width in cells, with an ellipsis.
func Cut(s string, width int) string {
	if uniseg.StringWidth(s) <= width {
		return s
	}
	if width < 1 {
		return ""
	}
	var b strings.Builder
	g := uniseg.NewGraphemes(s)
	for used := 1; g.Next(); {
		if used += g.Width(); used > width {
			break
		}
		b.WriteString(g.Str())
	}
	return b.String() + "…"
}

// cutMiddle shortens text to a width, with an ellipsis a third of the way.
func cutMiddle(s string, width int) string {
	if uniseg.StringWidth(s) <= width {
		return s
	}
	head := Cut(s, max(width/3, 1))
	room := width - uniseg.StringWidth(head)
	tail := uniseg.NewGraphemes(uniseg.ReverseString(s))
	var b strings.Builder
	for used := 0; tail.Next(); {
		if used += tail.Width(); used > room {
			break
		}
		b.WriteString(tail.Str())
	}
	return head + uniseg.ReverseString(b.String())
}

// Align writes text in columns, without a header, after an indent.
func (p *Printer) Align(indent string, rows [][]string) error {
	t := table{indent: indent}
	for _, cells := range rows {
		t.add(cells)
	}
	return t.write(p.Out, p.Width)
}

var english = message.NewPrinter(language.English)

// Count is a number for people: "1,204".
func Count(n int64) string { return english.Sprint(n) }

// Safe is text on one line without anything that a terminal would act on: control characters
// and invalid bytes are shown as escapes, line breaks as spaces.
func Safe(s string) string {
	bad := func(r rune) bool { return r == unicode.ReplacementChar || !unicode.IsGraphic(r) }
	if !strings.ContainsFunc(s, bad) {
		return s
	}
	s = strings.NewReplacer("\r\n", " ", "\n", " ", "\t", " ").Replace(s)
	if !strings.ContainsFunc(s, bad) {
		return s
	}
	q := strconv.QuoteToGraphic(s)
	return strings.NewReplacer(`\"`, `"`, `\\`, `\`).Replace(q[1 : len(q)-1])
}
