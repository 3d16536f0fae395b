package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/sdk/sdktest"
)

// The test binary is also the plugin's process.
func TestMain(m *testing.M) { sdktest.Main(m, plugin()) }

func TestCount(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a.txt")
	h := sdktest.New(t, plugin(), sdktest.Options{})
	for text, want := range map[string]Out{
		"one\ntwo three\n":              {Lines: 2, Words: 3},
		strings.Repeat("long ", 20_000): {Lines: 1, Words: 20_000},
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		r := h.Run(sdktest.Task{Payload: In{Path: file}})
		if got := sdktest.Decode[Out](t, r); got != want {
			t.Errorf("got %v, want %v", got, want)
		}
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
