package cli_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

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
	if err := os.WriteFile(filepath.Join(f.dir, "more.hcl"), []byte(more), 0o600); err != nil {
		t.Fatal(err)
	}
	f.mustApply(t)
	f.duty("main", showsEnvironment+"\n"+obedient)
	member := func(group, identity string, more ...string) []string {
		return append([]string{
			"member", "--group", group, "--root", f.root, "--version", "1.0.0", "--identity", identity,
		}, more...)
	}
	holder := f.command(servers.Connect(), member("shop", "holder", "--duties", "duties")...)
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
				shown := f.environmentOf(t, f.command(servers.Connect(), all...))
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
	return []string{"MUSTER_ZK_AUTH", "MUSTER_TLS_KEY", "MUSTER_REDIS_PASSWORD", "MUSTER_SENTINEL_PASSWORD"}
}

// environmentOf starts a process with credentials, and returns the environment that its command shows.
func (f queueFixture) environmentOf(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "out")
	cmd.Env = append(cmd.Env, "OUT="+out, "PATH="+bin+":"+os.Getenv("PATH"), "MUSTER_ZK_AUTH=digest:ann:secret",
		"MUSTER_TLS_KEY=", "MUSTER_SENTINEL_PASSWORD=unused")
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
