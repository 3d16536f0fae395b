package mcp

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	protocol "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ledgerd/ledgerd/internal/answer"
	"github.com/ledgerd/ledgerd/internal/api/access"
)

// Inputs of the tools that look.
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
	read := []access.Scope{access.Read}
	offer(s, me, from, tool{name: "show", scopes: read, reads: true,
		about:  "Show an item: its payload, why it is where it is, what would help (acts), its newest attempts.",
		fields: map[string]string{"id": "", "bytes": aboutBytes}}, show)
	offer(s, me, from, tool{name: "list", scopes: read, reads: true,
		about: "List items that match a filter.",
		fields: map[string]string{"where": aboutWhere, "order": "id if it is not given", "limit": "20 if it is not given",
			"cursor": "next of the part before", "payload": "with payloads and outputs", "bytes": aboutBytes}}, list)
	offer(s, me, from, tool{name: "errors", scopes: read, reads: true,
		about:  "Group what failed by cause, of the last 24 h unless the filter has since.",
		fields: map[string]string{"where": aboutWhere, "bytes": aboutBytes}}, causes)
	offer(s, me, from, tool{name: "stats", scopes: read, reads: true,
		about: "Count what is open by kind, and how fast it is worked.", fields: map[string]string{"bytes": aboutBytes}}, stats)
	offerActs(s, me, from)
}

// wrong is a mistake in the arguments that the schema does not find.
func wrong(field, hint, format string, args ...any) error {
	return &refusal{answer.Problem{Code: "invalid", Detail: field + ": " + fmt.Sprintf(format, args...), Hint: hint,
		Field: field}}
}

// only leaves some fields of rows.
func only(rows []map[string]any, fields ...string) []map[string]any {
	for _, row := range rows {
		for name := range row {
			if !slices.Contains(fields, name) {
				delete(row, name)
			}
		}
	}
	return rows
}

func (v *visit) get(ctx context.Context, path string, query url.Values, into any) error {
	return v.api.ask(ctx, http.MethodGet, path, query, nil, into)
}

// mostAttempts is how many attempts show has.
const mostAttempts = 3

func show(ctx context.Context, v *visit, in showArgs) (any, error) {
	var it, why map[string]any
	var attempts answer.List[map[string]any]
	at := fmt.Sprintf("/items/%d", in.ID)
	if err := v.get(ctx, at, nil, &it); err != nil {
		return nil, err
	}
	if err := v.get(ctx, at+"/why", nil, &why); err != nil {
		return nil, err
	}
	if err := v.get(ctx, at+"/attempts", url.Values{"limit": {strconv.Itoa(mostAttempts)}}, &attempts); err != nil {
		return nil, err
	}
	delete(why, "id")
	return map[string]any{"item": it, "why": why, "attempts": attempts.Items}, nil
}

// listed are the fields of items in a list.
var listed = []string{"id", "kind", "scope", "key", "state", "round", "round_state", "priority", "failures", "agent",
	"due", "expires", "outcome", "code", "error", "payload", "output"}

// list asks for fewer items if those do not fit into the answer. So the cursor goes on after the last one that is
// shown.
func list(ctx context.Context, v *visit, in listArgs) (any, error) {
	limit := in.Limit
	if limit == 0 {
		limit = 20
	}
	for {
		q := url.Values{"where": {in.Where}, "order": {in.Order}, "cursor": {in.Cursor}, "limit": {strconv.Itoa(limit)},
			"output": {strconv.FormatBool(in.Payload)}}
		var got answer.List[map[string]any]
		if err := v.get(ctx, "/items", q, &got); err != nil {
			return nil, err
		}
		for _, row := range only(got.Items, listed...) {
			if !in.Payload {
				delete(row, "payload")
				delete(row, "output")
			}
		}
		n := len(got.Items)
		size := len(told{}.text(got, in.most()))
		if size <= in.most() || n <= 1 {
			return got, nil
		}
		limit = max(1, min(n-1, n*in.most()/size))
	}
}

// mostCauses is how many causes are shown, and mostExamples how many items of each.
const mostCauses, mostExamples = 10, 2

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
	if n := len(got.Items); n > mostCauses {
		got.Items, got.LeftOut = got.Items[:mostCauses], n-mostCauses
	}
	for _, row := range only(got.Items, "cause", "code", "message", "count", "for_good", "kinds", "last_seen",
		"examples") {
		if all, ok := row["examples"].([]any); ok && len(all) > mostExamples {
			row["examples"] = all[:mostExamples]
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
	rows := only(got.Kinds, "kind", "ready", "waiting", "leased", "dead", "doubt", "rounds_done", "done_1h", "failed_1h",
		"per_second_1m", "eta_s", "paused", "workers")
	for _, k := range all.Items { // stats may be some seconds old
		if !slices.ContainsFunc(rows, func(row map[string]any) bool { return row["kind"] == k.Kind }) {
			rows = append(rows, map[string]any{"kind": k.Kind})
		}
	}
	return map[string]any{"kinds": rows, "agents": got.Agents}, nil
}
