// Package clientgen writes clients of the HTTP API in Python and TypeScript, from its description in OpenAPI.
//
// A client is one file without dependencies. Its types and its calls, one for each operation, are made from the
// description. The templates have the parts that do not depend on it: the transport, errors, lists, events, and a
// worker that claims, renews and finishes.
package clientgen

import (
	"bytes"
	"embed"
	"fmt"
	"strings"
	"text/template"

	"github.com/ledgerd/ledgerd/internal/api"
)

//go:generate go run ./cmd/clientgen ../../../clients

//go:embed *.tmpl
var templates embed.FS

// Files returns the clients, by their paths below the folder clients.
func Files() (map[string]string, error) {
	text, err := api.OpenAPI("")
	if err != nil {
		return nil, err
	}
	d, err := read(text)
	if err != nil {
		return nil, err
	}
	files := map[string]string{}
	for path, w := range map[string]language{
		"python/ledgerd.py":       python{},
		"typescript/ledgerd.js":   javaScript{},
		"typescript/ledgerd.d.ts": typeScript{},
	} {
		name := path[strings.IndexByte(path, '/')+1:]
		t, err := template.New(name+".tmpl").Funcs(template.FuncMap{
			"base":    func() string { return api.Base },
			"types":   func() string { return join(d.types, func(t namedType) string { return w.typeText(d, t) }) },
			"methods": func() string { return join(d.operations, func(o operation) string { return w.method(d, o) }) },
		}).ParseFS(templates, name+".tmpl")
		if err != nil {
			return nil, err
		}
		var b bytes.Buffer
		if err := t.Execute(&b, nil); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		files[path] = b.String()
	}
	return files, nil
}

// language writes the types and the calls of a client.
type language interface {
	typeText(d *description, t namedType) string
	method(d *description, o operation) string
}

// join puts texts below each other.
func join[T any](all []T, text func(T) string) string {
	var parts []string
	for _, one := range all {
		if t := text(one); t != "" {
			parts = append(parts, t)
		}
	}
	return strings.Join(parts, "\n")
}
