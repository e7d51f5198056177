package cli_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"muster/dev/zkserver"
	"muster/sim/rig"
)

// TestLogin: plan, a saved plan, apply, status and a worker log in to servers that let nobody else do anything, with a
// password and by Kerberos. The password is nowhere.
func TestLogin(t *testing.T) {
	t.Parallel()
	const demand = "-Dzookeeper.sessionRequireClientSASLAuth=true"
	const secret, principal = "open-sesame", "muster/deploy"
	k := rig.StartKDC(t, "zookeeper/localhost", principal)
	for _, c := range []struct{ name, login, block, id, environ string }{
		{
			"digest", rig.DigestLogin("ann", secret), "mechanism = \"DIGEST-MD5\"\n    username = \"ann\"", "ann",
			"MUSTER_SASL_MECHANISM=DIGEST-MD5 MUSTER_SASL_USERNAME=ann MUSTER_SASL_PASSWORD=" + secret,
		},
		{
			"kerberos", k.Login(), "mechanism = \"GSSAPI\"\n    principal = \"" + principal + "@" + rig.Realm +
				"\"\n    keytab_file = \"k/my.keytab\"\n    krb5_conf = \"k/krb5.conf\"", principal + "@" + rig.Realm,
			"MUSTER_SASL_MECHANISM=GSSAPI MUSTER_SASL_PRINCIPAL=" + principal + "@" + rig.Realm +
				" MUSTER_SASL_KEYTAB_FILE=" + k.Keytab(principal) + " MUSTER_SASL_KRB5_CONF=" + k.Conf,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			e := newEnsemble(t, zkserver.Options{
				Logins: []string{c.login}, Java: []string{demand, "-Djava.security.krb5.conf=" + k.Conf},
			})
			at := strings.ReplaceAll(e.Connect(), "127.0.0.1", "localhost")
			f := newFixture(t, 2, "zookeeper {\n  sasl {\n    "+c.block+"\n  }\n}\n")
			if err := os.Mkdir(filepath.Join(f.dir, "k"), 0o700); err != nil {
				t.Fatal(err)
			}
			write(t, filepath.Join(f.dir, "k/my.keytab"), read(t, k.Keytab(principal)))
			write(t, filepath.Join(f.dir, "k/krb5.conf"), read(t, k.Conf))
			do := func(environ string, args ...string) *exec.Cmd {
				cmd := f.command(at, args...)
				cmd.Env = append(cmd.Env, strings.Fields(environ)...)
				return cmd
			}
			password := "MUSTER_SASL_PASSWORD_FILE=" + filepath.Join(f.dir, "password")
			write(t, filepath.Join(f.dir, "password"), secret+"\n")

			planned := result(do(password, "plan", "--out", "p.json", "--log-level=debug"))
			expect(t, planned, 0, "Plan: 2 to create")
			expect(t, result(do(password, "apply", "p.json")), 0, "Applied 2 of 2")
			expect(t, result(do(password, "drift")), 0)
			there := result(do(c.environ, "status", "--root", f.root))
			expect(t, there, 0, "j0")

			saved := read(t, filepath.Join(f.dir, "p.json"))
			for what, text := range map[string]string{"plan": saved, "output": planned.stdout + planned.stderr} {
				if strings.Contains(text, secret) || strings.Contains(text, f.dir+"/k") {
					t.Errorf("the %s holds a secret or a local path:\n%s", what, text)
				}
			}
			out := filepath.Join(t.TempDir(), "out")
			worker := do(c.environ+" OUT="+out, "worker", "--job", "j0", "--root", f.root, "--",
				"sh", "-c", showsEnvironment+"; exec sleep 1000")
			startOnScreen(t, worker).await(t, "joined")
			rig.Await(t, "the command's environment", func() bool { _, err := os.Stat(out); return err == nil })
			if shown := read(t, out); strings.Contains(shown, "MUSTER_SASL") || strings.Contains(shown, secret) {
				t.Errorf("the command has the login:\n%s", shown)
			}
			// What apply created is for who logged in, and nobody else can even look.
			expect(t, result(do(c.environ, "explain", "j0", "--root", f.root)), 0)
			bare := newFixture(t, 0, "")
			nobody := bare.command(at, "status", "--root", f.root)
			expect(t, result(nobody), 8, "the server demands a login by SASL", "M1608 explains them")
		})
	}
}

// TestLoginThatFails ends with the code of what is wrong, and says what to do.
func TestLoginThatFails(t *testing.T) {
	t.Parallel()
	e := newEnsemble(t, zkserver.Options{Logins: []string{rig.DigestLogin("ann", "open-sesame")}})
	f := newFixture(t, 1, "")
	for _, c := range []struct {
		environ string
		code    int
		want    string
	}{
		{"MECHANISM=PLAIN", 64, `there is no mechanism "PLAIN"`},
		{"USERNAME=ann", 64, "set MUSTER_SASL_MECHANISM"},
		{"MECHANISM=DIGEST-MD5", 64, "needs a username"},
		{"MECHANISM=DIGEST-MD5 USERNAME=ann", 64, "set MUSTER_SASL_PASSWORD"},
		{"MECHANISM=DIGEST-MD5 USERNAME=ann PASSWORD=x PASSWORD_FILE=y", 64, "are both set"},
		{"MECHANISM=DIGEST-MD5 USERNAME=ann PASSWORD_FILE=nowhere", 1, "nowhere"},
		{"MECHANISM=DIGEST-MD5 USERNAME=ann PASSWORD=geheim", 8, "the server refuses the login"},
		{"MECHANISM=GSSAPI USERNAME=ann", 64, "takes a principal"},
		{"MECHANISM=GSSAPI KEYTAB_FILE=k", 64, "with its realm"},
		{"MECHANISM=GSSAPI PRINCIPAL=a@B KEYTAB_FILE=nowhere KRB5_CONF=/dev/null", 8, "nowhere"},
	} {
		cmd := f.command(e.Connect(), "plan")
		for one := range strings.FieldsSeq(c.environ) {
			cmd.Env = append(cmd.Env, "MUSTER_SASL_"+one)
		}
		got := result(cmd)
		if got.code != c.code || !strings.Contains(got.stderr, c.want) || strings.Contains(got.stderr, "geheim") {
			t.Errorf("%s: %+v", c.environ, got)
		}
	}
	kcm := f.command(e.Connect(), "plan")
	kcm.Env = append(kcm.Env, "MUSTER_SASL_MECHANISM=GSSAPI", "KRB5CCNAME=KCM:0")
	expect(t, result(kcm), 64, "a cache of type FILE")
	// A saved plan names who logs in. It gets no login with servers that only it names.
	f.write(t, 1, "zookeeper {\n  servers = [\""+e.Connect()+"\"]\n  sasl {\n    mechanism = \"DIGEST-MD5\"\n"+
		"    username = \"ann\"\n  }\n}\n")
	for _, args := range [][]string{{"plan", "--out", "p.json"}, {"apply", "p.json"}} {
		cmd := f.command("", args...)
		cmd.Env = append(cmd.Env, "MUSTER_SASL_PASSWORD=open-sesame")
		got := result(cmd)
		if args[0] == "plan" {
			expect(t, got, 0)
		} else {
			expect(t, got, 8, "the credentials are not for this host")
		}
	}
}
