// Package filecsv is the plugin that reads and checks CSV files.
//
//	ledgerd run filecsv ./inbox
//	ledgerd run filecsv ./inbox --set required=email,name --set types.age=int --set unique=email
//	ledgerd run filecsv old.csv --set encoding=windows-1252 --set delimiter=';'
//	ledgerd run filecsv ./inbox --set max_bad_percent=5 --with reject_dir=/var/tmp/rejects
//
// # What it reads
//
// From a folder it takes *.csv, *.tsv, *.txt and each of them with .gz; a file that is given by itself may have any
// name. Zero bytes after the packed data, as tapes add them, are skipped. The delimiter is a comma, semicolon, tab or
// bar: the one that gives the most rows of the same width, or that a first line such as sep=; names. Lines end in LF,
// CRLF or, in files without LF, CR. Quoted fields may hold delimiters, line ends and doubled quotes, or quotes behind
// a backslash where only that makes sense of the first rows. Blanks between a delimiter and a quote do not count.
// Blank lines are passed over. Blank names become column_3, repeated ones name_2; the output shows both names. Blank
// names at the end of the header name no columns, unless the payload has one of these names (required=column_5): the
// fields below them must be empty. A delimiter at the end of all rows, but not of the header, is such a blank name.
//
// Lines above the table are skipped if skip gives their number, or if they are certainly not part of it. They begin
// with #, or all rows below have the same width, wider by two fields at least, and begin with a header.
//
// Numbers have a decimal point. With decimal=, they have a comma, and a point between thousands is passed over:
// 1.234,56 is loaded as 1234.56. Nothing is guessed: 1.234 is another number with each of the two.
//
// The plugin decides whether the first row is the header by what distinguishes names from values; the output has the
// reason. Signs of a header are text above numbers or dates, no digit or @ above values that all have one, and years
// or numbers that count up from column to column. Signs against one are numbers above numbers, and a value that comes
// again below. Without a sign it is taken for the header; a load fails with header_unclear instead, unless the table
// has columns of these names. columns=id,name,city names the columns of a file without a header, so that required,
// types and key work for it, too.
//
// The encoding is that of a byte order mark, and otherwise UTF-8. Nothing is guessed or replaced: text in another
// encoding fails with bad_encoding. Name its encoding: --set encoding=windows-1252. In any encoding but UTF-8 a file
// that has the character U+FFFD is refused as well.
//
// White space around a value does not count for checks, types and nulls. Files of any size are read as a stream. A
// field may have 1 MiB (max_field_bytes), a record eight times as much, a row 10,000 columns.
//
// # Bad rows
//
// A row is bad if its quotes are wrong, if it has more or fewer fields than the header, or a value behind its last
// column. It is bad too if a value is not of its column's type, if a column of not_null has no value, or if the value
// of a unique column was there before. Bad rows are counted, the first ten are in the output, and the rest of the
// file is read. A column that a check names must be there. A file with bad rows fails, unless max_bad_rows or
// max_bad_percent allow them; then it is done, and bad_rows of its output counts them.
//
// With reject_dir the bad rows are also written to a CSV file there: line, column, reason and the row; of a row with
// wrong quotes, the line as one field. The file has the name of the input and a digest of the item's identity, so
// another attempt replaces it, and it appears when it is complete.
//
// Values of unique columns are held in memory, up to 60 bytes for each and for each file that is worked at the same
// time. A file with more than 10 million of them fails with too_big.
//
// # Loading into a table
//
//	ledgerd run filecsv ./inbox --set table=people --with database=sqlite:/srv/people.db
//	ledgerd run filecsv ./inbox --set table=people --set key=id --with database=sqlite:/srv/people.db
//	ledgerd run filecsv ./inbox --set table=people --set into.E-Mail=email --set into.Name=name \
//	    --with database=postgres://app@db1/people --with password=file:/run/secrets/db1
//
// With a table the rows also go into a database, sqlite:PATH or postgres://user@host/name: all rows of a file or
// none, in one transaction together with a marker of their item. So a file whose attempt is killed at any moment is
// still loaded once: the next attempt finds nothing, or it finds the marker and reports what was loaded. An attempt
// that was taken for dead and comes back is refused. The markers are in the table ledgerd_loads, beside the others;
// leave them there. A marker counts only while its table is there and has its rows: a file is loaded again if the
// table was dropped, emptied, or lost rows of the load. With a key, or in a table without the column ledgerd_load, a
// table that is not empty is enough.
//
// The marker also names the file of its rows:
//
//	SELECT l.item_key, p.* FROM people p JOIN ledgerd_loads l ON l.load_id = p.ledgerd_load
//
// A file that is loaded again (it has changed, or is in another round or ledger) replaces its own rows in the same
// transaction. A file is known by the kind and key of its item. For that a table that is made here has the column
// ledgerd_load, the number of the load that a row is from. A table without it cannot tell: a second load of a file
// fails there with loaded_before. Add the column (bigint), give a key, or set on_reload=append. A new ledger counts
// attempts from 1 again, so a file that an earlier ledger has loaded looks stale when it has changed. The error has
// the statement after which the file replaces its rows.
//
// A file that another kind has loaded into the same table is refused with other_kind, so that no row is there twice.
// The error names that kind. This holds for items whose key is the path of their file, and while the rows of that
// kind are in the table and this kind has none of the file. The rows are not replaced silently, since the same path
// may be another file: several machines may have a kind each for their folders. on_reload chooses: replace_all
// replaces the rows of all kinds, for a kind that was renamed; replace_own keeps those of other kinds, for such
// machines.
//
// With a key, a row whose key is in the table updates it, whichever file or kind that was from; rows that are no
// longer in a file stay. Of rows with the same key in a file the last one counts. Key columns must have values. Of
// two files that have rows with the same key, the one that is loaded last wins. That is not always the same one,
// since several files are loaded at a time. If they are worked one at a time (-j 1; for several processes "ledgerd
// kind set KIND --max-running 1"), the order in which they are begun decides: the one that was added by a later
// command wins, and of new files of one folder the one whose name sorts last (2026-11-21.csv after 2026-11-20.csv). A
// file that is tried again comes later than that.
//
// A table that does not exist is made in the same transaction, so a file that fails leaves none. Other files wait for
// the first one. Its columns have the names of the header and are text. types makes them bigint (int), numeric
// (decimal; SQLite keeps 15 digits), boolean (bool, in SQLite 1 and 0), date and timestamptz (date and time; in
// SQLite text). Into one that is there, values go by the names of the columns. The names may differ in case, and the
// table may have columns that the file does not have. Dates, times and numbers for such a column are read by
// date_formats and decimal, whether types names it or not, and a value that does not fit makes a bad row. A file
// fails with column_type, and nothing is loaded, if types names a column that has another type in the table, such as
// text for decimal. A date is a day and is written as 2026-11-20; it is read by those of date_formats that have no
// time of day. A time is written as 2026-11-20 10:00:00Z, in UTC. A time without a zone is taken for UTC, a day alone
// for its midnight. Booleans are written as 1 and 0, text as it stands in the file (trim takes off white space around
// it). White space around a value of a key does not count. NULL is an empty value, white space alone, and a value of
// nulls.
//
// If more rows are bad than are allowed, nothing is loaded. The rows of an earlier version of the file stay, and the
// failure gives their number. An error of the database itself always refuses the whole file.
//
// While a file is loaded into SQLite no other program writes to that database, and loads of other processes are put
// off; never load into a ledger. The payload names the table: a user who may add items can write to every table that
// the database's user may write to. So let that be a database user for loads alone.
//
// # Payload, config, output
//
// They are [In], [Config] and [Out]; "ledgerd run filecsv --help" shows their fields.
//
// # Codes
//
// These last until the file or the payload changes, and are not tried again:
//
//	not_found permission not_a_file     there is no such file; it may not be read; it is a directory, pipe, device
//	foreign_link                        the path leads through a link whose owner does not own its target
//	empty html xml binary               no rows; no table but a web page, XML, or no text
//	bad_encoding bad_gzip               not in its encoding; damaged
//	bad_header                          the quotes of the header are wrong
//	header_unclear                      a load does not guess whether the first row is the header
//	missing_column                      a column named by required, types, unique, not_null or key is not there
//	bad_rows                            more than are allowed; the whole file was read and the output is complete
//	unterminated_quote                  with the line on which the quote opened
//	field_too_long record_too_long too_many_columns too_big
//	bad_check                           the payload does not make sense
//	no_database bad_table columns       nowhere to load to; no such table can be; the header does not fit the table
//	column_type                         types names a column that has another type in the table
//	no_unique_index                     the table cannot find rows by the key
//	bad_value constraint forbidden      the database does not take a value or a row, or not from us
//	loaded_before loaded_otherwise      the file was loaded before, and its rows cannot be replaced
//	other_kind                          another kind has loaded the file into the table
//
// These may be gone the next time, and are tried again:
//
//	changed_while_reading               size, time or inode changed while the file was read
//	cannot_read reject_file             an error of the disk
//	database                            it is away or full
//	stale                               a later attempt has loaded other content already, or another ledger has
package filecsv

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/ledgerd/ledgerd/plugins/filecsv/load"
	"github.com/ledgerd/ledgerd/sdk"
)

// In is the payload: how to read a file, what to check, and where to load it.
type In struct {
	Path     string `json:"path" input:"file" doc:"the file"`
	Modified string `json:"modified" input:"modified" doc:"when it was last changed"`
	Owner    string `json:"owner" input:"owner" doc:"whose it is"`

	Delimiter   string   `json:"delimiter" single:"true" default:"auto" doc:"auto, tab, or one character such as ;"`
	Encoding    string   `json:"encoding" single:"true" default:"auto" schema:"maxLength=40" doc:"auto: by the byte order mark, else utf-8; or a name such as windows-1252, iso-8859-1, shift_jis, koi8-r, utf-16le"`
	Header      string   `json:"header" single:"true" default:"auto" schema:"enum=auto|yes|no" doc:"whether the first row names the columns; without, columns names them, or they are column_1, column_2 and so on"`
	Columns     []string `json:"columns" single:"true" doc:"names of the columns of a file without a header (header=no), from left to right: id,name,city"`
	Quotes      string   `json:"quotes" single:"true" default:"auto" schema:"enum=auto|double|backslash|no" doc:"how a quote stands within quotes: doubled, or behind a backslash; no: a quote is a character like any other"`
	Skip        int64    `json:"skip" single:"true" default:"0" schema:"min=0" doc:"lines above the table that are passed over"`
	Comment     string   `json:"comment" single:"true" schema:"maxLength=10" doc:"lines that begin with it are passed over, such as #"`
	Nulls       []string `json:"nulls" doc:"values that mean no value, besides the empty one: NULL,NA"`
	Decimal     string   `json:"decimal" single:"true" default:"." doc:"the decimal mark: . or a comma, with which a . between thousands is passed over (1.234,56)" schema:"pattern=^[.,]$"`
	DateFormats []string `json:"date_formats" default:"[\"YYYY-MM-DD\",\"YYYY-MM-DD hh:mm:ss\",\"YYYY-MM-DDThh:mm:ssZ\"]" doc:"how dates are written; of YYYY YY MM M DD D hh mm ss Z"`

	Required      []string          `json:"required" doc:"columns that must be there"`
	NotNull       []string          `json:"not_null" doc:"columns that must have a value in every row"`
	Types         map[string]string `json:"types" doc:"type by column: int, decimal, date (a day), time (a date, or a date with a time of day), bool, email, regexp:PATTERN (of the whole value) or enum:A|B|C"`
	Unique        []string          `json:"unique" doc:"columns whose values must differ"`
	MaxBadRows    int64             `json:"max_bad_rows" single:"true" default:"0" schema:"min=-1" doc:"a file with more bad rows fails; -1: any number is fine"`
	MaxBadPercent float64           `json:"max_bad_percent" single:"true" default:"0" schema:"min=0,max=100" doc:"the same as a share of all rows: what either of the two allows is fine"`

	Table    string            `json:"table" schema:"maxLength=127" doc:"load the rows into this table, NAME or SCHEMA.NAME, made if it is not there, in the database of config database"`
	Into     map[string]string `json:"into" single:"true" doc:"column of the table by column of the file; others are not loaded. None: all, by their names"`
	Key      []string          `json:"key" doc:"columns of the file that identify a row, by their values without white space around them: one that is in the table is updated; the table needs a unique index of them, which one that is made has"`
	OnReload string            `json:"on_reload" default:"replace" schema:"enum=replace|replace_all|replace_own|append" doc:"what becomes of the rows that were loaded from the same file before: replace them, but refuse a file that only another kind has loaded; replace_all: also those of other kinds; replace_own: those of this kind, beside those of others; append to them; with a key, none of it"`
	Trim     bool              `json:"trim" doc:"load text without the white space around it"`
}

// Out is the output: the findings about a file.
type Out struct {
	Rows        int64    `json:"rows" doc:"header not counted, bad ones included"`
	BadRows     int64    `json:"bad_rows" doc:"how many of them are bad"`
	Columns     []Column `json:"columns,omitempty" doc:"as many as fit into 512 KiB"`
	ColumnCount int      `json:"column_count" doc:"of the header, or of most rows"`
	Header      bool     `json:"header" doc:"whether the first row named the columns"`
	HeaderWhy   string   `json:"header_why,omitempty" doc:"what told so; none: nothing did, and it is only more likely"`
	Skipped     int64    `json:"skipped,omitempty" doc:"lines above the table"`
	Delimiter   string   `json:"delimiter,omitempty" doc:"a character or tab"`
	Quotes      string   `json:"quotes,omitempty" doc:"as in the payload"`
	Encoding    string   `json:"encoding,omitempty" doc:"as in the payload"`
	Bytes       int64    `json:"bytes" doc:"read of the file, not unpacked"`
	SHA256      string   `json:"sha256,omitempty" doc:"of the file, if it was read to its end"`
	Samples     []BadRow `json:"samples,omitempty" doc:"the first ten bad rows"`
	Rejects     string   `json:"rejects,omitempty" doc:"path of the reject file, if there is one"`
	Load        *Loaded  `json:"load,omitempty" doc:"what was loaded into a table"`
	DurationMS  int64    `json:"duration_ms" doc:"milliseconds"`
}

// Loaded reports the rows in a table of a database.
type Loaded struct {
	Table    string `json:"table" doc:"that the rows are in"`
	Rows     int64  `json:"rows" doc:"of the file that were loaded; with a key, rows with the same key are one in the table"`
	Replaced int64  `json:"replaced,omitempty" doc:"rows loaded from the same file before that were removed"`
	Created  bool   `json:"created,omitempty" doc:"the table was made for them"`
	Gone     int64  `json:"gone,omitempty" doc:"other files that had rows in an earlier table of this name, which the new one has not"`
	Already  bool   `json:"already,omitempty" doc:"an earlier attempt had loaded them"`
	Attempt  int64  `json:"attempt" doc:"which attempt has loaded them"`
}

// Column describes the values of one column in the rows that are not bad.
type Column struct {
	Name   string  `json:"name" doc:"unique"`
	Header *string `json:"header,omitempty" doc:"what stands in the file, if that was blank or repeated"`
	Type   string  `json:"type" schema:"enum=empty|int|decimal|bool|date|text" doc:"the narrowest that all values have; empty: no values"`
	Nulls  int64   `json:"nulls" doc:"rows without a value"`
}

// BadRow is a row that fails a check.
type BadRow struct {
	Line   int64  `json:"line" doc:"on which it starts, or its wrong quote is; from 1"`
	Column string `json:"column,omitempty" doc:"the name of the column; none: the whole row"`
	Reason string `json:"reason" doc:"what is wrong"`
}

func (b BadRow) text() string {
	if b.Column == "" {
		return b.Reason
	}
	return fmt.Sprintf("column %q: %s", b.Column, b.Reason)
}

// Config is what this machine allows.
type Config struct {
	RejectDir     string `json:"reject_dir" doc:"folder for the files of bad rows, made if it is not there; an absolute path; empty: none are written"`
	MaxBytes      int64  `json:"max_bytes" tune:"true" default:"17179869184" schema:"min=1" doc:"longest text that is read from one file, unpacked, in bytes"`
	MaxFieldBytes int64  `json:"max_field_bytes" tune:"true" default:"1048576" schema:"min=1024,max=268435456" doc:"longest field, in bytes; a record may have eight times as much"`
	Database      string `json:"database" doc:"where tables are: sqlite:PATH or postgres://user@host/name"`
	Password      string `json:"password" secret:"true" doc:"of the database's user"`

	tables *load.Database
}

// Validate refuses a folder that depends on where the plugin was started.
func (c *Config) Validate() error {
	if c.RejectDir != "" && !filepath.IsAbs(c.RejectDir) {
		return fmt.Errorf("reject_dir: %q is not an absolute path", c.RejectDir)
	}
	return nil
}

// Open makes the folder for rejects and prepares the database. The first load connects.
func (c *Config) Open(context.Context) (err error) {
	if c.Database != "" {
		if c.tables, err = load.Open(c.Database, c.Password); err != nil {
			return fmt.Errorf("database: %w", err)
		}
	}
	if c.RejectDir == "" {
		return nil
	}
	return os.MkdirAll(c.RejectDir, 0o700)
}

// Check reports whether the database answers.
func (c *Config) Check(ctx context.Context) error {
	if c.tables == nil {
		return nil
	}
	return c.tables.Check(ctx)
}

// Close closes the connections.
func (c *Config) Close() error {
	if c.tables == nil {
		return nil
	}
	return c.tables.Close()
}

// Plugin returns the plugin.
func Plugin() *sdk.Plugin {
	p := sdk.New("filecsv", "0.1.0", work)
	p.Doc = doc
	for _, ext := range []string{"csv", "tsv", "txt"} {
		p.Match = append(p.Match, "*."+ext, "*."+ext+".gz")
	}
	return p
}

const doc = `Reads and checks CSV files.

Takes .csv, .tsv and .txt files and .gz of them, finds out how they are written, checks what
you ask for, and reports rows, columns with type and nulls, and the rows that are wrong.

    ledgerd run filecsv ./inbox
    ledgerd run filecsv ./inbox --set required=email
    ledgerd run filecsv ./inbox --set types.age=int --set types.country='enum:DE|FR' --set unique=email
    ledgerd run filecsv ./inbox --set max_bad_percent=5 --with reject_dir=/var/tmp/rejects
    ledgerd run filecsv ./inbox --set table=people --set key=id --with database=sqlite:$PWD/people.db
    ledgerd run filecsv old.csv --set encoding=windows-1252 --set delimiter=';' --set decimal=,

A file with bad rows fails, unless max_bad_rows or max_bad_percent allow them. An encoding is never
guessed: a file that is neither UTF-8 nor marked fails with bad_encoding until encoding
names its own. A file that changes while it is read is tried again. A table that is made has columns of text, but
for those with a type: --set types.price=decimal makes one of numbers (in a table of text: CAST(price AS numeric)). A table
that is there must have columns of these types. A file that is loaded again takes the place of its own rows, or with
key updates those that are there; of two files with the same key the one that is loaded last wins (with -j 1, of new
files of a folder the one whose name sorts last). A file that another kind has loaded into the table is refused, unless
on_reload chooses. The column ledgerd_load is load_id of the table ledgerd_loads, where item_key is the file that a row
is from.
`

// work is the plugin's function.
func work(ctx context.Context, cfg *Config, it sdk.Item[In]) (Out, error) {
	if it.Payload.Table == "" {
		out, err := workFile(ctx, cfg, it, nil)
		return out, outcome(err)
	}
	if cfg.tables == nil {
		return Out{}, outcome(refuse("no_database", "table: this machine has no database to load into: --with "+
			"database=sqlite:PATH; for daemons in the config: [kinds.%s.with] database = \"sqlite:PATH\"", it.Kind))
	}
	l := newLoader(cfg.tables, it)
	defer l.close()
	out, err := workFile(ctx, cfg, it, l)
	if out.Load != nil && out.Load.Gone > 0 {
		it.Log.Warn("the table was made anew: files loaded before are in it only if they are loaded again, with --again",
			"table", out.Load.Table, "files", out.Load.Gone)
	}
	return out, outcome(l.rowsBefore(ctx, err))
}

// workFile checks the file of an item, and loads it unless l is nil.
func workFile(ctx context.Context, cfg *Config, it sdk.Item[In], l *loader) (Out, error) {
	o := options{name: filepath.Base(it.Payload.Path), maxBytes: cfg.MaxBytes, maxField: int(cfg.MaxFieldBytes),
		maxUnique: maxUnique, loader: l}
	f, err := openFile(it.Payload.Path)
	if err != nil {
		return Out{}, err
	}
	defer f.Close()
	o.progress = func(read int64) { it.Progress(read, f.before.Size(), "bytes") }
	if cfg.RejectDir != "" {
		identity := strings.Join([]string{it.Kind, it.Scope, it.Key}, "\x00")
		r, err := newRejects(cfg.RejectDir, it.Payload.Path, identity, it.Attempt)
		if err != nil {
			return Out{}, err
		}
		defer r.close()
		o.rejects = r
	}
	return scanFile(ctx, f, it.Payload, o)
}

const busyDelay = 10 * time.Second

// outcome converts err to an error of the SDK.
func outcome(err error) error {
	code, again := verdict(err)
	switch code {
	case "":
		return err
	case load.Busy: // a large load of another process may hold the lock this long
		return sdk.Snooze(busyDelay, err.Error())
	}
	if err = sdk.Code(code, err); again {
		return err
	}
	return sdk.Permanent(err)
}
