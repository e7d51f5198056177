package planfile_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"muster/planfile"
)

// TestMain: this program is also one that reads the plan file of which it is given the name, and prints,
// if it is damaged, how much memory that took.
func TestMain(m *testing.M) {
	if name := os.Getenv("PLANFILE_TEST_DECODE"); name != "" {
		file, err := os.ReadFile(name)
		if err == nil {
			_, err = planfile.Decode(kinds(), file)
		}
		if !errors.Is(err, planfile.ErrDamaged) {
			fmt.Println(err)
			os.Exit(1)
		}
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		fmt.Print(m.Sys)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// TestLargeFilesThatAreNoPlan: a large file that is no plan is refused before it takes many times its size.
func TestLargeFilesThatAreNoPlan(t *testing.T) {
	const size, oneRow, times = 8 << 20, 24 << 20, 12
	head := `{"format_version":"1.0","id":"a","stack":"s","created":"2026-11-22T10:00:00Z","complete":true,`
	fill := func(size int, before, each, after string) string {
		return head + before + strings.Repeat(each, size/len(each)) + after
	}
	for name, text := range map[string]string{
		"rows":    fill(size, `"resource_changes":[`, `{"address":"a","change":{"actions":["no-op"]}},`, `{}]}`),
		"nothing": fill(size, `"resource_changes":[`, `{},`, `{}]}`),
		"null":    fill(size, `"resource_changes":[`, `null,`, `null]}`),
		"one_row": fill(oneRow, `"resource_changes":[{"address":"a","blocked_by":[`, `"",`, `""]}]}`),
		"acl":     fill(size, `"acl":[`, `"",`, `""]}`),
		"keys":    fill(size, ``, `"x":1,`, `"resource_changes":[]}`),
		"deep":    strings.Repeat("[", size),
	} {
		t.Run(name, func(t *testing.T) {
			file := t.TempDir() + "/plan.json"
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			cmd := exec.CommandContext(t.Context(), os.Args[0])
			cmd.Env = append(os.Environ(), "PLANFILE_TEST_DECODE="+file)
			out, err := cmd.Output()
			if used, _ := strconv.Atoi(string(out)); err != nil || used == 0 || used > times*len(text) {
				t.Errorf("%v, %s bytes", err, out)
			}
		})
	}
}
