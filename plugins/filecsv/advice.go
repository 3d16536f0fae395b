package filecsv

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"

	"github.com/dustin/go-humanize"
)

// commaCount counts the values of a column that are numbers if the decimal mark is a comma.
type commaCount struct {
	values, numbers int64
	example         string // the first in which a comma is certainly the decimal mark: 3,14 and not 1,234
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

// likely reports whether the column is one of such numbers: at least nine values of ten are.
func (c *commaCount) likely() bool { return c.example != "" && 10*c.numbers >= 9*c.values }

// advise notes which settings are worth a thought though the file passes. To the error of a file with bad rows it adds
// them, so that one look is enough.
func (s *scanner) advise(err error) error {
	var lines []string
	if err == nil && s.out.BadRows > 0 {
		for _, b := range s.out.Samples {
			if proposal.MatchString(b.Reason) {
				lines = append(lines, fmt.Sprintf("%s of %s rows bad, line %d: %s", humanize.Comma(s.out.BadRows),
					humanize.Comma(s.out.Rows), b.Line, b.text()))
				break
			}
		}
	}
	for i := range s.columns {
		c := &s.columns[i]
		if c.kind != kindText || s.rules.types[c.name].ok != nil || !c.commas.likely() {
			continue
		}
		line := fmt.Sprintf("column %q is text and looks like numbers with a decimal comma, such as %q: --set "+
			"decimal=,", shown(c.name), c.commas.example)
		if s.rules.in.Table != "" && (s.loader == nil || s.loader.text[i]) {
			line += "; a table has them as numbers if it is made with types." + shown(c.name) + "=decimal as well"
		}
		lines = append(lines, line)
		if len(lines) == maxSamples {
			break
		}
	}
	s.out.Advice = strings.Join(lines, "\n")
	if err != nil && len(lines) > 0 {
		return fmt.Errorf("%w\n%s", err, s.out.Advice)
	}
	return err
}

// proposal is a setting in a text for people.
var proposal = regexp.MustCompile(`--set [a-z]`)

// usualDates are what is proposed for a date that none of date_formats reads; D and M also read 03.02.
var usualDates = []string{"YYYY-MM-DD", "D.M.YYYY", "DD/MM/YYYY", "MM/DD/YYYY", "YYYY/MM/DD", "DD-MM-YYYY"}

// dateHint is what helps a value that is a date in a usual format. A person chooses between day and month.
func dateHint(v []byte) string {
	var fitting []string
	for _, format := range usualDates {
		if layouts, err := newDateFormats([]string{format}); err == nil && layouts.has(v) {
			fitting = append(fitting, "--set date_formats="+format)
		}
	}
	return strings.Join(fitting, " or ")
}
