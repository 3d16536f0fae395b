package api

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/sdk/settings"
)

// parameter is a field of the input of a route, as its tags describe it:
//
//	path, query, header   its name, and where it is
//	body                  "json": the body; "list": a list, as JSON or as one line of JSON each
//	doc                   what it is
//	default, range, oneof as in the config: "100", "1 … 1000", "id|-id"
type parameter struct {
	in, name, doc, def string
	low, top           int64 // the range; top 0: there is none
	oneOf              []string
	field              int // index in the struct
	typ                reflect.Type
}

// parameters lists the parameters of an input.
func parameters(in reflect.Type) (all []parameter) {
	for i := range in.NumField() {
		f := in.Field(i)
		p := parameter{doc: f.Tag.Get("doc"), def: f.Tag.Get("default"), field: i, typ: f.Type}
		for _, place := range []string{"path", "query", "header", "body"} {
			if name := f.Tag.Get(place); name != "" {
				p.in, p.name = place, name
			}
		}
		low, top, _ := strings.Cut(f.Tag.Get("range"), " … ")
		p.low, _ = strconv.ParseInt(low, 10, 64)
		p.top, _ = strconv.ParseInt(top, 10, 64)
		if choices := f.Tag.Get("oneof"); choices != "" {
			p.oneOf = strings.Split(choices, "|")
		}
		all = append(all, p)
	}
	return all
}

// bad is the error for a parameter or a body that cannot be read.
func bad(field, hint, format string, args ...any) error {
	return &inputError{failure.Usage("bad_request", hint, format, args...), field}
}

// inputError names the field that is wrong.
type inputError struct {
	err   *failure.Error
	field string
}

func (e *inputError) Error() string { return e.err.Error() }
func (e *inputError) Unwrap() error { return e.err }

// bind reads a request into the input of its route. A parameter of the query that the route does not have is refused.
func (c *Call) bind(into reflect.Value) error {
	query, err := url.ParseQuery(c.URL.RawQuery)
	if err != nil {
		return bad("", "special characters are written as %XX", "the query of the URL cannot be read")
	}
	all := parameters(into.Type())
	for name, values := range query {
		known := slices.ContainsFunc(all, func(p parameter) bool { return p.in == "query" && p.name == name })
		if !known {
			return unknownParameter(all, name)
		}
		if len(values) > 1 {
			return bad(name, "", "the parameter %s is given %d times", name, len(values))
		}
	}
	for _, p := range all {
		field := into.Field(p.field)
		text := ""
		switch p.in {
		case "body":
			if err := c.body(p, field); err != nil {
				return err
			}
			continue
		case "path":
			text = c.PathValue(p.name)
		case "query":
			text = query.Get(p.name)
		case "header":
			text = c.Header.Get(p.name)
		}
		text = cmp.Or(text, p.def)
		if err := p.set(field, text); err != nil {
			return err
		}
	}
	return nil
}

// unknownParameter is the error for a name in the query. It suggests a name of the route.
func unknownParameter(all []parameter, name string) error {
	var names []string
	for _, p := range all {
		if p.in == "query" {
			names = append(names, p.name)
		}
	}
	hint := "it takes none"
	if near := settings.Suggest(name, names); near != "" {
		hint = "did you mean " + near + "?"
	} else if len(names) > 0 {
		hint = "there are " + strings.Join(names, ", ")
	}
	return bad(name, hint, "there is no parameter %q", name)
}

// set reads a text into a parameter.
func (p parameter) set(into reflect.Value, text string) error {
	if p.oneOf != nil && text != "" && !slices.Contains(p.oneOf, text) {
		return bad(p.name, "", "%s: must be one of %s, not %q", p.name, strings.Join(p.oneOf, ", "), text)
	}
	switch into.Kind() {
	case reflect.String:
		into.SetString(text)
	case reflect.Bool:
		if text != "true" && text != "false" && text != "" {
			return bad(p.name, "", "%s: must be true or false, not %q", p.name, text)
		}
		into.SetBool(text == "true")
	case reflect.Int64:
		if text == "" {
			return nil
		}
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || p.top > 0 && (n < p.low || n > p.top) {
			hint := "a whole number"
			if p.top > 0 {
				hint = fmt.Sprintf("a whole number, %d … %d", p.low, p.top)
			}
			return bad(p.name, "", "%s: must be %s, not %q", p.name, hint, text)
		}
		into.SetInt(n)
	default:
		panic("api: a parameter of type " + p.typ.String()) // a mistake in the table
	}
	return nil
}

// body decodes the body of a request into an input.
func (c *Call) body(p parameter, into reflect.Value) error {
	media, _, err := mime.ParseMediaType(c.Header.Get("Content-Type"))
	lines := p.name == "list" && media == mediaLines
	if err != nil || media != mediaJSON && !lines {
		return failure.New(failure.ExitUsage, "bad_media_type", fmt.Sprintf("the body is of type %q", media),
			"send Content-Type: "+mediaJSON)
	}
	d := json.NewDecoder(c.Body)
	if !c.route.loose {
		d.DisallowUnknownFields()
	}
	if lines {
		return decodeLines(d, into)
	}
	if err := d.Decode(into.Addr().Interface()); err != nil {
		return badJSON(d, err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return bad("", "", "the body has more than one value of JSON")
	}
	return nil
}

// decodeLines reads one value after the other into a slice.
func decodeLines(d *json.Decoder, into reflect.Value) error {
	for {
		entry := reflect.New(into.Type().Elem())
		err := d.Decode(entry.Interface())
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return badJSON(d, err)
		}
		into.Set(reflect.Append(into, entry.Elem()))
	}
}

// badJSON words a mistake in a body.
func badJSON(d *json.Decoder, err error) error {
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		if wrong.Field == "" && wrong.Type.Kind() == reflect.Slice {
			return bad("", "openapi.json lists the fields", "the body must be a list, [{…}], and not %s", wrong.Value)
		}
		return bad(wrong.Field, "openapi.json lists the fields", "the body, byte %d: %s must not be %s", d.InputOffset(),
			cmp.Or(wrong.Field, "it"), wrong.Value)
	}
	if wrong, ok := errors.AsType[*json.SyntaxError](err); ok {
		return bad("", "", "the body, byte %d: no JSON: %s", wrong.Offset, wrong)
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return bad("", "", "the body ends within a value of JSON")
	}
	if name, unknown := strings.CutPrefix(err.Error(), "json: unknown field "); unknown {
		return bad(strings.Trim(name, `"`), "openapi.json lists the fields", "the body, byte %d: there is no field %s",
			d.InputOffset(), name)
	}
	if _, cut := errors.AsType[net.Error](err); cut {
		return bad("", "", "the body broke off")
	}
	if _, big := errors.AsType[*http.MaxBytesError](err); big {
		return err
	}
	return bad("", "openapi.json has the form of every field", "the body: %v", err) // a time, for example
}
