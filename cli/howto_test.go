package cli_test

import (
	"context"
	"path/filepath"
	"testing"

	"muster/dev/zkserver"
	"muster/zkstate/zkconn"
)

// TestHowTo runs the worked examples in docs. They have servers of their own, because they use the default roots and
// home.
func TestHowTo(t *testing.T) {
	t.Parallel()
	e, err := zkserver.Start(t.Context(), zkserver.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Stop(); err != nil {
			t.Error(err)
		}
	})
	createClassicJobs(t, e)
	files, err := filepath.Glob("../docs/howto/*.md")
	if err != nil || len(files) < 5 {
		t.Fatalf("%d worked examples: %v", len(files), err)
	}
	for _, file := range append(files, "../docs/drift.md", "../docs/pipelines.md") {
		t.Run(filepath.Base(file), func(t *testing.T) {
			p := readPage(t, file)
			p.checkFormatted(t, file)
			p.check(t, file, p.run(t, e.Connect()))
		})
	}
}

// createClassicJobs makes the jobs that take-over-classic-jobs.md starts with: terasort, whose three workers are gone,
// and wordcount, whose two workers are live until the test ends.
func createClassicJobs(t *testing.T, e *zkserver.Ensemble) {
	t.Helper()
	s, err := zkconn.Dial(t.Context(), zkconn.Config{Servers: e.Addrs()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	create := func(path, text string, mode zkconn.Mode) {
		_, err := s.Create(context.Background(), path, []byte(text), mode, zkconn.World(zkconn.PermAll))
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
	}
	create("/twister2", "", zkconn.Persistent)
	for _, j := range []struct{ name, roll, next string }{
		{"terasort", "\n10.0.0.1,7000,0;null,null,null\n10.0.0.2,7000,1;null,null,null\n" +
			"10.0.0.3,7000,2;null,null,null", "\x00\x00\x00\x03"},
		{"wordcount", "\n10.0.0.4,7000,0;null,null,null\n10.0.0.5,7000,1;null,null,null", "\x00\x00\x00\x02"},
	} {
		path := "/twister2/" + j.name
		create(path+"-dai-for-worker-id", j.next, zkconn.Persistent)
		create(path+"-dai-for-barrier", "\x00\x00\x00\x00", zkconn.Persistent)
		create(path+"-lock", "", zkconn.Persistent)
		create(path, j.roll, zkconn.Persistent)
	}
	for _, worker := range []string{"10.0.0.4,7000,0", "10.0.0.5,7000,1"} {
		live := "/twister2/wordcount/_c_" + worker[7:8] + "1111111-2222-3333-4444-555555555555-" + worker[:8] + ":7000"
		create(live, worker+";null,null,null", zkconn.Ephemeral)
	}
}
