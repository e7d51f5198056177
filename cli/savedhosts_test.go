package cli_test

import (
	"bytes"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"testing"

	"muster/dev/zkserver"
)

// TestCredentialsGoOnlyToNamedHosts: the servers of a saved plan get none, unless the caller names them. Nobody may
// have the password who edited the plan. Those of a configuration get them, unless the caller names others.
func TestCredentialsGoOnlyToNamedHosts(t *testing.T) {
	t.Parallel()
	const password = "open-sesame"
	proxy := newProxy(t, 0)
	var told atomic.Int32
	proxy.BeforeSend(func(op int32, request []byte) bool {
		if op == zkserver.OpAuth && bytes.Contains(request, []byte(password)) {
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
