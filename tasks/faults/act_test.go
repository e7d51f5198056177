package faults

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"muster/sim/soak"
)

// acts are what this program does as a command, by its first argument. The next one is a directory for what must be
// remembered.
var acts = map[string]func(args []string) int{
	"act-lines": actLines, "act-go": actGo, "act-json": actJSON, "act-one": actOne, "act-ledger": actLedger,
}

// errAgain means that a task failed, and would not if it were tried again.
var errAgain = errors.New("try again")

// errNever means that a task failed for good.
var errNever = errors.New("do not try again")

// perform performs a task.
func perform(ctx context.Context, dir, payload string) (string, error) {
	words := strings.SplitN(payload, " ", 5)
	if len(words) != 5 {
		return "", fmt.Errorf("the task %q has %d words", payload, len(words))
	}
	micros, err := strconv.Atoi(words[3])
	if err != nil {
		return "", err
	}
	work(ctx, time.Duration(micros)*time.Microsecond)
	switch words[2] {
	case poison:
		return "", errNever
	case deadly:
		return "", killExecutor()
	case uncertain:
		f, err := os.OpenFile(filepath.Join(dir, "again", words[0]+"-"+words[1]), os.O_CREATE|os.O_EXCL, 0o644)
		if err == nil {
			f.Close()
			return "", errAgain
		}
	}
	return answer(payload), nil
}

// work takes so long, or until ctx ends.
func work(ctx context.Context, d time.Duration) {
	if d > 0 {
		soak.Pause(ctx, d)
	}
}

// killExecutor kills the muster that this command belongs to: each one between it and the test.
func killExecutor() error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	for pid := os.Getppid(); pid > 1; pid = parentOf(pid) {
		exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
		if err != nil || exe == self {
			return errAgain
		}
		if filepath.Base(exe) == "muster" {
			p, err := os.FindProcess(pid)
			if err != nil {
				return err
			}
			if err := p.Kill(); err != nil {
				return err
			}
		}
	}
	return errAgain
}

// parentOf is the process id of a parent; 0 if the process has ended.
func parentOf(pid int) (parent int) {
	body, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(body), ") ") // after the name
	var state string
	if _, err := fmt.Sscan(rest, &state, &parent); err != nil {
		return 0
	}
	return parent
}

// actLines answers each line with one. It has no other way to fail than to end.
func actLines(args []string) int {
	in, out := bufio.NewReaderSize(os.Stdin, 1<<16), bufio.NewWriter(os.Stdout)
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return 0
		}
		result, err := perform(context.Background(), args[0], strings.TrimSuffix(line, "\n"))
		if err != nil {
			out.Flush()
			fmt.Fprintln(os.Stderr, err)
			return failureCode(err)
		}
		out.WriteString(result)
		out.WriteByte('\n')
		if in.Buffered() == 0 {
			out.Flush()
		}
	}
}

// actJSON is actLines for --lines=json.
func actJSON(args []string) int {
	in, out := bufio.NewReaderSize(os.Stdin, 1<<16), bufio.NewWriter(os.Stdout)
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return 0
		}
		var task struct {
			Task string `json:"task"`
		}
		if err := json.Unmarshal([]byte(line), &task); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		reply := map[string]any{}
		if result, err := perform(context.Background(), args[0], task.Task); err != nil {
			reply["error"], reply["retry"] = err.Error(), !errors.Is(err, errNever)
		} else {
			reply["result"] = result
		}
		body, _ := json.Marshal(reply) // of texts and a bool
		out.Write(append(body, '\n'))
		if in.Buffered() == 0 {
			out.Flush()
		}
	}
}

// actOne performs the task on its standard input.
func actOne(args []string) int {
	body, err := io.ReadAll(os.Stdin)
	if err == nil {
		var result string
		if result, err = perform(context.Background(), args[0], string(body)); err == nil {
			fmt.Print(result)
			return 0
		}
	}
	fmt.Fprintln(os.Stderr, err)
	return failureCode(err)
}

func failureCode(err error) int {
	if errors.Is(err, errNever) {
		return 65
	}
	return 1
}

// actLedger is the command of watchers: it checks the results of a batch, and notes in one write what it found. Its
// arguments are the directory and the seed.
func actLedger(args []string) int {
	seed, err := strconv.ParseUint(args[1], 10, 64)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	b, err := parseBatch(seed, os.Getenv("MUSTER_BATCH"))
	if err == nil {
		var found finding
		if found, err = check(b, os.Stdin); err == nil {
			err = note(filepath.Join(args[0], "ledger"), found)
			work(context.Background(), time.Duration(b.hash(10)%500)*time.Millisecond) // its watcher may die meanwhile
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}
