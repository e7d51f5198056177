package cli_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// certificate writes a certificate that is valid until then, and its key.
func certificate(t *testing.T, until time.Time) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: until.Add(-time.Hour), NotAfter: until}
	body, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write := func(name, kind string, der []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	return write("cert.pem", "CERTIFICATE", body), write("key.pem", "PRIVATE KEY", secret)
}

// TestServeRefusesWhatCannotBe: the message says what to do. Nothing of it needs ZooKeeper.
func TestServeRefusesWhatCannotBe(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 1, "")
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	short := filepath.Join(f.dir, "short")
	if err := os.WriteFile(short, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cert, key := certificate(t, time.Now().Add(time.Hour))
	_, another := certificate(t, time.Now().Add(time.Hour))
	for _, c := range []struct {
		args  []string
		token string
		code  int
		says  string
	}{
		{[]string{"--listen", taken.Addr().String()}, "", 1,
			"next: another process listens there: end it, or take a free port: --listen 127.0.0.1:0\n"},
		{[]string{"--listen", "nonsense"}, "", 64, "next: give --listen an address"},
		{[]string{"--listen-cert", "x"}, "", 64, "next: give both --listen-cert and --listen-key"},
		{[]string{"--listen-cert", cert, "--listen-key", "none"}, "", 1, "next: check the name"},
		{[]string{"--listen-cert", cert, "--listen-key", f.dir}, "", 64, "next: name a file in it\n"},
		{[]string{"--listen-cert", cert, "--listen-key", another}, "", 1, "next: name a certificate and its own key"},
		{[]string{"--listen-cert", short, "--listen-key", key}, "", 1, "next: name a certificate and its own key"},
		{nil, short, 64, "next: openssl rand -hex 32 > " + short + "\n"},
		{nil, filepath.Join(f.dir, "no token"), 1, "next: openssl rand -hex 32 > '" + f.dir + "/no token'\n"},
		{nil, f.dir, 64, "MUSTER_SERVE_TOKEN_FILE: " + f.dir + " is a directory\n  next: name a file in it\n"},
		{nil, "", 8, "next: check --servers"},
	} {
		cmd := f.command(refusingAddr, append([]string{"serve", "--listen", "127.0.0.1:0"}, c.args...)...)
		cmd.Env = append(cmd.Env, "MUSTER_SERVE_TOKEN_FILE="+c.token)
		got := result(cmd)
		expect(t, got, c.code, c.says)
		if strings.Contains(got.stderr, "secret") {
			t.Errorf("it shows the token:\n%s", got.stderr)
		}
		if got.stdout != "" {
			t.Errorf("%v: it says that it serves:\n%s", c.args, got.stdout)
		}
	}
}

// TestServeWarnsOfAnExpiredCertificate: it serves, but no browser goes on.
func TestServeWarnsOfAnExpiredCertificate(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 1, "")
	f.mustRun(t, "apply", "--yes")
	until := time.Now().Add(-time.Hour)
	cert, key := certificate(t, until)
	s := f.serve(t, servers.Connect(), "--listen-cert", cert, "--listen-key", key)
	s.seen.await(t, "warning: browsers will refuse the certificate")
	s.seen.await(t, " to "+until.UTC().Format(time.RFC3339))
	cert, key = certificate(t, time.Now().Add(time.Minute))
	s = f.serve(t, servers.Connect(), "--listen-cert", cert, "--listen-key", key)
	if got := s.seen.String(); strings.Contains(got, "warning") || !strings.HasPrefix(s.url, "https://") {
		t.Errorf("a good certificate:\n%s", got)
	}
}
