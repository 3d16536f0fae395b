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
	indent  string
	columns []tableColumn
	rows    [][]string
	tidy    bool // leave out columns that are empty or the same in all rows
}

// tableColumn is how a column of a table is written.
type tableColumn struct {
	heading string // written in upper case; a table has one in every column or in none
	middle  bool   // cut in its middle, since the end of a path or a message matters, too
	main    bool   // cut after the others
	whole   bool   // never cut
	spare   int    // above 0: it is left out if a row is too wide, 1 first
}

const (
	gap       = "  " // between columns
	minWidth  = 12   // cells; columns are not cut below this
	alikeMost = 8    // lines of values that all rows have
)

func (t *table) add(cells []string) {
	for i := range cells {
		cells[i] = Safe(cells[i])
	}
	t.rows = append(t.rows, cells)
}

// alignRight aligns a column to the right.
func (t *table) alignRight(column int) {
	widest := 0
	for _, row := range t.rows {
		widest = max(widest, uniseg.StringWidth(row[column]))
	}
	for _, row := range t.rows {
		row[column] = strings.Repeat(" ", widest-uniseg.StringWidth(row[column])) + row[column]
	}
}

// write writes the rows. If they are wider than width cells, columns are cut or left out, see [table.fit].
func (t *table) write(out io.Writer, width int) error {
	if len(t.rows) == 0 {
		return nil
	}
	w := bufio.NewWriter(out)
	if t.tidy && width > 0 {
		for _, line := range wrap(t.dropColumns(), width, alikeMost) {
			w.WriteString(line + "\n")
		}
	}
	widths := t.fit(width)
	rows := t.rows
	if t.columns[0].heading != "" {
		headings := make([]string, len(t.columns))
		for i, c := range t.columns {
			headings[i] = strings.ToUpper(c.heading)
		}
		rows = append([][]string{headings}, rows...)
	}
	for _, row := range rows {
		var line strings.Builder
		line.WriteString(t.indent)
		for i, cell := range row {
			if t.columns[i].middle {
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

// drop removes a column.
func (t *table) drop(i int) {
	t.columns = slices.Delete(t.columns, i, i+1)
	for r := range t.rows {
		t.rows[r] = slices.Delete(t.rows[r], i, i+1)
	}
}

// dropColumns removes the columns that are empty or have the same value in all of several rows, except the first
// column. It returns these values: "all: kind filecsv, state dead".
func (t *table) dropColumns() string {
	var alike []string
	for i := len(t.columns) - 1; i > 0; i-- {
		value := t.rows[0][i]
		same := !slices.ContainsFunc(t.rows, func(row []string) bool { return row[i] != value })
		if !same || value != "" && len(t.rows) == 1 {
			continue
		}
		if value != "" {
			alike = append(alike, t.columns[i].heading+" "+value)
		}
		t.drop(i)
	}
	if len(alike) == 0 {
		return ""
	}
	slices.Reverse(alike)
	return "all: " + strings.Join(alike, ", ")
}

// fit returns the widths of the columns with which a row has at most width cells; 0 is no bound. First it cuts the
// widest columns that are not main. Then it removes spare columns, one at a time. At last it also cuts main columns.
func (t *table) fit(width int) []int {
	widths := t.widths()
	if width == 0 {
		return widths
	}
	width -= len(t.indent)
	for {
		if shrink(widths, width, func(i int) bool { return !t.columns[i].whole && !t.columns[i].main }) {
			return widths
		}
		least := t.leastColumn()
		if least < 0 {
			shrink(widths, width, func(i int) bool { return !t.columns[i].whole })
			return widths
		}
		t.drop(least)
		widths = t.widths()
	}
}

func (t *table) widths() []int {
	widths := make([]int, len(t.columns))
	for i, c := range t.columns {
		widths[i] = uniseg.StringWidth(c.heading)
		for _, row := range t.rows {
			widths[i] = max(widths[i], uniseg.StringWidth(row[i]))
		}
	}
	return widths
}

// leastColumn returns the spare column to remove next: first the columns of zeros, then by spare. It returns -1 if
// there is no spare column.
func (t *table) leastColumn() int {
	const afterZeros = 100 // above all values of spare
	least := -1
	rank := func(i int) int {
		hasFigures := slices.ContainsFunc(t.rows, func(row []string) bool { return strings.Trim(row[i], "≈0") != "" })
		if hasFigures {
			return t.columns[i].spare + afterZeros
		}
		return t.columns[i].spare
	}
	for i, c := range t.columns {
		if c.spare > 0 && (least < 0 || rank(i) < rank(least)) {
			least = i
		}
	}
	return least
}

// shrink makes the widest column that mayCut allows narrower, cell by cell, until a row has at most width cells. It
// reports whether that is so.
func shrink(widths []int, width int, mayCut func(i int) bool) bool {
	total := len(gap) * (len(widths) - 1)
	for _, w := range widths {
		total += w
	}
	for ; total > width; total-- {
		widest := -1
		for i, w := range widths {
			if mayCut(i) && w > minWidth && (widest < 0 || w > widths[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			return false
		}
		widths[widest]--
	}
	return true
}

// wrap breaks text at spaces into lines of at most width cells; the last of the most lines is cut.
func wrap(s string, width, most int) (lines []string) {
	for len(lines) < most-1 && uniseg.StringWidth(s) > width {
		line := prefix(s, width)
		if i := strings.LastIndexByte(s[:len(line)+1], ' '); i > 0 {
			line = s[:i]
		}
		lines = append(lines, line)
		s = strings.TrimLeft(s[len(line):], " ")
	}
	if s != "" {
		lines = append(lines, Cut(s, width))
	}
	return lines
}

// prefix returns the beginning of a text that fits into width cells.
func prefix(s string, width int) string {
	end := 0
	for g, used := uniseg.NewGraphemes(s), 0; g.Next(); {
		if used += g.Width(); used > width {
			break
		}
		_, end = g.Positions()
	}
	return s[:end]
}

// Cut shortens text to a width in cells, with an ellipsis.
func Cut(s string, width int) string {
	if uniseg.StringWidth(s) <= width {
		return s
	}
	if width < 1 {
		return ""
	}
	return prefix(s, width-1) + "…"
}

// cutMiddle shortens text to a width in cells, with an ellipsis after a third of it.
func cutMiddle(s string, width int) string {
	if uniseg.StringWidth(s) <= width {
		return s
	}
	head := Cut(s, max(width/3, 1))
	room := width - uniseg.StringWidth(head)
	return head + uniseg.ReverseString(prefix(uniseg.ReverseString(s), room))
}

// Align writes text in columns without headings, after an indent. whole are the columns that are never cut.
func (p *Printer) Align(indent string, rows [][]string, whole ...int) error {
	t := table{indent: indent}
	if len(rows) > 0 {
		t.columns = make([]tableColumn, len(rows[0]))
	}
	for _, i := range whole {
		t.columns[i].whole = true
	}
	for _, cells := range rows {
		t.add(cells)
	}
	return t.write(p.Out, p.Width)
}

var english = message.NewPrinter(language.English)

// Count returns a number for people: "1,204".
func Count(n int64) string { return english.Sprint(n) }

// Safe returns a text on one line in which a terminal finds nothing to act on: control characters and invalid bytes are
// escapes, line breaks and tabs are spaces.
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
