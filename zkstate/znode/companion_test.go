package znode

import "testing"

func TestIsCompanion(t *testing.T) {
	for path, want := range map[string]bool{
		"/r/a-lock": true, "/r/a-dai-for-barrier": true, "/r/a-job-master": true,
		"/r/a": false, "/r/ab-lock": false, "/r/a-lock/x": false, "/r/a-other": false,
		"/other/a-lock": false, "/precious": false,
	} {
		if got := IsCompanion(path, "/r/a"); got != want {
			t.Errorf("IsCompanion(%q) = %v", path, got)
		}
	}
}
