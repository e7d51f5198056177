package main

import (
	"encoding/binary"
	"errors"
	"log"
	"net"
	"time"
)

// ring is the place of a worker among all: it sends to the next one, and hears from the one before.
type ring struct {
	id, size, attempt int
	next, before      net.Conn
}

// hello is what a worker says first to the next one, so that no call of somebody else is taken for it.
type hello struct{ Attempt, ID uint64 }

// connect connects the ring. Nobody is missing, since muster starts the commands of all together. But they do not come
// in order: the next one may not listen yet.
func (r *ring) connect(own, next string) error {
	listener, err := net.Listen("tcp", own)
	if err != nil {
		return err
	}
	defer listener.Close()
	for r.next == nil {
		if r.next, err = net.Dial("tcp", next); err != nil {
			r.next = nil
			time.Sleep(20 * time.Millisecond)
		}
	}
	if err := binary.Write(r.next, binary.LittleEndian, hello{uint64(r.attempt), uint64(r.id)}); err != nil {
		hang(err)
	}
	want := hello{uint64(r.attempt), uint64((r.id + r.size - 1) % r.size)}
	for {
		if r.before, err = listener.Accept(); err != nil {
			return err
		}
		var got hello
		if binary.Read(r.before, binary.LittleEndian, &got) == nil && got == want {
			return nil
		}
		r.before.Close()
	}
}

// allReduce makes v what reduce makes of the v of all. It cuts v into as many chunks as there are workers. Each chunk
// goes round twice: first everybody adds its own to it, then everybody gets the whole. A chunk fits into the buffers of
// a connection, so all can write first, and then read.
func (r *ring) allReduce(v []uint64, reduce func(a, b uint64) uint64) {
	chunk := func(k int) []uint64 {
		k = (k + 2*r.size) % r.size
		return v[k*len(v)/r.size : (k+1)*len(v)/r.size]
	}
	for i := range 2 * (r.size - 1) {
		mine, theirs := chunk(r.id-i), chunk(r.id-i-1)
		came := make([]uint64, len(theirs))
		err := errors.Join(
			binary.Write(r.next, binary.LittleEndian, mine), binary.Read(r.before, binary.LittleEndian, came))
		if err != nil {
			hang(err)
		}
		for j, c := range came {
			if i < r.size-1 {
				c = reduce(theirs[j], c)
			}
			theirs[j] = c
		}
	}
}

// hang is what becomes of a collective when a peer is gone: as with MPI or NCCL it waits, and cannot tell for what. The
// worker ends this process when muster has seen the loss.
func hang(err error) {
	log.Printf("a peer does not answer any more: %v", err)
	for range time.Tick(time.Hour) {
	}
}
