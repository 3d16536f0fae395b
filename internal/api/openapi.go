package api

import (
	"encoding/json"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/ledgerd/ledgerd/internal/answer"
)

// object is an object of the OpenAPI document.
type object = map[string]any

// OpenAPI returns the description of the API in JSON, as OpenAPI 3.1 wants it. All paths begin with prefix.
func OpenAPI(prefix string) ([]byte, error) {
	answers, inputs := newOpenSchemas(), newSchemas()
	paths := map[string]object{}
	for _, r := range described() {
		if paths[r.Path] == nil {
			paths[r.Path] = object{}
		}
		paths[r.Path][strings.ToLower(r.Method)] = operation(&r, answers, inputs)
	}
	answers.of(reflect.TypeFor[answer.Problem]())
	all := maps.Clone(inputs.made)
	maps.Copy(all, answers.made)
	return json.MarshalIndent(object{
		"openapi": "3.1.0",
		"info": object{"title": "ledgerd", "version": "1",
			"summary":     "A ledger of work: items, their attempts, and what can be done about them",
			"description": "See docs/api.md. Fields may be added to answers; none is renamed.",
			"license":     object{"name": "Apache-2.0", "identifier": "Apache-2.0"}},
		"servers": []object{{"url": prefix + Base}},
		"paths":   paths,
		"components": object{"schemas": all, "securitySchemes": object{"token": object{"type": "http", "scheme": "bearer",
			"description": "A token that ledgerd token new has made"}}},
	}, "", "  ")
}

// operation describes a route.
func operation(r *Route, answers, inputs *schemas) object {
	op := object{"operationId": r.Name, "summary": r.Summary, "responses": responses(r, answers),
		"security": []object{}, "tags": []string{strings.Split(r.Path, "/")[1]}}
	if r.Scope != "" {
		op["security"] = []object{{"token": []string{}}}
		op["x-scope"] = r.Scope
	}
	var params []object
	for _, p := range parameters(r.in) {
		if p.in == "body" {
			op["requestBody"] = requestBody(p, inputs)
			continue
		}
		param := object{"name": p.name, "in": p.in, "description": p.doc, "schema": p.schema()}
		if p.in == "path" {
			param["required"] = true
		}
		params = append(params, param)
	}
	if params != nil {
		op["parameters"] = params
	}
	return op
}

// schema describes the values of a parameter.
func (p parameter) schema() *jsonschema.Schema {
	s := &jsonschema.Schema{}
	switch p.typ.Kind() {
	case reflect.Int64:
		s.Type = "integer"
		if p.def != "" {
			s.Default = json.RawMessage(p.def)
		}
		if low, top := float64(p.low), float64(p.top); p.top > 0 {
			s.Minimum = &low
			if p.top < 1<<53 {
				s.Maximum = &top
			}
		}
	case reflect.Bool:
		s.Type, s.Default = "boolean", json.RawMessage("false")
	default:
		s.Type, s.Enum = "string", words(p.oneOf)
		if p.def != "" {
			s.Default = json.RawMessage(strconv.Quote(p.def))
		}
	}
	return s
}

// requestBody describes the body of a request. A list may also be sent as lines of JSON.
func requestBody(p parameter, inputs *schemas) object {
	content := object{mediaJSON: object{"schema": inputs.of(p.typ)}}
	if p.name == "list" {
		content[mediaLines] = object{"schema": inputs.of(p.typ.Elem())}
	}
	return object{"required": true, "description": p.doc, "content": content}
}

// responses describes the answers of a route, good and bad.
func responses(r *Route, answers *schemas) object {
	content := object{}
	switch {
	case r.out == reflect.TypeFor[description]():
		content[mediaJSON] = object{"schema": object{"type": "object"}}
	case r.out == reflect.TypeFor[stream](): // contentSchema is that of the data of each event
		content[mediaEvents] = object{"schema": object{"type": "string", "contentMediaType": mediaEvents,
			"contentSchema": answers.of(reflect.TypeFor[answer.Ended]())}}
	case r.out.Implements(reflect.TypeFor[selfWriter]()):
		content[mediaBytes] = object{"schema": object{"type": "string", "format": "binary"}}
	default:
		content[mediaJSON] = object{"schema": answers.of(r.out)}
		if r.out.Implements(reflect.TypeFor[paged]()) {
			content[mediaLines] = object{"schema": answers.of(r.out.Field(0).Type.Elem())}
		}
	}
	all := object{"200": object{"description": r.Summary, "content": content}}
	byStatus := map[int][]string{}
	for _, name := range r.errorCodes() {
		byStatus[codes[name].status] = append(byStatus[codes[name].status], name)
	}
	for _, status := range slices.Sorted(maps.Keys(byStatus)) {
		all[strconv.Itoa(status)] = object{"description": http.StatusText(status) + ": " +
			strings.Join(byStatus[status], ", "), "content": object{mediaProblem: object{
			"schema": object{"$ref": components + "Problem"}}}}
	}
	if content[mediaJSON] != nil && r.Method == http.MethodGet {
		all["304"] = object{"description": "It has not changed since the answer whose ETag is in If-None-Match"}
	}
	return all
}

// errorCodes returns all codes of errors of a route, sorted.
func (r *Route) errorCodes() []string {
	all := slices.Concat(everywhere, r.Codes)
	if r.Scope != "" {
		all = append(all, tokenCodes...)
	}
	if slices.ContainsFunc(parameters(r.in), func(p parameter) bool { return p.in == "body" }) {
		all = append(all, "bad_media_type")
	}
	slices.Sort(all)
	return slices.Compact(all)
}
