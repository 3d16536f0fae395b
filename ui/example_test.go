package ui_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/memory"
	"github.com/ledgerd/ledgerd/ui"
)

// A Go program that has a ledger shows it below a path of its own.
func ExampleHandler() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	l := ledger.New(memory.New(memory.Options{}), ledger.Options{})
	if err := l.SetKind(ctx, "example", ledger.Kind{Name: "article"}); err != nil {
		log.Fatal(err)
	}
	if _, err := l.Add(ctx, ledger.NewItem{Kind: "article", Key: "drafts/1.md"}); err != nil {
		log.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/ledger/", ui.Handler(ctx, l, ui.Embedded{Name: "news", Prefix: "/ledger"}))
	server := httptest.NewServer(mux)
	defer server.Close()

	page, err := http.Get(server.URL + "/ledger/items")
	if err != nil {
		log.Fatal(err)
	}
	defer page.Body.Close()
	text, err := io.ReadAll(page.Body)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(page.Status, strings.Contains(string(text), "drafts/1.md"))
	// Output: 200 OK true
}
