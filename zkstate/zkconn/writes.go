package zkconn

import (
	"context"

	"github.com/go-zookeeper/zk"
)

// Sizes of a request on the wire.
const (
	requestHeader = 8 // xid, code
	opHeader      = 9 // of one operation in a transaction, and of its end
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

// request is the operation in the library's words.
func (o Op) request() any {
	data := o.data
	if data == nil {
		data = []byte{} // ZooKeeper's null data is not for us
	}
	switch o.name {
	case "create":
		return &zk.CreateRequest{Path: o.path, Data: data, Acl: theirACL(o.acl), Flags: o.mode.flags()}
	case "set":
		return &zk.SetDataRequest{Path: o.path, Data: data, Version: o.version}
	case "delete":
		return &zk.DeleteRequest{Path: o.path, Version: o.version}
	}
	return &zk.CheckVersionRequest{Path: o.path, Version: o.version}
}

// size is the number of bytes on the wire: strings, data and lists have a length of 4 bytes before them.
func (o Op) size() int {
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

// Create creates a znode and returns its path, which for a sequential mode ends in the number.
func (s *Session) Create(ctx context.Context, path string, data []byte, mode Mode, acl []ACL) (string, error) {
	op := CreateOp(path, data, mode, acl)
	return write(ctx, s, "create", path, requestHeader+op.size(), func(c *zk.Conn) (string, error) {
		r := op.request().(*zk.CreateRequest)
		return c.Create(r.Path, r.Data, r.Flags, r.Acl)
	})
}

// Set replaces the data of a znode that has this version; -1 is any.
func (s *Session) Set(ctx context.Context, path string, data []byte, version int32) (Stat, error) {
	op := SetOp(path, data, version)
	return write(ctx, s, "set", path, requestHeader+op.size(), func(c *zk.Conn) (Stat, error) {
		r := op.request().(*zk.SetDataRequest)
		stat, err := c.Set(r.Path, r.Data, r.Version)
		return statOf(stat), err
	})
}

// Delete deletes a znode that has this version and no children.
func (s *Session) Delete(ctx context.Context, path string, version int32) error {
	op := DeleteOp(path, version)
	_, err := write(ctx, s, "delete", path, requestHeader+op.size(), func(c *zk.Conn) (struct{}, error) {
		return struct{}{}, c.Delete(path, version)
	})
	return err
}

// Result is what one operation of a transaction did.
type Result struct {
	Path string // of a created znode
	Stat Stat   // after a set
}

// Multi performs all operations or none. If one is refused, the error names that one.
func (s *Session) Multi(ctx context.Context, ops ...Op) ([]Result, error) {
	if len(ops) == 0 {
		return nil, nil
	}
	size := requestHeader + opHeader
	requests := make([]any, len(ops))
	for i, o := range ops {
		size += opHeader + o.size()
		requests[i] = o.request()
	}
	answers, err := write(ctx, s, "multi", ops[0].path, size, func(c *zk.Conn) ([]zk.MultiResponse, error) {
		return c.Multi(requests...)
	})
	if err != nil {
		return nil, culprit(ops, answers, err)
	}
	results := make([]Result, len(answers))
	for i, a := range answers {
		results[i] = Result{Path: a.String, Stat: statOf(a.Stat)}
	}
	return results, nil
}

// culprit finds the operation that made a transaction fail. Those before it report no error, though they were not
// performed, and those after it report code -2.
func culprit(ops []Op, answers []zk.MultiResponse, whole error) error {
	for i, a := range answers {
		if a.Error == nil || i >= len(ops) {
			continue
		}
		if fate, err := fateOf(a.Error); fate == refused {
			return &Error{ops[i].name, ops[i].path, err}
		}
	}
	return whole
}
