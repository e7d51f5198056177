package zkconn

import (
	"encoding/binary"
	"maps"
	"slices"
)

// maxReset is how many bytes a request to set watches again has, as in ZooKeeper's own client: a server may have been
// configured to refuse larger ones.
const maxReset = 128 << 10

// connected counts a new connection. It returns the requests that set all watches again. Each names the zxid up to
// which events have arrived: the server then sends what has happened since.
func (w *watches) connected() (frames [][]byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.conns++
	var lists [3][]string
	size := 0
	send := func() {
		if size > 0 {
			frames = append(frames, resetFrame(w.arrived, lists))
		}
		lists, size = [3][]string{}, 0
	}
	for _, path := range slices.Sorted(maps.Keys(w.armed)) {
		for i, kind := range []kinds{onData, onExistence, onChildren} { // as the request has them
			if w.armed[path]&kind == 0 {
				continue
			}
			if size+4+len(path) > maxReset {
				send()
			}
			lists[i] = append(lists[i], path)
			size += 4 + len(path)
		}
	}
	send()
	w.resets = len(frames)
	return frames
}

// resetFrame is a request that sets watches again: a zxid, and paths whose data, existence and children are watched.
func resetFrame(since int64, lists [3][]string) []byte {
	frame := make([]byte, 4, 4+requestHeader+8+3*4+maxReset)
	reset := int32(xidReset)
	frame = binary.BigEndian.AppendUint32(frame, uint32(reset))
	frame = binary.BigEndian.AppendUint32(frame, opSetWatches)
	frame = binary.BigEndian.AppendUint64(frame, uint64(since))
	for _, paths := range lists {
		frame = binary.BigEndian.AppendUint32(frame, uint32(len(paths)))
		for _, path := range paths {
			frame = binary.BigEndian.AppendUint32(frame, uint32(len(path)))
			frame = append(frame, path...)
		}
	}
	binary.BigEndian.PutUint32(frame, uint32(len(frame)-4))
	return frame
}

// addResets sends the watches, before any other request but credentials. The caller holds the mutex.
func (c *conn) addResets(r request) {
	if r.op == opAuth {
		return
	}
	for _, frame := range c.resets {
		c.unanswered = append(c.unanswered, request{xid: xidReset, op: opSetWatches, at: r.at})
		c.out.add(frame)
		c.out.urgent = true
	}
	c.resets = nil
}

// resetWatches makes the library send something after it has connected again, if there are watches to set: they go
// before it.
func (s *Session) resetWatches() {
	s.mu.Lock()
	c := s.conn
	s.mu.Unlock()
	c.mu.Lock()
	waiting := len(c.resets) > 0
	c.mu.Unlock()
	if waiting {
		go s.Exists(s.ctx, "/") //nolint:errcheck // it fails only when the session ends
	}
}
