package main

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
)

// folder has the last two checkpoints of a worker: the vector, in a file with the number of the step as its name. It
// needs no lock, and no fence by MUSTER_ATTEMPT: in a gang no two commands of one id run at the same time.
type folder string

func (f folder) file(step int) string { return filepath.Join(string(f), strconv.Itoa(step)) }

// steps are those that are saved, in order. The first is 0, which needs no file.
func (f folder) steps() ([]int, error) {
	entries, err := os.ReadDir(string(f))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	steps := []int{0}
	for _, e := range entries {
		if step, err := strconv.Atoi(e.Name()); err == nil { // else it is half written
			steps = append(steps, step)
		}
	}
	slices.Sort(steps)
	return steps, nil
}

// load is the vector after a step.
func (f folder) load(step int) (x []uint64, err error) {
	if step == 0 {
		return start(), nil
	}
	text, err := os.ReadFile(f.file(step))
	if err != nil {
		return nil, err
	}
	return x, json.Unmarshal(text, &x)
}

// save saves the vector, and removes what is older than the checkpoint before. The file has its name only when it is
// whole.
func (f folder) save(step int, x []uint64) error {
	text, err := json.Marshal(x)
	if err == nil {
		err = os.MkdirAll(string(f), 0o755)
	}
	if err != nil {
		return err
	}
	temp, err := os.Create(f.file(step) + ".new")
	if err != nil {
		return err
	}
	_, err = temp.Write(text)
	if err := errors.Join(err, temp.Sync(), temp.Close()); err != nil {
		return err
	}
	return errors.Join(os.Rename(temp.Name(), f.file(step)), f.keep(step-every, step))
}

// keep removes all checkpoints but those of these steps.
func (f folder) keep(first, last int) error {
	steps, err := f.steps()
	for _, step := range steps {
		if step > 0 && (step < first || step > last) {
			err = errors.Join(err, os.Remove(f.file(step)))
		}
	}
	return err
}
