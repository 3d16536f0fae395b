package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/ledgerd/ledgerd/sdk/sdktest"
)

// The test binary is also the plugin's process.
func TestMain(m *testing.M) { sdktest.Main(m, plugin()) }

func TestCount(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a.txt")
	if err := os.WriteFile(file, []byte("one\ntwo three\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	h := sdktest.New(t, plugin(), sdktest.Options{})
	r := h.Run(sdktest.Task{Payload: In{Path: file}})
	if got, want := sdktest.Decode[Out](t, r), (Out{Lines: 2, Words: 3}); got != want {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestTooLarge(t *testing.T) {
	h := sdktest.New(t, plugin(), sdktest.Options{Config: Config{MaxBytes: 1}})
	if r := h.Run(sdktest.Task{Payload: In{Path: "main.go"}}); r.Code != "too_large" || !r.Final {
		t.Errorf("%+v", r)
	}
}

// The promises of every plugin: ledgerd plugin check runs the same list on the program.
func TestConformance(t *testing.T) { sdktest.Conformance(t, plugin()) }
