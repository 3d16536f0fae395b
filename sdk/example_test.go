package sdk_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/ledgerd/ledgerd/sdk"
)

// A config that holds a client, and errors that decide the item's outcome.
func ExampleNew() {
	sdk.Main(sdk.New("ping", "0.1.0", ping))
}

type PingConfig struct {
	Deadline time.Duration `json:"deadline" default:"30s" doc:"for one request"`
	Token    string        `json:"token" secret:"true" doc:"sent as bearer token"`

	client *http.Client
}

// Open makes the client that all calls share.
func (c *PingConfig) Open(context.Context) error {
	c.client = &http.Client{Timeout: c.Deadline}
	return nil
}

// Close closes the idle connections of the client.
func (c *PingConfig) Close() error {
	c.client.CloseIdleConnections()
	return nil
}

type PingIn struct {
	URL    string `json:"url" input:"url" doc:"what to ask"`
	Accept []int  `json:"accept" default:"[200]" schema:"min=100,max=599" doc:"status codes that are fine"`
}

type PingOut struct {
	Status int `json:"status" doc:"what came back"`
}

func ping(ctx context.Context, cfg *PingConfig, it sdk.Item[PingIn]) (PingOut, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodHead, it.Payload.URL, nil)
	if err != nil {
		return PingOut{}, sdk.Permanent(sdk.Code("bad_url", err))
	}
	res, err := cfg.client.Do(req)
	if err != nil {
		return PingOut{}, sdk.Code("unreachable", err) // tried again by the kind's policy
	}
	res.Body.Close()
	out := PingOut{Status: res.StatusCode}
	if res.StatusCode == http.StatusTooManyRequests {
		return out, sdk.Snooze(time.Minute, "asked to wait")
	}
	if slices.Contains(it.Payload.Accept, res.StatusCode) {
		return out, nil
	}
	return out, sdk.Permanent(sdk.Code(fmt.Sprintf("http_%d", res.StatusCode), errors.New(res.Status)))
}

// Many items in one statement; each is settled by itself.
func ExampleNewBatch() {
	type row struct {
		User int64 `json:"user" schema:"required,min=1"`
	}
	p := sdk.NewBatch("greylist", "0.1.0", func(ctx context.Context, _ *struct{}, b *sdk.Batch[row, string]) error {
		users := make([]int64, len(b.Items))
		for i, it := range b.Items {
			users[i] = it.Payload.User
		}
		listed, err := lookUp(ctx, users)
		if err != nil {
			return err // of all of them
		}
		for i, it := range b.Items {
			if listed[it.Payload.User] {
				b.Settle(i, "listed", nil)
			} else {
				b.Settle(i, "", sdk.Skip("not listed"))
			}
		}
		return nil
	})
	p.MaxBatch = 500
	sdk.Main(p)
}

func lookUp(context.Context, []int64) (map[int64]bool, error) { return nil, nil }

// A feed becomes articles: they are added in the transaction that records the feed as done.
func ExampleItem_Emit() {
	type feed struct {
		URL string `json:"url" input:"url"`
	}
	p := sdk.New("feed", "0.1.0", func(ctx context.Context, _ *struct{}, it sdk.Item[feed]) (int, error) {
		guids := []string{"1", "2"} // of its entries
		for i, guid := range guids {
			it.Progress(int64(i), int64(len(guids)), "entries")
			if err := it.Emit(sdk.Child{Kind: "article", Key: guid, Payload: map[string]string{"feed": it.Key}}); err != nil {
				return 0, err
			}
		}
		return len(guids), nil
	})
	p.Emits = []string{"article"}
	sdk.Main(p)
}

// One error with a code and an outcome. errors.Is still finds its cause.
func ExampleCode() {
	gone := errors.New("410 Gone")
	err := fmt.Errorf("fetch: %w", sdk.Permanent(sdk.Code("http_410", gone)))
	fmt.Println(err, errors.Is(err, gone))
	// Output: fetch: 410 Gone true
}
