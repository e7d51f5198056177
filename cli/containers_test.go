package cli_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

const containersDir = "../examples/containers/"

// decodeYAML decodes the documents of a YAML file.
func decodeYAML[T any](t *testing.T, file string) []T {
	t.Helper()
	var all []T
	for d := yaml.NewDecoder(strings.NewReader(read(t, containersDir+file))); ; {
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

// checkWorkerFlags checks that the flags before a worker's command exist.
func checkWorkerFlags(t *testing.T, file string, args []string) {
	t.Helper()
	end := slices.Index(args, "--")
	if end < 0 || end == len(args)-1 {
		t.Errorf("%s: no command in %q", file, args)
		return
	}
	help := run(t, nil, "worker", "--help").stdout
	for _, arg := range args[:end] {
		name, _, _ := strings.Cut(arg, "=")
		if strings.HasPrefix(name, "--") && !strings.Contains(help, name+" ") {
			t.Errorf("%s: muster worker has no flag %s", file, name)
		}
	}
}

func TestContainerScriptsParse(t *testing.T) {
	scripts, err := filepath.Glob(containersDir + "*.sh")
	if err != nil || len(scripts) < 2 {
		t.Fatalf("%v, %v", scripts, err)
	}
	for _, script := range scripts {
		if out, err := exec.Command("sh", "-n", script).CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", script, err, out)
		}
		if info, err := os.Stat(script); err != nil || info.Mode().Perm()&0o111 == 0 {
			t.Errorf("%s cannot be executed", script)
		}
	}
}

func TestKubernetesJobFitsItsPods(t *testing.T) {
	type job struct {
		Kind string
		Spec struct {
			CompletionMode           string `yaml:"completionMode"`
			Completions, Parallelism int
			Template                 struct {
				Spec struct {
					TerminationGracePeriodSeconds int `yaml:"terminationGracePeriodSeconds"`
					Containers                    []struct {
						Command, Args []string
						VolumeMounts  []struct{ Name string } `yaml:"volumeMounts"`
					}
					Volumes []struct{ Name string }
				}
			}
		}
	}
	docs := decodeYAML[job](t, "kubernetes.yaml")
	if len(docs) != 1 {
		t.Fatalf("%d documents", len(docs))
	}
	j := docs[0]
	if j.Kind != "Job" || j.Spec.CompletionMode != "Indexed" || j.Spec.Completions != 4 || j.Spec.Parallelism != 4 {
		t.Errorf("%+v", j)
	}
	pod := j.Spec.Template.Spec
	worker := pod.Containers[0]
	if fmt.Sprint(worker.Command) != "[muster worker]" || pod.TerminationGracePeriodSeconds <= 25 {
		t.Errorf("%+v", pod)
	}
	checkWorkerFlags(t, "kubernetes.yaml", worker.Args)
	for _, m := range worker.VolumeMounts {
		if !slices.ContainsFunc(pod.Volumes, func(v struct{ Name string }) bool { return v.Name == m.Name }) {
			t.Errorf("there is no volume %s", m.Name)
		}
	}
}

func TestComposeWorkersHaveIdentities(t *testing.T) {
	type service struct {
		Image       string
		Environment map[string]string
		Entrypoint  []string
		Command     []string
		Volumes     []string
		DependsOn   map[string]struct{ Condition string } `yaml:"depends_on"`
	}
	docs := decodeYAML[struct{ Services map[string]service }](t, "compose.yaml")
	if len(docs) != 1 || len(docs[0].Services) != 6 {
		t.Fatalf("%+v", docs)
	}
	services := docs[0].Services
	for i := range 4 {
		name := fmt.Sprint("worker-", i)
		s := services[name]
		if s.Environment["MUSTER_IDENTITY"] != name || s.Environment["JOB"] != "hello" ||
			fmt.Sprint(s.Entrypoint) != "[/entrypoint.sh]" {
			t.Errorf("%s: %+v", name, s)
		}
	}
	for name, s := range services {
		for on := range s.DependsOn {
			if _, ok := services[on]; !ok {
				t.Errorf("%s depends on %s, which there is not", name, on)
			}
		}
		for _, v := range s.Volumes {
			from, _, _ := strings.Cut(v, ":")
			if _, err := os.Stat(filepath.Join(containersDir, from)); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

// TestEntryPointNeedsServersJobAndCommand: it ends with the code of bad usage.
func TestEntryPointNeedsServersJobAndCommand(t *testing.T) {
	for missing, c := range map[string]struct{ env, args []string }{
		"MUSTER_SERVERS": {[]string{"JOB=j0"}, []string{"true"}},
		"JOB":            {[]string{"MUSTER_SERVERS=127.0.0.1:1"}, []string{"true"}},
		"command":        {[]string{"MUSTER_SERVERS=127.0.0.1:1", "JOB=j0"}, nil},
	} {
		cmd := exec.Command("sh", append([]string{containersDir + "entrypoint.sh"}, c.args...)...)
		cmd.Env = append(c.env, "PATH="+bin+":"+os.Getenv("PATH"))
		out, _ := cmd.CombinedOutput()
		text := string(out)
		names := strings.HasPrefix(text, "entrypoint: ") && strings.Contains(text, missing)
		if cmd.ProcessState.ExitCode() != 64 || !names {
			t.Errorf("without %s: %v\n%s", missing, cmd.ProcessState, out)
		}
	}
}

// TestContainersNameTheirRun: the files set MUSTER_RUN, or a comment says how.
func TestContainersNameTheirRun(t *testing.T) {
	for _, file := range []string{"entrypoint.sh", "compose.yaml", "kubernetes.yaml"} {
		if !strings.Contains(read(t, containersDir+file), "MUSTER_RUN") {
			t.Errorf("%s does not speak of MUSTER_RUN", file)
		}
	}
}

// TestEntryPointRunsAJob starts two entry points as containers would.
func TestEntryPointRunsAJob(t *testing.T) {
	f := newFixture(t, 1, "")
	f.mustApply(t)
	start := func(identity string) (*exec.Cmd, *bytes.Buffer) {
		cmd := exec.CommandContext(t.Context(), "sh", containersDir+"entrypoint.sh", "sh", containersDir+"compute.sh")
		cmd.Env = []string{
			"PATH=" + bin + ":" + os.Getenv("PATH"), "TMPDIR=" + t.TempDir(), "MUSTER_SERVERS=" + servers.Connect(),
			"JOB=j0", "ROOT=" + f.root, "START=all", "ADVERTISE=127.0.0.1:7000", "MUSTER_IDENTITY=" + identity,
		}
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		return cmd, &out
	}
	w0, out0 := start("worker-0")
	w1, out1 := start("worker-1")
	for cmd, out := range map[*exec.Cmd]*bytes.Buffer{w0: out0, w1: out1} {
		const end = "is done\nmuster: exit 0 is the command's"
		if err := cmd.Wait(); err != nil || !strings.Contains(out.String(), end) {
			t.Errorf("%v\n%s", err, out)
		}
	}
}
