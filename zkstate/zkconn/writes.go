package zkconn

import (
	"context"
	"math"
	"time"

	"github.com/go-zookeeper/zk"
)

// Sizes of a request on the wire.
const (
	requestHeader = 8 // xid, code
	opHeader      = 9 // before each operation of a transaction, and at its end
)

// Op is one operation of a transaction.
type Op struct {
	name    string
	path    string
	data    []byte
	version int32
	mode    Mode
	acl     []ACL
}

// CheckOp requires that the znode has this version of its data; -1 requires only that it exists.
func CheckOp(path string, version int32) Op { return Op{name: "check", path: path, version: version} }

// CreateOp creates a znode.
func CreateOp(path string, data []byte, mode Mode, acl []ACL) Op {
	return Op{name: "create", path: path, data: data, mode: mode, acl: acl}
}

// SetOp replaces the data of a znode that has this version.
func SetOp(path string, data []byte, version int32) Op {
	return Op{name: "set", path: path, data: data, version: version}
}

// DeleteOp deletes a znode that has this version and no children.
func DeleteOp(path string, version int32) Op {
	return Op{name: "delete", path: path, version: version}
}

// request is the library's request for the operation.
func (o Op) request() any {
	data := o.data
	if data == nil {
		data = []byte{} // never ZooKeeper's null data, see nilIfEmpty
	}
	switch o.name {
	case "create":
		return &zk.CreateRequest{Path: o.path, Data: data, Acl: libraryACL(o.acl), Flags: o.mode.flags()}
	case "set":
		return &zk.SetDataRequest{Path: o.path, Data: data, Version: o.version}
	case "delete":
		return &zk.DeleteRequest{Path: o.path, Version: o.version}
	}
	return &zk.CheckVersionRequest{Path: o.path, Version: o.version}
}

// Size is the number of bytes of o on the wire. Strings, data and lists have a length of 4 bytes before them.
func (o Op) Size() int {
	n := 4 + len(o.path) + 4 // version or flags
	switch o.name {
	case "set":
		n += 4 + len(o.data)
	case "create":
		n += 4 + len(o.data) + 4
		for _, a := range o.acl {
			n += 4 + 4 + len(a.Scheme) + 4 + len(a.ID)
		}
	}
	return n
}

// Create creates a znode and returns its path. With a sequential mode the path ends in the number.
func (s *Session) Create(ctx context.Context, path string, data []byte, mode Mode, acl []ACL) (string, error) {
	op := CreateOp(path, data, mode, acl)
	return write(ctx, s, "create", path, requestHeader+op.Size(), func(c *zk.Conn) (string, error) {
		r := op.request().(*zk.CreateRequest)
		return c.Create(r.Path, r.Data, r.Flags, r.Acl)
	})
}

// Set replaces the data of a znode that has this version; -1 means any version.
func (s *Session) Set(ctx context.Context, path string, data []byte, version int32) (Stat, error) {
	op := SetOp(path, data, version)
	return write(ctx, s, "set", path, requestHeader+op.Size(), func(c *zk.Conn) (Stat, error) {
		r := op.request().(*zk.SetDataRequest)
		stat, err := c.Set(r.Path, r.Data, r.Version)
		return statOf(stat), err
	})
}

// Delete deletes a znode that has this version and no children.
func (s *Session) Delete(ctx context.Context, path string, version int32) error {
	op := DeleteOp(path, version)
	_, err := write(ctx, s, "delete", path, requestHeader+op.Size(), func(c *zk.Conn) (struct{}, error) {
		return struct{}{}, c.Delete(path, version)
	})
	return err
}

// Result is the result of one operation of a transaction.
type Result struct {
	Path string // of a created znode
	Stat Stat   // after a set
}

// Multi executes all operations or none. If one is refused, the error names that one.
func (s *Session) Multi(ctx context.Context, ops ...Op) ([]Result, error) {
	return s.MultiWithin(ctx, math.MaxInt64, ops...)
}

// MultiWithin is Multi, but if Silence has reached limit when the request is to be sent, it is not sent: ErrSilent.
func (s *Session) MultiWithin(ctx context.Context, limit time.Duration, ops ...Op) ([]Result, error) {
	if len(ops) == 0 {
		return nil, nil
	}
	size := requestHeader + opHeader
	requests := make([]any, len(ops))
	for i, o := range ops {
		size += opHeader + o.Size()
		requests[i] = o.request()
	}
	answers, err := write(ctx, s, "multi", ops[0].path, size, func(c *zk.Conn) ([]zk.MultiResponse, error) {
		if s.Silence() >= limit {
			return nil, ErrSilent
		}
		return c.Multi(requests...)
	})
	if err != nil {
		return nil, failedOp(ops, answers, err)
	}
	results := make([]Result, len(answers))
	for i, a := range answers {
		results[i] = Result{Path: a.String, Stat: statOf(a.Stat)}
	}
	return results, nil
}

// failedOp returns the error of the operation that made a transaction fail, or else whole. The operations before it
// have no error, though they were not executed; those after it have code -2.
func failedOp(ops []Op, answers []zk.MultiResponse, whole error) error {
	for i, a := range answers {
		if a.Error == nil || i >= len(ops) {
			continue
		}
		if outcome, err := outcomeOf(a.Error); outcome == refused {
			return &Error{ops[i].name, ops[i].path, err}
		}
	}
	return whole
}
