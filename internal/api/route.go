package api

import (
	"cmp"
	"net/http"
	"reflect"
	"slices"
	"time"

	"github.com/ledgerd/ledgerd/internal/api/access"
	"github.com/ledgerd/ledgerd/ledger"
)

// Route is one row of table().
type Route struct {
	Name         string        // of the operation, for generated clients: "listItems"
	Method, Path string        // below Base: "/items/{id}"
	Scope        access.Scope  // that the caller needs; "": no token is needed
	AllKinds     bool          // it is about the whole ledger, so not for tokens that are bound to kinds
	Summary      string        // one sentence
	Codes        []string      // of its errors, besides those of every route
	MaxBody      int64         // bytes; 0: maxBody
	Timeout      time.Duration // until the answer; 0: answerTime

	own     bool         // it is only for ledgerd itself, see package calls; openapi.json does not have it
	loose   bool         // fields of the body that the server does not know are ignored
	in, out reflect.Type // of the parameters and of the answer
	call    func(*Call) (any, error)
}

// Bounds of a request.
const (
	maxBody     = 1 << 20
	maxListBody = 8 << 20  // bytes of a body with a list
	maxEndsBody = 16 << 20 // bytes of a body with ends of attempts: an end may add thousands of items
	answerTime  = 5 * time.Second
)

// route completes a row with its handler. In is the struct of parameters, see bind. Out is the answer, sent as JSON.
func route[In, Out any](r Route, do func(*Call, In) (Out, error)) Route {
	r.in, r.out = reflect.TypeFor[In](), reflect.TypeFor[Out]()
	r.MaxBody = cmp.Or(r.MaxBody, maxBody)
	r.Timeout = cmp.Or(r.Timeout, answerTime)
	r.call = func(c *Call) (any, error) {
		var in In
		if err := c.bind(reflect.ValueOf(&in).Elem()); err != nil {
			return nil, err
		}
		return do(c, in)
	}
	return r
}

// table returns all routes. The handler of the API comes from it. The routes that are for every program also make
// openapi.json and docs/api.md.
func table() []Route {
	return slices.Concat(aboutRoutes(), itemRoutes(), addRoutes(), kindRoutes(), figureRoutes(), actRoutes(),
		leaseRoutes(), eventRoutes(), callRoutes())
}

// described returns the routes that are for every program.
func described() []Route {
	return slices.DeleteFunc(table(), func(r Route) bool { return r.own })
}

// Call is one request that is being answered.
type Call struct {
	*http.Request
	Grant  access.Grant
	Read   *ledger.Ledger // for what changes nothing
	Ledger *ledger.Ledger

	api    *API
	route  *Route
	w      http.ResponseWriter
	unsent func() // called if the answer could not be written; may be nil
}

// none is the input of a route that takes no parameters.
type none struct{}
