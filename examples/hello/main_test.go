package main

import (
	"testing"

	"github.com/ledgerd/ledgerd/sdk"
	"github.com/ledgerd/ledgerd/sdk/sdktest"
)

func TestMain(m *testing.M) { sdktest.Main(m, sdk.New("hello", "0.1.0", greet)) }

func TestGreet(t *testing.T) {
	h := sdktest.New(t, sdk.New("hello", "0.1.0", greet), sdktest.Options{Config: Config{Suffix: "?"}})
	r := h.Run(sdktest.Task{Payload: In{Name: "Ada"}})
	if got := sdktest.Decode[string](t, r); got != "hello ADA?" {
		t.Error(got)
	}
}

func TestConformance(t *testing.T) {
	sdktest.Conformance(t, sdk.New("hello", "0.1.0", greet))
}

func TestDescription(t *testing.T) {
	sdktest.Golden(t, sdk.New("hello", "0.1.0", greet))
}
