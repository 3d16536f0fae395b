package config

import (
	"fmt"
	"maps"
	"net"
	"net/url"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/ledgerd/ledgerd/internal/inputs"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/sdk/settings"
)

// check looks at what the types of values do not say, and reads the files that stand for values.
func (d *decoder) check() {
	c := d.config
	d.checkDatabase()
	d.checkListen()
	if len(c.Agent) > ledger.MaxAgent {
		d.fail("agent", faultf("must have at most %d bytes, has %d", ledger.MaxAgent, len(c.Agent)))
	}
	for _, name := range slices.Sorted(maps.Keys(c.Kinds)) {
		d.checkKind(joinPath("kinds", name), name, c.Kinds[name])
	}
	names := map[string]int{}
	for i, s := range c.Sources {
		path := fmt.Sprintf("source[%d]", i)
		if first, twice := names[s.Name]; twice && s.Name != "" {
			d.fail(path+".name", faultf("%q is the name of the source in line %d as well", s.Name, c.doc.at(fmt.Sprintf("source[%d]", first)).line))
		} else {
			names[s.Name] = i
		}
		d.checkSource(path, s)
	}
	for _, name := range slices.Sorted(maps.Keys(c.Plugins)) {
		d.checkPlugin(joinPath("plugins", name), name, c.Plugins[name])
	}
}

func (d *decoder) checkDatabase() {
	c := d.config
	if d.refused("db_file") {
		return
	}
	if c.DBFile != "" {
		text, err := readSecret(c.DBFile)
		if err != nil {
			d.fail("db_file", err)
			return
		}
		if c.DB = strings.TrimSpace(text); c.DB == "" {
			d.fail("db_file", faultf("%s is empty", c.DBFile))
			return
		}
		if err := checkURL(c.DB); err != nil {
			d.fail("db_file", faultf("%s: %v", c.DBFile, err))
		}
		return
	}
	if c.DB == "" {
		return
	}
	if err := checkURL(c.DB); err != nil {
		d.fail("db", err)
		return
	}
	if c.origins["db"].File != "" {
		c.DB = localDB(c.DB, filepath.Dir(c.File))
	}
}

// checkURL refuses what is no address of a database.
func checkURL(db string) error {
	scheme, rest, _ := strings.Cut(db, ":")
	switch {
	case scheme == "sqlite" && strings.TrimPrefix(rest, "//") != "":
		return nil
	case scheme == "postgres" || scheme == "postgresql":
		if u, err := url.Parse(db); err != nil || u.Host == "" && u.Path == "" && u.RawQuery == "" {
			return &fault{"not a Postgres URL", "it is postgres://user@host:5432/name; special characters of a password are written as %XX"}
		}
		return nil
	}
	return &fault{fmt.Sprintf("%q is not a database URL", safeURL(db)), `an SQLite file is "sqlite:ledger.db", Postgres is "postgres://user@host/name"`}
}

// localDB makes the path of an SQLite file absolute, if it is relative to the config file.
func localDB(db, folder string) string {
	path, isFile := strings.CutPrefix(db, "sqlite:")
	if !isFile {
		return db
	}
	return "sqlite:" + resolve(strings.TrimPrefix(path, "//"), folder)
}

func (d *decoder) checkListen() {
	c := d.config
	if c.Listen == "" {
		return
	}
	host, port, err := net.SplitHostPort(c.Listen)
	if n, bad := strconv.Atoi(port); err != nil || bad != nil || n < 0 || n > 65535 {
		d.fail("listen", &fault{fmt.Sprintf("%q is no address", c.Listen), `such as "127.0.0.1:7373"`})
		return
	}
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		d.warn("listen", faultf("others on the network can read /metrics, which asks for no password"))
	}
}

// warn says what is allowed, and perhaps not what was meant.
func (d *decoder) warn(path string, what *fault) {
	c := d.config
	p := c.doc.problem(c.doc.at(path), "%s", what.message)
	if from := c.origins[path]; from.File == "" {
		p = problemFrom(from, path, what)
	}
	p.Key, p.Hint = path, what.hint
	c.Warnings = append(c.Warnings, p)
}

func (d *decoder) checkKind(path, name string, k *Kind) {
	at := func(key string) string { return path + "." + key }
	d.checkName(path, name)
	if k.Plugin != nil && *k.Plugin != "" {
		d.checkName(at("plugin"), *k.Plugin)
	}
	if k.Plugin != nil && *k.Plugin == name { // that goes without saying
		*k.Plugin = ""
	}
	d.checkEvery(path, "every", k.Every, k.Zone)
	if k.BackoffBase != nil && k.BackoffCap != nil && *k.BackoffCap > 0 && *k.BackoffBase > *k.BackoffCap {
		d.fail(at("backoff_base"), faultf("is longer than backoff_cap, %s", FormatDuration(*k.BackoffCap)))
	}
	unlimited := func(key string, r *ledger.Rate) bool { return (r == nil || r.Count == 0) && !d.refused(at(key)) }
	if k.Burst != nil && *k.Burst > 0 && unlimited("rate", k.Rate) && unlimited("rate_per_shard_key", k.RatePerShardKey) {
		d.fail(at("burst"), faultf("needs rate or rate_per_shard_key"))
	}
}

// checkName refuses what is no name of a kind or a plugin.
func (d *decoder) checkName(path, name string) {
	if err := ledger.CheckItem(ledger.NewItem{Kind: name, Key: "-"}); err != nil {
		d.fail(path, faultf("%q is no name: only a-z, 0-9 and -, not - first, at most %d bytes", name, ledger.MaxKind))
	}
}

// checkEvery checks a rhythm that is in one key, and its time zone.
func (d *decoder) checkEvery(path, key, every, zone string) {
	if _, err := ledger.ParseEvery("day", zone); err != nil {
		bad := faultf("%q is no time zone", zone)
		bad.hint = `an IANA name such as "Europe/Berlin"`
		d.fail(path+".zone", bad)
		zone = ""
	}
	if every == "" && zone != "" {
		d.fail(path+".zone", faultf("is the time zone of %s, which is not given", key))
	}
	if every == "" {
		return
	}
	if _, err := ledger.ParseEvery(every, zone); err != nil {
		d.fail(path+"."+key, rhythmFault(err, every))
	}
}

func rhythmFault(err error, text string) *fault {
	bad := faultf("%s", strings.TrimPrefix(err.Error(), "every: "))
	if near := settings.Suggest(text, []string{"hour", "day", "week"}); near != "" {
		bad.hint = fmt.Sprintf("did you mean %q?", near)
	} else if near, known := map[string]string{"hourly": "hour", "daily": "day", "weekly": "week", "@hourly": "hour", "@daily": "day", "@weekly": "week", "@midnight": "day"}[text]; known {
		bad.hint = fmt.Sprintf("did you mean %q?", near)
	}
	return bad
}

// keysOfType are the keys that not every source has, by its type.
var keysOfType = map[string][]string{
	"folder": {"path", "include", "exclude", "recursive", "settle", "finished", "move_to", "local", "follow_links"},
	"list":   {"path", "url"},
	"query":  {"query", "query_file", "query_db", "query_db_file", "key"},
}

// has tells whether a source of its type has a key.
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
			d.fail(path, &fault{fmt.Sprintf("the source has no %s", required.key), fmt.Sprintf("%s = …", required.key)})
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
	if len(s.Scope) > ledger.MaxScope {
		d.fail(at("scope"), faultf("must have at most %d bytes, has %d", ledger.MaxScope, len(s.Scope)))
	}
	d.checkSchedule(path, s)
	switch s.Type {
	case "folder":
		d.checkFolder(path, s)
	case "list":
		d.oneOf(path, given("path"), "path", given("url"), "url")
		if !given("path") && !given("url") {
			d.fail(path, &fault{"the list has neither path nor url", `path = "links.txt"`})
		}
		if s.URL != "" {
			if _, err := inputs.ParseURL(s.URL); err != nil {
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
	interval, err := ledger.ParseDuration(s.Schedule)
	short := err == nil && interval < ledger.MinEvery // as Next has it; no rhythm of items is that short
	switch {
	case !short:
		d.checkEvery(path, "schedule", s.Schedule, s.Zone)
	case interval < minInterval:
		d.fail(path+".schedule", faultf("must be at least %s, not %s", FormatDuration(minInterval), s.Schedule))
	default:
		d.checkEvery(path, "schedule", FormatDuration(ledger.MinEvery), s.Zone)
	}
}

func (d *decoder) checkFolder(path string, s *Source) {
	at := func(key string) string { return joinPath(path, key) }
	if s.Path == "" {
		d.fail(path, &fault{"the folder has no path", `path = "/srv/inbox"`})
	}
	for key, patterns := range map[string][]string{"include": s.Include, "exclude": s.Exclude} {
		for i, pattern := range patterns {
			if _, err := inputs.ParseRule(false, pattern); err != nil {
				d.fail(fmt.Sprintf("%s[%d]", at(key), i), faultf("%v", err))
			}
		}
	}
	switch {
	case s.FollowLinks && (s.Finished == "move" || s.Finished == "delete"):
		d.fail(at("follow_links"), &fault{fmt.Sprintf("does not go with finished = %q: a file that a link leads to may lie anywhere", s.Finished), `finished = "keep", or follow_links = false`})
	case s.Finished == "move" && s.MoveTo == "":
		d.fail(at("finished"), &fault{"where to is not said", `move_to = "/srv/done"`})
	case s.Finished != "move" && s.MoveTo != "":
		d.fail(at("move_to"), &fault{"nothing is moved", `with finished = "move"`})
	case s.MoveTo != "" && s.Path != "":
		rel, err := filepath.Rel(s.Path, s.MoveTo)
		if err == nil && rel != ".." && !strings.HasPrefix(rel, "../") && (s.Recursive || rel == ".") {
			d.fail(at("move_to"), faultf("lies in the folder itself, where moved files would be found again"))
		}
	}
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
		d.fail(path, &fault{"there is no query", `query = "SELECT …", or query_file`})
	}
	if s.QueryDBFile != "" {
		text, err := readSecret(s.QueryDBFile)
		if err != nil {
			d.fail(at("query_db_file"), err)
			return
		}
		s.QueryDB = strings.TrimSpace(text)
		if err := checkURL(s.QueryDB); err != nil {
			d.fail(at("query_db_file"), faultf("%s: %v", s.QueryDBFile, err))
		}
		return
	}
	if s.QueryDB == "" {
		return
	}
	if err := checkURL(s.QueryDB); err != nil {
		d.fail(at("query_db"), err)
	}
	s.QueryDB = localDB(s.QueryDB, filepath.Dir(d.config.File))
}

var (
	sha256Form  = regexp.MustCompile(`^[0-9a-fA-F]{64}$`)
	envNameForm = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
)

// What a plugin needs to start at all.
const (
	leastFiles  = 16
	leastMemory = Size(8 << 20)
)

func (d *decoder) checkPlugin(path, name string, p *Plugin) {
	at := func(key string) string { return path + "." + key }
	d.checkName(path, name)
	if p.SHA256 != "" && !sha256Form.MatchString(p.SHA256) {
		d.fail(at("sha256"), &fault{"must be 64 hexadecimal digits", "sha256sum PROGRAM prints them"})
	}
	for i, v := range p.Env {
		if !envNameForm.MatchString(v) {
			bad := faultf("must be names of environment variables")
			if strings.Contains(v, "=") {
				bad.hint = "names only: the values are those of ledgerd's environment; secrets of a plugin belong into its config"
			}
			d.fail(fmt.Sprintf("%s[%d]", at("env"), i), bad)
		}
	}
	if p.OpenFiles > 0 && p.OpenFiles < leastFiles {
		d.fail(at("open_files"), faultf("must be 0 or at least %d, not %d: the connection to ledgerd is among them", leastFiles, p.OpenFiles))
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
