package cli_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"muster/spec"
)

// TestFirstConfigurationIsValidWithWhatItSuggests: each block that init writes as a comment can be used as it stands.
func TestFirstConfigurationIsValidWithWhatItSuggests(t *testing.T) {
	file := filepath.Join(t.TempDir(), "first.hcl")
	expect(t, run(t, nil, "init", "-q", file), 0)
	comment := regexp.MustCompile(`^( *)# ?`)
	blocks, inside := 0, false
	lines := strings.Split(read(t, file), "\n")
	for i, line := range lines {
		if strings.HasPrefix(strings.TrimSpace(line), "# ") && strings.HasSuffix(line, " {") {
			blocks++
			inside = true
		}
		if inside {
			lines[i] = comment.ReplaceAllString(line, "$1")
			inside = strings.TrimSpace(line) != "# }"
		}
	}
	whole := strings.Join(lines, "\n")
	if err := os.WriteFile(file, []byte(whole), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, diags := spec.Load(file, spec.Options{HasCredentials: true})
	if len(diags) > 0 || len(cfg.ZooKeeper.Servers) != 3 || blocks != 3 {
		t.Fatalf("%d blocks, %v\n%s", blocks, diags, whole)
	}
	if out, _ := spec.Format([]byte(whole), file); string(out) != whole {
		t.Errorf("with its comments as blocks it is not formatted:\n%s", out)
	}
}
