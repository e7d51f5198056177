package cli_test

import (
	"bytes"
	"os/exec"
	"strings"
	"testing"

	"muster/resource"
	"muster/tasks/store"
	"muster/zkstate/znode"
)

// TestCommandsAboutALostOrBrokenBatch: Redis lost a batch, or somebody wrote into its keys. Each command that needs
// them ends with 4 and says what helps; so does one about a manifest that somebody wrote.
func TestCommandsAboutALostOrBrokenBatch(t *testing.T) {
	t.Parallel()
	f := newQueueFixture(t, "")
	f.submit("lost", []byte("a"))
	f.submit("broken", []byte("b"))
	c, err := store.FromEnvironment("redis://"+sharedRedis(t).Addr()+"/0", credentials)
	if err != nil {
		t.Fatal(err)
	}
	client, err := store.Connect(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	st := store.New(client, f.generation(), f.root+"/primes")
	if _, err := st.Remove(t.Context(), "lost", f.inRedis("lost").Life); err != nil {
		t.Fatal(err)
	}
	key := "muster:{" + f.generation() + "}:b:broken"
	if n, err := client.HDel(t.Context(), key, "born").Result(); n != 1 {
		t.Fatal(n, err)
	}
	for id, next := range map[string]string{
		"lost":   "next: submit it again with its --id, or: muster cancel " + f.root + "/primes/lost",
		"broken": "next: muster cancel " + f.root + "/primes/broken, then submit it again",
	} {
		for _, args := range [][]string{
			{"batch", "primes/" + id, "--results"}, {"pause", "primes/" + id}, {"retry", "primes/" + id},
		} {
			cmd := f.command(servers.Connect(), append(args, "--root", f.root)...)
			cmd.Env = append(cmd.Env, redisEnviron()...)
			if code, text := said(cmd); code != 4 || !strings.Contains(text, next) {
				t.Errorf("%s: code %d\n%s", args, code, text)
			}
		}
	}
	f.submit("unreadable", []byte("c"))
	at := resource.Join(znode.Batches(f.root, f.generation()), "unreadable")
	if _, err := f.s.Set(t.Context(), at, []byte("{"), -1); err != nil {
		t.Fatal(err)
	}
	if code, text := said(f.submitCommand(servers.Connect(), "c\n", "--id", "unreadable")); code != 1 ||
		!strings.Contains(text, at) || !strings.Contains(text, "next: delete that znode") {
		t.Errorf("unreadable: code %d\n%s", code, text)
	}
	code, text := said(f.submitCommand(servers.Connect(), "b\n", "--id", "broken"))
	if code != 4 || !strings.Contains(text, "/primes/broken, then submit it again") {
		t.Errorf("submit: code %d\n%s", code, text)
	}
}

// said runs a command, and returns its code and its standard error.
func said(cmd *exec.Cmd) (code int, text string) {
	var notes bytes.Buffer
	cmd.Stderr = &notes
	_ = cmd.Run() // the code tells
	return cmd.ProcessState.ExitCode(), notes.String()
}
