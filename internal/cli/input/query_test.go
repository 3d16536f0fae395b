package input

import (
	"context"
	"io"
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/internal/cli/app"
	"github.com/ledgerd/ledgerd/internal/failure"
)

// TestQueryOverHTTP: a SELECT without a database of its own is refused if the ledger is reached over HTTP.
func TestQueryOverHTTP(t *testing.T) {
	a := app.New(&app.Interrupts{Soft: context.Background(), Hard: context.Background()}, app.Program{},
		strings.NewReader(""), io.Discard, io.Discard)
	a.Db = "https://ledger.example"
	_, err := queryDatabase(a, "", "--query-db")
	if err == nil || failure.Explain(err).Code != "no_query_db" {
		t.Errorf("refused with %v", err)
	}
}
