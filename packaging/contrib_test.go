package main

import (
	"bytes"
	"os"
	"strings"
	"testing"
)

// A newer image starts on an older ledger: it migrates the ledger.
func TestImagesMigrate(t *testing.T) {
	for _, name := range []string{"compose.yaml", "kubernetes.yaml"} {
		text, err := os.ReadFile("../contrib/" + name)
		if err != nil || !bytes.Contains(text, []byte("[serve, --migrate")) {
			t.Errorf("%s: serve does not migrate: %v", name, err)
		}
	}
}

// The scripts of the packages: an upgrade does not fail if the service does not start, a removal stops all processes,
// and apk runs the same script after an upgrade as deb and rpm.
func TestScripts(t *testing.T) {
	for name, want := range map[string]string{
		"postinstall.sh": "systemctl try-restart ledgerd.service ||",
		"preremove.sh":   "systemctl stop ledgerd-drain.service\n",
		"nfpm.yaml":      "postupgrade: packaging/postinstall.sh\n",
	} {
		text, err := os.ReadFile(name)
		if err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s has no %q: %v", name, want, err)
		}
	}
}

// systemd sets no limit for the start of the service, since it must not interrupt a migration. The daemon itself ends
// after two minutes without its database.
func TestServiceStarts(t *testing.T) {
	text, err := os.ReadFile("../contrib/systemd/ledgerd.service")
	if err != nil || !bytes.Contains(text, []byte("\nTimeoutStartSec=infinity\n")) {
		t.Errorf("%s %v", text, err)
	}
}
