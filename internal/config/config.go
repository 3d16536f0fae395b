// Package config reads the configuration of ledgerd: a TOML file, overridden by the environment, overridden by the
// flags of a command.
//
// The structs Config, Kind, Source and Plugin are the only description of the keys. Their tags give the names of the
// keys, the check of a file, the variables LEDGERD_…, `config print`, docs/config.md and the comparison of two
// configurations. A key that is added there is known everywhere. The tags:
//
//	toml     name of the key
//	doc      what it is, for docs/config.md
//	default  built-in value, as it is written in the file
//	range    least and greatest value, "5s … 24h"
//	oneof    allowed values, "repeat|doubt"
//	live     "yes": a running daemon takes a new value without a restart
//	secret   "url": may hold a password; "query": a URL of which query and user are secret as well
//	path     "yes": a path, relative to the folder of the file
//
// A file is read strictly and completely: Load reports all problems, each with its place and with a suggestion. Only
// the plugin knows the tables of a plugin ([kinds.K.set] and [kinds.K.with]). Its schema checks them, see Payload and
// With; those problems have the place of the key as well.
package config

import (
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/ledgerd/ledgerd/ledger/scheduler"
)

// Config is a whole configuration, with defaults. The zero Config sets nothing.
type Config struct {
	// DB is the URL of the ledger, sqlite:PATH or postgres://…, from db, from the file that db_file names, or from the
	// environment; "" means ledger.db in DataDir.
	DB     string `toml:"db" secret:"url" doc:"URL of the ledger: \"sqlite:PATH\" or \"postgres://user@host/name\"; default: ledger.db in data_dir. A URL with a password is better in a file that db_file names"`
	DBFile string `toml:"db_file" path:"yes" doc:"file that holds the URL of the ledger, for URLs with a password"`
	// DataDir is the folder for ledgers and plugins of this user; "" means $XDG_DATA_HOME/ledgerd.
	DataDir string `toml:"data_dir" path:"yes" doc:"folder of the ledger, if db names no other, and of plugins (in plugins/); default: $XDG_DATA_HOME/ledgerd, else ~/.local/share/ledgerd"`
	// PluginDir are the folders with plugins that are searched before all others, absolute.
	PluginDir []string `toml:"plugin_dir" path:"yes" doc:"folders with plugins, looked at before the others"`
	// Agent is the name under which the daemon claims; "" means host/pid/random.
	Agent string `toml:"agent" doc:"name that the daemon (ledgerd serve) claims under; each daemon needs its own: a second live one becomes NAME/2 and warns, and agent:NAME finds both. Default: host, process and a random number"`
	// Lease is the TTL of claims.
	Lease time.Duration `toml:"lease" default:"1m" range:"5s … 24h" doc:"how long an item stays with a worker that is not heard of"`
	// Concurrency is the number of items at a time for each kind without its own number; 0 means the plugin's number.
	Concurrency int `toml:"concurrency" default:"0" range:"0 … 100000" doc:"items at a time, of each kind without a value of its own; 0: the default of its plugin"`
	// Grace is how long running items may continue after the daemon was told to stop.
	Grace time.Duration `toml:"grace" default:"30s" range:"0s … 24h" doc:"how long what runs may go on once the daemon is to stop"`
	// Shard is the part of the ledger that this machine works; the zero value is all of it.
	Shard scheduler.Shard `toml:"shard" doc:"work only part i of n, from 0: \"0/4\"; default: all"`
	// Listen is the address of /livez, /readyz and /metrics, host:port; "" means none.
	Listen string `toml:"listen" default:"127.0.0.1:7373" doc:"address of /livez, /readyz and /metrics, \"host:port\"; \"\": none. They ask for no password: leave them on a loopback address, or behind something that does"`
	// LogFormat is "auto", "text" or "json".
	LogFormat string `toml:"log_format" default:"auto" oneof:"auto|text|json" doc:"form of the daemon's log; auto: text on a terminal, otherwise json"`
	// Environment is the environment of this machine.
	Environment string `toml:"environment" doc:"environment of this machine, such as \"staging\": a ledger that is of another one (ledgerd db environment) is not worked or changed"`
	// LogLevel is "debug", "info", "warn" or "error".
	LogLevel string `toml:"log_level" default:"info" oneof:"debug|info|warn|error" live:"yes" doc:"least important lines that are logged"`

	// TraceURL is the address at which people see a trace.
	TraceURL string `toml:"trace_url" live:"yes" doc:"URL of the trace of an item, for ledgerd show and the pages, with {trace_id} in it: \"http://localhost:16686/trace/{trace_id}\""`

	// API is the HTTP API.
	API API `toml:"api"`
	// UI configures the pages.
	UI UI `toml:"ui"`

	// Kinds by name. A policy here overrides that of the ledger.
	Kinds map[string]*Kind `toml:"kinds"`
	// Sources are in the order of the file.
	Sources []*Source `toml:"source"`
	// Plugins by name: the settings of plugins that need more than their name to start.
	Plugins map[string]*Plugin `toml:"plugins"`

	// File is the path of the file that was read, "" if there is none.
	File string
	// Warnings are about what is allowed but not wise, such as a secret in a file that others can read.
	Warnings []Problem

	origins map[string]Origin // the origin of each value, by the path of its key
	failed  map[string]bool   // keys that Load has refused
	doc     *document         // the file
}

// UI is how a daemon serves the pages.
type UI struct {
	// Serve means that a daemon serves the pages beside its HTTP API.
	Serve bool `toml:"serve" default:"false" doc:"serve the pages as well, at the address and below the prefix of [api]; one logs in with a token of it"`
}

// API is how the HTTP API is reached, and which programs may use it.
type API struct {
	// Listen is host:port; "" means the default of the command.
	Listen string `toml:"listen" doc:"address of the HTTP API, \"host:port\"; default: 127.0.0.1:7374 of ledgerd api, none of ledgerd serve"`
	// Auth is "tokens" or "none".
	Auth string `toml:"auth" default:"tokens" oneof:"tokens|none" doc:"who may ask: programs with a token, or any program of this machine; none goes with a loopback address only"`
	// Hosts are other names of the API's host, with or without a port.
	Hosts []string `toml:"hosts" live:"yes" doc:"names under which the API is reached, besides its address; requests for another name are refused"`
	// Prefix of all paths, "/x/y"; "" means none.
	Prefix string `toml:"prefix" doc:"what stands before /api/v1 in the paths, where a proxy serves the API below a path: \"/ledger\"; the proxy may leave it or take it away"`
	// Hide are the fields of payloads that only tokens with scope admin read.
	Hide []string `toml:"hide" live:"yes" doc:"fields of payloads that only tokens with scope admin read, wherever they are in a payload, besides those that plugins mark as secret"`
	// Tokens by name.
	Tokens map[string]*Token `toml:"tokens"`
}

// Token has the rights of a token of the HTTP API.
type Token struct {
	SHA256 string   `toml:"sha256" doc:"of the token, in hex, as ledgerd token new prints it"`
	Scopes []string `toml:"scopes" doc:"what it may do: read, payload, add, work, operate, admin"`
	Kinds  []string `toml:"kinds" doc:"it sees and touches only these, also those that its items emit; default: all"`
	Agent  string   `toml:"agent" doc:"it claims only under names that begin so; default: any name"`
}

// Kind is how a kind is worked here, and its policy. A nil pointer means that the configuration has no value: then
// that of the ledger counts, then the plugin's default.
type Kind struct {
	// Plugin works the kind; nil or "" means the one of the same name, or people.
	Plugin *string `toml:"plugin" live:"yes" doc:"plugin that works it; default: the one of the same name, or people"`
	// Input is "file", "url" or "line"; nil means that of the plugin.
	Input *string `toml:"input" oneof:"file|url|line" doc:"what an input of it is, for a kind that people work or whose plugin takes any (exec); other plugins have one of their own"`
	// Verdicts are the buttons of the desk for a kind that people work.
	Verdicts []string `toml:"verdicts" live:"yes" doc:"of a kind that people work: what they may decide, each a button on the desk of the pages, such as [\"publish\", \"boring\"]; the output is {\"verdict\": \"publish\"}"`
	// Concurrency is the number of items at a time on this machine; 0 means Config.Concurrency.
	Concurrency int `toml:"concurrency" default:"0" range:"0 … 100000" doc:"items at a time on this machine; 0: as at the top, then the default of the plugin"`

	Timeout     *time.Duration `toml:"timeout" range:"0s … 3650d" live:"yes" doc:"of one attempt; 0s: none"`
	MaxFailures *int           `toml:"max_failures" range:"0 … 10000" live:"yes" doc:"failed attempts after which an item is dead; 0: 5"`
	MaxCrashes  *int           `toml:"max_crashes" range:"0 … 10000" live:"yes" doc:"crashes of its process after which an item is dead; 0: 3"`
	MaxLost     *int           `toml:"max_lost" range:"0 … 10000" live:"yes" doc:"expired leases in a row after which an item is dead; 0: 10"`
	BackoffBase *time.Duration `toml:"backoff_base" range:"0s … 3650d" live:"yes" doc:"before attempt n+1 an item waits for a random time up to base·2ⁿ; 0s: 1s"`
	BackoffCap  *time.Duration `toml:"backoff_cap" range:"0s … 3650d" live:"yes" doc:"and at most for this; 0s: 10m, or backoff_base if it is longer"`
	OnLost      *string        `toml:"on_lost" oneof:"repeat|doubt" live:"yes" doc:"what an attempt without a report means: it is repeated, or in doubt until a person decides"`
	Keep        *time.Duration `toml:"keep" range:"0s … 3650d" live:"yes" doc:"how long payload, output and attempts stay of what is done or cancelled, or \"forever\"; 0s: 30d"`
	Paused      *bool          `toml:"paused" live:"yes" doc:"whether it is paused, on all machines"`

	// The limits hold for all machines together.
	MaxRunning            *int            `toml:"max_running" range:"0 … 100000" live:"yes" doc:"items that are leased at a time, on all machines together; 0: no limit"`
	MaxRunningPerShardKey *int            `toml:"max_running_per_shard_key" range:"0 … 100000" live:"yes" doc:"the same for each shard key: of a URL its host; 0: no limit"`
	Rate                  *scheduler.Rate `toml:"rate" live:"yes" doc:"items that are begun in a time, on all machines together: \"100/s\", \"30/m\", \"5/10s\"; \"0\": no limit"`
	RatePerShardKey       *scheduler.Rate `toml:"rate_per_shard_key" live:"yes" doc:"the same for each shard key"`
	Burst                 *int            `toml:"burst" range:"0 … 100000" live:"yes" doc:"how many may be begun at once after a pause, for both rates; 0: one. For a rate above some ten a second give it a tenth of that"`

	// Every, Zone and Priority apply to items that are added here without values of their own.
	Every    string `toml:"every" live:"yes" doc:"makes new items recurring; each is worked once in every period: hour, day, week, a duration (36h) or five cron fields (minute, hour, day of month, month, day of week); default: each is worked once, for ever; \"\" confirms this for config check"`
	Zone     string `toml:"zone" live:"yes" doc:"time zone of every, such as \"Europe/Berlin\"; default: UTC, which is the same on every machine"`
	Priority int    `toml:"priority" default:"0" range:"-2 … 2" live:"yes" doc:"of new items; smaller first"`

	// Set is the payload of new items and With the plugin's config, as in the file. Payload and With return them
	// checked.
	Set  map[string]any `toml:"set" live:"yes" doc:"payload of new items, as --set"`
	With map[string]any `toml:"with" live:"yes" doc:"config of the plugin, as --with; while another process works the kind, all but secrets and what only tunes must be as there"`
}

// Source is a folder, list or query that adds items.
type Source struct {
	Name string `toml:"name" doc:"name of the source, in logs and metrics and as the source of its items: a-z, 0-9 and -"`
	Type string `toml:"type" oneof:"folder|list|query" doc:"folder: the files in it; list: the lines of a file or of what a URL gives; query: the rows of an SQL query"`
	Kind string `toml:"kind" doc:"kind of the items"`
	// Scope is the scope of the items.
	Scope string `toml:"scope" doc:"scope of the items: a campaign, a push"`
	// Schedule is when the source is read; see Next.
	Schedule string         `toml:"schedule" doc:"when to look: a duration of at least 1s (\"30s\"), hour, day, week, or five cron fields; default: \"1m\" for a folder, else \"hour\""`
	Zone     string         `toml:"zone" doc:"time zone of schedule, such as \"Europe/Berlin\"; default: UTC"`
	Set      map[string]any `toml:"set" doc:"payload of its items, field by field over that of the kind, also in nested tables"`

	// Path is absolute: of a folder, or of a list that is a file.
	Path string `toml:"path" path:"yes" doc:"of the folder, or of the file with the list"`
	// Include and Exclude work like the flags of run: first all of Include, then all of Exclude.
	Include []string `toml:"include" doc:"folder: take only files with this name, or path below the folder"`
	Exclude []string `toml:"exclude" doc:"folder: leave out files with this name or path, also those that an include matches"`
	// Recursive, Settle, Finished, MoveTo and Local are for a folder only.
	Recursive bool          `toml:"recursive" default:"true" doc:"folder: whether the folders in it are looked at as well"`
	Settle    time.Duration `toml:"settle" default:"2s" range:"0s … 1d" doc:"folder: how long a file must not have changed before it is taken"`
	Finished  string        `toml:"finished" default:"keep" oneof:"keep|move|delete" doc:"folder: what becomes of a file whose item is done, at the next look"`
	MoveTo    string        `toml:"move_to" path:"yes" doc:"folder: where finished = \"move\" puts it"`
	Local     bool          `toml:"local" default:"false" doc:"folder: only this machine sees it; each machine then looks itself"`

	// FollowLinks is for a folder only. Without it, the contents of a linked folder do not belong to the source.
	FollowLinks bool `toml:"follow_links" default:"false" doc:"folder: whether links in it are followed, also out of it; goes with finished = \"keep\" only"`

	URL string `toml:"url" secret:"query" doc:"list: where to get it, instead of path"`

	// Query is the SQL text, also if it came from QueryFile.
	Query     string `toml:"query" doc:"query: the SQL text"`
	QueryFile string `toml:"query_file" path:"yes" doc:"query: file with the SQL text"`
	// QueryDB is the URL of the database, also if it came from QueryDBFile; "" means the ledger's.
	QueryDB     string `toml:"query_db" secret:"url" doc:"query: URL of the database that is asked; default: the ledger's"`
	QueryDBFile string `toml:"query_db_file" path:"yes" doc:"query: file that holds this URL"`
	Key         string `toml:"key" doc:"query: column that is the INPUT; default: key"`
}

// Plugin is how a plugin is started.
type Plugin struct {
	// Command is the program, absolute unless it is looked for in PATH, and its arguments.
	Command []string `toml:"command" live:"yes" doc:"program and its arguments; default: ledgerd-plugin-NAME where plugins are looked for"`
	SHA256  []string `toml:"sha256" live:"yes" doc:"of the program, in hex, checked before every start; with source one for each platform"`
	// Source has {os} and {arch} in it as they were typed, see From.
	Source string   `toml:"source" secret:"query" live:"yes" doc:"where ledgerd plugin fetch gets the program: a URL or a path; {os} and {arch} in it stand for those of the machine, such as linux and amd64"`
	MTLS   bool     `toml:"mtls" default:"true" live:"yes" doc:"whether the connection is encrypted; false only for languages that cannot do it"`
	Env    []string `toml:"env" live:"yes" doc:"names of environment variables that it gets, besides PATH, HOME, TMPDIR, LANG, TZ and those of certificates"`
	Dir    string   `toml:"dir" path:"yes" live:"yes" doc:"its working directory; default: that of ledgerd"`
	// AnswerTime bounds each call before the plugin works items.
	AnswerTime time.Duration `toml:"answer_time" default:"10s" range:"1s … 1h" live:"yes" doc:"how long it has for each call until it works: its start, its description, a look at its config, Open and Check. A plugin that takes longer is not worked with, and tried again; longer for one that loads a model in Open"`

	// The limits are for its process and the processes that it starts, together; 0 means no limit. doctor and plugin
	// ls -v report how they are enforced, and where they are not; see docs/plugins/security.md.
	Memory    Size `toml:"memory" default:"0" live:"yes" doc:"memory that it may have (\"512MiB\"), with the processes that it starts; beyond that it is ended, which is a crash. \"0\": no limit. Like the three that follow it is kept on Linux only"`
	CPU       int  `toml:"cpu" default:"0" range:"0 … 4096" live:"yes" doc:"cores that it may run on; 0: all that ledgerd may"`
	OpenFiles int  `toml:"open_files" default:"0" range:"0 … 1048576" live:"yes" doc:"files and connections that it may have open, at least 16, each of its processes; 0: as many as ledgerd"`
	Processes int  `toml:"processes" default:"0" range:"0 … 100000" live:"yes" doc:"processes that it may have, itself included; with more it is ended, which is a crash. 0: no limit"`
}

// From is the Source for this machine; "" if there is none.
func (p *Plugin) From() string {
	return strings.NewReplacer("{os}", runtime.GOOS, "{arch}", runtime.GOARCH).Replace(p.Source)
}

// HasSum reports whether the program may have this checksum, in hex.
func (p *Plugin) HasSum(sum string) bool {
	return slices.ContainsFunc(p.SHA256, func(s string) bool { return strings.EqualFold(s, sum) })
}

// Kind returns the part of the configuration about a kind; never nil.
func (c *Config) Kind(name string) *Kind {
	if k := c.Kinds[name]; k != nil {
		return k
	}
	return &Kind{}
}

// PluginOf returns the plugin that the configuration names for a kind; "" if it names none.
func (c *Config) PluginOf(kind string) string {
	if p := c.Kind(kind).Plugin; p != nil {
		return *p
	}
	return ""
}

// Origin is the place that a value comes from.
type Origin struct {
	Flag string // "--db"
	Env  string // "LEDGERD_DB"
	File string // path of the config file …
	Line int    // … and the line in it, from 1
}
