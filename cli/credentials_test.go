package cli_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"muster/dev/fault"
	"muster/dev/zkserver"
	"muster/sim/rig"
)

// showsEnvironment is a command that writes its environment to the file $OUT.
const showsEnvironment = `env > "$OUT.new" && mv "$OUT.new" "$OUT"`

// TestCredentialsAreNotForTheCommand, unless an option says so: of all that run a command.
func TestCredentialsAreNotForTheCommand(t *testing.T) {
	t.Parallel()
	f := newQueueFixture(t, "")
	more := f.jobBlock("a", "4s")
	for _, group := range []string{"shop", "other"} {
		more += fmt.Sprintf("group %q {\n  root = %q\n  leader \"main\" {}\n}\n", group, f.root)
	}
	write(t, filepath.Join(f.dir, "more.hcl"), more)
	f.mustApply(t)
	f.duty("main", showsEnvironment+"\n"+obedient)
	member := func(group, identity string, more ...string) []string {
		return append([]string{
			"member", "--group", group, "--root", f.root, "--version", "1.0.0", "--identity", identity,
		}, more...)
	}
	holder := f.fixture.command(servers.Connect(), member("shop", "holder", "--duties", "duties")...)
	holder.Env = append(holder.Env, "OUT="+filepath.Join(t.TempDir(), "out"))
	startOnScreen(t, holder).await(t, "joined")
	show := []string{"--", "sh", "-c", showsEnvironment + "; exec sleep 1000"}
	for name, args := range map[string][]string{
		"worker":   append([]string{"worker", "--job", "a", "--root", f.root, "--identity", "w", "PASS"}, show...),
		"member":   member("shop", "other", append([]string{"PASS"}, show...)...),
		"follower": append([]string{"follow", f.root + "/shop/main", "PASS"}, show...),
		"executor": append([]string{"executor", f.root + "/primes", "PASS"}, show...),
		"watcher":  append([]string{"watcher", f.root + "/primes", "PASS"}, show...),
		"duty":     member("other", "m", "--duties", "duties", "PASS"),
	} {
		for option, passed := range map[string]bool{"--pass-credentials=false": false, "--pass-credentials": true} {
			t.Run(name+option, func(t *testing.T) {
				all := append([]string{}, args...)
				for i, arg := range all {
					if arg == "PASS" {
						all[i] = option
					}
				}
				switch name {
				case "executor":
					f.submit(fmt.Sprint("b-", passed), []byte("task"))
				case "watcher":
					f.completed(fmt.Sprint("w-", passed), []byte("task"))
				}
				shown := f.environmentOf(t, f.fixture.command(servers.Connect(), all...))
				for _, secret := range secretNames() {
					if strings.Contains(shown, "\n"+secret+"=") != passed {
						t.Errorf("%s is passed %v, want %v", secret, !passed, passed)
					}
				}
			})
		}
	}
}

// secretNames are the variables with which a process reaches ZooKeeper and Redis.
func secretNames() []string {
	return []string{
		"MUSTER_ZK_AUTH", "MUSTER_SASL_PASSWORD", "MUSTER_TLS_KEY", "MUSTER_REDIS_PASSWORD", "MUSTER_SENTINEL_PASSWORD",
	}
}

// environmentOf starts a process with credentials, and returns the environment that its command shows.
func (f queueFixture) environmentOf(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "out")
	cmd.Env = append(cmd.Env, "OUT="+out, "MUSTER_ZK_AUTH=digest:ann:secret",
		"MUSTER_TLS_KEY=", "MUSTER_SENTINEL_PASSWORD=unused", "MUSTER_SASL_PASSWORD=unused")
	cmd.Env = append(cmd.Env, redisEnviron()...)
	startOnScreen(t, cmd)
	var shown []byte
	rig.Await(t, "the command has shown its environment", func() bool {
		var err error
		shown, err = os.ReadFile(out)
		return err == nil
	})
	_ = cmd.Process.Signal(os.Interrupt)
	_ = cmd.Wait() // so that another process can have its place
	return "\n" + string(shown)
}

// TestServersWithAPasswordAreNotRepeated: what is no address of a server may hold a password.
func TestServersWithAPasswordAreNotRepeated(t *testing.T) {
	t.Parallel()
	for _, list := range []string{
		"ann:geheim@zk-1", "zk-1:2181,ann:geheim@zk-2:2181", "ann:geheim", "digest:ann:geheim", "geheim@zk-1", "a b:geheim",
	} {
		for _, got := range []outcome{
			run(t, nil, "status", "--servers", list), run(t, []string{"MUSTER_SERVERS=" + list}, "status", "--root", "/jobs"),
			run(t, nil, "plan", "testdata", "--servers", list),
		} {
			if got.code != 64 && got.code != 1 || strings.Contains(got.stdout+got.stderr, "geheim") {
				t.Errorf("%s: %+v", list, got)
			}
		}
	}
}

// TestPlanFilesHoldNoSecret: a plan file, its markdown, which goes into a comment, and the output of show hold
// no credentials, nothing of the environment and no path of this machine. They do hold the servers, and variables that
// a declaration uses.
func TestPlanFilesHoldNoSecret(t *testing.T) {
	e := newEnsemble(t, zkserver.Options{TLS: true, ClientCert: true})
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
	e := newEnsemble(t, zkserver.Options{TLS: true})
	cmd := f.command(e.Connect(), "plan", "--out", "p.json", "--tls-ca", e.Certs().CAFile)
	expect(t, result(cmd), 1, "/etc/muster/ca.pem is an absolute path")
	if _, err := os.Stat(filepath.Join(f.dir, "p.json")); err == nil {
		t.Error("it was saved")
	}
}

// TestCredentialsGoOnlyToNamedHosts: the servers of a saved plan get none, unless the caller names them. Nobody may
// have the password who edited the plan. Those of a configuration get them, unless the caller names others.
func TestCredentialsGoOnlyToNamedHosts(t *testing.T) {
	t.Parallel()
	const password = "open-sesame"
	proxy := newProxy(t, 0)
	var told atomic.Int32
	proxy.BeforeSend(func(op int32, request []byte) bool {
		if op == fault.OpAuth && bytes.Contains(request, []byte(password)) {
			told.Add(1)
		}
		return false
	})
	zookeeper := fmt.Sprintf("zookeeper {\n  servers = [%q]\n}\n", proxy.Addr())
	f := newFixture(t, 1, zookeeper)
	file := filepath.Join(f.dir, "plan.json")
	do := func(servers, hosts string, args ...string) outcome {
		t.Helper()
		told.Store(0)
		cmd := f.command(servers, args...)
		cmd.Env = append(cmd.Env, "MUSTER_ZK_AUTH=digest:ops:"+password, "MUSTER_ZK_HOSTS="+hosts)
		return result(cmd)
	}
	withheld := func(got outcome, source string) {
		t.Helper()
		expect(t, got, 8, proxy.Addr()+", which "+source+" names: the credentials are not for this host",
			"next: ", "MUSTER_ZK_HOSTS")
		if told.Load() > 0 {
			t.Error("the password was sent")
		}
	}
	sent := func(got outcome, text string) {
		t.Helper()
		expect(t, got, 0, text)
		if told.Load() == 0 {
			t.Error("no password was sent")
		}
	}
	sent(do("", "", "plan", "--out", file), "next: muster apply --servers "+proxy.Addr()+" "+file)
	withheld(do("", "", "apply", file), "the plan")
	withheld(do("", "elsewhere,127.0.0.1:1", "apply", file), "the plan")
	withheld(do("", "elsewhere", "plan"), "the configuration")
	sent(do("", "elsewhere", "plan", "--servers", proxy.Addr()), "1 to create")
	sent(do("", "127.0.0.1", "apply", file), "1 created")
	sent(do("", proxy.Addr(), "plan"), "No changes")
	f.write(t, 2, zookeeper)
	sent(do("", "", "plan", "--out", file), "1 to create")
	sent(do(proxy.Addr(), "", "apply", file), "1 created")

	open := newFixture(t, 1, zookeeper) // without credentials, the servers of the plan are used
	expect(t, result(open.command("", "plan", "--out", file)), 0, "1 to create")
	expect(t, result(open.command("", "apply", file)), 0, "1 created")
}
