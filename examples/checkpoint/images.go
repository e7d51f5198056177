package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// A checkpoint is a folder of eight images: IMAGES/N.part while they are written, and IMAGES/N once all of them are
// whole. Who finds IMAGES/N finds all of it.

// image is what a worker must know to go on. Its file holds the SHA-256 of the second line, and as second line itself
// as JSON.
type image struct {
	Checkpoint int `json:"checkpoint"`
	Worker     int `json:"worker"`
	Count      int `json:"count"`
}

const part = ".part"

func folder(images string, n int) string { return filepath.Join(images, strconv.Itoa(n)) }

func file(folder string, worker int) string {
	return filepath.Join(folder, fmt.Sprint("worker-", worker))
}

// numbers are the largest checkpoint that is published, and the largest that was begun; 0 if there is none.
func numbers(images string) (published, begun int, err error) {
	entries, err := os.ReadDir(images)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, 0, nil
	}
	for _, e := range entries {
		name, partial := strings.CutSuffix(e.Name(), part)
		n, err := strconv.Atoi(name)
		if err != nil {
			continue // not ours
		}
		begun = max(begun, n)
		if !partial {
			published = max(published, n)
		}
	}
	return published, begun, err
}

// next is the number of a checkpoint that nobody has begun.
func next(images string) (int, error) {
	_, begun, err := numbers(images)
	return begun + 1, err
}

// write writes a worker's image. The file has its name only when it is whole.
func write(images string, i image) error {
	dir := folder(images, i.Checkpoint) + part
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	body, err := json.Marshal(i)
	if err != nil {
		return err
	}
	temp, err := os.Create(file(dir, i.Worker) + ".temp")
	if err != nil {
		return err
	}
	defer temp.Close()
	if _, err := fmt.Fprintf(temp, "%x\n%s", sha256.Sum256(body), body); err != nil {
		return err
	}
	if err := temp.Sync(); err != nil {
		return err
	}
	return os.Rename(temp.Name(), file(dir, i.Worker))
}

// read reads an image, and checks that it is whole.
func read(path string) (i image, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return i, err
	}
	sum, body, _ := bytes.Cut(text, []byte("\n"))
	if fmt.Sprintf("%x", sha256.Sum256(body)) != string(sum) {
		return i, fmt.Errorf("%s: it is damaged: its checksum is another", path)
	}
	return i, json.Unmarshal(body, &i)
}

// readLast reads a worker's image of the last checkpoint; the zero image if there is none.
func readLast(images string, worker int) (image, error) {
	n, _, err := numbers(images)
	if err != nil || n == 0 {
		return image{}, err
	}
	return read(file(folder(images, n), worker))
}

// check checks that the images of all workers are there, and of this checkpoint.
func check(images string, n int) error {
	for id := range workers {
		path := file(folder(images, n)+part, id)
		i, err := read(path)
		if err != nil {
			return err
		}
		if i.Checkpoint != n || i.Worker != id {
			return fmt.Errorf("%s: it is the image of worker %d in checkpoint %d", path, i.Worker, i.Checkpoint)
		}
	}
	return nil
}

// publish gives the images their final name. It may be done twice.
func publish(images string, n int) error {
	err := os.Rename(folder(images, n)+part, folder(images, n))
	if errors.Is(err, fs.ErrNotExist) {
		_, err = os.Stat(folder(images, n)) // an earlier attempt did it
	}
	return err
}
