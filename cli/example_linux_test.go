package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
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

	"muster/dev/zkserver"
	"muster/exitcode"
	"muster/sim/rig"
	"muster/zkstate"
)

// example is an example of a group, applied below a root of its own. All its processes have temp as their TMPDIR.
type example struct {
	dir, root, temp string
	env             []string
}

// newExample applies an example. Its processes get env too.
func newExample(t *testing.T, name string, env ...string) example {
	t.Helper()
	dir, err := filepath.Abs("../examples/" + name)
	if err != nil {
		t.Fatal(err)
	}
	e := example{dir: dir, root: "/t-" + zkstate.NewID()[:12], temp: t.TempDir(), env: env}
	t.Cleanup(func() { // after those of the members, which end then
		rig.Await(t, "the end of all processes of "+name, func() bool { return len(processesOf(t, e.temp)) == 0 })
	})
	if out, err := e.command("muster", "apply", "--yes").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return e
}

// command is a program of temp, or muster, or one of the system's, in the folder of the example.
func (e example) command(program string, args ...string) *exec.Cmd {
	path := []string{e.temp, bin, os.Getenv("PATH")}
	if program == "muster" {
		program = filepath.Join(bin, program)
	}
	cmd := exec.Command(program, args...)
	cmd.Dir = e.dir
	cmd.WaitDelay = time.Minute
	cmd.Env = append([]string{
		"MUSTER_SERVERS=" + servers.Connect(), "MUSTER_VAR_root=" + e.root, "ROOT=" + e.root, "TMPDIR=" + e.temp,
		"PATH=" + strings.Join(path, ":"),
	}, e.env...)
	return cmd
}

// member starts a member of a group. It is killed at the end of the test.
func (e example) member(t *testing.T, group, identity, version string, more ...string) (*exec.Cmd, *screen) {
	t.Helper()
	cmd := e.command("muster", append([]string{
		"member", "--group", group, "--root", e.root, "--identity", identity, "--version", version,
	}, more...)...)
	return cmd, startOnScreen(t, cmd)
}

// kill kills a process, and waits for it.
func kill(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // the kill is why
}

// with lists the processes below temp that have a variable in their environment: a line for each, with its number and
// its arguments. Processes that have ended are not listed.
func (e example) with(t *testing.T, variable string) (found map[int]string) {
	t.Helper()
	found = map[int]string{}
	for _, line := range processesOf(t, e.temp) {
		id, args, _ := strings.Cut(line, ": ")
		env, _ := os.ReadFile("/proc/" + id + "/environ") // it has ended: empty
		if pid, err := strconv.Atoi(id); err != nil {
			t.Fatal(err)
		} else if bytes.Contains(append([]byte{0}, env...), []byte("\x00"+variable+"\x00")) {
			found[pid] = args
		}
	}
	return found
}

// send sends a signal to a process of this test. It may have ended.
func send(t *testing.T, signal syscall.Signal, pids ...int) {
	t.Helper()
	for _, pid := range pids {
		if err := syscall.Kill(pid, signal); err != nil && !errors.Is(err, syscall.ESRCH) {
			t.Fatalf("%v to %d: %v", signal, pid, err)
		}
	}
}

func remove(t *testing.T, file string) {
	t.Helper()
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
}

// lines are the whole lines of a file; none if it does not exist.
func lines(path string) []string {
	text, _ := os.ReadFile(path)
	all := strings.Split(string(text), "\n")
	return all[:len(all)-1]
}

// TestCronExample: the newer version takes its tasks, and from then on the older one runs none until the newer one is
// gone. No tick runs twice, but for a report that the newer version did not finish before it left: that one is lost,
// and the older version runs it again. A cleanup that is lost is not run again.
func TestCronExample(t *testing.T) {
	t.Parallel()
	e := newExample(t, "cron")
	out := filepath.Join(e.temp, "out")
	e.env = append(e.env, "OUT="+out)
	count := func(start, version string) (n int) {
		for _, line := range lines(out) {
			if strings.HasPrefix(line, start+" of ") && strings.Contains(line, " by version "+version) {
				n++
			}
		}
		return n
	}
	e.member(t, "reports", "old", "1.9.0", "--duties", "duties-1.9")
	rig.Await(t, "a report by 1.9", func() bool { return count("report", "1.9.0") > 1 })
	newer, _ := e.member(t, "reports", "new", "2.0.0", "--duties", "duties-2.0")
	rig.Await(t, "reports by 2.0", func() bool { return count("report", "2.0.0") > 2 })
	rig.Await(t, "cleanups by 2.0", func() bool { return count("cleanup", "2.0.0") > 1 })
	sendSignal(t, newer, syscall.SIGTERM)
	before := count("report", "1.9.0")
	rig.Await(t, "a report by 1.9 after 2.0 has left", func() bool { return count("report", "1.9.0") > before+1 })
	checkTicks(t, lines(out), "report", true, "1.9.0", "2.0.0", "1.9.0")
	checkTicks(t, lines(out), "cleanup", false, "2.0.0")
}

// checkTicks checks that a task ran at ticks in their order, and on these versions one after another. rerun says that
// another version may run the last tick of the one before again.
func checkTicks(t *testing.T, lines []string, task string, rerun bool, versions ...string) {
	t.Helper()
	run := regexp.MustCompile(`^` + task + ` of (\S+) by version ([\d.]+)`)
	var last time.Time
	var on []string
	for _, line := range lines {
		m := run.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		tick, err := time.Parse(time.RFC3339, m[1])
		again := rerun && tick.Equal(last) && on[len(on)-1] != m[2]
		if err != nil || !tick.After(last) && !again {
			t.Errorf("%s at %s came after %s: %v\n%s", task, m[1], last, err, strings.Join(lines, "\n"))
		}
		last, on = tick, append(on, m[2])
	}
	if on = slices.Compact(on); !slices.Equal(on, versions) {
		t.Errorf("%s ran on versions %q, want %q:\n%s", task, on, versions, strings.Join(lines, "\n"))
	}
}

// TestFencingExample freezes the writer of the ledger with all its processes, and wakes it up after its successor has
// written: what it still wants to write is refused.
func TestFencingExample(t *testing.T) {
	t.Parallel()
	e := newExample(t, "fencing")
	ledger := filepath.Join(e.temp, "ledger")
	e.env = append(e.env, "LEDGER="+ledger)
	screens, members := map[string]*screen{}, map[string]*exec.Cmd{}
	for _, identity := range []string{"a", "b"} {
		members[identity], screens[identity] = e.member(t, "ledger", identity, "1.0.0", "--duties", "duties")
	}
	rig.Await(t, "two entries", func() bool { return len(lines(ledger)) > 1 })
	epoch, entry, _ := strings.Cut(lines(ledger)[0], " ")
	frozen := entry[strings.LastIndex(entry, " ")+1:]
	others := []int{members[frozen].Process.Pid}
	send(t, syscall.SIGSTOP, others...)
	var commands []int
	rig.Await(t, "a leader that is frozen while it does not hold the lock", func() bool {
		commands = nil
		holds := false
		for pid, args := range e.with(t, "MUSTER_EPOCH="+epoch) {
			send(t, syscall.SIGSTOP, pid)
			if strings.Contains(args, "guard-command") {
				others = append(others, pid)
				continue
			}
			commands = append(commands, pid)
			holds = holds || strings.Contains(args, "append")
		}
		if holds {
			send(t, syscall.SIGCONT, commands...)
		}
		return !holds
	})
	var next string
	rig.Await(t, "an entry of the next leader", func() bool {
		all := lines(ledger)
		next, _, _ = strings.Cut(all[len(all)-1], " ")
		return next != epoch
	})
	send(t, syscall.SIGCONT, commands...) // not the guard, which would kill them
	screens[frozen].await(t, fmt.Sprintf("append: refused: epoch %s is over, epoch %s has written\n", epoch, next))
	send(t, syscall.SIGCONT, others...)
	written := len(lines(ledger))
	rig.Await(t, "another entry", func() bool { return len(lines(ledger)) > written })
	var last int64
	for _, line := range lines(ledger) {
		epoch, _, _ := strings.Cut(line, " ")
		n, err := strconv.ParseInt(epoch, 10, 64)
		if err != nil || n < last {
			t.Errorf("the ledger is not in order: %v\n%s", err, strings.Join(lines(ledger), "\n"))
		}
		last = n
	}
}

// hello is the job of examples/one-job.hcl on servers of its own, because the examples of workers name its root.
type hello struct {
	t       *testing.T
	servers string
	image   *image
}

// TestExamplesOfWorkersRun runs what the files for Compose, Kubernetes, systemd and Slurm say. Containers run in what
// the Dockerfile builds.
func TestExamplesOfWorkersRun(t *testing.T) {
	t.Parallel()
	e := newEnsemble(t, zkserver.Options{})
	h := &hello{t: t, servers: e.Connect(), image: buildImage(t)}
	h.provideNull()
	h.composeRuns()
	h.composeRestarts()
	h.kubernetesRuns()
	h.gangRuns()
	h.cronJobRuns()
	h.imageRunsExamples()
	h.systemdRuns()
	h.slurmRuns()
}

// service is a service of compose.yaml, with what it mounts.
func (h *hello) service(name string) *exec.Cmd {
	h.t.Helper()
	s := composed(h.t)[name]
	env := []string{"MUSTER_RUN="}
	for k, v := range s.Environment {
		switch k {
		case "MUSTER_SERVERS":
			v = h.servers
		case "MUSTER_RUN":
			v = ""
		}
		env = append(env, k+"="+v)
	}
	for _, v := range s.Volumes {
		part := strings.Split(v, ":")
		h.mount(filepath.Join("../examples/containers", part[0]), part[1])
	}
	return h.image.command(env, s.Command)
}

// provideNull makes the device that every container has. Here it is an empty file.
func (h *hello) provideNull() {
	h.t.Helper()
	file := filepath.Join(h.image.root, os.DevNull)
	err := errors.Join(os.Mkdir(filepath.Dir(file), 0o755), os.WriteFile(file, nil, 0o666), os.Chmod(file, 0o666))
	if err != nil {
		h.t.Fatal(err)
	}
}

// mount copies a file or folder to where a container sees it.
func (h *hello) mount(from, at string) {
	h.t.Helper()
	at = filepath.Join(h.image.root, at)
	if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.RemoveAll(at)); err != nil {
		h.t.Fatal(err)
	}
	if out, err := exec.Command("cp", "-RT", from, at).CombinedOutput(); err != nil {
		h.t.Fatalf("%v\n%s", err, out)
	}
}

// complete waits until commands have ended with 0, and checks that the job is ready again.
func (h *hello) complete(workers map[*exec.Cmd]*screen) {
	h.t.Helper()
	for cmd, seen := range workers {
		endsWith(h.t, cmd, seen, 0)
	}
	if h.t.Failed() {
		h.t.FailNow()
	}
	expect(h.t, result(h.service("status")), 0, "ready")
}

func (h *hello) composeRuns() {
	expect(h.t, result(h.service("apply")), 0, "1 created")
	workers := map[*exec.Cmd]*screen{}
	for i := range 4 {
		cmd := h.service(fmt.Sprint("worker-", i))
		workers[cmd] = startOnScreen(h.t, cmd)
	}
	h.complete(workers)
	expect(h.t, result(h.service("apply")), 0, "No changes")
}

// composeRestarts kills a worker that waits for one more, as the head of compose.yaml does.
func (h *hello) composeRestarts() {
	workers := map[*exec.Cmd]*screen{}
	start := func(i int) *exec.Cmd {
		cmd := h.service(fmt.Sprint("worker-", i))
		workers[cmd] = startOnScreen(h.t, cmd)
		return cmd
	}
	status := func(live, restarts int) {
		h.t.Helper()
		rig.Await(h.t, fmt.Sprintf("%d live, %d restarts", live, restarts), func() bool {
			cmd := h.onHost(".", nil, filepath.Join(bin, "muster"), "status", "hello", "--root=/jobs", "--json")
			var doc struct {
				Jobs []struct{ Live, Restarts int }
			}
			got := result(cmd)
			err := json.Unmarshal([]byte(got.stdout), &doc)
			return got.code == 0 && err == nil && doc.Jobs[0].Live == live && doc.Jobs[0].Restarts == restarts
		})
	}
	start(0)
	start(1)
	killed := start(2)
	status(3, 0)
	kill(h.t, killed)
	delete(workers, killed)
	start(2)
	status(3, 1)
	start(3)
	h.complete(workers)
}

func (h *hello) kubernetesRuns() {
	job, _, _ := kubernetesJobs(h.t)
	h.complete(h.pods(job, "uid-1"))
}

// gangRuns runs the gang to its end: each pod has the id of its index.
func (h *hello) gangRuns() {
	_, job, _ := kubernetesJobs(h.t)
	apply := h.onHost("../examples/gang", nil, filepath.Join(bin, "muster"), "apply", "--yes")
	expect(h.t, result(apply), 0, "1 created")
	for cmd, seen := range h.pods(job, "uid-2") {
		endsWith(h.t, cmd, seen, 0)
		joined := regexp.MustCompile(`as worker (\d) of 4: worker-(\d)\n`).FindStringSubmatch(seen.String())
		if joined == nil || joined[1] != joined[2] {
			h.t.Errorf("joined as %q:\n%s", joined, seen)
		}
	}
}

// pods starts the pods of a Job of workers.
func (h *hello) pods(job kubernetesJob, run string) map[*exec.Cmd]*screen {
	workers := map[*exec.Cmd]*screen{}
	for i := range job.Parallelism {
		var args []string
		for _, arg := range job.Template.Spec.Containers[0].Args {
			arg = strings.ReplaceAll(arg, "$(POD_IP)", "127.0.0.1")
			args = append(args, strings.ReplaceAll(arg, ":8080", "127.0.0.1:0")) // here the pods share an address
		}
		cmd := h.image.command([]string{
			"MUSTER_SERVERS=" + h.servers, "MUSTER_RUN=" + run, fmt.Sprint("JOB_COMPLETION_INDEX=", i),
			"MUSTER_DATACENTER=", // as if the pod had no such label
		}, args)
		workers[cmd] = startOnScreen(h.t, cmd)
	}
	return workers
}

// cronJobRuns: nothing is said when all is well, and the code is 2 after drift.
func (h *hello) cronJobRuns() {
	_, _, job := kubernetesJobs(h.t)
	c := job.Template.Spec.Containers[0]
	prod, auth := h.t.TempDir(), h.t.TempDir()
	err := errors.Join(
		os.WriteFile(filepath.Join(prod, "jobs.hcl"), []byte(read(h.t, "../examples/one-job.hcl")), 0o644),
		os.WriteFile(filepath.Join(auth, "auth"), []byte("digest:reader:secret\n"), 0o644),
	)
	if err != nil {
		h.t.Fatal(err)
	}
	for _, m := range c.VolumeMounts {
		h.mount(map[string]string{"prod": prod, "auth": auth}[m.Name], m.MountPath)
	}
	env := []string{"MUSTER_SERVERS=" + h.servers, "MUSTER_ZK_AUTH_FILE=/run/secrets/muster/auth"}
	if got := result(h.image.command(env, c.Args)); got.code != 0 || got.stdout+got.stderr != "" {
		h.t.Errorf("%+v", got)
	}
	expect(h.t, result(h.image.command(env, append(c.Args, "--var", "root=/other"))), exitcode.Differences, "missing")
}

// onHost is a command of this machine, whose muster is the one under test.
func (h *hello) onHost(dir string, env []string, name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	cmd.Env = append([]string{
		"PATH=" + dir + ":" + bin + ":" + os.Getenv("PATH"), "TMPDIR=" + h.t.TempDir(), "MUSTER_SERVERS=" + h.servers,
	}, env...)
	return cmd
}

// systemdRuns runs what the unit starts, and looks at the codes after which it is not started again.
func (h *hello) systemdRuns() {
	unit := strings.ReplaceAll(read(h.t, "../examples/hosts/systemd/muster-worker@.service"), "\\\n", " ")
	setting := func(name string) string {
		m := regexp.MustCompile(`(?m)^` + name + `=(.*)$`).FindStringSubmatch(unit)
		if m == nil {
			h.t.Fatalf("no %s", name)
		}
		return m[1]
	}
	workers := map[*exec.Cmd]*screen{}
	for i := range 4 {
		line := strings.NewReplacer("%i", fmt.Sprint(i), "/usr/local/bin/", bin+"/", "/usr/local/lib/hello/", "./").
			Replace(setting("ExecStart"))
		args := strings.Fields(line)
		cmd := h.onHost("../examples/hosts", nil, args[0], args[1:]...)
		workers[cmd] = startOnScreen(h.t, cmd)
	}
	h.complete(workers)
	// A unit waits for its job (74), which a Job of Kubernetes does not do for ever.
	vain := slices.DeleteFunc(restartIsVain(retries(read(h.t, "../examples/hosts/compute.sh"))),
		func(code int) bool { return code == exitcode.NoJob })
	if want := strings.Trim(fmt.Sprint(vain), "[]"); setting("RestartPreventExitStatus") != want {
		h.t.Errorf("not started again after %s, want %s", setting("RestartPreventExitStatus"), want)
	}
	if setting("SuccessExitStatus") != fmt.Sprint(exitcode.Terminate) || setting("TimeoutStopSec") != "40s" ||
		setting("KillMode") != "mixed" || !strings.Contains(setting("ExecStart"), "--grace=25s") {
		h.t.Errorf("stopped otherwise:\n%s", unit)
	}
}

// slurmRuns runs the script of the batch job. A stand-in for srun starts its tasks, and ends with the highest code.
func (h *hello) slurmRuns() {
	dir := h.t.TempDir()
	h.copyHosts(dir)
	const srun = `#!/bin/sh
while [ "${1#--}" != "$1" ]; do shift; done
pids=""
for SLURM_PROCID in 0 1 2 3; do
	export SLURM_PROCID
	"$@" &
	pids="$pids $!"
done
code=0
for pid in $pids; do
	wait "$pid" || code=$?
done
exit "$code"
`
	if err := os.WriteFile(filepath.Join(dir, "srun"), []byte(srun), 0o755); err != nil {
		h.t.Fatal(err)
	}
	for range 2 { // queued again, it is the same run, which has completed
		cmd := h.onHost(dir, []string{"SLURM_JOB_ID=4711"}, "./slurm.sh")
		h.complete(map[*exec.Cmd]*screen{cmd: startOnScreen(h.t, cmd)})
	}
	expect(h.t, result(h.service("status")), 0, "slurm-4711")

	// The rack of a task is its leaf switch, if Slurm says that.
	err := os.WriteFile(filepath.Join(dir, "muster"), []byte("#!/bin/sh\necho \"$1 in <$MUSTER_RACK>\"\n"), 0o755)
	if err != nil {
		h.t.Fatal(err)
	}
	for _, c := range []struct{ address, pattern, rack string }{
		{"", "", ""}, {"node7", "node", ""}, {"node7.example.com", "node", ""},
		{"s1.node7", "switch.node", "s1"}, {"s0.s1.node7", "switch.switch.node", "s1"},
	} {
		got := result(h.onHost(dir, []string{
			"SLURM_JOB_ID=4711", "SLURM_TOPOLOGY_ADDR=" + c.address, "SLURM_TOPOLOGY_ADDR_PATTERN=" + c.pattern,
		}, "./slurm.sh"))
		if want := strings.Repeat("worker in <"+c.rack+">\n", 4); got.code != 0 || got.stdout != want {
			h.t.Errorf("%q: %+v, want %q", c.address, got, want)
		}
	}
}

func (h *hello) copyHosts(dir string) {
	h.t.Helper()
	for _, file := range []string{"slurm.sh", "compute.sh"} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(read(h.t, "../examples/hosts/"+file)), 0o755); err != nil {
			h.t.Fatal(err)
		}
	}
}

// TestPrimesExample runs the example as its README does: a batch of 5,000 numbers, an executor with a process for each
// number, which is killed while it has some, one with lines, and a watcher that counts. The result is right.
func TestPrimesExample(t *testing.T) {
	t.Parallel()
	redis := "MUSTER_VAR_redis=redis://" + sharedRedis(t).Addr() + "/0"
	e := newExample(t, "primes", append(redisEnviron(), redis)...)
	e.env = append(e.env, "COUNTS="+e.temp, "MUSTER_ROOT="+e.root)
	build := exec.Command("go", "build", "-o", e.temp+"/", "../examples/primes")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	start := func(args ...string) (*exec.Cmd, *screen) {
		cmd := e.command("muster", args...)
		return cmd, startOnScreen(t, cmd)
	}
	watcher, counted := start("watcher", "primes", "--identity", "w", "--", "./count")
	one, _ := start("executor", "primes", "--identity", "one", "--parallel", "2", "--", "sh", "-c",
		`touch "$TMPDIR/begun"; exec primes`)
	submit := func(input string, more ...string) outcome {
		cmd := e.command("muster", append([]string{"submit", "primes"}, more...)...)
		cmd.Stdin = strings.NewReader(input)
		return result(cmd)
	}
	var numbers strings.Builder
	for n := range 5000 {
		fmt.Fprintln(&numbers, n)
	}
	if got := submit(numbers.String(), "--id", "first"); got.code != 0 || got.stdout != "first\n" {
		t.Fatalf("submit: %+v", got)
	}
	rig.Await(t, "a number that one works on", func() bool {
		_, err := os.Stat(filepath.Join(e.temp, "begun"))
		return err == nil
	})
	two, lines := start("executor", "primes", "--identity", "two", "--lines", "--", "primes")
	lines.await(t, "joined "+e.root+"/primes as two")
	kill(t, one) // of 5,000 processes it has run a few
	counted.await(t, "669 primes among 5000 numbers; 0 lines were no numbers\n")
	if got := read(t, filepath.Join(e.temp, "first")); !strings.HasPrefix(got, "669 primes among 5000 ") {
		t.Errorf("the file says %q", got)
	}
	want := "composite\ncomposite\nprime\nprime\nprime\n"
	got := submit("0\n1\n2\n3\nx\n5\n", "--wait")
	if got.code != 3 || got.stdout != want || !strings.Contains(got.stderr, "task 4") {
		t.Errorf("submit --wait: %+v", got)
	}
	for _, cmd := range []*exec.Cmd{two, watcher} {
		send(t, syscall.SIGTERM, cmd.Process.Pid)
		endsWith(t, cmd, lines, 143)
	}
}

// TestDemo runs the README's first command with what this machine has. docs/demo.txt is what it printed once; -update
// records it anew.
func TestDemo(t *testing.T) {
	out := runDemo(t, "PATH="+os.Getenv("PATH"), "ZOOKEEPER_HOME="+os.Getenv("ZOOKEEPER_HOME"))
	_, err := exec.LookPath("redis-server")
	if err == nil && !strings.Contains(out, "\n669 of 5000 are prime\n") {
		t.Errorf("the batch was not counted:\n%s", out)
	}
	const file = "../docs/demo.txt"
	if *update {
		write(t, file, strings.TrimLeft(out, "\n"))
	}
	want, got := demoSteps(read(t, file)), demoSteps(out)
	if err != nil { // the rest is about a queue, and about deleting it
		at := slices.IndexFunc(got, func(line string) bool { return strings.HasPrefix(line, "# a queue is left out") })
		want, got = want[:max(at, 0)], got[:max(at, 0)]
	}
	if d := cmp.Diff(want, got); d != "" || len(got) < 30 {
		t.Errorf("%s is not of this demo: go test ./cli -run 'TestDemo$' -update (-recorded +now):\n%s", file, d)
	}
}

var (
	demoStep = regexp.MustCompile(`(?m)^(\$ |# |Plan: |Applied |\[exit code ).*$`)
	demoPID  = regexp.MustCompile(`(/muster-demo-|\$ kill)[ \d-]+`)
)

// demoSteps are the lines of a demo that are the same each time: what it does, and what came of it.
func demoSteps(out string) []string {
	return demoStep.FindAllString(demoPID.ReplaceAllString(out, "$1"), -1)
}

// TestDemoNeedsNothing runs it without Java, ZooKeeper and Redis, with the programs that every system has. sed is like
// that of macOS: -i needs a suffix.
func TestDemoNeedsNothing(t *testing.T) {
	tools := t.TempDir()
	for _, name := range []string{
		"bash", "cat", "chmod", "cp", "dirname", "env", "grep", "mkdir", "mktemp", "rm", "seq", "sh", "sleep", "tail",
		"touch", "uniq",
	} {
		path, err := exec.LookPath(name)
		if err == nil {
			err = os.Symlink(path, filepath.Join(tools, name))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	sed, err := exec.LookPath("sed")
	if err != nil {
		t.Fatal(err)
	}
	const script = "#!/bin/sh\n[ \"$1\" != -i ] || { echo \"sed: -i has no suffix\" >&2; exit 1; }\nexec %s \"$@\"\n"
	if err := os.WriteFile(filepath.Join(tools, "sed"), fmt.Appendf(nil, script, sed), 0o755); err != nil {
		t.Fatal(err)
	}
	out := runDemo(t, "PATH="+tools, "REDIS_URL=redis://"+refusingAddr+"/0") // somebody else's
	for _, line := range []string{
		"It is embedded in this command: in memory, for trying things out, never for production.",
		"# a queue is left out: it needs a Redis, 7 or newer, and none is here",
	} {
		if !strings.Contains(out, "\n"+line+"\n") {
			t.Errorf("it does not say %q:\n%s", line, out)
		}
	}
}

// runDemo runs the demo. It leaves no process and no file. The limit is for a busy machine: it takes half a minute.
func runDemo(t *testing.T, env ...string) string {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	temp := t.TempDir()
	cmd := exec.CommandContext(ctx, "../examples/demo.sh")
	cmd.Env = append(env, "MUSTER="+filepath.Join(bin, "muster"), "TMPDIR="+temp, "HOME="+os.Getenv("HOME"))
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) } // it cleans up then
	cmd.WaitDelay = 20 * time.Second
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "\n# done: no process and no file is left\n") {
		t.Errorf("demo: %v\n%s", err, out)
	}
	if strings.Contains(string(out), "garbage is left") {
		t.Errorf("it leaves something behind:\n%s", out)
	}
	if regexp.MustCompile(`demo\.sh: line |command not found`).Match(out) {
		t.Errorf("the shell itself has something to say:\n%s", out)
	}
	// A worker died, and was started again.
	for _, seen := range []string{`degraded +\S+ +4 of 4 +3 +0 +0 `, `running +\S+ +4 of 4 +4 +0 +1 `} {
		if !regexp.MustCompile(`(?m)^  ` + seen).Match(out) {
			t.Errorf("status --watch did not see %s:\n%s", seen, out)
		}
	}
	if left := processesOf(t, temp); len(left) > 0 {
		t.Errorf("processes left:\n%s", strings.Join(left, "\n"))
	}
	left, err := os.ReadDir(temp)
	if err != nil || len(left) > 0 {
		t.Errorf("files left: %v, %v", left, err)
	}
	return string(out)
}

// processesOf lists the processes that were started with dir as their TMPDIR, or with a file below it as an argument.
func processesOf(t *testing.T, dir string) []string {
	var found []string
	all, err := filepath.Glob("/proc/[0-9]*")
	if err != nil || len(all) == 0 {
		t.Fatalf("no process in /proc: %v", err)
	}
	for _, proc := range all {
		env, _ := os.ReadFile(filepath.Join(proc, "environ")) // unreadable: not ours
		args, _ := os.ReadFile(filepath.Join(proc, "cmdline"))
		if bytes.Contains(env, []byte("TMPDIR="+dir+"\x00")) || bytes.Contains(args, []byte(dir)) {
			line := bytes.ReplaceAll(args, []byte{0}, []byte{' '})
			found = append(found, fmt.Sprintf("%s: %s", filepath.Base(proc), line))
		}
	}
	return found
}
