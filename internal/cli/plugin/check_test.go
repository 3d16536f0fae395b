package plugin

import (
	"testing"

	"github.com/ledgerd/ledgerd/internal/pluginhost"
)

// plugin check requires the name of the config, else that of the program; any name will do for other programs.
func TestCalledHere(t *testing.T) {
	for _, test := range []struct{ name, path, want string }{
		{"thumbs", "/bin/ledgerd-plugin-other", "thumbs"},
		{"", "/bin/ledgerd-plugin-other", "other"},
		{"", "/bin/other", ""},
	} {
		if got := calledHere(pluginhost.Place{Name: test.name, Path: test.path}); got != test.want {
			t.Errorf("%+v: %q", test, got)
		}
	}
}
