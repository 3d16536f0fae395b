package api

import (
	"net/http"

	"github.com/ledgerd/ledgerd/internal/answer"
	"github.com/ledgerd/ledgerd/internal/api/access"
	"github.com/ledgerd/ledgerd/internal/report"
)

func aboutRoutes() []Route {
	return []Route{
		route(Route{Name: "getVersion", Method: http.MethodGet, Path: "/version", Summary: "Get the version of the server"},
			func(c *Call, _ none) (answer.Version, error) { return c.api.Version, nil }),
		route(Route{Name: "getMe", Method: http.MethodGet, Path: "/me", Scope: access.Read,
			Summary: "Tell who asks, and what they may do"}, getMe),
		route(Route{Name: "getDescription", Method: http.MethodGet, Path: "/openapi.json",
			Summary: "Get this description, OpenAPI 3.1"},
			func(*Call, none) (description, error) { return description{}, nil }),
	}
}

func getMe(c *Call, _ none) (answer.Me, error) {
	me := answer.Me{Name: c.Grant.Name, Kinds: report.OrEmpty(c.Grant.Kinds), Agent: c.Grant.Agent}
	for _, s := range access.Scopes {
		if c.Grant.May(s) {
			me.Scopes = append(me.Scopes, string(s))
		}
	}
	return me, nil
}

// description is openapi.json.
type description struct{}

func (description) write(c *Call) error {
	text, err := OpenAPI(c.api.Prefix)
	if err != nil {
		return err
	}
	c.sendWithETag(text)
	return nil
}
