package mcp

import (
	"context"
	"net/http"
	"net/url"

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
}

func offerActs(s *protocol.Server, me answer.Me, from visits) {
	offer(s, me, from, tool{name: "act", scopes: []access.Scope{access.Operate}, destroys: true,
		about: "Retry, reopen, cancel or decide all items that match a filter. Without expect it only counts them. With it the " +
			"act begins after ten seconds; until then its id undoes it.",
		fields: map[string]string{"act": "", "where": aboutWhere, "expect": "how many match, as the count told: act on them",
			"limit": "change at most so many", "reason": "for the journal", "outcome": "of decide", "code": "of decide",
			"id": "of an act: how far it is", "undo": "with id: undo it, or stop it"},
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
		return &got, v.api.ask(ctx, method, "/acts/"+url.PathEscape(in.ID), nil, nil, &got)
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
