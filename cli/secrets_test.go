package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"muster/dev/zkserver"
)

// TestPlanFilesHoldNoSecret: a plan file, its markdown, which goes into a comment, and the output of show hold
// no credentials, nothing of the environment and no path of this machine. They do hold the servers, and variables that
// a declaration uses.
func TestPlanFilesHoldNoSecret(t *testing.T) {
	e, err := zkserver.Start(t.Context(), zkserver.Options{TLS: true, ClientCert: true})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Stop()
	certs := e.Certs()
	connect := e.Connect()
	f := newFixture(t, 1, `variable "label" {
  type = string
}
variable "unused" {
  type    = string
  default = ""
}
zookeeper {
  acl = ["auth::cdrwa"]
  tls {
    ca_file   = "certs/ca.pem"
    cert_file = "certs/me.pem"
    key_file  = "certs/me.key"
  }
}
defaults {
  labels = { team = var.label }
}
`)
	if err := os.Mkdir(filepath.Join(f.dir, "certs"), 0o700); err != nil {
		t.Fatal(err)
	}
	copyCerts(t, certs, filepath.Join(f.dir, "certs"))
	home := t.TempDir()
	secrets := []string{
		"open-sesame", "SECRET-user", "SECRET-unused", "SECRET-identity", "SECRET-run", "SECRET-token",
		"PRIVATE KEY", "BEGIN CERT", f.dir, home, os.TempDir() + "/",
	}
	cmd := f.command(connect, "plan", "--out", "plan.json", "--report", "markdown=plan.md", f.dir)
	cmd.Env = append(cmd.Env, "HOME="+home, "MUSTER_ZK_AUTH=digest:SECRET-user:open-sesame",
		"MUSTER_VAR_label=wanted", "MUSTER_VAR_unused=SECRET-unused",
		"MUSTER_IDENTITY=SECRET-identity", "MUSTER_RUN=SECRET-run", "GITHUB_TOKEN=SECRET-token", "MUSTER_LOG=debug")
	got := result(cmd)
	expect(t, got, 0, "Plan: 1 to create")
	shown := result(f.command("", "show", "plan.json"))
	expect(t, shown, 0, "wanted")
	texts := map[string]string{"standard output": got.stdout, "show": shown.stdout}
	for _, name := range []string{"plan.json", "plan.md"} {
		texts[name] = read(t, filepath.Join(f.dir, name))
	}
	for name, text := range texts {
		if !strings.Contains(text, "wanted") {
			t.Errorf("%s does not show the label", name)
		}
		for _, secret := range secrets {
			if strings.Contains(text, secret) {
				t.Errorf("%s holds %s", name, secret)
			}
		}
	}
	if !strings.Contains(texts["plan.json"], `"ca_file": "certs/ca.pem"`) {
		t.Errorf("the names of the TLS files are not relative:\n%s", texts["plan.json"])
	}
	// With the same files and credentials, the plan can be applied.
	apply := f.command(connect, "apply", "plan.json")
	apply.Env = append(apply.Env, "MUSTER_ZK_AUTH=digest:SECRET-user:open-sesame")
	expect(t, result(apply), 0, "1 created")
}

// TestAbsolutePathsAreRefused: a plan that would hold one is not saved.
func TestAbsolutePathsAreRefused(t *testing.T) {
	f := newFixture(t, 1, "zookeeper {\n  tls {\n    ca_file = \"/etc/muster/ca.pem\"\n  }\n}\n")
	e, err := zkserver.Start(t.Context(), zkserver.Options{TLS: true})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Stop()
	cmd := f.command(e.Connect(), "plan", "--out", "p.json", "--tls-ca", e.Certs().CAFile)
	expect(t, result(cmd), 1, "/etc/muster/ca.pem is an absolute path")
	if _, err := os.Stat(filepath.Join(f.dir, "p.json")); err == nil {
		t.Error("it was saved")
	}
}
