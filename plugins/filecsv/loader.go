package filecsv

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/ledgerd/ledgerd/plugins/filecsv/load"
	"github.com/ledgerd/ledgerd/sdk"
)

// loader loads the good rows of a file into a table.
type loader struct {
	database *load.Database
	job      load.Job
	rules    *rules
	load     *load.Load // nil before begin and after close
	names    []string
	convert  []conversion // by column; nil: the value is loaded as it is
	text     []bool       // by column: white space around a value belongs to it
	row      [][]byte
}

// conversion writes a value in the form that databases read, or explains why it cannot.
type conversion func(v []byte) (written []byte, reason string)

func newLoader(d *load.Database, it sdk.Item[In]) *loader {
	in := it.Payload
	return &loader{database: d, job: load.Job{
		Item: load.Item{ID: it.ID, Kind: it.Kind, Scope: it.Scope, Key: it.Key, Round: it.IdempotencyKey,
			Attempt: it.Attempt, IsFile: it.Key == in.Path},
		Table: in.Table, Map: in.Into, Key: in.Key, Reload: load.Reload(in.OnReload),
		Digest: func() (string, error) { return digestOf(in.Path) },
	}}
}

// hasColumns reports whether the table exists and has a column for each name.
func (l *loader) hasColumns(ctx context.Context, names []string) (bool, error) {
	have, err := l.database.Columns(ctx, l.job.Table)
	missing := slices.ContainsFunc(names, func(name string) bool {
		return !slices.ContainsFunc(have, func(h load.Column) bool { return strings.EqualFold(h.Name, name) })
	})
	return !missing, err
}

// target returns the type of the table's column for a column of the file, or Text if there is none.
func (l *loader) target(have []load.Column, name string) load.Type {
	if mapped, ok := l.job.Map[name]; ok {
		name = mapped
	}
	found := load.Text
	for _, h := range have {
		if h.Name == name {
			return h.Type
		}
		if strings.EqualFold(h.Name, name) {
			found = h.Type
		}
	}
	return found
}

// begin starts to load a file with these columns.
func (l *loader) begin(ctx context.Context, r *rules, names []string) (err error) {
	l.rules, l.names = r, names
	l.convert, l.text, l.row = make([]conversion, len(names)), make([]bool, len(names)), make([][]byte, len(names))
	have, err := l.database.Columns(ctx, l.job.Table)
	if err != nil {
		return err
	}
	for i, name := range names {
		c := load.Column{Name: name}
		switch r.in.Types[name] {
		case "int":
			c.Type, l.convert[i] = load.Int, r.toNumber(l.target(have, name), wholeNumber)
		case "decimal":
			c.Type, l.convert[i] = load.Decimal, r.toNumber(l.target(have, name), anyNumber)
		case "bool":
			c.Type, l.convert[i] = load.Bool, oneOrZero
		case "date":
			c.Type, l.convert[i] = load.Date, r.days.iso(time.DateOnly)
		case "time":
			c.Type, l.convert[i] = load.Time, r.iso(timeLayout)
		default:
			if l.convert[i], err = r.asColumn(l.target(have, name)); err != nil {
				return refuse("column_type", "column %q of table %s: %v", shown(name), l.job.Table, err)
			}
			l.text[i] = l.convert[i] == nil && !slices.Contains(r.in.Key, name)
		}
		l.job.Columns = append(l.job.Columns, c)
	}
	l.load, err = l.database.Begin(ctx, l.job)
	return err
}

// add loads a row, or explains why it is bad. After close it does nothing: the file is then only checked.
func (l *loader) add(ctx context.Context, fields [][]byte) (BadRow, error) {
	if l.load == nil {
		return BadRow{}, nil
	}
	for i, f := range fields {
		v := trim(f)
		switch convert := l.convert[i]; {
		case l.rules.isNull(v):
			v = nil
		case l.text[i] && !l.rules.in.Trim:
			v = f
		case convert != nil:
			var reason string
			if v, reason = convert(v); reason != "" {
				return BadRow{Column: l.names[i], Reason: reason}, nil
			}
		}
		l.row[i] = v
	}
	return BadRow{}, l.load.Add(ctx, l.row)
}

// commit commits the load and adds it to the output.
func (l *loader) commit(ctx context.Context, out *Out) error {
	done, err := l.load.Commit(ctx, out.SHA256)
	if err != nil {
		return err
	}
	out.Load = &Loaded{Table: done.Table, Rows: done.Rows, Replaced: done.Replaced, Created: done.Created,
		Gone: done.Gone, Already: done.Already, Attempt: done.Attempt}
	return nil
}

// beforeTime limits how long a failure waits until the database has counted the rows of the table.
const beforeTime = 5 * time.Second

// rowsBefore adds to a lasting failure how many rows of an earlier version of the file the table has. If the database
// does not answer, the failure stays as it is.
func (l *loader) rowsBefore(ctx context.Context, err error) error {
	if code, again := verdict(err); code == "" || again {
		return err
	}
	l.close()
	ctx, cancel := context.WithTimeout(ctx, beforeTime)
	defer cancel()
	rows, unknown := l.database.RowsOf(ctx, l.job)
	if unknown != nil || rows == 0 {
		return err
	}
	return fmt.Errorf("%w; the rows of the version before stay in %s (%s)", err, l.job.Table, humanize.Comma(rows))
}

// close rolls back unless the load was committed.
func (l *loader) close() {
	if l.load != nil {
		l.load.Close()
		l.load = nil
	}
}

// asColumn returns how values without a type in the payload are read for a column of the table, by date_formats and
// decimal. It returns nil if the database takes them as they are.
func (r *rules) asColumn(t load.Type) (conversion, error) {
	var as string
	var convert conversion
	switch {
	case t == load.Date:
		as, convert = "date", r.days.iso(time.DateOnly)
	case t == load.Time:
		as, convert = "time", r.iso(timeLayout)
	case t == load.Decimal, t == load.Int, t == load.Int32, t == load.Int16, t == load.Whole64:
		as, convert = "decimal", r.toNumber(t, anyNumber)
	default:
		return nil, nil
	}
	rule, err := r.newRule(as)
	if err != nil {
		return nil, err
	}
	c := check{rule: rule}
	return func(v []byte) ([]byte, string) {
		if reason := c.fails(v, false); reason != "" {
			return nil, reason
		}
		return convert(v)
	}, nil
}

// timeLayout is the form in which times are loaded.
const timeLayout = "2006-01-02 15:04:05.999999Z07:00"

// toNumber returns the conversion of numbers for a column of type t. For a column of whole numbers it refuses a value
// that does not fit, because the database would round it, refuse the whole file, or keep only 16 digits. For any other
// column it uses other.
func (n notation) toNumber(t load.Type, other conversion) conversion {
	bits := map[load.Type]int{load.Int: 64, load.Int32: 32, load.Int16: 16, load.Whole64: 64}[t]
	return func(v []byte) ([]byte, string) {
		v = n.point(v)
		if bits == 0 {
			return other(v)
		}
		if _, err := strconv.ParseInt(string(v), 10, bits); err == nil {
			return v, ""
		}
		digits, whole := expanded(v)
		if _, err := strconv.ParseInt(digits, 10, bits); err == nil && whole {
			return []byte(digits), ""
		}
		switch {
		case whole:
			return nil, fmt.Sprintf("does not fit into %d bits: %q", bits, shown(string(v)))
		case t == load.Whole64: // SQLite: the column takes fractions, too
			return v, ""
		}
		return nil, "not a whole number, as the column of the table is: " + strconv.Quote(shown(string(v)))
	}
}

// expanded writes a whole number without point and exponent. digits is "" if v is not whole, or has more than 30
// digits.
func expanded(v []byte) (digits string, whole bool) {
	const most = 30 // digits that are written
	text, e, _ := strings.Cut(strings.ToLower(string(v)), "e")
	before, after, _ := strings.Cut(text, ".")
	after = strings.TrimRight(after, "0")
	sign := ""
	if before != "" && (before[0] == '+' || before[0] == '-') {
		sign, before = before[:1], before[1:]
	}
	all := strings.TrimLeft(before+after, "0")
	if all == "" {
		return "0", true
	}
	shift, err := strconv.Atoi(cmp.Or(e, "0"))
	if err != nil || shift > 1<<20 || shift < -1<<20 { // a huge one, or the smallest fraction
		return "", !strings.HasPrefix(e, "-")
	}
	shift -= len(after)
	kept := strings.TrimRight(all, "0")
	shift += len(all) - len(kept)
	switch {
	case shift < 0:
		return "", false
	case len(kept)+shift > most:
		return "", true
	}
	return sign + kept + strings.Repeat("0", shift), true
}

func anyNumber(v []byte) ([]byte, string) { return v, "" }

func wholeNumber(v []byte) ([]byte, string) {
	if len(v) > 18 {
		if _, err := strconv.ParseInt(string(v), 10, 64); err != nil {
			return nil, "does not fit into 64 bits: " + strconv.Quote(shown(string(v)))
		}
	}
	return v, ""
}

func oneOrZero(v []byte) ([]byte, string) {
	switch strings.ToLower(string(v)) {
	case "true", "yes", "t", "y", "1", "on":
		return []byte("1"), ""
	}
	return []byte("0"), ""
}

// iso converts a date to a layout. A time without a zone is taken as UTC. A day stays the same day in any zone.
func (f dateFormats) iso(layout string) conversion {
	return func(v []byte) ([]byte, string) {
		for _, from := range f {
			if t, err := time.Parse(from, string(v)); err == nil {
				if layout != time.DateOnly {
					t = t.UTC()
				}
				return t.AppendFormat(nil, layout), ""
			}
		}
		return v, "" // not reached: a check has accepted v
	}
}
