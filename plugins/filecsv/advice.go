package filecsv

import (
	"bytes"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/dustin/go-humanize"
)

// commaCount counts the values of a column that are numbers if the decimal mark is a comma.
type commaCount struct {
	values, numbers int64
	example         string // the first value in which the comma must be the decimal mark: 3,14 but not 1,234
}

func (c *commaCount) add(v []byte) {
	c.values++
	last := len(v) - 1
	if v[last] < '0' || v[last] > '9' || v[0] > '9' {
		return // most text
	}
	if digits, _ := leadingDigits(v); digits == len(v) {
		c.numbers++
		return
	}
	if !commaDecimal.Match(v) {
		return
	}
	c.numbers++
	if comma := bytes.IndexByte(v, ','); comma >= 0 && last-comma != 3 && c.example == "" {
		c.example = shown(string(v))
	}
}

// likely reports whether the column holds such numbers: at least nine values of ten are.
func (c *commaCount) likely() bool { return c.example != "" && 10*c.numbers >= 9*c.values }

// proposals are settings that make bad rows good.
type proposals struct {
	by   map[int]BadRow // by column; of the first value that a setting makes good
	rows int64          // bad rows whose first wrong value has a proposal
}

// propose records settings that make a bad row good. The first of the checks has failed on the row. It tries the
// other columns, too, so that a second fault of the file is known at once and not after the first is repaired.
func (s *scanner) propose(line int64, fields [][]byte, checks []check) {
	for i := range checks {
		c := &checks[i]
		if _, known := s.by[c.column]; known && i > 0 {
			continue
		}
		v := trim(fields[c.column])
		reason := c.fails(v, s.rules.isNull(v))
		if !proposal.MatchString(reason) {
			continue
		}
		if i == 0 {
			s.proposals.rows++
		}
		if _, known := s.by[c.column]; !known {
			if s.by == nil {
				s.by = map[int]BadRow{}
			}
			s.by[c.column] = BadRow{line, s.columns[c.column].name, reason}
		}
	}
}

func headersAlone(n int64) string {
	return fmt.Sprintf("no other row is bad: --set max_bad_rows=%d", n)
}

// advise records settings that may be worth a change although the file passes. It adds them to the error of a file
// with bad rows, so that one look is enough.
func (s *scanner) advise(err error) error {
	var lines []string
	told := ""
	if err != nil {
		told = err.Error()
	}
	for _, column := range slices.Sorted(maps.Keys(s.by)) {
		b := s.by[column]
		if at := proposal.FindStringIndex(b.Reason); strings.Contains(told, b.Reason[at[0]:]) {
			continue
		}
		line := fmt.Sprintf("line %d: %s", b.Line, b.text())
		if err == nil {
			line = fmt.Sprintf("%s of %s rows bad, ", humanize.Comma(s.out.BadRows), humanize.Comma(s.out.Rows)) + line
		}
		lines, told = append(lines, line), told+line
	}
	if err != nil && s.headers > 0 && s.proposals.rows > 0 && s.headers+s.proposals.rows == s.out.BadRows {
		lines = append(lines, "the header comes again; once that is mended, "+headersAlone(s.headers))
	}
	if len(lines) > maxSamples {
		lines = lines[:maxSamples]
	}
	for i := range s.columns {
		c := &s.columns[i]
		if len(lines) >= maxSamples {
			break
		}
		if c.kind != kindText || s.rules.types[c.name].ok != nil || !c.commas.likely() {
			continue
		}
		line := fmt.Sprintf("column %q is text and looks like numbers with a decimal comma, such as %q: --set "+
			"decimal=,", shown(c.name), c.commas.example)
		if s.rules.in.Table != "" && (s.loader == nil || s.loader.text[i]) {
			line += "; a table has them as numbers if it is made with types." + shown(c.name) + "=decimal as well"
		}
		lines = append(lines, line)
	}
	s.out.Advice = strings.Join(lines, "\n")
	if err != nil && len(lines) > 0 {
		return fmt.Errorf("%w\n%s", err, s.out.Advice)
	}
	return err
}

// proposal finds a setting in a text for people.
var proposal = regexp.MustCompile(`--set [a-z]`)

// usualDates are proposed for a date that no format of date_formats fits. D and M also read 03.02.
var usualDates = []string{"YYYY-MM-DD", "D.M.YYYY", "DD/MM/YYYY", "MM/DD/YYYY", "YYYY/MM/DD", "DD-MM-YYYY"}

// dateHint proposes formats for a date in a usual form. A person chooses between day and month.
func dateHint(v []byte) string {
	var fitting []string
	for _, format := range usualDates {
		if layouts, err := newDateFormats([]string{format}); err == nil && layouts.has(v) {
			fitting = append(fitting, "--set date_formats="+format)
		}
	}
	return strings.Join(fitting, " or ")
}
