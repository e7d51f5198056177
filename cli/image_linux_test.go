package cli_test

import (
	"debug/elf"
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

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
