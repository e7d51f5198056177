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

func TestSizesAreWrittenShort(t *testing.T) {
	for text, want := range map[string]string{
		"256KiB": "256KiB", "1024KiB": "1MiB", "1048577B": "1048577B", "0B": "0B", "0GiB": "0B", "1GiB": "1GiB",
		"2048GiB": "2TiB", "1536MiB": "1536MiB",
	} {
		var s resource.Size
		if err := s.UnmarshalText([]byte(text)); err != nil {
			t.Errorf("%s: %v", text, err)
		}
		if s.String() != want {
			t.Errorf("%s is written %s, want %s", text, s, want)
		}
	}
	for _, text := range []string{
		"", "B", "256", "256KB", "256 KiB", "256kib", "1.5GiB", "-1KiB", "+1KiB", "01KiB", "9999999999999GiB", "GiB",
	} {
		var s resource.Size
		if err := s.UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q is a size: %s", text, s)
		}
	}
}
