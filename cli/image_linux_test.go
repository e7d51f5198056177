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

// buildImage does what make image does, and unpacks the image.
func buildImage(t *testing.T) *image {
	t.Helper()
	dir := t.TempDir()
	cmd := exec.Command("go", "run", "./release", "-image", ourImage, "-out", dir)
	cmd.Dir = ".."
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	i := &image{t: t, root: filepath.Join(dir, "root")}
	i.unpack(filepath.Join(dir, "muster-image.tar"))
	i.attr = i.namespaces(65534)
	if err := i.command(nil, []string{"version"}).Run(); err != nil {
		needs.Missing(t, "no namespaces: %v (it takes root, or user namespaces: "+
			"sysctl kernel.unprivileged_userns_clone=1)", err)
	}
	return i
}

// unpack reads an image as Docker does: the documents say which layer it has, and how it is run.
func (i *image) unpack(archive string) {
	i.t.Helper()
	blobs := i.t.TempDir()
	tar := func(args ...string) {
		i.t.Helper()
		if out, err := exec.Command("tar", args...).CombinedOutput(); err != nil {
			i.t.Fatalf("tar %q: %v\n%s", args, err, out)
		}
	}
	tar("-xf", archive, "-C", blobs)
	var manifest []struct {
		Config           string
		RepoTags, Layers []string
	}
	decodeFile(i.t, filepath.Join(blobs, "manifest.json"), &manifest)
	if len(manifest) != 1 || !slices.Equal(manifest[0].RepoTags, []string{ourImage}) || len(manifest[0].Layers) != 1 {
		i.t.Fatalf("the archive has %+v", manifest)
	}
	var doc struct {
		Config struct {
			User            string
			Entrypoint, Env []string
		}
	}
	decodeFile(i.t, filepath.Join(blobs, manifest[0].Config), &doc)
	if doc.Config.User != "65534:65534" {
		i.t.Errorf("it runs as %q", doc.Config.User)
	}
	i.entrypoint, i.env = doc.Config.Entrypoint, doc.Config.Env
	if err := os.Mkdir(i.root, 0o755); err != nil {
		i.t.Fatal(err)
	}
	tar("-xpf", filepath.Join(blobs, manifest[0].Layers[0]), "-C", i.root)
}

// decodeFile decodes a file of JSON.
func decodeFile(t *testing.T, file string, v any) {
	t.Helper()
	if err := json.Unmarshal([]byte(read(t, file)), v); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
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
