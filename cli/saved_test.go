package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"muster/plan/planfile"
)

// TestAnyChangedByteOfAPlanIsRefused: apply refuses a file in which a byte was changed, that was cut short, or that
// something was appended to. It does so before it connects.
func TestAnyChangedByteOfAPlanIsRefused(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 2, "")
	file := filepath.Join(f.dir, "plan.json")
	f.mustRun(t, "plan", "--out", file)
	good := []byte(read(t, file))
	refused := func(at int, bad []byte) {
		t.Helper()
		if err := os.WriteFile(file, bad, 0o644); err != nil {
			t.Fatal(err)
		}
		got := run(t, []string{"MUSTER_SERVERS=127.0.0.1:1"}, "apply", file)
		if got.code != 5 || got.stdout != "" || !strings.Contains(got.stderr, "next: muster plan --out") {
			t.Errorf("byte %d of %d: %+v", at, len(good), got)
		}
	}
	for at := range good {
		bad := append([]byte(nil), good...)
		bad[at] ^= 1
		refused(at, bad)
		if at%16 == 0 {
			refused(at, good[:at])
		}
	}
	refused(len(good), append(append([]byte(nil), good...), '\n'))
	refused(len(good), append(append([]byte(nil), good...), good...))

	// The binary does the same, and applies the original file.
	for _, at := range []int{0, len(good) / 2, len(good) - 1} {
		bad := append([]byte(nil), good...)
		bad[at] ^= 1
		if err := os.WriteFile(file, bad, 0o644); err != nil {
			t.Fatal(err)
		}
		expect(t, result(f.command(servers.Connect(), "apply", file)), 5, "plan file", "next: ")
		expect(t, result(f.command(servers.Connect(), "show", file)), 5, "plan file", "next: ")
	}
	if err := os.WriteFile(file, good, 0o644); err != nil {
		t.Fatal(err)
	}
	expect(t, result(f.command(servers.Connect(), "apply", file)), 0, "2 created")
}

// TestReleasedPlanFilesAreStillRead: testdata/released has a plan file of every minor version of the format.
// Never remove one.
func TestReleasedPlanFilesAreStillRead(t *testing.T) {
	schema := schemaOf(t, "plan", false)
	files, err := filepath.Glob("testdata/released/plan-*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("%v %v", files, err)
	}
	present := false
	for _, file := range files {
		version := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(file), "plan-"), ".json")
		present = present || version == planfile.FormatVersion
		text := read(t, file)
		if !strings.Contains(text, `"format_version": "`+version+`"`) {
			t.Errorf("%s is of another version", file)
		}
		if err := schema.Validate(parseJSON(t, text)); err != nil {
			t.Errorf("%s: %v", file, err)
		}
		show := fixture{dir: "."}
		expect(t, result(show.command("", "show", file)), 0,
			"Plan: 1 to create, 1 to replace, 1 to delete, 1 to update;")
	}
	if !present {
		t.Errorf("there is no file of version %s, which is what plan writes", planfile.FormatVersion)
	}
}
