package schedule

import (
	"fmt"
	"os"
	"os/exec"
	"testing"

	"muster/sim/needs"
)

// noZones marks the process of TestZonesAreLinked that has no zone data.
const noZones = "MUSTER_TEST_NO_ZONES"

// TestZonesAreLinked: zones are known on a machine without zone data.
func TestZonesAreLinked(t *testing.T) {
	if os.Getenv(noZones) == "" {
		withoutZones(t)
		return
	}
	if _, err := os.Stat("/usr/share/zoneinfo/UTC"); err == nil {
		t.Fatal("this machine has zone data")
	}
	s := mustParse(t, "30 2 * * *", "Europe/Berlin")
	got := ticks(s, at(t, "2026-03-29T00:00:00Z"), at(t, "2026-03-29T12:00:00Z"))
	if want := "[Sun 29 03:00:00 +0200]"; fmt.Sprint(got) != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// withoutZones runs the test again where each folder that package time reads is empty.
func withoutZones(t *testing.T) {
	t.Helper()
	const script = `for dir in /usr/share/zoneinfo /usr/share/lib/zoneinfo /usr/lib/locale/TZ /etc/zoneinfo; do
		if test -d $dir; then mount -t tmpfs none $dir || exit; fi
	done
	exec "$0" -test.run='^TestZonesAreLinked$'`
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	unshare := needs.Unshare(t, []string{"--mount", "--propagation", "private"},
		"mount", "-t", "tmpfs", "none", t.TempDir())
	cmd := exec.CommandContext(t.Context(), unshare[0], append(unshare[1:], "sh", "-c", script, binary)...)
	cmd.Env = append(os.Environ(), noZones+"=1", "GOROOT=/nowhere", "ZONEINFO=")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
