package cli_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"muster/dev/daemon"
	"muster/dev/redisserver"
	"muster/dev/zkserver"
	"muster/docs"
	"muster/exitcode"
	"muster/plan"
	"muster/report"
	"muster/resource"
	"muster/resource/group"
	"muster/resource/job"
	"muster/resource/queue"
	"muster/sim/rig"
	"muster/spec"
	"muster/view"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// TestExitCodesAreDocumented: the table of the page is in order, has each code once, and each has a name in reports.
func TestExitCodesAreDocumented(t *testing.T) {
	named := map[int]bool{}
	for code := range 256 {
		named[code] = exitcode.Name(code) != fmt.Sprint("exit code ", code)
	}
	first := -1
	for _, row := range docs.ExitCodes() {
		if row.Meaning == "" || row.Codes[0] <= first || !slices.IsSorted(row.Codes) {
			t.Errorf("the row of %v comes too late, is not sorted, or says nothing", row.Codes)
		}
		first = row.Codes[0]
		for _, code := range row.Codes {
			if !named[code] {
				t.Errorf("code %d has no name, or two rows", code)
			}
			delete(named, code)
		}
	}
	maps.DeleteFunc(named, func(_ int, is bool) bool { return !is })
	if len(named) > 0 || first != exitcode.Abort {
		t.Errorf("codes without a row: %v; the last row is that of %d", named, first)
	}
}

func TestEveryKindOfFindingIsDocumented(t *testing.T) {
	drift, reports := read(t, "../docs/drift.md"), read(t, "../docs/reports.md")
	help := run(t, nil, "drift", "--help").stdout
	for _, k := range plan.DriftKinds() {
		words := regexp.MustCompile(`(?m)^  ` + string(k) + ` +(.*)$`).FindStringSubmatch(help)
		if len(words) != 2 || !strings.Contains(drift, "\n| `"+string(k)+"` | "+words[1]) {
			t.Errorf("docs/drift.md has no row for %s that begins like the help: %q", k, words)
		}
	}
	for _, k := range report.Formats() {
		if !strings.Contains(reports, "\n| `"+k+"` | ") {
			t.Errorf("docs/reports.md has no row for %s", k)
		}
	}
	metric := regexp.MustCompile(`(?m)^# HELP (\w+)`)
	for _, file := range []string{"plan.prom", "apply.prom", "drift.prom"} {
		for _, m := range metric.FindAllStringSubmatch(read(t, "../report/testdata/"+file), -1) {
			if !strings.Contains(reports, "`"+m[1]+"`") {
				t.Errorf("docs/reports.md does not explain %s", m[1])
			}
		}
	}
}

// TestExampleUsesTheDefaultServer: the commands at the head of the example run without MUSTER_SERVERS.
func TestExampleUsesTheDefaultServer(t *testing.T) {
	port, local := strings.CutPrefix(spec.DefaultServer, "127.0.0.1:")
	first := regexp.MustCompile(`(?m)^#   (.*)$`).FindStringSubmatch(read(t, "../examples/one-job.hcl"))
	if !local || first == nil || !strings.HasPrefix(first[1], "muster dev --port "+port+" ") {
		t.Errorf("default server %s; the example begins with %q", spec.DefaultServer, first)
	}
}

// TestEveryBarrierHasARound: without --round, a script that is started again after a crash would come to the next
// round.
func TestEveryBarrierHasARound(t *testing.T) {
	texts := map[string]string{
		"README.md":      read(t, "../README.md"),
		"barrier --help": run(t, nil, "barrier", "--help").stdout,
		"worker --help":  run(t, nil, "worker", "--help").stdout,
	}
	for _, pattern := range []string{"../docs/*.md", "../docs/*/*.md", "../examples/*", "../examples/*/*"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range found {
			if info, err := os.Stat(file); err == nil && !info.IsDir() {
				texts[file] = read(t, file)
			}
		}
	}
	barrier := regexp.MustCompile(`muster barrier [a-z].*`)
	checked := 0
	for name, text := range texts {
		for _, call := range barrier.FindAllString(text, -1) {
			if checked++; !strings.Contains(call, " --round ") {
				t.Errorf("%s: %s", name, call)
			}
		}
	}
	if checked < 6 {
		t.Errorf("only %d barriers were found", checked)
	}
}

// TestExamplesUseFlagsThatExist checks the calls of muster in the README, the pipelines and the docs.
func TestExamplesUseFlagsThatExist(t *testing.T) {
	var files []string
	for _, pattern := range []string{
		"../examples/pipelines/*", "../examples/pipelines/*/*", "../docs/*.md", "../docs/*/*.md",
	} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, found...)
	}
	files = append(files, "../README.md")
	joined := regexp.MustCompile(`\\\n\s*|\n\s+(--)`)
	call := regexp.MustCompile("\\bmuster ((?:(?:group|queue) )?[a-z]+)\\b([^\n|`&()]*)")
	flag := regexp.MustCompile(`(?:^|\s)(--[a-z][a-z-]*)`)
	flags := map[string]string{}
	checked := 0
	for _, file := range files {
		if info, err := os.Stat(file); err != nil || info.IsDir() {
			continue
		}
		for _, c := range call.FindAllStringSubmatch(joined.ReplaceAllString(read(t, file), " $1"), -1) {
			own, _, _ := strings.Cut(c[2]+" ", " -- ") // not those of the command that it runs
			found := flag.FindAllStringSubmatch(own, -1)
			if flags[c[1]] == "" && len(found) > 0 {
				flags[c[1]] = run(t, nil, append(strings.Fields(c[1]), "--help")...).stdout +
					run(t, nil, "help", "flags").stdout
			}
			for _, f := range found {
				checked++
				if !regexp.MustCompile(f[1] + `\b[^-]`).MatchString(flags[c[1]]) {
					t.Errorf("%s: muster %s has no flag %s", file, c[1], f[1])
				}
			}
		}
	}
	if checked < 250 {
		t.Errorf("only %d flags were found in %d files", checked, len(files))
	}
}

// TestFarMoreClaimsThanWorkers: a participant may write any number of claims. Status reads a bounded number of them,
// those of live workers first, and says how many it leaves out.
func TestFarMoreClaimsThanWorkers(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 1, "")
	f.mustApply(t)
	s := rig.Dial(t, 0, servers.Addrs()...)
	run := znode.Run(f.root, f.generationOf(t, s, job.Kind(), "j0"))
	acl := zkconn.World(zkconn.PermAll)
	var ops []zkconn.Op
	for _, folder := range znode.JobFolders(job.Job{}) {
		ops = append(ops, zkconn.CreateOp(run+"/"+folder, nil, zkconn.Persistent, acl))
	}
	claim := []byte(`{"nonce":"0123456789abcdef0123456789abcdef","lives":1,"state":"in"}`)
	const claims = 1500
	for i := range claims {
		ops = append(ops, zkconn.CreateOp(fmt.Sprintf("%s/by/w-%04d", run, i), claim, zkconn.Persistent, acl))
	}
	last := fmt.Sprintf("w-%04d", claims-1)
	ops = append(ops, zkconn.CreateOp(run+"/id/n-", nil, zkconn.PersistentSequential, acl),
		zkconn.CreateOp(f.root+"/j0/"+last, nil, zkconn.Ephemeral, acl))
	if _, err := s.Multi(t.Context(), ops...); err != nil {
		t.Fatal(err)
	}
	got := result(f.command(servers.Connect(), "status", f.root+"/j0"))
	expect(t, got, 0, "498 more have claims", last+"    -        live", "w-0000")
}

// TestEveryPromiseHasItsTests: each test that docs/acceptance.md names exists, as a function or as a script.
func TestEveryPromiseHasItsTests(t *testing.T) {
	files, err := filepath.Glob("../*/*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, file := range files {
		all.WriteString(read(t, file))
	}
	rows := regexp.MustCompile(`(?m)^\| (\d+) \| [^|]+ \| ([^|]+) \| [^|]*\|$`).
		FindAllStringSubmatch(read(t, "../docs/acceptance.md"), -1)
	for i, row := range rows {
		tests := regexp.MustCompile("`(\\w+)`").FindAllStringSubmatch(row[2], -1)
		if row[1] != strconv.Itoa(i+1) || len(tests) == 0 {
			t.Errorf("row %d is about point %s, with %d tests", i+1, row[1], len(tests))
		}
		for _, test := range tests {
			if _, err := os.Stat("testdata/script/" + test[1] + ".txtar"); err != nil &&
				!strings.Contains(all.String(), "\nfunc "+test[1]+"(") {
				t.Errorf("point %s: there is no %s", row[1], test[1])
			}
		}
	}
	if len(rows) != 18 {
		t.Errorf("%d points", len(rows))
	}
}

// TestReadme runs the blocks of the README's first ten minutes one after the other, with free ports, without asking.
func TestReadme(t *testing.T) {
	t.Parallel()
	_, first, _ := strings.Cut(read(t, "../README.md"), "## The first ten minutes")
	first, _, _ = strings.Cut(first, "\n## ")
	var script strings.Builder
	for _, block := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(first, -1) {
		script.WriteString(block[1])
	}
	var ports [2]string
	for i := range ports {
		r, err := daemon.ReservePort(0)
		if err != nil {
			t.Fatal(err)
		}
		ports[i] = strconv.Itoa(r.Port)
		_ = r.Close()
	}
	const dev = "muster dev --port 2181 --redis --redis-port 6379 &\n"
	edit := strings.NewReplacer(
		"make build && export PATH=$PWD:$PATH", "all() { jobs -p | sed 1d; }; "+ // but the servers
			"trap 'kill $(all); wait $(all) || true; kill %1; wait' EXIT",
		dev, strings.NewReplacer("2181", ports[0], "6379", ports[1]).Replace(dev)+"until muster status; do sleep 0.1; done\n",
		"6379", ports[1], "muster apply\n", "muster apply --yes\n", "muster status\n", "wait $!; muster status\n",
	)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-ec", edit.Replace(script.String()))
	cmd.Dir = t.TempDir()
	cmd.Env = append(cmd.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "MUSTER_SERVERS=127.0.0.1:"+ports[0])
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 20 * time.Second
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("the first ten minutes: %v", err)
	}
	for _, seen := range []string{
		"Applied 1 of 1: 1 created", "(?m)^0 of 2$", "(?m)^1 of 2$", `hello +ready +\S+ +0 of 2 `,
		"(?m)^[ab] leads$", "shop/coordinator: (given to )?[ab]", "(?m)^the report, by [ab]$", "by hand 1 +done",
		"(?m)^c has the lock$", "(?m)^81\n100$",
	} {
		if !regexp.MustCompile(seen).Match(out) {
			t.Errorf("never saw %s in:\n%s", seen, out)
		}
	}
}

// TestHowTo runs the worked examples in docs. They have servers of their own, because they use the default roots and
// home.
func TestHowTo(t *testing.T) {
	t.Parallel()
	e := newEnsemble(t, zkserver.Options{})
	createClassicJobs(t, e)
	redis, err := redisserver.Start(t.Context(), redisserver.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = redis.Stop() })
	files, err := filepath.Glob("../docs/howto/*.md")
	if err != nil || len(files) < 10 {
		t.Fatalf("%d worked examples: %v", len(files), err)
	}
	for _, file := range append(files, "../docs/drift.md", "../docs/pipelines.md") {
		t.Run(filepath.Base(file), func(t *testing.T) {
			p := readPage(t, file)
			p.checkFormatted(t, file)
			p.check(t, file, p.run(t, e.Connect(), "127.0.0.1:6379", redis.Addr()))
		})
	}
}

// createClassicJobs makes the jobs that take-over-classic-jobs.md starts with: terasort, whose three workers are gone,
// and wordcount, whose two workers are live until the test ends.
func createClassicJobs(t *testing.T, e *zkserver.Ensemble) {
	t.Helper()
	s := rig.Dial(t, 0, e.Addrs()...)
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

const diagnosticsDir = "../docs/diagnostics"

var (
	diagnosticCode = regexp.MustCompile(`\bM[12]\d{3}\b`)
	diagnosticLine = regexp.MustCompile(`(?m)^(?:error|warning)\[(M\d+)\]: `)
)

// TestEveryDiagnosticHasAPage: the codes in the source and of the pages are the same.
func TestEveryDiagnosticHasAPage(t *testing.T) {
	var paged, used []string
	for _, c := range docs.Codes() {
		paged = append(paged, c.Code)
	}
	sources, err := filepath.Glob("../spec/*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range sources {
		if !strings.HasSuffix(file, "_test.go") {
			used = append(used, diagnosticCode.FindAllString(read(t, file), -1)...)
		}
	}
	slices.Sort(used)
	if d := cmp.Diff(paged, slices.Compact(used)); d != "" {
		t.Errorf("codes (-with a page in docs/diagnostics +in the source of spec):\n%s", d)
	}
}

// TestDiagnosticPages: what a page shows first gives its code and no other. What it shows last is valid.
func TestDiagnosticPages(t *testing.T) {
	for _, c := range docs.Codes() {
		t.Run(c.Code, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(diagnosticsDir, c.Code+".md")
			p := readPage(t, file)
			printed := p.run(t, servers.Connect())
			var codes []string
			for _, m := range diagnosticLine.FindAllStringSubmatch(strings.Join(printed, "\n"), -1) {
				codes = append(codes, m[1])
			}
			if !slices.Equal(slices.Compact(codes), []string{c.Code}) {
				t.Errorf("%s shows %v", file, codes)
			}
			last := strings.TrimSpace(printed[len(p.parts)-1])
			good := strings.HasPrefix(last, "Valid: ") || strings.HasPrefix(last, "ok ")
			if !good || strings.Contains(last, "\n") {
				t.Errorf("%s ends with something that is not valid:\n%s", file, last)
			}
			p.checkFormatted(t, file)
			p.check(t, file, printed)
			if d := cmp.Diff(read(t, file), run(t, nil, "explain", c.Code).stdout); d != "" && !*update {
				t.Errorf("muster explain %s (-page +printed):\n%s", c.Code, d)
			}
		})
	}
}

// checkFormatted checks that the last version of each file on the page is as muster fmt writes it.
func (p page) checkFormatted(t *testing.T, file string) {
	t.Helper()
	last := map[string]part{}
	for _, s := range p.parts {
		if strings.HasSuffix(s.file, ".hcl") {
			last[s.file] = s
		}
	}
	for _, s := range last {
		formatted, diags := spec.Format([]byte(s.text), s.file)
		if d := cmp.Diff(s.text, string(formatted)); d != "" || diags.HasErrors() {
			t.Errorf("%s:%d: not as muster fmt writes it (-shown +formatted):\n%s%v", file, s.from, d, diags)
		}
	}
}

// TestIndexOfDiagnostics: docs/diagnostics.md lists exactly the codes.
func TestIndexOfDiagnostics(t *testing.T) {
	const file = diagnosticsDir + ".md"
	groups := map[string]string{
		"M10": "Files", "M11": "Syntax", "M12": "Jobs and their values", "M13": "Blocks and arguments",
		"M14": "Variables", "M15": "Expressions", "M16": "The blocks muster and zookeeper",
		"M17": "Ignored drift", "M18": "Warnings", "M19": "Groups and their duties", "M20": "Queues",
		"M21": "Policies", "M22": "Tests of configurations",
	}
	have := read(t, file)
	intro, _, _ := strings.Cut(have, "\n## ")
	var b strings.Builder
	b.WriteString(intro)
	group := ""
	for _, c := range docs.Codes() {
		if g := groups[c.Code[:3]]; g != group {
			group = g
			fmt.Fprintf(&b, "\n## %s\n\n| code | meaning |\n|---|---|\n", group)
		}
		fmt.Fprintf(&b, "| [%s](diagnostics/%[1]s.md) | %s |\n", c.Code, c.Meaning)
	}
	if *update {
		write(t, file, b.String())
		return
	}
	if d := cmp.Diff(b.String(), have); d != "" {
		t.Errorf("%s (-want +got):\n%s", file, d)
	}
}

// kinds lists the kinds of resources whose words the pages and schemas have.
var kinds = []resource.Kind{job.Kind(), group.Kind(), queue.Kind()}

// TestEveryStateIsExplained: every word that is printed as a state has a section, without a server or a configuration.
func TestEveryStateIsExplained(t *testing.T) {
	var words []string
	for _, k := range kinds {
		for _, s := range k.Statuses {
			words = append(words, string(s))
		}
	}
	for _, k := range plan.DriftKinds() {
		words = append(words, string(k))
	}
	for _, a := range plan.Actions() {
		words = append(words, string(a))
	}
	for _, s := range []view.WorkerState{view.Live, view.Completed, view.Left, view.Lost} {
		words = append(words, string(s))
	}
	for _, s := range []znode.BatchState{
		znode.BatchSubmitting, znode.BatchOpen, znode.BatchPaused, znode.BatchCancelled, "completed", "lost", "broken",
	} {
		words = append(words, string(s))
	}
	for _, s := range []znode.EndState{
		znode.EndCollected, znode.EndDiscarded, znode.EndCancelled, znode.EndUnattended,
	} {
		words = append(words, string(s))
	}
	for _, s := range []znode.TickState{
		znode.TickAsked, znode.TickWaiting, znode.TickRunning, znode.TickDone, znode.TickFailed, znode.TickLost,
		znode.TickMissed, znode.TickSkipped,
	} {
		words = append(words, string(s))
	}
	for _, word := range words {
		got := run(t, []string{"MUSTER_SERVERS=" + refusingAddr}, "explain", word)
		if got.code != 0 || !strings.HasPrefix(got.stdout, "# "+word+"\n") || len(got.stdout) < len(word)+40 {
			t.Errorf("explain %q: %+v", word, got)
		}
	}
	expect(t, run(t, nil, "explain", "stale"), 0, "`muster apply` replaces it")
}

// TestEveryExitCodeIsExplained: with its meaning and what to do. What is not in the table is a command's own code.
func TestEveryExitCodeIsExplained(t *testing.T) {
	for _, row := range docs.ExitCodes() {
		for _, code := range row.Codes {
			got := run(t, []string{"MUSTER_SERVERS=" + refusingAddr}, "explain", strconv.Itoa(code))
			flat := strings.ReplaceAll(got.stdout, "\n", " ")
			if got.code != 0 || !strings.Contains(flat, row.Meaning) || !strings.Contains(flat, row.Remedy) {
				t.Errorf("explain %d: %+v", code, got)
			}
			for line := range strings.Lines(got.stdout) {
				if len(line) > 81 && !strings.HasPrefix(line, "# ") {
					t.Errorf("explain %d: a line is wider than 80 columns: %s", code, line)
				}
			}
		}
	}
	expect(t, run(t, nil, "explain", "71"), 0, "# Exit code 71: a barrier was aborted\n", "## What to do\n", "--retry")
	expect(t, run(t, nil, "explain", "137"), 0, "# Exit code 137: ended by a signal: 9, SIGKILL\n")
	expect(t, run(t, nil, "explain", "42"), 0, "It is none of muster's")
	expect(t, run(t, nil, "explain", "200"), 0, "It is none of muster's")
	expect(t, run(t, nil, "explain", "256", "--servers", refusingAddr), exitcode.Unreachable)
}

// schemaOf compiles a schema that muster prints. A strict one also refuses keys that the schema does not describe:
// readers must accept such keys, but muster must describe all that it writes.
func schemaOf(t *testing.T, name string, strict bool) *jsonschema.Schema {
	t.Helper()
	got := run(t, nil, "schema", name)
	if got.code != 0 || got.stderr != "" {
		t.Fatalf("schema %s: %+v", name, got)
	}
	doc := parseJSON(t, got.stdout)
	if strict {
		doc = withoutExtraKeys(doc)
	}
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	if err := c.AddResource("muster:"+name, doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("muster:" + name)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// withoutExtraKeys forbids undescribed keys in every object of a schema.
func withoutExtraKeys(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for key, value := range v {
			v[key] = withoutExtraKeys(value)
		}
		if _, object := v["properties"].(map[string]any); object && v["type"] == "object" {
			v["additionalProperties"] = false
		}
	case []any:
		for i := range v {
			v[i] = withoutExtraKeys(v[i])
		}
	}
	return v
}

func parseJSON(t *testing.T, text string) any {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	if err != nil {
		t.Fatalf("%v in\n%.500s", err, text)
	}
	return doc
}

// TestGoldenReportsFitTheSchemas checks reports with every kind of row, outcome and finding.
func TestGoldenReportsFitTheSchemas(t *testing.T) {
	for file, schema := range map[string]string{
		"../report/testdata/plan.json": "plan", "../report/testdata/nasty.json": "plan",
		"../report/testdata/apply.json": "apply", "../report/testdata/nasty_apply.json": "apply",
		"../report/testdata/drift.json": "drift",
	} {
		text := read(t, file)
		if err := schemaOf(t, schema, true).Validate(parseJSON(t, text)); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
	cases, err := filepath.Glob("../golden/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	plans := 0
	schema := schemaOf(t, "plan", true)
	for _, file := range cases {
		ar, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, section := range ar.Files {
			if section.Name != "plan.json" {
				continue
			}
			plans++
			if err := schema.Validate(parseJSON(t, string(section.Data))); err != nil {
				t.Errorf("%s: %v", file, err)
			}
		}
	}
	if plans < 10 {
		t.Errorf("%d plans", plans)
	}
}

// TestRealOutputFitsTheSchemas runs the commands with a real server and without one.
func TestRealOutputFitsTheSchemas(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 2, `defaults {
  labels = { team = "data" }
}`)
	file := filepath.Join(t.TempDir(), "out.json")
	for _, c := range []struct {
		schema string
		code   int
		args   []string
	}{
		{"plan", 0, []string{"plan", "--report", "json=" + file}},
		{"plan", 0, []string{"plan", "--out", file}},
		{"drift", 2, []string{"drift", "--report", "json=" + file}},
		{"apply", 0, []string{"apply", "--yes", "--report", "json=" + file}},
		{"apply", 0, []string{"apply", "--yes", "--report", "json=" + file}},
		{"drift", 0, []string{"drift", "--report", "json=" + file}},
		{"drift", 8, []string{"drift", "--servers", refusingAddr, "--report", "json=" + file}},
		{"apply", 8, []string{"apply", "--yes", "--servers", refusingAddr, "--report", "json=" + file}},
	} {
		args := append([]string{"-C", f.dir}, c.args...)
		if got := run(t, []string{"MUSTER_SERVERS=" + servers.Connect()}, args...); got.code != c.code {
			t.Fatalf("%v: %+v", c.args, got)
		}
		text := read(t, file)
		if err := schemaOf(t, c.schema, true).Validate(parseJSON(t, text)); err != nil {
			t.Errorf("%v: %v\n%s", c.args, err, text)
		}
	}
	got := run(t, []string{"MUSTER_SERVERS=" + servers.Connect()}, "-C", f.dir, "plan", "--format", "json")
	if err := schemaOf(t, "plan", true).Validate(parseJSON(t, got.stdout)); err != nil {
		t.Errorf("plan --format json: %v", err)
	}
	got = run(t, []string{"MUSTER_SERVERS=" + servers.Connect()}, "-C", f.dir, "history", "--json")
	if err := schemaOf(t, "history", true).Validate(parseJSON(t, got.stdout)); err != nil {
		t.Errorf("history --json: %v\n%s", err, got.stdout)
	}
}

// TestSchemasNameEveryWord: the enums of the schemas are exactly the words of the program.
func TestSchemasNameEveryWord(t *testing.T) {
	words := func(name string, at ...string) []string {
		v := parseJSON(t, run(t, nil, "schema", name).stdout)
		for _, key := range append(at, "enum") {
			v = v.(map[string]any)[key]
		}
		var all []string
		for _, word := range v.([]any) {
			all = append(all, word.(string))
		}
		slices.Sort(all)
		return all
	}
	checkSame(t, "action_reason", words("plan", "$defs", "row", "properties", "action_reason"), plan.Reasons())
	checkSame(t, "kind", words("drift", "$defs", "finding", "properties", "kind"), plan.DriftKinds())
	var statuses []resource.Status
	for _, k := range kinds {
		statuses = append(statuses, k.Statuses...)
	}
	slices.Sort(statuses)
	statuses = slices.Compact(statuses)
	checkSame(t, "status", words("plan", "$defs", "row", "properties", "status"), statuses)
	checkSame(t, "status", words("apply", "$defs", "outcome", "properties", "status"), statuses)
	checkSame(t, "status", words("drift", "$defs", "finding", "properties", "status"), statuses)
}

func checkSame[T ~string](t *testing.T, what string, got []string, words []T) {
	t.Helper()
	var want []string
	for _, word := range words {
		want = append(want, string(word))
	}
	slices.Sort(want)
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("%s (-want +got):\n%s", what, d)
	}
}

// TestSchemasRefuseWhatIsNotADocument: a schema that accepts everything would pass the tests above.
func TestSchemasRefuseWhatIsNotADocument(t *testing.T) {
	for _, name := range []string{"plan", "apply", "drift", "validate"} {
		s := schemaOf(t, name, false)
		for _, text := range []string{
			`{}`, `[]`, `{"format_version":"2.0"}`,
			`{"format_version":"1.0","command":"` + name + `","muster_version":"","problems":[],"exit_code":"0"}`,
		} {
			if s.Validate(parseJSON(t, text)) == nil {
				t.Errorf("the schema of %s accepts %s", name, text)
			}
		}
	}
	if got := run(t, nil, "schema", "plna"); got.code != 64 {
		t.Errorf("got %+v", got)
	}
}
