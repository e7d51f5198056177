// Command gang is an example: four workers compute together, in a ring, and come through the loss of any of them. It
// is the command of muster worker. README.md says how to run it.
//
// They multiply a vector by a matrix, again and again, modulo a prime. Each takes the columns that are its own, and an
// all-reduce adds up what all have: so nobody makes a step without the others. Each saves the vector now and then, and
// a new attempt begins where all have saved it. At the end the result is compared with what so many steps must give. A
// step that is left out, or done twice, would show.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"
)

// every is the number of steps from one checkpoint to the next.
const every = 50

// exitWrong is final in jobs.hcl: to compute again would not help.
const exitWrong = 2

var errWrong = errors.New("the result is wrong")

func main() {
	log.SetFlags(0)
	log.SetPrefix("gang: ")
	dir := flag.String("dir", "checkpoints", "`folder` of the checkpoints")
	steps := flag.Int("steps", 3000, "how many steps to do")
	pace := flag.Duration("pace", 10*time.Millisecond, "how long a step takes at least")
	flag.Parse()
	if err := run(*dir, *steps, *pace); errors.Is(err, errWrong) {
		log.Print(err)
		os.Exit(exitWrong)
	} else if err != nil {
		log.Fatal(err)
	}
}

// run computes as the worker that the environment says.
func run(dir string, steps int, pace time.Duration) error {
	r, err := enter()
	if err != nil {
		return err
	}
	saved := folder(filepath.Join(dir, fmt.Sprint("worker-", r.id)))
	step, err := begin(r, saved)
	if err != nil {
		return err
	}
	x, err := saved.load(step)
	if err != nil {
		return err
	}
	fmt.Printf("worker %d: attempt %d begins at step %d\n", r.id, r.attempt, step)
	a := newMatrix()
	for step < steps {
		due := time.After(pace)
		x = a.times(x, r.id, r.size)
		r.allReduce(x, func(a, b uint64) uint64 { return (a + b) % prime })
		if step++; step%every == 0 || step == steps {
			if err := saved.save(step, x); err != nil {
				return err
			}
		}
		<-due
	}
	if !slices.Equal(x, a.power(steps)) {
		return errWrong
	}
	fmt.Printf("worker %d: step %d, and the result is right\n", r.id, steps)
	return nil
}

// begin is the newest step that all have saved. Nobody finishes a step before all have begun it, and who begins it has
// saved all that is due before. So the last checkpoints of two workers are the same, or one apart: each keeps two. What
// is newer than the step where all begin is removed.
func begin(r *ring, saved folder) (int, error) {
	steps, err := saved.steps()
	if err != nil {
		return 0, err
	}
	newest := []uint64{uint64(steps[len(steps)-1])}
	r.allReduce(newest, func(a, b uint64) uint64 { return min(a, b) })
	step := int(newest[0])
	return step, saved.keep(0, step)
}

// enter makes this process part of the ring. muster tells who it is, and where the others are.
func enter() (*ring, error) {
	var roll []struct {
		IP   string `json:"ip"`
		Port int    `json:"port"`
	}
	text, err := os.ReadFile(os.Getenv("MUSTER_ROLL"))
	if err == nil {
		err = json.Unmarshal(text, &roll)
	}
	id, err1 := strconv.Atoi(os.Getenv("MUSTER_ID"))
	attempt, err2 := strconv.Atoi(os.Getenv("MUSTER_ATTEMPT"))
	if err := errors.Join(err, err1, err2); err != nil {
		return nil, fmt.Errorf("start it as the command of a worker of a gang: %w", err)
	}
	r := &ring{id: id, size: len(roll), attempt: attempt}
	next := roll[(id+1)%r.size]
	return r, r.connect(os.Getenv("MUSTER_ADDRESS"), net.JoinHostPort(next.IP, strconv.Itoa(next.Port)))
}
