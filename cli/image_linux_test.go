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

	"muster/needs"
)

// image is what the Dockerfile says, built without Docker: the files in a folder, in which commands run as process 1 of
// a container would.
type image struct {
	t               *testing.T
	root            string
	entrypoint, env []string
	attr            *syscall.SysProcAttr
}

// buildImage does what the Dockerfile says. The first stage works on this machine; what it puts into /image is in a
// folder.
func buildImage(t *testing.T) *image {
	t.Helper()
	text := strings.ReplaceAll(read(t, "../Dockerfile"), "\\\n", " ")
	i := &image{t: t, root: filepath.Join(t.TempDir(), "image")}
	stage, user := "", ""
	for _, m := range regexp.MustCompile(`(?m)^([A-Z]+) (.*)$`).FindAllStringSubmatch(text, -1) {
		switch final := stage == "scratch"; {
		case m[1] == "FROM":
			stage = strings.Fields(m[2])[0]
		case m[1] == "RUN" && !final && strings.Contains(m[2], " /image/"):
			i.build(m[2])
		case m[1] == "COPY" && final && m[2] == "--from=build /image /": // it is there
		case m[1] == "ENV" && final:
			i.env = append(i.env, m[2])
		case m[1] == "USER" && final:
			user, _, _ = strings.Cut(m[2], ":")
		case m[1] == "ENTRYPOINT" && final:
			if err := json.Unmarshal([]byte(m[2]), &i.entrypoint); err != nil {
				t.Fatal(err)
			}
		case final || m[1] != "RUN" && m[1] != "COPY" && m[1] != "WORKDIR":
			t.Fatalf("what is %s?", m[0])
		}
	}
	if stage != "scratch" || user != "65534" {
		t.Fatalf("the image is made from %q and runs as %q", stage, user)
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

// build runs a line of the first stage.
func (i *image) build(line string) {
	i.t.Helper()
	cmd := exec.Command("sh", "-euc", "umask 022\n"+strings.ReplaceAll(line, "/image/", i.root+"/"))
	cmd.Dir = ".."
	if out, err := cmd.CombinedOutput(); err != nil {
		i.t.Fatalf("%s: %v\n%s", line, err, out)
	}
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
