package resource_test

import (
	"strings"
	"testing"

	"muster/resource"
)

func TestCheckName(t *testing.T) {
	for _, name := range []string{"a", "A-b_c.d", "0", "run", strings.Repeat("n", resource.MaxName)} {
		if err := resource.CheckName("job", name); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	for _, name := range []string{
		"", resource.Reserved, ".a", "-a", "_a", "a/b", "a b", "ä", "a\x00", "a\u202e",
		strings.Repeat("n", resource.MaxName+1),
	} {
		if err := resource.CheckName("job", name); err == nil {
			t.Errorf("%q may be a job's name", name)
		}
	}
}

func TestCheckRoot(t *testing.T) {
	for _, root := range []string{"/muster", "/jobs/prod", "/a.b/c d", "/zookeeper2"} {
		if err := resource.CheckRoot(root); err != nil {
			t.Errorf("%q: %v", root, err)
		}
	}
	for _, root := range []string{
		"", "/", "jobs", "/jobs/", "//jobs", "/jobs//a", "/jobs/.", "/jobs/../a", "/zookeeper", "/zookeeper/quota",
		"/.muster", "/jobs/.muster/job", "/jobs\n", "/ä", "/" + strings.Repeat("r", 512),
	} {
		if err := resource.CheckRoot(root); err == nil {
			t.Errorf("%q may be a root", root)
		}
	}
}

func TestCheckHome(t *testing.T) {
	for _, home := range []string{"/.muster", "/jobs/.muster", "/locks"} {
		if err := resource.CheckHome(home); err != nil {
			t.Errorf("%q: %v", home, err)
		}
	}
	for _, home := range []string{
		"", "/", ".muster", "//.muster", "/../.muster", "/.muster/.muster", "/.muster/x", "/.muster/",
		"/zookeeper/.muster",
	} {
		if err := resource.CheckHome(home); err == nil {
			t.Errorf("%q may be a home", home)
		}
	}
}

func TestJoin(t *testing.T) {
	for want, got := range map[string]string{
		"/a": resource.Join("/", "a"), "/r/a/b": resource.Join("/r", "a", "b"), "/r": resource.Join("/r"),
	} {
		if got != want {
			t.Errorf("joined %q, want %q", got, want)
		}
	}
}

func TestDurationsAreWrittenShort(t *testing.T) {
	for text, want := range map[string]string{
		"100s": "1m40s", "60s": "1m", "1h": "1h", "90m": "1h30m", "1h0m5s": "1h0m5s", "10m": "10m", "0s": "0s",
		"1500ms": "1.5s", "-2m": "-2m",
	} {
		var d resource.Duration
		if err := d.UnmarshalText([]byte(text)); err != nil {
			t.Errorf("%s: %v", text, err)
		}
		if d.String() != want {
			t.Errorf("%s is written %s, want %s", text, d, want)
		}
	}
	var d resource.Duration
	if err := d.UnmarshalText([]byte("100")); err == nil {
		t.Error("a number without a unit is a duration")
	}
}
