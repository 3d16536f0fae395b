package answer

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ledgerd/ledgerd/internal/lazyregexp"
	"github.com/ledgerd/ledgerd/internal/report"
	"github.com/ledgerd/ledgerd/internal/shell"
	"github.com/ledgerd/ledgerd/ledger/bounds"
	"github.com/ledgerd/ledgerd/ledger/definition"
	"github.com/ledgerd/ledgerd/ledger/payload"
	"github.com/ledgerd/ledgerd/ledger/recurrence"
	"github.com/ledgerd/ledgerd/sdk/settings"
)

// mostDid bounds the sentence of Did, in cells of a terminal.
const mostDid = 400

// By returns the name of the actor for people.
func (j Journal) By() string { return strings.TrimPrefix(j.Actor, "operator:") }

// Did describes an act for people: "retried 49 items: kind:links state:dead", "changed kind a: max_failures 5 → 3".
func (j Journal) Did() string { return report.Cut(j.did(), mostDid) }

func (j Journal) did() string {
	switch j.Action {
	case "pause":
		return "paused kind " + j.Subject + inParentheses(j.Detail)
	case "resume":
		return "resumed kind " + j.Subject + inParentheses(j.Detail)
	case "set-kind":
		return "changed kind " + j.Subject + report.Prefixed(": ", changes(j.Detail))
	case "define":
		return "works kind " + j.Subject + defined(j.Detail)
	case "prune":
		return "pruned " + report.Plural(j.Changed, "item") + " of " + j.Subject + endedBefore(j.Detail)
	case "restore":
		return "restored the ledger from " + j.Subject + inParentheses(j.Detail)
	case "restored":
		return "began " + j.Detail
	case "moved", "set-environment":
		return "recorded that " + j.Detail
	case "release-lock":
		holder, _, _ := strings.Cut(strings.TrimPrefix(j.Detail, "lock "+strconv.Quote(j.Subject)+" is held by "), " since ")
		return "took lock " + j.Subject + report.Prefixed(" from ", holder)
	}
	return j.onItems()
}

func inParentheses(text string) string {
	if text == "" {
		return ""
	}
	return " (" + text + ")"
}

// onItems describes an act on items.
func (j Journal) onItems() string {
	a := j.asked()
	items, whose := report.Plural(j.Changed, "item"), "their holders"
	if j.Changed == 1 {
		if whose = "its holder"; a.which == "" {
			items = j.Subject
		}
	}
	did := ""
	switch j.Action {
	case "retry", "reopen", "cancel", "forget":
		did = map[string]string{"retry": "retried ", "reopen": "reopened ", "cancel": "cancelled ",
			"forget": "removed "}[j.Action] + items
	case "release":
		did = "took " + items + " from " + whose
	case "decide":
		did = "decided " + items + report.Prefixed(" as ", a.outcome)
	case "put-off":
		did = "put off " + items + report.Prefixed(" ", a.until)
		if a.until == "now" {
			did = "made " + items + " due now"
		}
	case "place":
		did = "placed " + items + report.Prefixed(" at priority ", a.priority)
		if a.priority == strconv.Itoa(bounds.MinPriority) {
			did = "placed " + items + " first"
		}
	default:
		did = j.Action + " " + j.Subject
	}
	return did + report.Prefixed(": ", a.which) + inParentheses(a.reason)
}

// asked is the content of Detail of an act on items.
type asked struct {
	which           string // filters, flags and names as they were typed
	reason, outcome string
	until, priority string
}

// outcomes are the outcomes of decisions. Detail of a decision about a single item is one of them.
var outcomes = []string{"done", "skipped", "cancelled", "failed"}

// asked reads Detail. A command line wrote it, or the HTTP API.
func (j Journal) asked() (a asked) {
	switch words, ok := shell.Split(j.Detail); {
	case j.Action == "decide" && slices.Contains(outcomes, j.Detail):
		a.outcome = j.Detail
	case strings.HasPrefix(j.Actor, "api:") && !strings.HasPrefix(j.Detail, "--"):
		a = askedOfAPI(j.Detail)
	case !ok: // a long command line was cut
		a.which = j.Detail
	default:
		a = askedInWords(j.Action, words)
	}
	return a
}

// askedOfAPI reads what the HTTP API wrote: "decide --where FILTER --outcome done (REASON)".
func askedOfAPI(detail string) (a asked) {
	_, where, is := strings.Cut(detail, " --where ")
	switch {
	case detail == "again":
		return asked{which: "added again"}
	case !is:
		return asked{which: detail}
	}
	a.which = where
	for i := range where {
		isOutsideQuotes := strings.Count(where[:i], `"`)%2 == 0
		if isOutsideQuotes && strings.HasPrefix(where[i:], " (") && strings.HasSuffix(where, ")") {
			a.which, a.reason = where[:i], where[i+len(" ("):len(where)-1]
			break
		}
	}
	a.which, a.outcome, _ = strings.Cut(a.which, " --outcome ")
	return a
}

// askedInWords reads the words of a command line.
func askedInWords(action string, words []string) (a asked) {
	var which []string
	texts := map[string]*string{"--reason": &a.reason, "--error": &a.reason, "--outcome": &a.outcome,
		"--priority": &a.priority}
	for len(words) > 0 {
		word, value := words[0], ""
		if words = words[1:]; len(words) > 0 {
			value = words[0]
		}
		switch text := texts[word]; {
		case value != "" && text != nil:
			*text = value
		case value != "" && word == "--where":
			which = append(which, value)
		case value != "" && word == "--due" && action == "put-off":
			a.until = until(value)
		default:
			if word == "--again=0s" { // --again without a value
				word = "--again"
			}
			which = append(which, shell.Quote(word))
			continue
		}
		words = words[1:]
	}
	a.which = strings.Join(which, " ")
	return a
}

// until returns the time of --due for a sentence.
func until(due string) string {
	if _, err := recurrence.ParseDuration(due); err == nil {
		return "for " + due
	}
	if due == "now" {
		return due
	}
	return "until " + due
}

// endedBefore reads the least age of items that were pruned.
func endedBefore(detail string) string {
	d, err := recurrence.ParseDuration(strings.TrimPrefix(detail, "older than "))
	if err != nil || d == 0 {
		return ""
	}
	return " that ended more than " + settings.FormatDuration(d) + " before"
}

// defined reads the change of a definition and its settings: `"exec@0.1.0+115438" → "exec@0.2.0+92d4a0"; grace: …`.
func defined(detail string) string {
	before, rest, ok := quoted(detail)
	rest, hasArrow := strings.CutPrefix(rest, " → ")
	now, rest, hasNow := quoted(rest)
	if !ok || !hasArrow || !hasNow {
		return report.Prefixed(": ", detail)
	}
	plugin := func(of string) string {
		name, version, _ := definition.Split(of)
		return strings.TrimSpace(name + " " + version)
	}
	text, changed := " with "+plugin(now), changes(strings.TrimPrefix(rest, "; "))
	switch was := plugin(before); {
	case was != "" && was != plugin(now):
		text += ", before that with " + was
	case was != "" && changed == "":
		changed = "other settings, which are secret or were not known before"
	}
	return text + report.Prefixed(": ", changed)
}

// quoted returns the text in quotes at the beginning of a text, and what follows.
func quoted(text string) (value, after string, ok bool) {
	prefix, err := strconv.QuotedPrefix(text)
	if err != nil {
		return "", text, false
	}
	value, err = strconv.Unquote(prefix)
	return value, text[len(prefix):], err == nil
}

// changes describes differences in settings: "max_failures 5 → 3, keep 30d → 7d".
func changes(text string) string {
	all, rest := definition.ReadDifferences(text)
	var texts []string
	for _, d := range all {
		if d.Name == "defaults" {
			texts = append(texts, defaults(d)...)
			continue
		}
		texts = append(texts, d.Name+" "+value(d.Have)+" → "+value(d.Want))
	}
	if rest != "" {
		texts = append(texts, rest)
	}
	return strings.Join(texts, ", ")
}

// defaults describes a difference in the defaults of payloads of a kind.
func defaults(d definition.Difference) (texts []string) {
	var have, want payload.Defaults
	_ = json.Unmarshal([]byte(d.Have), &have) // "" has none
	_ = json.Unmarshal([]byte(d.Want), &want)
	in := func(all payload.Defaults, name string) string {
		if all[name].Varied { // a varied field has no default
			return ""
		}
		return string(all[name].Value)
	}
	names := slices.Sorted(maps.Keys(have))
	names = slices.AppendSeq(names, maps.Keys(want))
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		if before, now := in(have, name), in(want, name); before != now {
			texts = append(texts, "payload."+name+" "+value(before)+" → "+value(now))
		}
	}
	if len(texts) == 0 {
		return []string{"what its items have by default is kept otherwise"}
	}
	return texts
}

// goDuration matches a duration in the form of older entries: 720h0m0s.
var goDuration = lazyregexp.New(`^([0-9]+h)?([0-9]+m)?[0-9.]+(s|ms|µs|ns)$`)

// value returns a value of a setting for people, without the quotes and brackets of JSON.
func value(text string) string {
	var list []json.RawMessage
	var word string
	switch {
	case text == "":
		return "not set"
	case text == "[]" || text == "{}":
		return "none"
	case goDuration().MatchString(text):
		if d, err := time.ParseDuration(text); err == nil {
			return settings.FormatDuration(d)
		}
	case json.Unmarshal([]byte(text), &word) == nil && word != "":
		return word
	case text == `""`:
		return "empty"
	case json.Unmarshal([]byte(text), &list) == nil:
		words := make([]string, len(list))
		for i, raw := range list {
			words[i] = string(raw)
			if raw[0] != '"' || json.Unmarshal(raw, &word) != nil {
				continue
			}
			if words[i] = word; word == "" || strings.ContainsAny(word, " \n\t") {
				words[i] = shell.Quote(word)
			}
		}
		return strings.Join(words, " ")
	}
	return text
}
