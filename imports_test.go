package ledgerd

import (
	"strings"
	"testing"
)

// TestWhoImportsWhom asserts the picture in doc.go. Two small packages that import nothing of ours are free for all.
func TestWhoImportsWhom(t *testing.T) {
	stores := []string{"ledger/sqlite", "ledger/postgres"}
	ours := func(pkg string) bool {
		return in(pkg, "ledger", "sdk", "plugins", "schema", "internal", "cmd", "examples")
	}
	rules := []struct {
		text string
		// broken reports whether pkg must not import this; test is for _test.go files and packages for tests.
		broken func(pkg, imported string, test bool) bool
	}{
		{"ledger/... imports of ours only ledger/..., schema, internal/failpoint and pgcancel, in tests also those for tests",
			func(pkg, imported string, test bool) bool {
				return in(pkg, "ledger") && ours(imported) && !in(imported, "ledger", "schema", "internal/failpoint",
					"internal/pgcancel") && !(test && in(imported, "internal") && strings.Contains(imported, "test"))
			}},
		{"ledger/scheduler, recurrence and the packages of sizes, figures and names beside them know no ledger: they " +
			"import of ours only recurrence", func(pkg, imported string, test bool) bool {
			return in(pkg, "ledger/scheduler", "ledger/recurrence", "ledger/bounds", "ledger/order", "ledger/stats",
				"ledger/definition", "ledger/payload", "ledger/invariant", "ledger/process", "ledger/tracing") &&
				ours(imported) && imported != "ledger/recurrence" && !test
		}},
		{"sdk/... imports of ours only sdk/..., and sdk/sdktest also internal/pluginproc", func(pkg, imported string,
			test bool) bool {
			return in(pkg, "sdk") && ours(imported) && !in(imported, "sdk") &&
				!(test && in(imported, "internal/pluginproc"))
		}},
		{"schema imports nothing of ours", func(pkg, imported string, test bool) bool {
			return in(pkg, "schema") && ours(imported)
		}},
		{"a plugin imports of ours only sdk/..., plugins/internal/... and itself, the tests of filecsv also internal/pgtest",
			func(pkg, imported string, test bool) bool {
				if !in(pkg, "plugins") {
					return false
				}
				self := strings.Join(strings.SplitN(pkg, "/", 3)[:2], "/")
				return ours(imported) && !in(imported, "sdk", "plugins/internal", self) &&
					!(test && in(pkg, "plugins/filecsv") && in(imported, "internal/pgtest"))
			}},
		{"internal/... knows plugins through sdk/wire, and that in pluginproc and pluginhost only; sdk/settings and " +
			"sdk/redact are for all, the rest of the SDK for internal/cli", func(pkg, imported string, test bool) bool {
			if !in(pkg, "internal") || !in(imported, "sdk", "plugins") || imported == "sdk/redact" ||
				imported == "sdk/settings" {
				return false
			}
			if in(pkg, "internal/cli") {
				return in(imported, "plugins")
			}
			return !in(pkg, "internal/pluginproc", "internal/pluginhost") || !test && !in(imported, "sdk/wire")
		}},
		{"of what is not a program only internal/cli imports internal/cli/...", func(pkg, imported string, test bool) bool {
			return in(imported, "internal/cli") && !in(pkg, "internal/cli", "cmd", "internal/chaostest")
		}},
		{"internal/cli/app imports no commands, and input and attention none either", func(pkg, imported string,
			test bool) bool {
			return in(pkg, "internal/cli/app", "internal/cli/input", "internal/cli/attention") &&
				in(imported, "internal/cli/item", "internal/cli/work", "internal/cli/plugin", "internal/cli/setup")
		}},
		{"a package of commands does not know another one: what they share is in app, input and attention", func(pkg,
			imported string, test bool) bool {
			groups := []string{"internal/cli/item", "internal/cli/work", "internal/cli/plugin", "internal/cli/setup"}
			return in(pkg, groups...) && in(imported, groups...) && !in(pkg, imported)
		}},
		{"the pages are a client of the API: of ours they import only its types, how these are written, and itself",
			func(pkg, imported string, test bool) bool {
				return in(pkg, "ui") && ours(imported) && !test && !in(imported, "internal/answer", "internal/api",
					"internal/lending", "internal/report", "internal/shell", "ledger", "sdk/wire")
			}},
		{"what lends leases and what follows attempts know no transport", func(pkg, imported string, test bool) bool {
			return in(pkg, "internal/lending", "internal/follow", "internal/answer") &&
				in(imported, "net/http", "internal/api", "internal/remote", "internal/calls") && !test
		}},
		{"the server of the API and its client know each other by internal/calls only", func(pkg, imported string,
			test bool) bool {
			return !test && (in(pkg, "internal/api") && in(imported, "internal/remote") ||
				in(pkg, "internal/remote") && in(imported, "internal/api"))
		}},
		{"in internal/... only dburl and query know the stores", func(pkg, imported string, test bool) bool {
			return in(pkg, "internal") && in(imported, stores...) && !in(pkg, "internal/dburl", "internal/query",
				"internal/mutanttest", "internal/chaostest") && !test
		}},
		{"internal/pluginproc imports of ours only sdk/... and itself", func(pkg, imported string, test bool) bool {
			return in(pkg, "internal/pluginproc") && ours(imported) && !in(imported, "sdk", "internal/pluginproc")
		}},
		{"only ledger/sqlite, and plugins/filecsv/load for tables of its own, import SQLite's driver",
			func(pkg, imported string, test bool) bool {
				return in(imported, "modernc.org") && !in(pkg, "ledger/sqlite", "plugins/filecsv/load") && !test
			}},
		{"of ledger/... only ledger/postgres imports Postgres's driver", func(pkg, imported string, test bool) bool {
			return in(imported, "github.com/jackc") && in(pkg, "ledger", "schema") && !in(pkg, "ledger/postgres") && !test
		}},
		{"plugins and sdk know no database, but for plugins/filecsv, whose package load loads into some",
			func(pkg, imported string, test bool) bool {
				return in(pkg, "sdk", "plugins") && in(imported, "modernc.org", "github.com/jackc", "database/sql") &&
					!in(pkg, "plugins/filecsv/load") && !(test && in(pkg, "plugins/filecsv"))
			}},
		{"in ledger/... only the stores know the stores", func(pkg, imported string, test bool) bool {
			return in(pkg, "ledger") && in(imported, stores...) && !in(pkg, stores...) && !test
		}},
		{"only internal/otlp knows the SDK of OpenTelemetry", func(pkg, imported string, test bool) bool {
			return in(imported, "go.opentelemetry.io/otel/sdk") && pkg != "internal/otlp" && !test
		}},
		{"ledger/... and schema know no plugin transport", func(pkg, imported string, test bool) bool {
			return in(pkg, "ledger", "schema") && in(imported,
				"github.com/hashicorp/go-plugin", "google.golang.org/grpc", "google.golang.org/protobuf")
		}},
		{"no package imports a program", func(pkg, imported string, test bool) bool {
			return in(imported, "cmd", "examples") || strings.HasPrefix(imported, "plugins/") &&
				strings.Contains(imported, "/cmd/")
		}},
	}
	for _, s := range sources(t) {
		for _, imported := range s.imports() {
			for _, rule := range rules {
				if rule.broken(s.folder, imported, s.inTests) && !in(imported, "internal/lazyregexp", "internal/must") {
					t.Errorf("%s imports %s, but %s", s.path, imported, rule.text)
				}
			}
		}
	}
}

// What a plugin's author gets, with the test kit, has no library that only ledgerd needs.
func TestAuthorsLibraries(t *testing.T) {
	for _, s := range sources(t) {
		for _, imported := range s.imports() {
			if in(s.folder, "sdk", "internal/pluginproc", "internal/must", "internal/lazyregexp") && in(imported,
				"github.com/spf13", "github.com/pressly", "github.com/prometheus", "github.com/rogpeppe", "github.com/emersion",
				"github.com/wneessen", "github.com/jackc", "modernc.org", "database/sql") {
				t.Errorf("%s imports %s, and so every plugin of an author does", s.path, imported)
			}
		}
	}
}

// Packages that only tests need do not get into any program.
func TestTestCodeStaysInTests(t *testing.T) {
	libraries := []string{
		"testing", "go.uber.org/goleak", "pgregory.net/rapid", "github.com/google/go-cmp",
		"github.com/rogpeppe/go-internal", "github.com/anishathalye/porcupine", "net/http/httptest",
		"github.com/emersion", "github.com/getkin",
	}
	for _, s := range sources(t) {
		for _, imported := range s.imports() {
			ourTestKit := strings.HasPrefix(imported, "ledger/") || strings.HasPrefix(imported, "sdk/") ||
				strings.HasPrefix(imported, "internal/")
			if in(imported, "github.com/emersion") && in(s.folder, "examples") {
				continue // a mail server to try things with
			}
			if !s.inTests && (in(imported, libraries...) || ourTestKit && forTests(imported)) {
				t.Errorf("%s imports %s; only _test.go files and packages named ...test may", s.path, imported)
			}
		}
	}
}
