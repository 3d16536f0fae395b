package config

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/ledgerd/ledgerd/internal/api/access"
	"github.com/ledgerd/ledgerd/internal/dburl"
	"github.com/ledgerd/ledgerd/internal/intake"
	"github.com/ledgerd/ledgerd/internal/lazyregexp"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/bounds"
	"github.com/ledgerd/ledgerd/ledger/recurrence"
	"github.com/ledgerd/ledgerd/ledger/scheduler"
)

// traceID stands for the id of a trace in TraceURL.
const traceID = "{trace_id}"

// TraceLink is where people see a trace, by its id; "" if there is none, or the configuration has no TraceURL.
func (c *Config) TraceLink(id string) string {
	if id == "" {
		return ""
	}
	return strings.ReplaceAll(c.TraceURL, traceID, id)
}

// check checks what the types of values do not, and reads the files that stand for values.
func (d *decoder) check() {
	c := d.config
	d.checkDatabase()
	d.checkListen()
	d.checkAPI()
	if u, err := url.Parse(c.TraceURL); c.TraceURL != "" && (err != nil || u.Scheme != "http" && u.Scheme != "https" ||
		u.Host == "" || !strings.Contains(c.TraceURL, traceID)) {
		d.fail("trace_url", &ledger.Error{Message: "is no URL of a trace with " + traceID + " in it",
			Hint: `trace_url = "http://localhost:16686/trace/` + traceID + `"`})
	}
	if len(c.Agent) > bounds.MaxAgent {
		d.fail("agent", faultf("must have at most %d bytes, has %d", bounds.MaxAgent, len(c.Agent)))
	}
	if e := c.Environment; len(e) > bounds.MaxEnvironment || strings.ContainsFunc(e, unicode.IsControl) {
		d.fail("environment", faultf("must have at most %d bytes, and no control characters", bounds.MaxEnvironment))
	}
	for _, name := range slices.Sorted(maps.Keys(c.Kinds)) {
		d.checkKind(joinPath("kinds", name), name, c.Kinds[name])
	}
	names := map[string]int{}
	for i, s := range c.Sources {
		path := fmt.Sprintf("source[%d]", i)
		if first, twice := names[s.Name]; twice && s.Name != "" {
			d.fail(path+".name", faultf("%q is the name of the source in line %d as well", s.Name,
				c.doc.at(fmt.Sprintf("source[%d]", first)).Line))
		} else {
			names[s.Name] = i
		}
		d.checkSource(path, s)
	}
	for _, name := range slices.Sorted(maps.Keys(c.Plugins)) {
		d.checkPlugin(joinPath("plugins", name), name, c.Plugins[name])
	}
}

// ReadURL reads the URL of a ledger from a file, as db_file names it.
func ReadURL(path string) (string, error) {
	text, err := readSecret(path)
	if text = strings.TrimSpace(text); err == nil && text == "" {
		err = faultf("%s is empty", path)
	}
	return text, err
}

func (d *decoder) checkDatabase() {
	c := d.config
	if d.refused("db_file") {
		return
	}
	if c.DBFile != "" {
		var err error
		if c.DB, err = ReadURL(c.DBFile); err != nil {
			d.fail("db_file", err)
			return
		}
		if err := checkURL(c.DB, dburl.Check); err != nil {
			d.fail("db_file", faultf("%s: %v", c.DBFile, err))
		}
		if c.origins["db_file"].File != "" {
			c.DB = dburl.Relative(c.DB, filepath.Dir(c.File))
		}
		return
	}
	if c.DB == "" {
		return
	}
	if err := checkURL(c.DB, dburl.Check); err != nil {
		d.fail("db", err)
		return
	}
	if c.origins["db"].File != "" {
		c.DB = dburl.Relative(c.DB, filepath.Dir(c.File))
	}
}

// checkDatabaseURL refuses a text that is no address of a database.
func checkDatabaseURL(db, source string) error {
	_, err := dburl.Parse(db, source)
	return err
}

// checkURL checks a URL and words the error.
func checkURL(db string, check func(db, source string) error) error {
	err := check(db, "")
	if bad, ok := errors.AsType[*dburl.Error](err); ok {
		reason := bad.Message[max(0, strings.LastIndex(bad.Message, ": ")):] // before it the URL, perhaps with a secret
		return &ledger.Error{Message: strconv.Quote(safeURL(db)) + reason, Hint: bad.Hint}
	}
	return err
}

func (d *decoder) checkListen() {
	if d.checkAddress("listen", d.config.Listen) && !access.IsLoopback(d.config.Listen) {
		d.warn("listen", faultf("others on the network can read /metrics, which asks for no password"))
	}
}

// warn records what is allowed but perhaps not meant.
func (d *decoder) warn(path string, what error) {
	d.config.Warnings = append(d.config.Warnings, d.config.problem(path, what))
}

func (d *decoder) checkKind(path, name string, k *Kind) {
	at := func(key string) string { return path + "." + key }
	d.checkName(path, name)
	if k.Plugin != nil && *k.Plugin != "" {
		d.checkName(at("plugin"), *k.Plugin)
	}
	if k.Plugin != nil && *k.Plugin == name { // the kind's own name is the default
		*k.Plugin = ""
	}
	d.checkEvery(path, "every", k.Every, k.Zone)
	if k.BackoffBase != nil && k.BackoffCap != nil && *k.BackoffCap > 0 && *k.BackoffBase > *k.BackoffCap {
		d.fail(at("backoff_base"), faultf("is longer than backoff_cap, %s", FormatDuration(*k.BackoffCap)))
	}
	unlimited := func(key string, r *scheduler.Rate) bool { return (r == nil || r.Count == 0) && !d.refused(at(key)) }
	if k.Burst != nil && *k.Burst > 0 && unlimited("rate", k.Rate) && unlimited("rate_per_shard_key", k.RatePerShardKey) {
		d.fail(at("burst"), faultf("needs rate or rate_per_shard_key"))
	}
}

// checkName refuses a text that is no name of a kind or a plugin.
func (d *decoder) checkName(path, name string) {
	if err := (ledger.Kind{Name: name}).CheckName(); err != nil {
		d.fail(path, faultf("%q is not a name: only a-z, 0-9 and -, not - first, at most %d bytes", name, bounds.MaxKind))
	}
}

// checkEvery checks a recurrence in one key, and its time zone.
func (d *decoder) checkEvery(path, key, every, zone string) {
	if every == "" && zone != "" {
		d.fail(path+".zone", faultf("is the time zone of %s, which is not given", key))
	}
	for key, pair := range map[string][2]string{"zone": {"day", zone}, key: {cmp.Or(every, "day"), ""}} {
		_, err := recurrence.Parse(pair[0], pair[1])
		if bad, ok := errors.AsType[*recurrence.Error](err); ok {
			d.fail(path+"."+key, &ledger.Error{Message: bad.Reason})
		}
	}
}

// keysOfType are the keys that only some types of sources have.
var keysOfType = map[string][]string{
	"folder": {"path", "include", "exclude", "recursive", "settle", "finished", "move_to", "local", "follow_links"},
	"list":   {"path", "url"},
	"query":  {"query", "query_file", "query_db", "query_db_file", "key"},
}

// has reports whether a source of this type has a key.
func (s *Source) has(key string) bool {
	for _, names := range keysOfType {
		if slices.Contains(names, key) {
			return slices.Contains(keysOfType[s.Type], key)
		}
	}
	return true
}

func (d *decoder) checkSource(path string, s *Source) {
	at := func(key string) string { return joinPath(path, key) }
	given := func(key string) bool { _, known := d.config.doc.places[at(key)]; return known }
	for _, required := range []struct{ key, value string }{{"name", s.Name}, {"type", s.Type}, {"kind", s.Kind}} {
		if required.value == "" && (!given(required.key) || d.config.origins[at(required.key)] != Origin{}) {
			d.fail(path, &ledger.Error{Message: "the source has no " + required.key, Hint: required.key + " = …"})
		}
	}
	if s.Name != "" {
		d.checkName(at("name"), s.Name)
	}
	if s.Kind != "" {
		d.checkName(at("kind"), s.Kind)
	}
	if s.Type != "" {
		for _, k := range keys(reflect.TypeFor[Source]()) {
			if given(k.name) && !s.has(k.name) {
				d.fail(at(k.name), faultf("a %s has no such key; it has %s", s.Type, strings.Join(keysOfType[s.Type], ", ")))
			}
		}
	}
	if len(s.Scope) > bounds.MaxScope {
		d.fail(at("scope"), faultf("must have at most %d bytes, has %d", bounds.MaxScope, len(s.Scope)))
	}
	d.checkSchedule(path, s)
	switch s.Type {
	case "folder":
		d.checkFolder(path, s)
	case "list":
		d.oneOf(path, given("path"), "path", given("url"), "url")
		if s.Path == "" && s.URL == "" && !d.refused(at("path")) && !d.refused(at("url")) {
			d.fail(path, &ledger.Error{Message: "the list has neither path nor url", Hint: `path = "links.txt"`})
		}
		if s.URL != "" {
			if _, err := intake.ParseURL(s.URL); err != nil || !IsURL(s.URL) {
				d.fail(at("url"), faultf("is no URL such as https://host/list.txt"))
			}
		}
	case "query":
		d.checkQuery(path, s)
	}
}

func (d *decoder) checkSchedule(path string, s *Source) {
	if s.Schedule == "" {
		s.Schedule = "hour"
		if s.Type == "folder" {
			s.Schedule = "1m"
		}
	}
	interval, err := recurrence.ParseDuration(s.Schedule)
	short := err == nil && interval < recurrence.Min // Next allows it; items do not recur that often
	switch {
	case !short:
		d.checkEvery(path, "schedule", s.Schedule, s.Zone)
	case interval < minInterval:
		d.fail(path+".schedule", faultf("must be at least %s, not %s", FormatDuration(minInterval), s.Schedule))
	default:
		d.checkEvery(path, "schedule", FormatDuration(recurrence.Min), s.Zone)
	}
}

func (d *decoder) checkFolder(path string, s *Source) {
	at := func(key string) string { return joinPath(path, key) }
	if s.Path == "" && !d.refused(at("path")) {
		d.fail(path, &ledger.Error{Message: "the folder has no path", Hint: `path = "/srv/inbox"`})
	}
	for key, patterns := range map[string][]string{"include": s.Include, "exclude": s.Exclude} {
		for i, pattern := range patterns {
			if _, err := intake.ParseRule(false, pattern); err != nil {
				d.fail(fmt.Sprintf("%s[%d]", at(key), i), err)
			}
		}
	}
	switch {
	case s.FollowLinks && (s.Finished == "move" || s.Finished == "delete"):
		d.fail(at("follow_links"),
			&ledger.Error{Message: fmt.Sprintf("does not go with finished = %q: a file that a link leads to may lie anywhere",
				s.Finished), Hint: `finished = "keep", or follow_links = false`})
	case s.Finished == "move" && s.MoveTo == "":
		d.fail(at("finished"), &ledger.Error{Message: "the target folder is missing", Hint: `move_to = "/srv/done"`})
	case s.Finished != "move" && s.MoveTo != "":
		d.fail(at("move_to"), &ledger.Error{Message: "nothing is moved", Hint: `with finished = "move"`})
	case s.MoveTo != "" && s.Path != "" && s.FindsAgain(s.Path, s.MoveTo):
		d.fail(at("move_to"), faultf("lies in the folder itself, where moved files would be found again"))
	}
}

// FindsAgain reports whether a look at a folder finds the files that were moved to another one.
func (s *Source) FindsAgain(folder, to string) bool {
	rel, err := filepath.Rel(folder, to)
	return err == nil && filepath.IsLocal(rel) && (s.Recursive || rel == ".")
}

func (d *decoder) checkQuery(path string, s *Source) {
	at := func(key string) string { return joinPath(path, key) }
	d.oneOf(path, s.Query != "", "query", s.QueryFile != "", "query_file")
	d.oneOf(path, s.QueryDB != "", "query_db", s.QueryDBFile != "", "query_db_file")
	if s.QueryFile != "" {
		text, err := read(s.QueryFile)
		if err != nil {
			d.fail(at("query_file"), faultf("%s: %v", s.QueryFile, err))
		}
		s.Query = string(text)
	}
	if strings.TrimSpace(s.Query) == "" && !d.refused(at("query_file")) && !d.refused(at("query")) {
		d.fail(path, &ledger.Error{Message: "there is no query", Hint: `query = "SELECT …", or query_file`})
	}
	if s.QueryDBFile != "" {
		text, err := readSecret(s.QueryDBFile)
		if err != nil {
			d.fail(at("query_db_file"), err)
			return
		}
		s.QueryDB = strings.TrimSpace(text)
		if err := checkURL(s.QueryDB, checkDatabaseURL); err != nil {
			d.fail(at("query_db_file"), faultf("%s: %v", s.QueryDBFile, err))
		}
	} else if s.QueryDB != "" {
		if err := checkURL(s.QueryDB, checkDatabaseURL); err != nil {
			d.fail(at("query_db"), err)
		}
	}
	s.QueryDB = dburl.Relative(s.QueryDB, filepath.Dir(d.config.File))
}

var (
	sha256Form  = lazyregexp.New(`^[0-9a-fA-F]{64}$`)
	envNameForm = lazyregexp.New(`^[A-Za-z_][A-Za-z0-9_]*$`)
)

// IsSHA256 reports whether a text is a checksum in hex, as sha256sum prints it.
func IsSHA256(text string) bool { return sha256Form().MatchString(text) }

// The least limits with which a plugin can start.
const (
	leastFiles  = 16
	leastMemory = Size(8 << 20)
)

func (d *decoder) checkPlugin(path, name string, p *Plugin) {
	at := func(key string) string { return path + "." + key }
	d.checkName(path, name)
	for i, sum := range p.SHA256 {
		if !IsSHA256(sum) {
			d.fail(fmt.Sprintf("%s[%d]", at("sha256"), i), &ledger.Error{Message: "must be 64 hexadecimal digits",
				Hint: "sha256sum PROGRAM prints them"})
		}
	}
	switch {
	case p.Source == "" && len(p.SHA256) > 1:
		d.fail(at("sha256"), faultf("must be one checksum: only with source there are several, one for each platform"))
	case p.Source != "" && len(p.SHA256) == 0:
		d.fail(at("source"), &ledger.Error{Message: "goes with sha256", Hint: "sha256 = [\"…\"], as its author has published it"})
	case p.Source != "" && p.Command != nil:
		d.fail(at("source"), faultf("does not go with command: what is fetched is found by its name"))
	case p.Source != "" && !IsURL(p.Source):
		p.Source = resolve(p.Source, filepath.Dir(d.config.File))
	}
	for i, v := range p.Env {
		if !envNameForm().MatchString(v) {
			d.fail(fmt.Sprintf("%s[%d]", at("env"), i), &ledger.Error{Message: "must be the name of an environment variable",
				Hint: "the value is that of ledgerd's environment; secrets of a plugin belong into its config"})
		}
	}
	if p.OpenFiles > 0 && p.OpenFiles < leastFiles {
		d.fail(at("open_files"), faultf("must be 0 or at least %d, not %d: the connection to ledgerd is among them",
			leastFiles, p.OpenFiles))
	}
	if p.Memory > 0 && p.Memory < leastMemory {
		d.fail(at("memory"), faultf("must be 0 or at least %s, not %s: no plugin starts with less", leastMemory, p.Memory))
	}
	if p.Command != nil && len(p.Command) == 0 {
		d.fail(at("command"), faultf("is empty"))
	}
	if len(p.Command) > 0 && strings.Contains(p.Command[0], "/") {
		p.Command[0] = resolve(p.Command[0], filepath.Dir(d.config.File))
	}
}
