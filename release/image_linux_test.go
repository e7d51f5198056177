package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"muster/sim/needs"
)

const imageName = "registry.example.com/muster:latest"

// TestImageIsReproducible builds the image twice, and has another program read it and build one from the Dockerfile:
// both are the same.
func TestImageIsReproducible(t *testing.T) {
	t.Parallel()
	b := newBuilder(t)
	here, there := checkout(t), checkout(t)
	first := b.mustRun(t, here, "022", []string{"TZ=UTC", "LC_ALL=C"}, "-image", imageName)
	second := b.mustRun(t, there, "077", elsewhere(t), "-image", imageName)
	same(t, first, second)
	ours := filesOfLayer(t, onlyLayer(t, first["muster-image.tar"]))
	want := []string{
		"etc/ -rwxr-xr-x", "etc/passwd -rw-r--r--", "etc/ssl/ -rwxr-xr-x", "etc/ssl/certs/ -rwxr-xr-x",
		"etc/ssl/certs/ca-certificates.crt -rw-r--r--", "tmp/ trwxrwxrwx", "usr/ -rwxr-xr-x", "usr/local/ -rwxr-xr-x",
		"usr/local/bin/ -rwxr-xr-x", "usr/local/bin/muster -rwxr-xr-x",
	}
	for i, line := range ours {
		if i >= len(want) || !strings.HasPrefix(line, want[i]+" 0:0 ") || len(ours) != len(want) {
			t.Fatalf("the image has\n%s\nwant\n%s", strings.Join(ours, "\n"), strings.Join(want, "\n"))
		}
	}
	e := newEngine(t)
	archive := filepath.Join(here, "dist", "muster-image.tar")
	e.run("pull", "docker-archive:"+archive)
	docker := e.config(imageName)
	e.run("rmi", imageName)
	e.run("pull", "oci-archive:"+archive)
	e.run("build", "--isolation", "chroot", "-t", "localhost/built", "-f", filepath.Join(here, "Dockerfile"),
		filepath.Join(there, "dist", "image"))
	built := e.config("localhost/built")
	if built != docker || !strings.Contains(built, `[muster]`) {
		t.Errorf("the archive is run as %s, what the Dockerfile builds as %s", docker, built)
	}
	saved := filepath.Join(t.TempDir(), "saved.tar")
	e.run("push", "localhost/built", "docker-archive:"+saved)
	body, err := os.ReadFile(saved)
	if err != nil {
		t.Fatal(err)
	}
	if theirs := filesOfLayer(t, onlyLayer(t, body)); !slices.Equal(ours, theirs) {
		t.Errorf("the Dockerfile builds\n%s\nwant\n%s", strings.Join(theirs, "\n"), strings.Join(ours, "\n"))
	}
}

// engine is buildah with a store of its own. It runs as root, or as nearly root.
type engine struct {
	t    *testing.T
	args []string
}

func newEngine(t *testing.T) engine {
	t.Helper()
	dir := t.TempDir()
	args := needs.Unshare(t, []string{"--mount"}, "true")
	args = append(args, needs.Program(t, "buildah", "buildah"), "--root", filepath.Join(dir, "root"),
		"--runroot", filepath.Join(dir, "run"), "--storage-driver", "vfs")
	return engine{t, args}
}

func (e engine) run(command string, args ...string) string {
	e.t.Helper()
	all := slices.Concat(e.args[1:], []string{command}, args)
	return mustOutput(e.t, ".", e.args[0], all...)
}

// config is how an image is run.
func (e engine) config(image string) string {
	e.t.Helper()
	const format = "{{.OCIv1.Architecture}} {{with .OCIv1.Config}}{{.User}} {{.Env}} {{.Entrypoint}} {{.Cmd}} " +
		"{{.WorkingDir}}{{end}}"
	return e.run("inspect", "--type", "image", "--format", format, image)
}

// onlyLayer returns the one layer of an image as docker save writes it.
func onlyLayer(t *testing.T, archive []byte) []byte {
	t.Helper()
	files := make(map[string][]byte)
	for r := tar.NewReader(bytes.NewReader(archive)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if files[h.Name], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
	}
	var manifest []struct{ Layers []string }
	if err := json.Unmarshal(files["manifest.json"], &manifest); err != nil || len(manifest) != 1 ||
		len(manifest[0].Layers) != 1 {
		t.Fatalf("%v: %s", err, files["manifest.json"])
	}
	return files[manifest[0].Layers[0]]
}

// filesOfLayer lists a layer, compressed or not.
func filesOfLayer(t *testing.T, layer []byte) []string {
	t.Helper()
	var in io.Reader = bytes.NewReader(layer)
	if unpacked, err := gzip.NewReader(bytes.NewReader(layer)); err == nil {
		in = unpacked
	}
	var list []string
	for r := tar.NewReader(in); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			slices.Sort(list)
			return list
		}
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, fmt.Sprintf("%s %s %d:%d %.8x", h.Name, h.FileInfo().Mode()&^os.ModeDir, h.Uid, h.Gid,
			sha256.Sum256(body)))
	}
}
