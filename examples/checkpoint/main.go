// Command checkpoint is an example: eight workers compute, and a leader takes images of all of them together. Who leads
// is up to muster. README.md says how to run it.
//
//	checkpoint work ID        a worker: computes, follows the leader, does what it says
//	checkpoint next           prints the number of the next checkpoint
//	checkpoint suspend N      the leader's: all workers stop computing
//	checkpoint write N        the leader's: all workers write an image
//	checkpoint check N        the leader's: there are eight images, whole, of this checkpoint
//	checkpoint publish N      the leader's: gives the images their final name
//	checkpoint resume N       the leader's: all workers go on
//
// Its environment: IMAGES is the folder of the images; ROOT and MUSTER_SERVERS say where the group is. A leader also
// has MUSTER_ADDRESS, where the workers reach it, and MUSTER_EPOCH.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"strconv"
)

// workers is how many there are. Their numbers begin with 0.
const workers = 8

func main() {
	log.SetFlags(0)
	log.SetPrefix("checkpoint: ")
	if err := run(os.Args[1:]); err != nil {
		log.Fatal(err)
	}
}

func run(args []string) error {
	images := cmp.Or(os.Getenv("IMAGES"), "images")
	if len(args) == 1 && args[0] == "next" {
		n, err := next(images)
		fmt.Println(n)
		return err
	}
	if len(args) != 2 {
		return errors.New("usage: checkpoint next | {work|suspend|write|check|publish|resume} NUMBER")
	}
	n, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	switch args[0] {
	case "work":
		return work(context.Background(), n, images)
	case "check":
		return check(images, n)
	case "publish":
		return publish(images, n)
	}
	epoch, err := strconv.ParseInt(os.Getenv("MUSTER_EPOCH"), 10, 64)
	if err != nil {
		return fmt.Errorf("MUSTER_EPOCH: %w: only a leader gives orders", err)
	}
	return give(os.Getenv("MUSTER_ADDRESS"), order{Epoch: epoch, Do: args[0], Checkpoint: n})
}
