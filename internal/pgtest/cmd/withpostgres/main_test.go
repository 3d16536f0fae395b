package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/ledgerd/ledgerd/internal/must"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"withpostgres": main, "setting": setting})
}

// setting is a program that asks the server for one of its settings.
func setting() {
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, os.Getenv(env))
	if err != nil {
		panic(err)
	}
	defer conn.Close(ctx)
	var value string
	if err := conn.QueryRow(ctx, "SELECT current_setting($1)", os.Args[1]).Scan(&value); err != nil {
		panic(err)
	}
	fmt.Println(value)
}

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{Dir: "testdata"})
}

// fakes puts shell scripts in the place of programs, and nothing else into PATH but a shell.
func fakes(t *testing.T, scripts map[string]string) {
	t.Helper()
	dir := t.TempDir()
	for name, script := range scripts {
		must.OK(t, os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+script+"\n"), 0o755))
	}
	t.Setenv("PATH", dir)
}

func TestInstall(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	const sudo = `while [ "$1" != "${1#-}" ] || [ "$1" != "${1#*=}" ]; do shift; done; [ "$1" = true ] || exec "$@"`
	for _, c := range []struct {
		name    string
		scripts map[string]string
		wantLog string
		wantErr string
	}{
		{
			name:    "updates the lists, then installs",
			scripts: map[string]string{"sudo": sudo, "apt-get": `echo "$@" >>` + log},
			wantLog: "update\ninstall -y --no-install-recommends postgresql\n",
		},
		{
			name:    "apt-get fails",
			scripts: map[string]string{"sudo": sudo, "apt-get": `echo "$@" >>` + log + `; exit 100`},
			wantLog: "update\n",
			wantErr: "apt-get update: exit status 100",
		},
		{
			name:    "no apt-get",
			scripts: map[string]string{"sudo": sudo},
			wantErr: "there is no apt-get here",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			os.Remove(log)
			fakes(t, c.scripts)
			err := install(context.Background())
			if got, _ := os.ReadFile(log); string(got) != c.wantLog {
				t.Errorf("apt-get was called with %q, want %q", got, c.wantLog)
			}
			if c.wantErr == "" && err != nil {
				t.Errorf("error %v", err)
			}
			if c.wantErr != "" && (err == nil || !strings.Contains(err.Error(), c.wantErr)) {
				t.Errorf("error %v, want %q in it", err, c.wantErr)
			}
		})
	}
}
