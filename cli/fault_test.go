package cli_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"muster/dev/zkserver"
	"muster/sim/rig"
)

// result runs the real binary.
func result(cmd *exec.Cmd) outcome {
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return outcome{-1, "", err.Error()}
	}
	return outcome{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

// expect checks the code and that the output contains each text.
func expect(t *testing.T, got outcome, code int, texts ...string) {
	t.Helper()
	if got.code != code {
		t.Fatalf("code %d, want %d\n%s%s", got.code, code, got.stdout, got.stderr)
	}
	for _, text := range texts {
		if !strings.Contains(got.stdout+got.stderr, text) {
			t.Fatalf("no %q in\n%s%s", text, got.stdout, got.stderr)
		}
	}
}

func TestLostReplyOfACommitIsNoError(t *testing.T) {
	f := newFixture(t, 5, "")
	proxy := newProxy(t, 0)
	dropped := proxy.DropReply(func(op int32, _ []byte) bool { return op == zkserver.OpMulti })
	expect(t, result(f.command(proxy.Addr(), "apply", "--yes")), 0, "Applied 5 of 5: 5 created")
	select {
	case <-dropped:
	default:
		t.Error("no reply was dropped")
	}
	expect(t, result(f.command(proxy.Addr(), "plan", "--detailed-exitcode")), 0, "5 jobs match")
}

func TestLostLockStopsTheApply(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 100, "")
	proxy := newProxy(t, 20*time.Millisecond)
	s := rig.Dial(t, 0, servers.Addrs()...)
	seen := newScreen()
	cmd := f.command(proxy.Addr(), "apply", "--yes", "--parallel", "1")
	cmd.Stdout, cmd.Stderr = seen, seen
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	seen.await(t, "[  3/100] ")
	places, _, err := s.Children(t.Context(), f.root+"-home/lock/tests")
	if err != nil || len(places) != 1 {
		t.Fatalf("%v %v", places, err)
	}
	if err := s.Delete(t.Context(), f.root+"-home/lock/tests/"+places[0], 0); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // the code tells
	got := outcome{cmd.ProcessState.ExitCode(), seen.String(), ""}
	expect(t, got, 4, "not started", "was removed", "next: muster plan")
}

// copyCerts copies certificates to dir, as ca.pem, me.pem and me.key.
func copyCerts(t *testing.T, certs zkserver.Certs, dir string) {
	t.Helper()
	files := map[string]string{"ca.pem": certs.CAFile, "me.pem": certs.CertFile, "me.key": certs.KeyFile}
	for name, from := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(read(t, from)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func TestTLS(t *testing.T) {
	t.Parallel()
	e, err := zkserver.Start(context.Background(), zkserver.Options{TLS: true, ClientCert: true})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Stop()
	certs := e.Certs()
	server := e.Connect() // the address is in the certificate
	f := newFixture(t, 1, "")
	flags := []string{"--tls-ca", certs.CAFile, "--tls-cert", certs.CertFile, "--tls-key", certs.KeyFile}
	expect(t, result(f.command(server, append(flags, "plan")...)), 0, "Plan: 1 to create")
	expect(t, result(f.command(server, append(flags[:4:4], "plan")...)), 64, "without its key")
	expect(t, result(f.command(server, "plan", "--tls-ca", certs.KeyFile)), 1, "holds no certificate")
	expect(t, result(f.command(server, "plan", "--tls-ca", "nowhere")), 1, "nowhere")
	expect(t, result(f.command(server, "plan")), 8, "unreachable")

	cmd := f.command(server, "apply", "--yes")
	cmd.Env = append(cmd.Env,
		"MUSTER_TLS_CA="+certs.CAFile, "MUSTER_TLS_CERT="+certs.CertFile, "MUSTER_TLS_KEY="+certs.KeyFile)
	expect(t, result(cmd), 0, "Applied 1 of 1")

	copyCerts(t, certs, f.dir)
	f.write(t, 2, `zookeeper {
  tls {
    ca_file   = "ca.pem"
    cert_file = "me.pem"
    key_file  = "me.key"
  }
}
`)
	cmd = f.command(server, "plan", "--out", "p.json", f.dir)
	expect(t, result(cmd), 0, "Plan: 1 to create")
	expect(t, result(f.command(server, "apply", "p.json")), 0, "Applied 1 of 1")
	if saved, err := os.ReadFile(f.dir + "/p.json"); err != nil || bytes.Contains(saved, []byte(f.dir)) {
		t.Errorf("the plan file names a local path: %v\n%s", err, saved)
	}
}
