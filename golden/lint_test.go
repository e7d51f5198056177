package golden

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"muster/sim/needs"
)

// lint runs a linter with standard input and arguments. It returns what the linter prints and its error.
func lint(t *testing.T, stdin string, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(needs.Program(t, name, "shellcheck yamllint systemd"), args...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	if exit := new(exec.ExitError); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if err != nil {
		return err.Error() + "\n" + string(out)
	}
	return string(out)
}

// shared lists the files in examples and .ci for which fits is true.
func shared(t *testing.T, fits func(path string, body []byte) bool) []string {
	t.Helper()
	var files []string
	for _, dir := range []string{"../examples", "../.ci"} {
		err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
			if err != nil || e.IsDir() {
				return err
			}
			body, err := os.ReadFile(path)
			if err == nil && fits(path, body) {
				files = append(files, path)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return files
}

func isYAML(path string, _ []byte) bool {
	return strings.HasSuffix(path, ".yml") || strings.HasSuffix(path, ".yaml")
}

func isScript(path string, body []byte) bool {
	return strings.HasSuffix(path, ".sh") || bytes.HasPrefix(body, []byte("#!"))
}

func TestScriptsAreClean(t *testing.T) {
	files := shared(t, isScript)
	if len(files) < 5 {
		t.Fatalf("only %v", files)
	}
	if output := lint(t, "", "shellcheck", files...); output != "" {
		t.Error(output)
	}
}

func TestYAMLIsClean(t *testing.T) {
	files := shared(t, isYAML)
	if len(files) < 6 {
		t.Fatalf("only %v", files)
	}
	args := append([]string{"--strict", "--format", "parsable"}, files...)
	if output := lint(t, "", "yamllint", args...); output != "" {
		t.Error(output)
	}
}

// TestUnitsAreClean lets systemd read the units as if their program were installed.
func TestUnitsAreClean(t *testing.T) {
	units := shared(t, func(path string, _ []byte) bool { return filepath.Base(filepath.Dir(path)) == "systemd" })
	if len(units) < 3 {
		t.Fatalf("only %v", units)
	}
	program := regexp.MustCompile(`(?m)^(ExecStart=)\S+`)
	dir, args := t.TempDir(), []string{"verify"}
	for _, unit := range units {
		body, err := os.ReadFile(unit)
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(dir, filepath.Base(unit))
		if err := os.WriteFile(file, program.ReplaceAll(body, []byte("$1/bin/true")), 0o600); err != nil {
			t.Fatal(err)
		}
		args = append(args, file)
	}
	if output := lint(t, "", "systemd-analyze", args...); output != "" {
		t.Error(output)
	}
}

// TestShellInsideOtherFilesIsClean checks the steps of GitHub Actions, the scripts of GitLab CI and the lines of a
// crontab.
func TestShellInsideOtherFilesIsClean(t *testing.T) {
	found := map[string]int{}
	check := func(file, shell, script string) {
		found[filepath.Base(file)]++
		if output := lint(t, script, "shellcheck", "--shell", shell, "-"); output != "" {
			t.Errorf("%s: %s\n%s", file, script, output)
		}
	}
	for _, file := range shared(t, isYAML) {
		body, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for d := yaml.NewDecoder(bytes.NewReader(body)); ; {
			var doc yaml.Node
			err := d.Decode(&doc)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			shellIn(&doc, func(shell, script string) { check(file, shell, script) })
		}
	}
	crontab := "../examples/pipelines/crontab"
	body, err := os.ReadFile(crontab)
	if err != nil {
		t.Fatal(err)
	}
	entry := regexp.MustCompile(`(?m)^[\d*](?:\S+\s+){5}\w+\s+(.*)$`)
	for _, line := range entry.FindAllStringSubmatch(string(body), -1) {
		check(crontab, "sh", line[1])
	}
	for file, least := range map[string]int{"github.yml": 4, "gitlab-ci.yml": 3, "crontab": 1} {
		if found[file] < least {
			t.Errorf("%s: %d pieces of shell were found, there are at least %d", file, found[file], least)
		}
	}
}

// shellIn calls each with every script below n that GitHub or GitLab runs in a shell.
func shellIn(n *yaml.Node, each func(shell, script string)) {
	if n.Kind != yaml.MappingNode {
		for _, c := range n.Content {
			shellIn(c, each)
		}
		return
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i].Value, n.Content[i+1]
		switch {
		case key == "run" && value.Kind == yaml.ScalarNode:
			each("bash", value.Value)
		case strings.HasSuffix(key, "script") && value.Kind == yaml.SequenceNode:
			var lines []string
			for _, line := range value.Content {
				lines = append(lines, line.Value)
			}
			each("sh", strings.Join(lines, "\n"))
		default:
			shellIn(value, each)
		}
	}
}
