package resource_test

import (
	"testing"

	"muster/resource"
)

func TestHosts(t *testing.T) {
	t.Parallel()
	hosts := resource.ParseHosts(" zk-1, zk-2:2181,,::1 ")
	for addr, want := range map[string]bool{
		"zk-1": true, "ZK-1:2181": true, "zk-1:9999": true, "zk-2:2181": true, "zk-2:2182": false, "zk-2": false,
		"[::1]:2181": true, "[::1]": true, "zk-3:2181": false, "zk-1.evil.test:2181": false, "": false,
	} {
		if got := hosts.Include(addr); got != want {
			t.Errorf("%q: %v, want %v", addr, got, want)
		}
	}
	if resource.ParseHosts(" , ") != nil || resource.Hosts(nil).Include("") {
		t.Error("no hosts include one")
	}
}
