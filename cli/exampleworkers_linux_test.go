package cli_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"muster/dev/zkserver"
	"muster/exitcode"
	"muster/sim/rig"
)

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
	e, err := zkserver.Start(t.Context(), zkserver.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Stop(); err != nil {
			t.Error(err)
		}
	})
	h := &hello{t: t, servers: e.Connect(), image: buildImage(t)}
	h.provideNull()
	h.composeRuns()
	h.composeRestarts()
	h.kubernetesRuns()
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
	job, _ := kubernetesJobs(h.t)
	workers := map[*exec.Cmd]*screen{}
	for i := range job.Parallelism {
		var args []string
		for _, arg := range job.Template.Spec.Containers[0].Args {
			arg = strings.ReplaceAll(arg, "$(POD_IP)", "127.0.0.1")
			args = append(args, strings.ReplaceAll(arg, ":8080", "127.0.0.1:0")) // here the pods share an address
		}
		cmd := h.image.command([]string{
			"MUSTER_SERVERS=" + h.servers, "MUSTER_RUN=uid-1", fmt.Sprint("JOB_COMPLETION_INDEX=", i),
		}, args)
		workers[cmd] = startOnScreen(h.t, cmd)
	}
	h.complete(workers)
}

// cronJobRuns: nothing is said when all is well, and the code is 2 after drift.
func (h *hello) cronJobRuns() {
	_, job := kubernetesJobs(h.t)
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
}

func (h *hello) copyHosts(dir string) {
	h.t.Helper()
	for _, file := range []string{"slurm.sh", "compute.sh"} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(read(h.t, "../examples/hosts/"+file)), 0o755); err != nil {
			h.t.Fatal(err)
		}
	}
}
