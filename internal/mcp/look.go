package mcp

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/google/uuid"
	protocol "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ledgerd/ledgerd/internal/answer"
	"github.com/ledgerd/ledgerd/internal/api/access"
)

// Inputs of the tools that read.
type (
	showArgs struct {
		ID int64 `json:"id"`
		size
	}
	listArgs struct {
		Where   string `json:"where,omitempty"`
		Order   string `json:"order,omitempty" oneof:"id|-id|ended|-ended"`
		Limit   int    `json:"limit,omitempty"`
		Cursor  string `json:"cursor,omitempty"`
		Payload bool   `json:"payload,omitempty"`
		size
	}
	errorsArgs struct {
		Where string `json:"where,omitempty"`
		size
	}
	statsArgs struct{ size }
)

const aboutWhere = "filter, such as: kind:task state:ready,leased since:2h key:prefix* payload.parent:7"

func offerTools(s *protocol.Server, me answer.Me, from visits) {
	offerWork(s, me, from)
	offer(s, me, from, tool{name: "show", scope: access.Read, reads: true,
		about:  "Show an item: its payload, why it is where it is, what would help (acts), its newest attempts.",
		fields: map[string]string{"id": "", "bytes": aboutBytes}}, show)
	offer(s, me, from, tool{name: "list", scope: access.Read, reads: true,
		about: "List items that match a filter.",
		fields: map[string]string{"where": aboutWhere, "order": "id if it is not given", "limit": "20 if it is not given",
			"cursor": "next of the part before", "payload": "with payloads and outputs", "bytes": aboutBytes}}, list)
	offer(s, me, from, tool{name: "errors", scope: access.Read, reads: true,
		about:  "Group what failed by cause, of the last 24 h unless the filter has since.",
		fields: map[string]string{"where": aboutWhere, "bytes": aboutBytes}}, causes)
	offer(s, me, from, tool{name: "stats", scope: access.Read, reads: true,
		about: "Count what is open by kind, and how fast it is worked.", fields: map[string]string{"bytes": aboutBytes}}, stats)
	offerActs(s, me, from)
}

// wrong returns an error in the arguments that the schema does not find.
func wrong(field, hint, format string, args ...any) error {
	return &refusal{answer.Problem{Code: "invalid", Detail: field + ": " + fmt.Sprintf(format, args...), Hint: hint,
		Field: field}}
}

// picked returns rows of any type, with some of their fields.
func picked(rows any, fields ...string) []map[string]any {
	all := []map[string]any{}
	for _, row := range decoded(rows).([]any) {
		row := row.(map[string]any)
		maps.DeleteFunc(row, func(name string, _ any) bool { return !slices.Contains(fields, name) })
		all = append(all, row)
	}
	return all
}

// get reads from the API.
func (v *visit) get(ctx context.Context, path string, query url.Values, into any) error {
	return v.api.ask(ctx, http.MethodGet, path, query, nil, into)
}

// maxAttempts is how many attempts show returns.
const maxAttempts = 3

func show(ctx context.Context, v *visit, in showArgs) (any, error) {
	var it, why map[string]any
	var attempts answer.List[any]
	for path, into := range map[string]any{"": &it, "/why": &why, "/attempts": &attempts} {
		query := url.Values{}
		if into == &attempts {
			query.Set("limit", strconv.Itoa(maxAttempts))
		}
		if err := v.get(ctx, fmt.Sprintf("/items/%d%s", in.ID, path), query, into); err != nil {
			return nil, err
		}
	}
	delete(why, "id")
	return map[string]any{"item": it, "why": why, "attempts": attempts.Items}, nil
}

// listed are the fields of an item in a list.
var listed = []string{"id", "kind", "scope", "key", "state", "round", "round_state", "priority", "failures", "agent",
	"due", "expires", "outcome", "code", "error"}

// list asks again for fewer items if they do not fit into the answer, so that the cursor continues after the last item
// shown.
func list(ctx context.Context, v *visit, in listArgs) (any, error) {
	fields := slices.Clone(listed)
	if in.Payload {
		fields = append(fields, "payload", "output")
	}
	for limit := cmp.Or(in.Limit, 20); ; {
		q := url.Values{"where": {in.Where}, "order": {in.Order}, "cursor": {in.Cursor}, "limit": {strconv.Itoa(limit)},
			"output": {strconv.FormatBool(in.Payload)}}
		var got answer.List[map[string]any]
		if err := v.get(ctx, "/items", q, &got); err != nil {
			return nil, err
		}
		got.Items = picked(got.Items, fields...)
		n := len(got.Items)
		size := len(told{}.text(got, v.most))
		if size <= v.most || n <= 1 {
			return got, nil
		}
		limit = max(1, min(n-1, n*v.most/size))
	}
}

// maxCauses is how many causes are shown, and maxExamples how many items of each.
const maxCauses, maxExamples = 10, 2

func causes(ctx context.Context, v *visit, in errorsArgs) (any, error) {
	var got struct {
		Items   []map[string]any `json:"items"`
		Since   string           `json:"since"`
		Whole   bool             `json:"whole"`
		LeftOut int              `json:"left_out,omitempty"`
	}
	if err := v.get(ctx, "/causes", url.Values{"where": {in.Where}}, &got); err != nil {
		return nil, err
	}
	if n := len(got.Items); n > maxCauses {
		got.Items, got.LeftOut = got.Items[:maxCauses], n-maxCauses
	}
	got.Items = picked(got.Items, "cause", "code", "message", "count", "for_good", "kinds", "last_seen", "examples")
	for _, row := range got.Items {
		if all, ok := row["examples"].([]any); ok && len(all) > maxExamples {
			row["examples"] = all[:maxExamples]
		}
	}
	return got, nil
}

func stats(ctx context.Context, v *visit, _ statsArgs) (any, error) {
	var got struct {
		Kinds  []map[string]any `json:"kinds"`
		Agents int              `json:"agents"`
	}
	if err := v.get(ctx, "/stats", nil, &got); err != nil {
		return nil, err
	}
	var all answer.List[struct {
		Kind string `json:"kind"`
	}]
	if err := v.get(ctx, "/kinds", nil, &all); err != nil {
		return nil, err
	}
	rows := picked(got.Kinds, "kind", "ready", "waiting", "leased", "dead", "doubt", "rounds_done", "done_1h", "failed_1h",
		"per_second_1m", "eta_s", "paused", "workers")
	for _, k := range all.Items { // stats may be some seconds old and lack a new kind
		if !slices.ContainsFunc(rows, func(row map[string]any) bool { return row["kind"] == k.Kind }) {
			rows = append(rows, map[string]any{"kind": k.Kind})
		}
	}
	data := map[string]any{"kinds": rows, "agents": got.Agents}
	for n := len(rows); n > 1 && len(told{}.text(data, v.most)) > v.most; {
		n /= 2
		data["kinds"], data["left_out"] = rows[:n], len(rows)-n
	}
	return data, nil
}

// actArgs requests an act on all matching items, or is about an act that was requested before.
type actArgs struct {
	answer.ActRequest
	Expect *int64 `json:"expect,omitempty"`
	ID     string `json:"id,omitempty"`
	Undo   bool   `json:"undo,omitempty"`
	Wait   int    `json:"wait_s,omitempty"`
}

// maxWait bounds how long a call waits for the end of an act.
const maxWait = 50 // seconds

func offerActs(s *protocol.Server, me answer.Me, from visits) {
	offer(s, me, from, tool{name: "act", scope: access.Operate, destroys: true,
		about: "Retry, reopen, cancel or decide all items that match a filter. Without expect it only counts them. With it the " +
			"act begins after ten seconds; until then its id undoes it.",
		fields: map[string]string{"act": "", "where": aboutWhere, "expect": "how many match, as the count told: act on them",
			"limit": "change at most so many", "reason": "for the journal", "outcome": "of decide", "code": "of decide",
			"id": "of an act: how far it is", "undo": "with id: undo it, or stop it",
			"wait_s": "with id: wait for its end, up to 50"},
		edit: func(s *jsonschema.Schema) {
			s.Required = nil
			s.Properties["act"].Enum = []any{"retry", "reopen", "cancel", "decide"}
			s.Properties["expect"].Type, s.Properties["expect"].Types = "integer", nil
		}}, act)
}

func act(ctx context.Context, v *visit, in actArgs) (any, error) {
	var got answer.BulkAct
	if in.ID != "" {
		method := http.MethodGet
		if in.Undo {
			method = http.MethodDelete
		}
		if in.Wait < 0 || in.Wait > maxWait {
			return nil, wrong("wait_s", "", "%d, must be 0 … %d", in.Wait, maxWait)
		}
		return &got, v.follow(ctx, method, "/acts/"+url.PathEscape(in.ID), time.Duration(in.Wait)*time.Second, &got)
	}
	dry := in.ActRequest
	dry.DryRun = true
	at := "/acts/" + uuid.NewString()
	if err := v.api.ask(ctx, http.MethodPut, at, nil, dry, &got); err != nil || in.Expect == nil {
		got.ID = ""
		return &got, err
	}
	if !got.Whole && in.Limit == 0 {
		return nil, wrong("limit", "narrow the filter, or give limit", "at least %d items match, too many to count: an act "+
			"on them needs a limit", got.Matched)
	}
	most := got.Matched
	if !got.Whole { // counts that were cut differ, but the act changes no more than its limit
		most = min(most, in.Limit)
	}
	if most > *in.Expect || got.Whole && most < *in.Expect {
		return nil, wrong("expect", "look at them with list, then give the new number",
			"%d, but %d items match now", *in.Expect, got.Matched)
	}
	return &got, v.api.ask(ctx, http.MethodPut, at, nil, in.ActRequest, &got)
}

// follow makes a request about an act, then asks once a second until the act has ended or the time is over.
func (v *visit) follow(ctx context.Context, method, at string, within time.Duration, into *answer.BulkAct) error {
	over := time.After(within)
	for {
		if err := v.api.ask(ctx, method, at, nil, nil, into); err != nil || !time.Time(into.Ended).IsZero() {
			return err
		}
		v.tellProgress(ctx, into)
		method = http.MethodGet
		select {
		case <-time.After(min(time.Second, within)):
		case <-over:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// tellProgress reports the progress of an act to an agent that asked for it. An error is dropped: the agent still gets
// the answer.
func (v *visit) tellProgress(ctx context.Context, a *answer.BulkAct) {
	if token := v.req.Params.GetProgressToken(); token != nil {
		_ = v.req.Session.NotifyProgress(ctx, &protocol.ProgressNotificationParams{ProgressToken: token,
			Progress: float64(a.Changed), Total: float64(a.Matched), Message: a.State})
	}
}
