package mail

import (
	"testing"

	"github.com/ledgerd/ledgerd/sdk/sdktest"
)

func TestConformance(t *testing.T) {
	sdktest.Conformance(t, Plugin(), sdktest.Options{Config: defaults("127.0.0.1:9")})
}
