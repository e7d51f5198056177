package zkmodel

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// The wire format is ZooKeeper's jute: big-endian integers; a string, buffer or list has its length before it in 4
// bytes, and length -1 stands for null. Source: zookeeper.jute of ZooKeeper 3.8.

// decoder reads a frame. Once it is bad all reads return zero values.
type decoder struct {
	b   []byte
	bad bool // too short, or it holds a wrong length or an unknown operation: its sender gets MarshallingError
}

// take returns the next n bytes of the frame itself, or nil.
func (d *decoder) take(n int) []byte {
	if d.bad || n < 0 || n > len(d.b) {
		d.bad = true
		return nil
	}
	v := d.b[:n:n]
	d.b = d.b[n:]
	return v
}

func (d *decoder) bool() bool {
	v := d.take(1)
	return v != nil && v[0] != 0
}

func (d *decoder) int32() int32 {
	v := d.take(4)
	if v == nil {
		return 0
	}
	return int32(binary.BigEndian.Uint32(v))
}

func (d *decoder) int64() int64 {
	v := d.take(8)
	if v == nil {
		return 0
	}
	return int64(binary.BigEndian.Uint64(v))
}

// buffer returns bytes of the frame itself; nil for null.
func (d *decoder) buffer() []byte {
	n := d.int32()
	if n == -1 {
		return nil
	}
	return d.take(int(n))
}

// string refuses null: no request that the model knows may hold it. What is not UTF-8 is replaced, as Java does.
func (d *decoder) string() string {
	return strings.ToValidUTF8(string(d.take(int(d.int32()))), "\ufffd")
}

// null stands for a string that is null. No other string is that, for it is not UTF-8.
const null = "\xff"

// nullable reads a string that may be null: kazoo sends the empty id in an ACL so.
func (d *decoder) nullable() string {
	if rest, ok := bytes.CutPrefix(d.b, []byte{0xff, 0xff, 0xff, 0xff}); ok && !d.bad {
		d.b = rest
		return null
	}
	return d.string()
}

func (d *decoder) strings() []string {
	n := d.int32()
	if n < 0 || int(n) > len(d.b)/4 {
		d.bad = true
		return nil
	}
	list := make([]string, n)
	for i := range list {
		list[i] = d.string()
	}
	return list
}

func (d *decoder) acl() []ACL {
	n := d.int32()
	if n == -1 {
		return nil
	}
	if n < 0 || int(n) > len(d.b)/12 {
		d.bad = true
		return nil
	}
	list := make([]ACL, n)
	for i := range list {
		list[i] = ACL{Perms: d.int32(), Scheme: d.nullable(), ID: d.nullable()}
	}
	return list
}

type encoder []byte

func (e *encoder) bool(v bool) {
	if v {
		*e = append(*e, 1)
	} else {
		*e = append(*e, 0)
	}
}

func (e *encoder) int32(v int32) { *e = binary.BigEndian.AppendUint32(*e, uint32(v)) }
func (e *encoder) int64(v int64) { *e = binary.BigEndian.AppendUint64(*e, uint64(v)) }

func (e *encoder) buffer(v []byte) {
	if v == nil {
		e.int32(-1)
		return
	}
	e.int32(int32(len(v)))
	*e = append(*e, v...)
}

// string writes characters beyond the first 65536 as jute does: as two surrogates of three bytes each. Source:
// BinaryOutputArchive.stringToByteBuffer.
func (e *encoder) string(v string) {
	if strings.IndexFunc(v, beyondUTF16Unit) < 0 {
		e.int32(int32(len(v)))
		*e = append(*e, v...)
		return
	}
	var b []byte
	for _, r := range v {
		if !beyondUTF16Unit(r) {
			b = utf8.AppendRune(b, r)
			continue
		}
		high, low := utf16.EncodeRune(r)
		for _, unit := range []rune{high, low} {
			b = append(b, 0xe0|byte(unit>>12), 0x80|byte(unit>>6&0x3f), 0x80|byte(unit&0x3f))
		}
	}
	e.buffer(b)
}

func beyondUTF16Unit(r rune) bool { return r > 0xffff }

func (e *encoder) strings(v []string) {
	e.int32(int32(len(v)))
	for _, s := range v {
		e.string(s)
	}
}

func (e *encoder) acl(v []ACL) {
	e.int32(int32(len(v)))
	for _, a := range v {
		e.int32(a.Perms)
		e.string(a.Scheme)
		e.string(a.ID)
	}
}

func (e *encoder) stat(s Stat) {
	e.int64(s.Czxid)
	e.int64(s.Mzxid)
	e.int64(s.Ctime)
	e.int64(s.Mtime)
	e.int32(s.Version)
	e.int32(s.Cversion)
	e.int32(s.Aversion)
	e.int64(s.EphemeralOwner)
	e.int32(s.DataLength)
	e.int32(s.NumChildren)
	e.int64(s.Pzxid)
}

// newReply begins a reply with its header.
func newReply(xid int32, zxid int64, err Code) encoder {
	e := make(encoder, 0, 128)
	e.int32(xid)
	e.int64(zxid)
	e.int32(int32(err))
	return e
}

// OpType is the code of an operation on the wire. Source: ZooDefs.OpCode.
type OpType int32

// The operations that the model knows.
const (
	OpCreate       OpType = 1
	OpDelete       OpType = 2
	OpExists       OpType = 3
	OpGetData      OpType = 4
	OpSetData      OpType = 5
	OpGetACL       OpType = 6
	OpSetACL       OpType = 7
	OpGetChildren  OpType = 8
	OpSync         OpType = 9
	OpPing         OpType = 11
	OpGetChildren2 OpType = 12
	OpCheck        OpType = 13
	OpMulti        OpType = 14
	OpCreate2      OpType = 15
	OpAuth         OpType = 100
	OpSetWatches   OpType = 101
	OpClose        OpType = -11

	opError OpType = -1 // the result of an operation in a refused transaction
)

// String is how a trace of a simulation names an operation.
func (t OpType) String() string {
	names := [...]string{ // no map: a simulation asks for each message
		OpCreate: "create", OpDelete: "delete", OpExists: "exists", OpGetData: "get", OpSetData: "set",
		OpGetACL: "getACL", OpSetACL: "setACL", OpGetChildren: "children", OpSync: "sync", OpPing: "ping",
		OpGetChildren2: "children", OpCheck: "check", OpMulti: "multi", OpCreate2: "create", OpAuth: "auth",
		OpSetWatches: "watches",
	}
	if t > 0 && int(t) < len(names) && names[t] != "" {
		return names[t]
	}
	if t == OpClose {
		return "close"
	}
	return "op " + strconv.Itoa(int(t))
}

// Code is the error code of a reply; OK is none. Source: KeeperException.Code.
type Code int32

// The codes that the model sends.
const (
	OK                      Code = 0
	RuntimeInconsistency    Code = -2 // an operation of a transaction in which another one was refused
	MarshallingError        Code = -5 // the request cannot be read
	Unimplemented           Code = -6
	BadArguments            Code = -8 // a path or a mode that cannot be
	NoNode                  Code = -101
	NoAuth                  Code = -102
	BadVersion              Code = -103
	NoChildrenForEphemerals Code = -108
	NodeExists              Code = -110
	NotEmpty                Code = -111
	InvalidACL              Code = -114
	AuthFailed              Code = -115
)

func (c Code) String() string {
	names := map[Code]string{
		OK: "ok", RuntimeInconsistency: "another operation was refused", MarshallingError: "marshalling error",
		Unimplemented: "unimplemented", BadArguments: "bad arguments", NoNode: "no node", NoAuth: "no auth",
		BadVersion: "bad version", NoChildrenForEphemerals: "no children for ephemerals", NodeExists: "node exists",
		NotEmpty: "not empty", InvalidACL: "invalid ACL", AuthFailed: "auth failed",
	}
	return cmp.Or(names[c], "code "+strconv.Itoa(int(c)))
}

// Flags are the mode of a created znode: a sum of Ephemeral and Sequential.
type Flags int32

// The flags. An ephemeral znode ends with its session; the server appends ten digits to the name of a sequential one.
const (
	Ephemeral  Flags = 1
	Sequential Flags = 2
)
