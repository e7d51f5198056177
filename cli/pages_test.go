package cli_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"go/format"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"muster/cli"
	"muster/exitcode"
	"muster/sim/needs"
)

var update = flag.Bool("update", false, "rewrite the output of commands in docs, and the index of diagnostics")

// page is a page of docs that can be run. One shell writes the files and runs the commands of the page, in its order.
// The name of a file stands before it, in backticks and with a colon. HCL with a muster block and no name is jobs.hcl.
// A comment that starts with "situation" holds commands that prepare the page and print nothing. The processes in
// $workers are stopped at the end.
type page struct {
	lines []string
	parts []part
}

// part is a file or a command of a page.
type part struct {
	file, text string // file is empty if it is a command
	from, to   int    // the lines of its output, or of the text of the file
	shown      bool   // the page shows it: it is no preparation
}

var fileHeading = regexp.MustCompile("^`([^`]+)`:$")

func readPage(t *testing.T, file string) page {
	t.Helper()
	p := page{lines: strings.Split(read(t, file), "\n")}
	for i := 0; i < len(p.lines); i++ {
		kind, ok := strings.CutPrefix(p.lines[i], "```")
		situation := p.lines[i] == "<!-- situation"
		if !ok && !situation {
			continue
		}
		first := i + 1
		for i++; i < len(p.lines) && p.lines[i] != "```" && p.lines[i] != "-->"; i++ {
		}
		text := strings.Join(p.lines[first:i], "\n")
		name := ""
		if m := fileHeading.FindStringSubmatch(p.lines[max(0, first-3)]); m != nil {
			name = m[1]
		}
		switch {
		case situation:
			p.parts = append(p.parts, part{text: text})
		case kind == "console":
			p.addCommands(first, i)
		case name != "":
			p.parts = append(p.parts, part{file: name, text: text + "\n", from: first, to: i})
		case kind == "hcl" && strings.Contains(text, "muster {"):
			p.parts = append(p.parts, part{file: "jobs.hcl", text: text + "\n", from: first, to: i})
		}
	}
	return p
}

// addCommands adds the commands of a block, each with its output.
func (p *page) addCommands(from, to int) {
	for i := from; i < to; {
		s := part{text: strings.TrimPrefix(p.lines[i], "$ "), shown: true}
		for i++; i < to && strings.HasSuffix(p.lines[i-1], `\`); i++ {
			s.text += "\n" + p.lines[i]
		}
		for s.from = i; i < to && !strings.HasPrefix(p.lines[i], "$ "); i++ {
		}
		s.to = i
		p.parts = append(p.parts, s)
	}
}

const partEnd = "--- end of a part ---"

// run runs the parts in an empty directory and returns what each printed. The pages show the server 127.0.0.1:2181 and
// the user ann@laptop. others are addresses: one that pages show, one that stands for it here, and so on.
func (p page) run(t *testing.T, connect string, others ...string) []string {
	t.Helper()
	shown, dir := t.TempDir(), t.TempDir()
	here := strings.NewReplacer(others...)
	slices.Reverse(others)
	script := "exec 2>&1\ntrap 'kill $workers 2>/dev/null; wait' EXIT\ntrap 'exit 143' TERM\n"
	for i, s := range p.parts {
		if s.file != "" {
			file := filepath.Join(shown, fmt.Sprint(i))
			write(t, file, here.Replace(s.text))
			script += fmt.Sprintf("mkdir -p $(dirname %s) && cp %s %[1]s; echo '%[3]s'\n", s.file, file, partEnd)
			continue
		}
		text := here.Replace(s.text)
		script += fmt.Sprintf("%s\n(code=$?; echo '%s'; exit $code)\n", text, partEnd) // the next command may show $?
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-c", script)
	cmd.Dir = dir
	cmd.Env = []string{
		"PATH=" + bin + string(os.PathListSeparator) + os.Getenv("PATH"), "HOME=" + dir, "USER=ann",
		"MUSTER_SERVERS=" + connect, "MUSTER_ZK_AUTH=digest:etl:secret",
	}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = time.Minute
	out, err := cmd.CombinedOutput()
	host, _ := os.Hostname() // empty after an error, as in muster
	asShown := strings.NewReplacer(append(others, connect, "127.0.0.1:2181", "ann@"+host, "ann@laptop",
		cli.Version+"-dev", cli.Version)...) // as a release says it
	printed := strings.Split(asShown.Replace(string(bytes.TrimSpace(out))), partEnd)
	if len(printed) != len(p.parts)+1 {
		t.Fatalf("the shell ended early: %v\n%s", err, out)
	}
	return printed
}

// check compares the output of the commands with the page. With -update it rewrites the page.
func (p page) check(t *testing.T, file string, printed []string) {
	t.Helper()
	for i := len(p.parts) - 1; i >= 0; i-- { // from the end, so that the line numbers hold
		s := p.parts[i]
		got := strings.Trim(printed[i], "\n")
		if s.file != "" || !s.shown {
			if got != "" {
				t.Errorf("%s: before anything is shown:\n%s", file, got)
			}
			continue
		}
		want := strings.Trim(strings.Join(p.lines[s.from:s.to], "\n"), "\n")
		d := cmp.Diff(withoutVariations(want), withoutVariations(got))
		switch {
		case d != "" && !*update:
			t.Errorf("%s:%d: %s (-shown +printed):\n%s", file, s.from, s.text, d)
		case d != "":
			lines := strings.Split(got, "\n")
			if p.lines[s.to] != "```" {
				lines = append(lines, "")
			}
			p.lines = slices.Replace(p.lines, s.from, s.to, lines...)
		}
	}
	if *update {
		write(t, file, strings.Join(p.lines, "\n"))
	}
}

var (
	unique  = regexp.MustCompile(`\b(\d{4}-\d\d-\d\d(T[\d:]+Z)?|[0-9a-f]{32})\b`)
	elapsed = regexp.MustCompile(` +[\d.]+ (ms|s|days ago)\b`)
	waited  = regexp.MustCompile(`\b(waiting|waited|after|for|in) (\d+m)?[\d.]+m?s\b`)
	epoch   = regexp.MustCompile(`(?m)^([\d.]+:\d+) \d+$`)
	waits   = regexp.MustCompile(`(?m)^(waiting for /.*|.*; waiting for its end)\n`)
	aged    = regexp.MustCompile(` +\d{1,3}[smhd] +`) // a column of a table, or "3s ago"
	nth     = regexp.MustCompile(`^  \[\d+(/\d+\])`)
)

// withoutVariations removes what differs in every run: times, durations, the line breaks that follow from them, and the
// order of changes.
func withoutVariations(text string) string {
	text = waited.ReplaceAllString(waits.ReplaceAllString(text, ""), "$1 Ns")
	text = epoch.ReplaceAllString(text, "$1 N")
	text = aged.ReplaceAllString(text, " N ")
	text = unique.ReplaceAllString(strings.ReplaceAll(text, "·\n  ", "· "), "*")
	lines := strings.Split(elapsed.ReplaceAllString(text, " N $1"), "\n")
	for from := 0; from < len(lines); from++ {
		to := from
		for ; to < len(lines) && nth.MatchString(lines[to]); to++ {
			lines[to] = nth.ReplaceAllString(lines[to], "  [N$1")
		}
		slices.Sort(lines[from:to])
		from = to
	}
	return strings.Join(lines, "\n")
}

// TestGoPage compiles the module that docs/go.md shows, and runs it as both workers of a job, as two members of a
// group, and as the processes of a queue. It needs no network: the modules that muster needs are in the cache.
func TestGoPage(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	f := newFixture(t, 1, "")
	f.write(t, 1, fmt.Sprintf(`group "shop" {
  root   = %q
  settle = "1ms"
  leader "coordinator" {}
}
queue "squares" {
  root  = %q
  redis = "redis://%s"
}
`, f.root, f.root, sharedRedis(t).Addr()))
	f.mustApply(t)
	program := buildGoPage(ctx, t, f.root)
	workers := []*exec.Cmd{
		exec.CommandContext(ctx, program+"/hello", "worker-0"), exec.CommandContext(ctx, program+"/hello", "worker-1"),
	}
	var outs [2]strings.Builder
	for i, cmd := range workers {
		cmd.Env = []string{"MUSTER_SERVERS=" + servers.Connect()}
		cmd.Stdout, cmd.Stderr = &outs[i], &outs[i]
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
	}
	loaded := regexp.MustCompile(`^worker [01] of 2: all have loaded\n$`)
	for i, cmd := range workers {
		if err := cmd.Wait(); err != nil || !loaded.MatchString(outs[i].String()) {
			t.Errorf("worker-%d: %v\n%s", i, err, outs[i].String())
		}
	}
	got := result(f.command(servers.Connect(), "status", "--root", f.root, "j0"))
	if !strings.Contains(got.stdout, "\nthe last run completed ") {
		t.Errorf("the job after the run: %+v", got)
	}
	checkShop(t, program+"/shop")
	checkSquares(t, program+"/squares")
}

// buildGoPage builds the programs of the page, for jobs and groups below root, and returns their folder.
func buildGoPage(ctx context.Context, t *testing.T, root string) string {
	t.Helper()
	dir := t.TempDir()
	repo, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile("(?ms)^`([a-z./]+)`:\n\n```\\w*\n(.*?)^```$")
	shown := named.FindAllStringSubmatch(read(t, "../docs/go.md"), -1)
	if len(shown) != 4 {
		t.Fatalf("docs/go.md shows %d files, not go.mod and three programs", len(shown))
	}
	here := strings.NewReplacer("=> ../muster\n", "=> "+repo+"\n", `"/jobs"`, `"`+root+`"`, `"hello"`, `"j0"`,
		`"/apps"`, `"`+root+`"`, `"/queues"`, `"`+root+`"`)
	for _, file := range shown {
		text := here.Replace(file[2])
		if text == file[2] {
			t.Errorf("%s holds nothing that the test can replace by its own root and paths", file[1])
		}
		path := filepath.Join(dir, file[1])
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		write(t, path, text)
		if formatted, err := format.Source([]byte(file[2])); strings.HasSuffix(path, ".go") && string(formatted) != file[2] {
			t.Errorf("%s is not formatted: %v", file[1], err)
		}
	}
	bin := filepath.Join(dir, "bin")
	build := exec.CommandContext(ctx, "go", "build", "-o", bin+"/", "./...")
	build.Dir = dir
	build.Env = append(os.Environ(), "GOFLAGS=-mod=mod -trimpath", "GOPROXY=off", "GOSUMDB=off", "GOWORK=off")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return bin
}

// checkShop runs two members of the group: one leads, and when it leaves, the other does.
func checkShop(t *testing.T, program string) {
	t.Helper()
	members, screens := map[string]*exec.Cmd{}, map[string]*screen{}
	for _, identity := range []string{"a", "b"} {
		members[identity] = exec.Command(program, identity)
		members[identity].Env = []string{"MUSTER_SERVERS=" + servers.Connect()}
		screens[identity] = startOnScreen(t, members[identity])
		screens[identity].await(t, "follows a at 127.0.0.1:7000, epoch ")
	}
	screens["a"].await(t, "; turns: a \n")
	sendSignal(t, members["a"], syscall.SIGTERM)
	if err := members["a"].Wait(); err != nil {
		t.Errorf("a: %v\n%s", err, screens["a"])
	}
	screens["b"].await(t, "b: taken coordinator")
	screens["b"].await(t, "b follows b at 127.0.0.1:7000, epoch ")
	screens["b"].await(t, "; turns: a b \n")
}

// checkSquares submits a batch, executes it, and collects its results.
func checkSquares(t *testing.T, program string) {
	t.Helper()
	seen := map[string]*screen{}
	all := map[string]*exec.Cmd{}
	for _, what := range []string{"submit", "execute", "watch"} {
		all[what] = exec.Command(program, what)
		all[what].Env = append(redisEnviron(), "MUSTER_SERVERS="+servers.Connect())
		seen[what] = startOnScreen(t, all[what])
	}
	seen["submit"].await(t, "1001 tasks are in batch first\n")
	if err := all["submit"].Wait(); err != nil {
		t.Errorf("submit: %v\n%s", err, seen["submit"])
	}
	seen["watch"].await(t, "task \"x\" of first is dead: do not try this task again: strconv.Atoi: parsing \"x\": ")
	seen["watch"].await(t, "batch first: the sum of 1000 squares is 332833500\n")
	for _, what := range []string{"execute", "watch"} {
		sendSignal(t, all[what], syscall.SIGTERM)
		if err := all[what].Wait(); err != nil {
			t.Errorf("%s: %v\n%s", what, err, seen[what])
		}
	}
}

// ourImage is what the Dockerfile builds, in all examples.
const ourImage = "registry.example.com/muster:latest"

// decodeYAML decodes the documents of a YAML file.
func decodeYAML[T any](t *testing.T, file string) []T {
	t.Helper()
	var all []T
	for d := yaml.NewDecoder(strings.NewReader(read(t, file))); ; {
		var doc T
		err := d.Decode(&doc)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		all = append(all, doc)
	}
}

// service is a container in compose.yaml.
type service struct {
	Image      string
	Entrypoint []string
	Command    []string
	// Environment has values that Compose expands.
	Environment map[string]string
	Volumes     []string
	DependsOn   map[string]struct{ Condition string } `yaml:"depends_on"`
	Grace       string                                `yaml:"stop_grace_period"`
}

// composed returns the services of compose.yaml.
func composed(t *testing.T) map[string]service {
	t.Helper()
	docs := decodeYAML[struct{ Services map[string]service }](t, "../examples/containers/compose.yaml")
	if len(docs) != 1 {
		t.Fatalf("%d documents", len(docs))
	}
	return docs[0].Services
}

// pod is the template of a pod.
type pod struct {
	Spec struct {
		TerminationGracePeriodSeconds int `yaml:"terminationGracePeriodSeconds"`
		SecurityContext               struct {
			RunAsUser int `yaml:"runAsUser"`
		} `yaml:"securityContext"`
		Containers []struct {
			Name, Image     string
			Command, Args   []string
			SecurityContext struct {
				RunAsUser int `yaml:"runAsUser"`
			} `yaml:"securityContext"`
			VolumeMounts []struct {
				Name      string
				MountPath string `yaml:"mountPath"`
			} `yaml:"volumeMounts"`
		}
		Volumes []struct{ Name string }
	}
}

// kubernetesJob is the spec of a Job.
type kubernetesJob struct {
	CompletionMode           string `yaml:"completionMode"`
	Completions, Parallelism int
	PodFailurePolicy         struct {
		Rules []struct {
			Action      string
			OnExitCodes struct {
				ContainerName string `yaml:"containerName"`
				Operator      string
				Values        []int
			} `yaml:"onExitCodes"`
		}
	} `yaml:"podFailurePolicy"`
	Template pod
}

// reconcileDeployment is that of the reconcilers.
func reconcileDeployment(t *testing.T) pod {
	t.Helper()
	all := decodeYAML[struct{ Spec struct{ Template pod } }](t, "../examples/pipelines/kubernetes-reconcile.yml")
	if len(all) != 1 {
		t.Fatalf("%d documents", len(all))
	}
	return all[0].Spec.Template
}

// kubernetesJobs returns the Jobs of the workers, without and with a gang, and that of the drift check.
func kubernetesJobs(t *testing.T) (workers, gang, drift kubernetesJob) {
	t.Helper()
	jobs := decodeYAML[struct{ Spec kubernetesJob }](t, "../examples/containers/kubernetes.yaml")
	gangs := decodeYAML[struct{ Spec kubernetesJob }](t, "../examples/containers/kubernetes-gang.yaml")
	crons := decodeYAML[struct {
		Spec struct {
			JobTemplate struct{ Spec kubernetesJob } `yaml:"jobTemplate"`
		}
	}](t, "../examples/pipelines/kubernetes-cronjob.yml")
	if len(jobs) != 1 || len(gangs) != 1 || len(crons) != 1 {
		t.Fatalf("%d, %d and %d documents", len(jobs), len(gangs), len(crons))
	}
	return jobs[0].Spec, gangs[0].Spec, crons[0].Spec.JobTemplate.Spec
}

// TestTheImageFitsEveryContainer: no container of the examples has another entry point, and each is known to the test
// that runs it.
func TestTheImageFitsEveryContainer(t *testing.T) {
	services := composed(t)
	ours := 0
	for name, s := range services {
		if s.Image != ourImage {
			continue
		}
		if ours++; len(s.Entrypoint) > 0 || len(s.Command) == 0 {
			t.Errorf("%s: entry point %q, command %q", name, s.Entrypoint, s.Command)
		}
	}
	workers, gang, drift := kubernetesJobs(t)
	for _, template := range []pod{workers.Template, gang.Template, drift.Template, reconcileDeployment(t)} {
		spec := template.Spec
		c := spec.Containers[0]
		if ours++; c.Image != ourImage || len(c.Command) > 0 || len(c.Args) == 0 {
			t.Errorf("image %q, command %q, arguments %q", c.Image, c.Command, c.Args)
		}
		if spec.SecurityContext.RunAsUser+c.SecurityContext.RunAsUser != 65534 {
			t.Errorf("it runs as another user than the image: %+v", spec)
		}
		for _, m := range c.VolumeMounts {
			if !slices.ContainsFunc(spec.Volumes, func(v struct{ Name string }) bool { return v.Name == m.Name }) {
				t.Errorf("there is no volume %s", m.Name)
			}
		}
	}
	named := 0
	err := filepath.WalkDir("../examples", func(path string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() && (strings.HasSuffix(path, ".yml") || strings.HasSuffix(path, ".yaml")) {
			named += strings.Count(read(t, path), "image: "+ourImage)
		}
		return err
	})
	// The anchor of the workers stands for four services.
	if err != nil || ours != named+3 {
		t.Errorf("%v: %d containers are checked, and %d named", err, ours, named+3)
	}
}

// restartIsVain are the exit codes after which another start of the same worker would end with the same code. An
// aborted barrier is final if its callers do not retry.
func restartIsVain(retry bool) []int {
	codes := []int{exitcode.Usage}
	if !retry {
		codes = append(codes, exitcode.Aborted)
	}
	return append(codes, exitcode.Full, exitcode.NoJob, exitcode.CannotRun, exitcode.NotFound)
}

// retries reports whether workers that are started again get through barriers that were aborted.
func retries(command string) bool {
	return strings.Contains(command, "--retry") || strings.Contains(command, "--start=barrier")
}

// TestKubernetesFailsAJobThatCannotEnd: and starts pods again that ended because of a server, a drain or a failure of
// the command. A worker that was replaced (72) may come back. In a gang those that waited in vain for others (71) may
// too, and when it has failed (75) nobody may.
func TestKubernetesFailsAJobThatCannotEnd(t *testing.T) {
	workers, gang, _ := kubernetesJobs(t)
	args := strings.Join(workers.Template.Spec.Containers[0].Args, " ")
	failsJob(t, workers, restartIsVain(retries(args)))
	vain := append(restartIsVain(true), exitcode.GangFailed)
	slices.Sort(vain)
	failsJob(t, gang, vain)
}

// failsJob checks after which codes a Job of workers fails.
func failsJob(t *testing.T, j kubernetesJob, vain []int) {
	t.Helper()
	var actions []string
	var codes []int
	for _, r := range j.PodFailurePolicy.Rules {
		actions = append(actions, r.Action)
		codes = append(codes, r.OnExitCodes.Values...)
	}
	if !slices.Equal(actions, []string{"Ignore", "FailJob"}) || !slices.Equal(codes, vain) {
		t.Errorf("%q for %v, want %v", actions, codes, vain)
	}
	last := j.PodFailurePolicy.Rules[1].OnExitCodes
	if last.ContainerName != j.Template.Spec.Containers[0].Name || last.Operator != "In" {
		t.Errorf("%+v", last)
	}
	if j.CompletionMode != "Indexed" || j.Completions != 4 || j.Parallelism != 4 {
		t.Errorf("%+v", j)
	}
}

// TestGraceFitsThePlatform: a worker has time to leave after it has killed its command.
func TestGraceFitsThePlatform(t *testing.T) {
	workers, gang, _ := kubernetesJobs(t)
	for _, j := range []kubernetesJob{workers, gang} {
		if spec := j.Template.Spec; !slices.Contains(spec.Containers[0].Args, "--grace=25s") ||
			spec.TerminationGracePeriodSeconds != 40 {
			t.Errorf("%+v", spec)
		}
	}
	services := composed(t)
	for i := range 4 {
		name := fmt.Sprint("worker-", i)
		s := services[name]
		if !slices.Contains(s.Command, "--grace=25s") || s.Grace != "40s" || s.Environment["MUSTER_IDENTITY"] != name {
			t.Errorf("%s: %+v", name, s)
		}
		if services["status"].DependsOn[name].Condition != "service_completed_successfully" {
			t.Errorf("status does not wait for %s", name)
		}
	}
	text := read(t, "../examples/containers/compose.yaml")
	n := strings.Count(text, "--exit-code-from")
	if n != 1 || !strings.Contains(text, `Do not use "up --exit-code-from"`) {
		t.Errorf("--exit-code-from ends everything as soon as apply ends; it is named %d times", n)
	}
}

// TestExamplesOfWorkersNameTheirRun: the files set MUSTER_RUN or --run, or a comment says how.
func TestExamplesOfWorkersNameTheirRun(t *testing.T) {
	for file, text := range map[string]string{
		"containers/compose.yaml": "MUSTER_RUN=", "containers/kubernetes.yaml": "MUSTER_RUN",
		"containers/kubernetes-gang.yaml": "MUSTER_RUN",
		"hosts/slurm.sh":                  "--run=", "hosts/systemd/muster-worker@.service": "MUSTER_RUN=",
	} {
		if !strings.Contains(read(t, "../examples/"+file), text) {
			t.Errorf("%s does not speak of %s", file, text)
		}
	}
}

// workflow runs the script of the GitHub workflow with the real muster. A stand-in for gh answers from a folder.
type workflow struct {
	t       *testing.T
	files   fixture
	answers string
	n       int // workflow runs so far
}

// run runs steps as one job of a workflow run for an event. It returns what they print, the folder of the job, and
// their code.
func (w *workflow) run(event string, steps string, env ...string) (out, temp string, code int) {
	w.t.Helper()
	w.n++
	script, err := filepath.Abs("../examples/pipelines/github.sh")
	if err != nil {
		w.t.Fatal(err)
	}
	stand := filepath.Join(filepath.Dir(script), "testdata", "bin", "gh")
	temp = w.t.TempDir()
	tools := w.t.TempDir() // the stand-in for gh, and not that for muster
	if err := os.Symlink(stand, filepath.Join(tools, "gh")); err != nil {
		w.t.Fatal(err)
	}
	calls := "set -e\n"
	for _, step := range strings.Fields(steps) {
		calls += script + " " + step + "\n"
	}
	cmd := exec.Command("sh", "-c", calls)
	cmd.Dir = w.files.dir
	sha := strings.Repeat("1", 40)
	cmd.Env = append([]string{
		"PATH=" + tools + ":" + bin + ":" + os.Getenv("PATH"), "MUSTER_SERVERS=" + servers.Connect(), "USER=ci", "CI=true",
		"DIR=.", "STACK=tests", "GITHUB_EVENT_NAME=" + event, "GITHUB_REPOSITORY=octo/etl", "GITHUB_SHA=" + sha,
		"GITHUB_REF=refs/heads/main", fmt.Sprint("GITHUB_RUN_ID=", w.n), "GITHUB_RUN_ATTEMPT=1",
		"GITHUB_SERVER_URL=https://github.com", "PR=12", "HEAD=" + strings.Repeat("2", 40),
		"GITHUB_WORKFLOW_REF=octo/etl/.github/workflows/muster.yml@refs/heads/main",
		"GITHUB_STEP_SUMMARY=" + filepath.Join(temp, "summary"), "GITHUB_OUTPUT=" + filepath.Join(temp, "output"),
		"RUNNER_TEMP=" + temp, "ANSWERS=" + w.answers,
	}, env...)
	all, err := cmd.CombinedOutput()
	if err != nil && !errors.As(err, new(*exec.ExitError)) {
		w.t.Fatal(err)
	}
	return string(all), temp, cmd.ProcessState.ExitCode()
}

// expect runs steps and checks their code and what they print.
func (w *workflow) expect(event, steps string, code int, texts ...string) (temp string) {
	w.t.Helper()
	out, temp, got := w.run(event, steps)
	expect(w.t, outcome{got, out, ""}, code, texts...)
	return temp
}

func (w *workflow) answer(name, text string) {
	w.t.Helper()
	write(w.t, filepath.Join(w.answers, name), text)
}

// merge answers as after the merge of pull request 12, which the last run has planned.
func (w *workflow) merge(temp string) {
	w.t.Helper()
	const repo = `{"full_name": "octo/etl"}`
	head := strings.Repeat("2", 40)
	w.answer("pulls", fmt.Sprintf(`[{"number": 12, "merged_at": "2026-11-20T10:00:00Z", "merge_commit_sha": "%s",
		"base": {"ref": "main", "repo": %s}, "head": {"sha": "%s", "repo": %[2]s}}]`, strings.Repeat("1", 40), repo, head))
	w.answer("runs", fmt.Sprintf(`{"workflow_runs": [{"id": %d, "run_attempt": 1, "event": "pull_request",
		"head_sha": "%s", "path": ".github/workflows/muster.yml", "status": "completed", "conclusion": "success",
		"repository": %s, "head_repository": %[3]s}]}`, w.n, head, repo))
	name := strings.TrimPrefix(strings.TrimSpace(read(w.t, filepath.Join(temp, "output"))), "artifact=")
	w.answer("artifacts", fmt.Sprintf(`{"artifacts": [{"name": "%s", "expired": false,
		"workflow_run": {"id": %d, "head_sha": "%s"}}]}`, name, w.n, head))
	w.answer("download/plan.json", read(w.t, filepath.Join(temp, "muster", "plan.json")))
}

// TestGitHubWorkflow takes a change from the pull request to ZooKeeper, and shows what is refused on the way.
func TestGitHubWorkflow(t *testing.T) {
	t.Parallel()
	needs.Program(t, "jq", "jq")
	w := &workflow{t: t, files: newFixture(t, 1, ""), answers: t.TempDir()}
	if err := os.Mkdir(filepath.Join(w.answers, "download"), 0o700); err != nil {
		t.Fatal(err)
	}
	w.answer("comments", "[]")
	planned := w.expect("pull_request", "plan comment", 0, "1 to create")
	if body := read(t, filepath.Join(w.answers, "body")); !strings.HasPrefix(body, "<!-- muster:plan:tests -->\n###") ||
		strings.Count(body, "<!--") != 1 || !strings.Contains(body, `j["j0"]`) {
		t.Errorf("the comment is\n%s", body)
	}
	w.merge(planned)
	applied := w.expect("push", "plan apply", 0, "Applied 1 of 1")
	if page := read(t, filepath.Join(applied, "summary")); !strings.Contains(page, "pull request #12") ||
		!strings.Contains(page, "    +   job.j[\"j0\"]") || !strings.Contains(page, "### muster apply") {
		t.Errorf("the page of the run is\n%s", page)
	}
	const byHand = "gh workflow run muster.yml -f action=apply"
	w.expect("push", "plan apply", exitcode.Refused, "already applied", byHand)

	w.files.write(t, 2, "") // of another pull request, which was merged in between
	w.expect("push", "plan apply", exitcode.Error, ". as merged is not what the plan of pull request 12 was made", byHand)
	w.expect("workflow_dispatch", "plan apply", 0, "Applied 1 of 1")
	w.expect("schedule", "drift", 0)

	w.files.write(t, 20, "")
	w.merge(w.expect("pull_request", "plan", 0, "18 to create"))
	w.expect("workflow_dispatch", "plan apply", 0, "Applied 18 of 18")
	w.expect("push", "plan apply", 0, "18 already done")
	w.files.write(t, 1, "")
	w.expect("pull_request", "plan", exitcode.Declined, byHand+" -f max_delete=N")
	if out, _, code := w.run("workflow_dispatch", "plan apply", "MAX_DELETE=19"); code != 0 {
		t.Errorf("code %d\n%s", code, out)
	}
}

// gitlabJob is a job of GitLab CI.
type gitlabJob struct {
	Script      []string
	Needs       []string
	Environment string
	Rules       []struct{ If, When string }
	Artifacts   struct{ Paths []string }
}

// TestGitLabPipeline runs the scripts of the jobs: apply has the plan of the same pipeline, or none.
func TestGitLabPipeline(t *testing.T) {
	t.Parallel()
	needs.Program(t, "jq", "jq")
	var jobs struct{ Plan, Apply, Drift gitlabJob }
	if err := yaml.Unmarshal([]byte(read(t, "../examples/pipelines/gitlab-ci.yml")), &jobs); err != nil {
		t.Fatal(err)
	}
	f := newFixture(t, 1, "")
	project := t.TempDir()
	if err := os.Symlink(f.dir, filepath.Join(project, "prod")); err != nil {
		t.Fatal(err)
	}
	script := func(j gitlabJob, code int, text string, env ...string) {
		t.Helper()
		cmd := exec.Command("sh", "-euc", strings.Join(j.Script, "\n"))
		cmd.Dir = project
		cmd.Env = append([]string{
			"PATH=" + bin + ":" + os.Getenv("PATH"), "MUSTER_SERVERS=" + servers.Connect(), "CI=true", "MAX_DELETE=10",
		}, env...)
		expect(t, result(cmd), code, text)
	}
	script(jobs.Plan, 0, "1 to create")
	widget := strings.Join(strings.Fields(read(t, project+"/widget.json")), "")
	if widget != `{"create":1,"update":0,"delete":0}` {
		t.Errorf("the widget has %s", widget)
	}
	script(jobs.Apply, 0, "Applied 1 of 1")
	script(jobs.Apply, exitcode.Refused, "already applied")
	f.write(t, 20, "")
	script(jobs.Plan, 0, "19 to create")
	script(jobs.Apply, 0, "Applied 19 of 19")
	f.write(t, 1, "")
	script(jobs.Plan, exitcode.Declined, "--max-delete")
	if _, err := os.Stat(filepath.Join(project, "plan.json")); err == nil {
		t.Error("the plan of before is still there")
	}
	script(jobs.Plan, 0, "19 to delete", "MAX_DELETE=19")
	script(jobs.Drift, exitcode.Differences, "orphan")

	if jobs.Apply.Environment != "production" || strings.Join(jobs.Apply.Needs, " ") != "plan" ||
		strings.Join(jobs.Plan.Artifacts.Paths, " ") != "plan.json plan.md plan.html" {
		t.Errorf("apply does not have the plan of its pipeline: %+v, %+v", jobs.Apply, jobs.Plan)
	}
	for i, r := range jobs.Apply.Rules { // the first rule of plan is for merge requests
		if r.When != "manual" || r.If != jobs.Plan.Rules[i+1].If || strings.Contains(r.If, "merge_request") ||
			!strings.Contains(r.If, "$CI_COMMIT_BRANCH == $CI_DEFAULT_BRANCH") {
			t.Errorf("apply runs if %+v", r)
		}
	}
	if last := jobs.Apply.Rules[len(jobs.Apply.Rules)-1]; !strings.Contains(last.If, `"web"`) {
		t.Errorf("nobody can start it by hand: %+v", jobs.Apply.Rules)
	}
}
