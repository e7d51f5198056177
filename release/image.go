package main

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// releaseImage writes the image as an archive that docker, podman and others load, and its files as a folder that the
// Dockerfile copies. So it needs none of these programs, and no other image.
func releaseImage(ctx context.Context, o options) error {
	src, err := readSource(ctx, o.dir)
	if err != nil {
		return err
	}
	b, err := build(ctx, src, o.platforms[0])
	if err != nil {
		return err
	}
	text, err := os.ReadFile(filepath.Join(o.dir, "Dockerfile"))
	if err != nil {
		return err
	}
	config, err := readDockerfile(string(text))
	if err != nil {
		return err
	}
	entries := imageEntries(b)
	if err := writeTree(filepath.Join(o.out, "image"), entries); err != nil {
		return err
	}
	body, err := ociArchive(o.image, b.arch, config, entries, src.time)
	if err != nil {
		return err
	}
	return write(o.out, "muster-image.tar", body, nil)
}

// entry is a file or a folder of the image.
type entry struct {
	name string
	mode int64
	body []byte // nil of a folder
}

// imageEntries is all that is in the image. The certificates are for servers whose CA is not named; they are pinned by
// go.mod, where those of this machine would differ from the next one's. Go looks for them there. A worker keeps its
// socket in /tmp.
func imageEntries(b built) []entry {
	return []entry{
		{name: "etc/passwd", mode: 0o644, body: []byte("muster:x:65534:65534:muster:/:\n")},
		{name: "etc/ssl/certs/ca-certificates.crt", mode: 0o644, body: certificates()},
		{name: "tmp", mode: 0o1777},
		{name: "usr/local/bin/muster", mode: 0o755, body: b.body},
	}
}

// certificates are the roots that Mozilla trusts. It leaves out those that it trusts only for what they signed before
// some day, since a file cannot say that.
func certificates() []byte {
	var out bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			out.Write(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}))
		}
	}
	return out.Bytes()
}

// writeTree makes dir anew, with modes that do not depend on umask.
func writeTree(dir string, entries []entry) error {
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	for _, e := range entries {
		path := filepath.Join(dir, filepath.FromSlash(e.name))
		if err := mkdirs(dir, e.name); err != nil {
			return err
		}
		mode := os.FileMode(e.mode & 0o777)
		var err error
		if e.body == nil {
			err, mode = os.Mkdir(path, 0o755), mode|os.ModeSticky
		} else {
			err = os.WriteFile(path, e.body, mode)
		}
		if err != nil {
			return err
		}
		if err := os.Chmod(path, mode); err != nil {
			return err
		}
	}
	return nil
}

// mkdirs makes dir and the folders below it that name is in.
func mkdirs(dir, name string) error {
	for at := dir; ; {
		if err := os.MkdirAll(at, 0o755); err != nil {
			return err
		}
		if err := os.Chmod(at, 0o755); err != nil {
			return err
		}
		first, rest, ok := strings.Cut(name, "/")
		if !ok {
			return nil
		}
		at, name = filepath.Join(at, first), rest
	}
}

// layer is the one layer of the image.
func (a *ociImage) layer(entries []entry) ([]byte, error) {
	headers, bodies := make(map[string]*tar.Header), make(map[string][]byte)
	for _, e := range entries {
		h := &tar.Header{Name: e.name, Mode: e.mode, Size: int64(len(e.body))}
		if e.body == nil {
			h.Name, h.Typeflag = e.name+"/", tar.TypeDir
		}
		headers[e.name], bodies[e.name] = h, e.body
	}
	return tarOf(headers, bodies, a.time)
}

// readDockerfile returns what the Dockerfile says about running the image, so that an image built from it and the
// archive are the same. It refuses what it does not know.
func readDockerfile(text string) (imageConfig, error) {
	var c imageConfig
	for line := range strings.Lines(text) {
		word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch {
		case word == "" || strings.HasPrefix(word, "#") || word == "FROM" && rest == "scratch" ||
			word == "COPY" && rest == ". /":
		case word == "ENV":
			c.Env = append(c.Env, rest)
		case word == "USER":
			c.User = rest
		case word == "ENTRYPOINT":
			if err := json.Unmarshal([]byte(rest), &c.Entrypoint); err != nil {
				return c, fmt.Errorf("the ENTRYPOINT of the Dockerfile: %w", err)
			}
		default:
			return c, fmt.Errorf("release does not know what this line of the Dockerfile means: %q", line)
		}
	}
	return c, nil
}
