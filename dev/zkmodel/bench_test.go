package zkmodel

import "testing"

// BenchmarkHandle measures one request and its reply.
func BenchmarkHandle(b *testing.B) {
	frame := func(op OpType, body ...any) []byte {
		e := encoder(header(op))
		e.values(body...)
		return e
	}
	multi := encoder(header(OpMulti))
	for _, o := range []operation{check("/a", -1), set("/a", "data", -1), create("/a/b", 0), remove("/a/b", 0)} {
		multi.opHeader(o.op, false, -1)
		multi.values(o.body...)
	}
	multi.opHeader(opError, true, -1)
	requests := []struct {
		name  string
		frame []byte
	}{
		{"ping", frame(OpPing)},
		{"getData", frame(OpGetData, "/a", false)},
		{"watch", frame(OpExists, "/a", true)},
		{"getChildren", frame(OpGetChildren2, "/", false)},
		{"setData", frame(OpSetData, "/a", []byte("data"), -1)},
		{"create", frame(OpCreate, "/a/s-", []byte("data"), worldAll, Sequential)},
		{"multi", multi},
	}
	for _, r := range requests {
		b.Run(r.name, func(b *testing.B) {
			s := New(Options{})
			p := s.Open(func([]byte) {})
			p.Handle(frame(0, int64(0), 10_000, int64(0), make([]byte, 16))[4:])
			p.Handle(frame(OpCreate, "/a", []byte("data"), worldAll, Flags(0)))
			b.ReportAllocs()
			for b.Loop() {
				if !p.Handle(r.frame) {
					b.Fatal("the server closes the connection")
				}
			}
		})
	}
}

// BenchmarkNew measures a new server, as for each schedule of a simulation.
func BenchmarkNew(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		New(Options{})
	}
}
