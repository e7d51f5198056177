package cli_test

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"muster/exitcode"
)

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

// kubernetesJobs returns the Job of the workers and that of the drift check.
func kubernetesJobs(t *testing.T) (workers, drift kubernetesJob) {
	t.Helper()
	jobs := decodeYAML[struct{ Spec kubernetesJob }](t, "../examples/containers/kubernetes.yaml")
	crons := decodeYAML[struct {
		Spec struct {
			JobTemplate struct{ Spec kubernetesJob } `yaml:"jobTemplate"`
		}
	}](t, "../examples/pipelines/kubernetes-cronjob.yml")
	if len(jobs) != 1 || len(crons) != 1 {
		t.Fatalf("%d and %d documents", len(jobs), len(crons))
	}
	return jobs[0].Spec, crons[0].Spec.JobTemplate.Spec
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
	workers, drift := kubernetesJobs(t)
	for _, j := range []kubernetesJob{workers, drift} {
		spec := j.Template.Spec
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
// the command. A worker that was replaced (72) may come back.
func TestKubernetesFailsAJobThatCannotEnd(t *testing.T) {
	workers, _ := kubernetesJobs(t)
	var actions []string
	var codes []int
	for _, r := range workers.PodFailurePolicy.Rules {
		actions = append(actions, r.Action)
		codes = append(codes, r.OnExitCodes.Values...)
	}
	vain := restartIsVain(retries(strings.Join(workers.Template.Spec.Containers[0].Args, " ")))
	if !slices.Equal(actions, []string{"Ignore", "FailJob"}) || !slices.Equal(codes, vain) {
		t.Errorf("%q for %v, want %v", actions, codes, vain)
	}
	last := workers.PodFailurePolicy.Rules[1].OnExitCodes
	if last.ContainerName != workers.Template.Spec.Containers[0].Name || last.Operator != "In" {
		t.Errorf("%+v", last)
	}
	if workers.CompletionMode != "Indexed" || workers.Completions != 4 || workers.Parallelism != 4 {
		t.Errorf("%+v", workers)
	}
}

// TestGraceFitsThePlatform: a worker has time to leave after it has killed its command.
func TestGraceFitsThePlatform(t *testing.T) {
	workers, _ := kubernetesJobs(t)
	if spec := workers.Template.Spec; !slices.Contains(spec.Containers[0].Args, "--grace=25s") ||
		spec.TerminationGracePeriodSeconds != 40 {
		t.Errorf("%+v", spec)
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
		"hosts/slurm.sh": "--run=", "hosts/systemd/muster-worker@.service": "MUSTER_RUN=",
	} {
		if !strings.Contains(read(t, "../examples/"+file), text) {
			t.Errorf("%s does not speak of %s", file, text)
		}
	}
}
