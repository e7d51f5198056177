package cli_test

import (
	"debug/elf"
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"muster/exitcode"
	"muster/sim/needs"
)

// image is what make image builds, without Docker: the files in a folder, in which commands run as process 1 of a
// container would.
type image struct {
	t               *testing.T
	root            string
	entrypoint, env []string
	attr            *syscall.SysProcAttr
}

// buildImage does what make image does, up to the files and what the Dockerfile says about running them.
func buildImage(t *testing.T) *image {
	t.Helper()
	dir := t.TempDir()
	cmd := exec.Command("../cli/release/release.sh", "image")
	cmd.Env = append(os.Environ(), "DIST="+dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	i := &image{t: t, root: filepath.Join(dir, "image")}
	for line := range strings.Lines(read(t, "../Dockerfile")) {
		switch word, rest, _ := strings.Cut(strings.TrimSpace(line), " "); word {
		case "ENV":
			i.env = append(i.env, rest)
		case "ENTRYPOINT":
			if err := json.Unmarshal([]byte(rest), &i.entrypoint); err != nil {
				t.Fatalf("the Dockerfile: %v", err)
			}
		}
	}
	i.attr = i.namespaces(65534)
	if err := i.command(nil, []string{"version"}).Run(); err != nil {
		needs.Missing(t, "no namespaces: %v (it takes root, or user namespaces: "+
			"sysctl kernel.unprivileged_userns_clone=1)", err)
	}
	return i
}

// namespaces has a process run as a user in the folder of the image, as process 1. Whoever is not root has a namespace
// for users too.
func (i *image) namespaces(user int) *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Chroot: i.root, Cloneflags: syscall.CLONE_NEWPID, Pdeathsig: syscall.SIGKILL}
	if os.Getuid() == 0 {
		attr.Credential = &syscall.Credential{Uid: uint32(user), Gid: uint32(user)}
		return attr
	}
	attr.Cloneflags |= syscall.CLONE_NEWUSER
	attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: user, HostID: os.Getuid(), Size: 1}}
	attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: user, HostID: os.Getgid(), Size: 1}}
	return attr
}

// command is the entry point with these arguments, as process 1.
func (i *image) command(env, args []string) *exec.Cmd {
	args = slices.Concat(i.entrypoint, args)
	cmd := exec.Command(filepath.Join(strings.TrimPrefix(i.env[0], "PATH="), args[0]), args[1:]...)
	cmd.Dir, cmd.SysProcAttr = "/", i.attr
	cmd.Env = append(slices.Clone(i.env), env...)
	return cmd
}

// TestImageIsOneStaticBinary: without a shell or a library, and with a folder for sockets.
func TestImageIsOneStaticBinary(t *testing.T) {
	i := buildImage(t)
	var files []string
	err := filepath.WalkDir(i.root, func(path string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			files = append(files, strings.TrimPrefix(path, i.root))
		}
		return err
	})
	want := []string{"/etc/passwd", "/etc/ssl/certs/ca-certificates.crt", "/usr/local/bin/muster"}
	if err != nil || !slices.Equal(files, want) {
		t.Errorf("%v: %q, want %q", err, files, want)
	}
	binary, err := elf.Open(filepath.Join(i.root, "usr/local/bin/muster"))
	if err != nil {
		t.Fatal(err)
	}
	defer binary.Close()
	if libraries, err := binary.ImportedLibraries(); err != nil || len(libraries) > 0 || binary.Section(".interp") != nil {
		t.Errorf("it is linked with %q: %v", libraries, err)
	}
	if info, err := os.Stat(filepath.Join(i.root, "tmp")); err != nil || info.Mode().Perm() != 0o777 ||
		info.Mode()&os.ModeSticky == 0 {
		t.Errorf("/tmp: %v, %v", info, err)
	}
	expect(t, result(i.command(nil, []string{"version"})), 0, "muster ")
}

// imageRunsExamples runs in the image what needs only muster: what the heads of the configurations say, a plan of
// each of them, the page, and a ZooKeeper of its own. A worker whose program is not there says so.
func (h *hello) imageRunsExamples() {
	h.mount("../examples", "/examples")
	env := []string{"MUSTER_SERVERS=" + h.servers}
	in := func(dir string, args ...string) *exec.Cmd {
		cmd := h.image.command(env, args)
		cmd.Dir = dir
		return cmd
	}
	n := 0
	for _, config := range h.configurations() {
		h.t.Run(config.path, func(t *testing.T) {
			for _, line := range config.lines {
				dir := "/examples"
				if strings.Contains(line, " examples/") {
					dir = "/"
				}
				args := shellWords(t, line)
				if args[0] == "apply" {
					args = append(args, "--yes")
				}
				expect(t, result(in(dir, args...)), 0, "")
				n++
			}
			expect(t, result(in("/examples", "plan", config.path)), 0, "")
		})
	}
	if n < 7 {
		h.t.Errorf("the heads of the examples have only %d commands", n)
	}
	got := result(in("/examples", "worker", "--job=hello", "--root=/jobs", "--identity=worker-0", "--", "./load.sh"))
	if got.code != exitcode.NotFound || !strings.Contains(got.stderr, "load.sh") {
		h.t.Errorf("a worker without its program: %+v", got)
	}
	h.serves(in("/", "serve", "--listen", "127.0.0.1:0"))
	h.runsUntilStopped(in("/", "dev"), "export MUSTER_SERVERS=")
}

// configuration is an example: a file or a directory, and the commands that its comments show.
type configuration struct {
	path  string
	lines []string
}

// configurations lists the examples as paths below examples.
func (h *hello) configurations() []configuration {
	h.t.Helper()
	var all []configuration
	shown := regexp.MustCompile(`(?m)^#   muster ((?:plan|apply|validate|drift) (?:[^ \n]|[ ][^ \n])+)`)
	err := filepath.WalkDir("../examples", func(path string, e fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".hcl" || strings.HasSuffix(path, ".vars.hcl") {
			return err
		}
		c := configuration{path: strings.TrimPrefix(path, "../examples/")}
		if dir := filepath.Dir(c.path); dir != "." {
			c.path = dir
		}
		for _, m := range shown.FindAllStringSubmatch(read(h.t, path), -1) {
			c.lines = append(c.lines, m[1])
		}
		if last := len(all) - 1; last >= 0 && all[last].path == c.path {
			all[last].lines = append(all[last].lines, c.lines...)
			return nil
		}
		all = append(all, c)
		return nil
	})
	if err != nil || len(all) < 10 {
		h.t.Fatalf("%v: %d examples", err, len(all))
	}
	return all
}

// shellWords splits a line as a shell does.
func shellWords(t *testing.T, line string) []string {
	t.Helper()
	out, err := exec.Command("sh", "-c", `printf '%s\0' `+line).Output()
	if err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	return strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
}

// serves: the page answers from inside of the image.
func (h *hello) serves(cmd *exec.Cmd) {
	h.t.Helper()
	s := startServe(h.t, cmd)
	s.says("/healthz", "ok")
	stopAndExpect(h.t, cmd, s.seen)
}

// runsUntilStopped waits until a command has printed a text, and stops it.
func (h *hello) runsUntilStopped(cmd *exec.Cmd, text string) {
	h.t.Helper()
	seen := startOnScreen(h.t, cmd)
	seen.await(h.t, text)
	stopAndExpect(h.t, cmd, seen)
}

// stopAndExpect asks a command to stop, which it does with the code of the signal.
func stopAndExpect(t *testing.T, cmd *exec.Cmd, seen *screen) {
	t.Helper()
	sendSignal(t, cmd, syscall.SIGTERM)
	endsWith(t, cmd, seen, exitcode.Terminate)
}
