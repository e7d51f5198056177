package main

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"muster/cli"
)

// archive is a compressed tar of files in a folder.
func archive(folder string, files []file, at time.Time) ([]byte, error) {
	headers := make(map[string]*tar.Header)
	bodies := make(map[string][]byte)
	for _, f := range files {
		name := path.Join(folder, f.name)
		headers[name] = &tar.Header{Name: name, Size: int64(len(f.body)), Mode: int64(f.mode())}
		bodies[name] = f.body
	}
	body, err := tarOf(headers, bodies, at)
	if err != nil {
		return nil, err
	}
	return compress(body)
}

// tarOf is a tar of the given entries and the folders that they are in, by name. All belong to root and have one time.
func tarOf(headers map[string]*tar.Header, bodies map[string][]byte, at time.Time) ([]byte, error) {
	headers = maps.Clone(headers)
	for name := range maps.Clone(headers) {
		for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
			headers[dir] = cmp.Or(headers[dir], &tar.Header{Name: dir + "/", Typeflag: tar.TypeDir, Mode: 0o755})
		}
	}
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		h := *headers[name]
		h.ModTime, h.Format = at, tar.FormatUSTAR
		if err := w.WriteHeader(&h); err != nil {
			return nil, err
		}
		if _, err := w.Write(bodies[name]); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return out.Bytes(), err
}

func (f file) mode() fs.FileMode {
	if f.executable {
		return 0o755
	}
	return 0o644
}

// compress is gzip -n: no name and no time. Level 9 takes twice as long for a hundredth.
func compress(body []byte) ([]byte, error) {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := w.Write(body); err != nil {
		return nil, err
	}
	err := w.Close()
	return out.Bytes(), err
}

// checksums is what sha256sum -c reads.
func checksums(files map[string][]byte) []byte {
	var out bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(files)) {
		fmt.Fprintf(&out, "%x  %s\n", sha256.Sum256(files[name]), name)
	}
	return out.Bytes()
}

// completion is the script for a shell.
func completion(shell string) []byte {
	var out bytes.Buffer
	if cli.Run(context.Background(), []string{"completion", shell}, nil, strings.NewReader(""), &out, io.Discard) != 0 {
		panic("muster completion " + shell + " failed") // it can only fail to write
	}
	return out.Bytes()
}
