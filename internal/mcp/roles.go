package mcp

import (
	"context"
	"strconv"
	"strings"

	protocol "github.com/modelcontextprotocol/go-sdk/mcp"
)

// itemsAt is the prefix of the URIs of items.
const itemsAt = "ledger://items/"

// maxOfItem bounds the bytes of an item that is read by its URI.
const maxOfItem = 32 << 10

// offerItems lets agents read items by URI, in the form of the tool show.
func offerItems(s *protocol.Server, from visits) {
	s.AddResourceTemplate(&protocol.ResourceTemplate{Name: "item", URITemplate: itemsAt + "{id}",
		MIMEType: "application/json", Description: "an item, as show shows it"},
		func(ctx context.Context, req *protocol.ReadResourceRequest) (*protocol.ReadResourceResult, error) {
			uri := req.Params.URI
			id, err := strconv.ParseInt(strings.TrimPrefix(uri, itemsAt), 10, 64)
			if err != nil {
				return nil, protocol.ResourceNotFoundError(uri)
			}
			v := from(ctx)
			v.beat(ctx, nil)
			data, err := show(ctx, v, showArgs{ID: id})
			if bad, ok := err.(*refusal); ok && bad.Code == "not_found" {
				return nil, protocol.ResourceNotFoundError(uri)
			}
			if err != nil {
				return nil, err
			}
			text := told{Notices: v.notices}.text(data, maxOfItem)
			return &protocol.ReadResourceResult{Contents: []*protocol.ResourceContents{{URI: uri,
				MIMEType: "application/json", Text: text}}}, nil
		})
}

// The texts of prompts; KIND stands for the kind.
const (
	workText = `Work on items of the kind KIND until none is left:
1. claim one. Read its description and acceptance (payload), and its earlier attempts (show) if it has failed before.
2. Do what it describes, within what your user allows you. Add items for work that you find beside it, with parent.
3. Check acceptance. Then finish it: output what others need, note what you did. If you cannot do it: failed, with
   code and error; if you do not know whether it took effect: unknown; if it is not for you: release it.
4. When an answer has the notice lost or cancelled, stop working on that item at once.
Make some call at least once within lease_s; renew will do.`
	leadText = `Look after the items of the kind KIND:
1. stats and errors: what is open, what failed, and why. list with state:dead,doubt: what needs a decision.
2. show some items of each cause. Tell your user what you found, with ids, and propose what to do.
3. After your user has agreed, use act: count first, then give the number in expect. Tell the id: undo works for ten
   seconds. retry what failed for a reason that is gone, cancel what is not wanted, decide what is in doubt.`
)

// offerRoles adds prompts for the two commonest roles.
func offerRoles(s *protocol.Server) {
	for _, p := range []struct{ name, about, text string }{
		{"worker", "Work on the items of a kind, one after the other", workText},
		{"lead", "Look after a kind: see what failed, and decide with your user", leadText},
	} {
		s.AddPrompt(&protocol.Prompt{Name: p.name, Description: p.about,
			Arguments: []*protocol.PromptArgument{{Name: "kind", Description: "such as task", Required: true}}},
			func(_ context.Context, req *protocol.GetPromptRequest) (*protocol.GetPromptResult, error) {
				text := strings.ReplaceAll(p.text, "KIND", strconv.Quote(req.Params.Arguments["kind"]))
				return &protocol.GetPromptResult{Description: p.about, Messages: []*protocol.PromptMessage{{Role: "user",
					Content: &protocol.TextContent{Text: text}}}}, nil
			})
	}
}
