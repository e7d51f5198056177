package zkmodel

import "strconv"

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

func (t OpType) String() string {
	switch t {
	case OpCreate:
		return "create"
	case OpDelete:
		return "delete"
	case OpExists:
		return "exists"
	case OpGetData:
		return "getData"
	case OpSetData:
		return "setData"
	case OpGetACL:
		return "getACL"
	case OpSetACL:
		return "setACL"
	case OpGetChildren:
		return "getChildren"
	case OpSync:
		return "sync"
	case OpPing:
		return "ping"
	case OpGetChildren2:
		return "getChildren2"
	case OpCheck:
		return "check"
	case OpMulti:
		return "multi"
	case OpCreate2:
		return "create2"
	case OpAuth:
		return "auth"
	case OpSetWatches:
		return "setWatches"
	case OpClose:
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
	switch c {
	case OK:
		return "ok"
	case RuntimeInconsistency:
		return "another operation was refused"
	case MarshallingError:
		return "marshalling error"
	case Unimplemented:
		return "unimplemented"
	case BadArguments:
		return "bad arguments"
	case NoNode:
		return "no node"
	case NoAuth:
		return "no auth"
	case BadVersion:
		return "bad version"
	case NoChildrenForEphemerals:
		return "no children for ephemerals"
	case NodeExists:
		return "node exists"
	case NotEmpty:
		return "not empty"
	case InvalidACL:
		return "invalid ACL"
	case AuthFailed:
		return "auth failed"
	}
	return "code " + strconv.Itoa(int(c))
}

// Flags are the mode of a created znode: a sum of Ephemeral and Sequential.
type Flags int32

// The flags. An ephemeral znode ends with its session; the server appends ten digits to the name of a sequential one.
const (
	Ephemeral  Flags = 1
	Sequential Flags = 2
)
