package mail

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	htmltemplate "html/template"
	"io"
	"io/fs"
	"path/filepath"
	texttemplate "text/template"

	"github.com/ledgerd/ledgerd/plugins/internal/failure"
	"github.com/ledgerd/ledgerd/plugins/internal/itemfile"
)

const (
	maxTemplate = 1 << 20  // bytes of a file
	maxPart     = 10 << 20 // bytes of a template's output
)

// fill makes the texts of a mail from the files NAME.subject, NAME.txt and NAME.html.
func fill(ctx context.Context, folder string, in In) (parts, error) {
	if folder == "" {
		return parts{}, failure.Transient("template",
			errors.New("template: this machine has no folder of templates: --with templates=/PATH"))
	}
	p := parts{subject: in.Subject}
	found := false
	for _, part := range []struct {
		ending string
		to     *string
		parse  func(name, text string) (executer, error)
	}{{"subject", &p.subject, parseText}, {"txt", &p.text, parseText}, {"html", &p.html, parseHTML}} {
		if part.ending == "subject" && in.Subject != "" {
			continue
		}
		name := in.Template + "." + part.ending
		text, err := readTemplate(filepath.Join(folder, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return p, failure.Transient("template", fmt.Errorf("template %s: %w", name, err))
		}
		t, err := part.parse(name, text)
		if err != nil {
			return p, failure.Transient("template", err)
		}
		found = found || part.ending != "subject"
		out := limited{ctx: ctx, left: maxPart}
		if err := t.Execute(&out, map[string]any(in.Data)); err != nil {
			if ctx.Err() != nil {
				return p, failure.Transient("template", context.Cause(ctx))
			}
			return p, failure.Permanent("template", err)
		}
		*part.to = out.String()
	}
	if !found {
		return p, failure.Transient("template", fmt.Errorf("template: neither %s.txt nor %[1]s.html is in %s", in.Template,
			folder))
	}
	return p, nil
}

type executer interface {
	Execute(w io.Writer, data any) error
}

// A missing field is an error: a mail to "Dear <no value>" is useless.
const strict = "missingkey=error"

func parseText(name, text string) (executer, error) {
	return texttemplate.New(name).Option(strict).Parse(text)
}

func parseHTML(name, text string) (executer, error) {
	return htmltemplate.New(name).Option(strict).Parse(text)
}

func readTemplate(path string) (string, error) {
	f, err := itemfile.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxTemplate+1))
	if len(text) > maxTemplate {
		return "", fmt.Errorf("has more than %d bytes", maxTemplate)
	}
	return string(text), err
}

// limited collects the output of a template. It fails when the output is too long or the item's context ends.
type limited struct {
	bytes.Buffer
	ctx  context.Context
	left int
}

func (l *limited) Write(p []byte) (int, error) {
	if l.left -= len(p); l.left < 0 {
		return 0, fmt.Errorf("makes more than %d bytes", maxPart)
	}
	if err := l.ctx.Err(); err != nil {
		return 0, context.Cause(l.ctx)
	}
	return l.Buffer.Write(p)
}
