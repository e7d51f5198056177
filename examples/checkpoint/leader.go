package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
)

// order is what the leader sends to a worker, and answer is what comes back: one JSON object each.
type order struct {
	Epoch      int64  `json:"epoch"` // of the leader
	Do         string `json:"do"`    // suspend, write or resume
	Checkpoint int    `json:"checkpoint"`
}

type answer struct {
	Worker  int    `json:"worker"`
	Refused string `json:"refused,omitempty"` // why; empty: it is done
}

// give listens at the leader's address, where all workers try to connect, and gives each of them the order. It returns
// when all have done it, or when one has refused. The connections last until then, and end with the process.
func give(address string, o order) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	defer listener.Close()
	answers := make(chan answer)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return // closed
			}
			go ask(conn, o, answers)
		}
	}()
	for done := map[int]bool{}; len(done) < workers; {
		a := <-answers
		if a.Refused != "" {
			return fmt.Errorf("worker %d refuses to %s: %s", a.Worker, o.Do, a.Refused)
		}
		done[a.Worker] = true
	}
	return nil
}

// ask gives the order to one worker. A worker that hangs up before it has answered connects again.
func ask(conn net.Conn, o order, answers chan<- answer) {
	defer conn.Close()
	var a answer
	if json.NewEncoder(conn).Encode(o) != nil || json.NewDecoder(conn).Decode(&a) != nil {
		return
	}
	answers <- a
	_, _ = io.Copy(io.Discard, conn) // until the worker hangs up
}
