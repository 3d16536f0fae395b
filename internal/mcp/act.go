package mcp

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/google/uuid"
	protocol "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ledgerd/ledgerd/internal/answer"
	"github.com/ledgerd/ledgerd/internal/api/access"
)

// actArgs asks for an act on all items that match, or about one that was asked for.
type actArgs struct {
	answer.ActRequest
	Expect *int64 `json:"expect,omitempty"`
	ID     string `json:"id,omitempty"`
	Undo   bool   `json:"undo,omitempty"`
	Wait   int    `json:"wait_s,omitempty"`
}

// mostWait is how long a call waits for the end of an act.
const mostWait = 50 // seconds

func offerActs(s *protocol.Server, me answer.Me, from visits) {
	offer(s, me, from, tool{name: "act", scopes: []access.Scope{access.Operate}, destroys: true,
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
		if in.Wait < 0 || in.Wait > mostWait {
			return nil, wrong("wait_s", "", "%d, must be 0 … %d", in.Wait, mostWait)
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
	if got.Matched != *in.Expect {
		return nil, wrong("expect", "look at them with list, then give the new number",
			"%d, but %d items match now", *in.Expect, got.Matched)
	}
	return &got, v.api.ask(ctx, http.MethodPut, at, nil, in.ActRequest, &got)
}

// follow makes a request about an act, and looks once a second until the act has ended or the time is over.
func (v *visit) follow(ctx context.Context, method, at string, within time.Duration, into *answer.BulkAct) error {
	over := time.NewTimer(within)
	defer over.Stop()
	for {
		if err := v.api.ask(ctx, method, at, nil, nil, into); err != nil || !time.Time(into.Ended).IsZero() {
			return err
		}
		if v.progress != nil {
			v.progress(ctx, float64(into.Changed), float64(into.Matched), into.State)
		}
		method = http.MethodGet
		select {
		case <-time.After(min(time.Second, within)):
		case <-over.C:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// progressOf is how the agent of a call hears how far it is; nil if it does not want to.
func progressOf(req *protocol.CallToolRequest) func(context.Context, float64, float64, string) {
	token := req.Params.GetProgressToken()
	if token == nil {
		return nil
	}
	return func(ctx context.Context, done, of float64, text string) {
		// an agent that does not hear it gets the answer all the same
		_ = req.Session.NotifyProgress(ctx, &protocol.ProgressNotificationParams{ProgressToken: token, Progress: done,
			Total: of, Message: text})
	}
}
