package rig

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"muster/dev/daemon"
	"muster/sim/needs"
)

// Realm is the realm of every KDC.
const Realm = "MUSTER.TEST"

// A KDC gives out tickets for principals of Realm, on 127.0.0.1, until the test ends. It can be paused and killed.
type KDC struct {
	daemon.Service
	Conf string // krb5.conf, for clients and servers

	dir     string
	addr    string
	program string
	environ []string
	args    []string
}

// StartKDC starts a KDC with these principals. Each has a keytab.
func StartKDC(t testing.TB, principals ...string) *KDC {
	t.Helper()
	const packages = "krb5-kdc krb5-user krb5-admin-server"
	k := &KDC{dir: t.TempDir(), program: needs.Program(t, "krb5kdc", packages)}
	tool, create := needs.Program(t, "kadmin.local", packages), needs.Program(t, "kdb5_util", packages)
	k.Conf = filepath.Join(k.dir, "krb5.conf")
	port, err := daemon.ReservePort(0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = port.Close() })
	k.addr = daemon.Loopback(port.Port)
	for name, text := range map[string]string{
		"krb5.conf": fmt.Sprintf(`[libdefaults]
default_realm = %[1]s
dns_lookup_kdc = false
rdns = false
udp_preference_limit = 1
[realms]
%[1]s = {
  kdc = %[2]s
}
`, Realm, k.addr),
		"kdc.conf": fmt.Sprintf(`[realms]
%[1]s = {
  database_name = %[2]s/principal
  key_stash_file = %[2]s/stash
  kdc_listen = ""
  kdc_tcp_listen = %[3]s
  supported_enctypes = aes256-cts:normal aes128-cts:normal
}
[logging]
kdc = STDERR
`, Realm, k.dir, k.addr),
	} {
		if err := os.WriteFile(filepath.Join(k.dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	k.environ = []string{"KRB5_CONFIG=" + k.Conf, "KRB5_KDC_PROFILE=" + filepath.Join(k.dir, "kdc.conf")}
	k.run(t, create, "create", "-s", "-r", Realm, "-P", "master")
	for _, p := range principals {
		k.run(t, tool, "-r", Realm, "-q", "addprinc -randkey "+p)
		k.run(t, tool, "-r", Realm, "-q", "ktadd -k "+k.Keytab(p)+" "+p)
	}
	if err := port.AllowListen(); err != nil {
		t.Fatal(err)
	}
	k.args = []string{"-n", "-r", Realm, "-P", filepath.Join(k.dir, "pid")}
	k.Restart(t)
	t.Cleanup(func() { _ = k.End() })
	return k
}

// Keytab is the file with the key of a principal.
func (k *KDC) Keytab(principal string) string {
	return filepath.Join(k.dir, strings.NewReplacer("/", "_", "@", "_").Replace(principal)+".keytab")
}

// Run runs a program of Kerberos with this KDC, such as kinit.
func (k *KDC) Run(t testing.TB, program string, args ...string) string {
	t.Helper()
	return k.run(t, needs.Program(t, program, "krb5-user krb5-admin-server"), args...)
}

func (k *KDC) run(t testing.TB, path string, args ...string) string {
	t.Helper()
	cmd := exec.Command(path, args...)
	cmd.Env = append(os.Environ(), k.environ...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %q: %v\n%s", path, args, err, out)
	}
	return string(out)
}

// Restart ends the last run, and starts another one, perhaps with variables such as those of libfaketime.
func (k *KDC) Restart(t testing.TB, environ ...string) {
	t.Helper()
	serves := func(ctx context.Context, _ *daemon.Process) (bool, error) {
		c, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", k.addr)
		if err != nil {
			return false, nil
		}
		return true, c.Close()
	}
	env := append(append([]string{}, k.environ...), environ...)
	ctx, cancel := context.WithTimeout(t.Context(), Patience)
	defer cancel()
	if err := k.Begin(ctx, serves, k.dir, "/usr/bin/env", append(append(env, k.program), k.args...)...); err != nil {
		t.Fatal(err)
	}
}

// Login is the login section of a ZooKeeper server on localhost, which has the principal zookeeper/localhost.
func (k *KDC) Login() string {
	principal := "zookeeper/localhost"
	return `Server { com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true keyTab=` +
		strconv.Quote(k.Keytab(principal)) + ` principal=` + strconv.Quote(principal+"@"+Realm) + `; };`
}

// DigestLogin is the login section of a ZooKeeper server that knows one user.
func DigestLogin(user, password string) string {
	const module = "org.apache.zookeeper.server.auth.DigestLoginModule"
	return fmt.Sprintf("Server { %s required user_%s=%q; };", module, user, password)
}
