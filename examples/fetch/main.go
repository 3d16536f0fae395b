// Command fetch is a plugin that downloads files: its tests show how a plugin is tested, see
// docs/plugins/testing.md.
package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"

	"github.com/ledgerd/ledgerd/sdk"
)

type Config struct {
	Dir string `json:"dir" schema:"required" doc:"folder that gets the files"`
}

type In struct {
	URL string `json:"url" input:"url" doc:"what to download"`
}

type Out struct {
	Path  string `json:"path" doc:"of the file"`
	Bytes int64  `json:"bytes" doc:"its size"`
}

func fetch(ctx context.Context, cfg *Config, it sdk.Item[In]) (Out, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, it.Payload.URL, nil)
	if err != nil {
		return Out{}, sdk.Permanent(sdk.Code("bad_url", err))
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return Out{}, sdk.Code("unreachable", err)
	}
	defer res.Body.Close()
	switch res.StatusCode {
	case http.StatusOK:
	case http.StatusNotFound, http.StatusGone:
		return Out{}, sdk.Permanent(sdk.Code("not_found", fmt.Errorf("the server answered %s", res.Status)))
	default:
		return Out{}, sdk.Code("http", fmt.Errorf("the server answered %s", res.Status))
	}
	to := filepath.Join(cfg.Dir, name(req.URL))
	n, err := save(to+".part", res.Body, func(n int64) { it.Progress(n, max(0, res.ContentLength), "bytes") })
	if err != nil {
		return Out{}, err
	}
	return Out{to, n}, os.Rename(to+".part", to) // there as a whole, or not at all
}

// name is the hash of the URL and the last part of its path without "..": another URL may have the same last part, and
// the file must be in the folder.
func name(u *url.URL) string {
	base := path.Base(path.Clean("/" + u.Path))
	if base == "/" || !filepath.IsLocal(base) {
		base = "index"
	}
	return fmt.Sprintf("%.6x-%.200s", sha256.Sum256([]byte(u.String())), base)
}

// save writes what it reads to a file, over what another attempt may have left.
func save(file string, from io.Reader, progress func(int64)) (n int64, err error) {
	f, err := os.Create(file)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	for {
		more, err := io.CopyN(f, from, 64<<10)
		if n += more; more > 0 {
			progress(n)
		}
		if err == io.EOF {
			return n, f.Close()
		}
		if err != nil {
			return n, err
		}
	}
}

func plugin() *sdk.Plugin {
	p := sdk.New("fetch", "0.1.0", fetch)
	p.Doc = "Downloads files."
	return p
}

func main() { sdk.Main(plugin()) }
