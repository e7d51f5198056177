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

var opNames = map[OpType]string{
	OpCreate: "create", OpDelete: "delete", OpExists: "exists", OpGetData: "getData", OpSetData: "setData",
	OpGetACL: "getACL", OpSetACL: "setACL", OpGetChildren: "getChildren", OpSync: "sync", OpPing: "ping",
	OpGetChildren2: "getChildren2", OpCheck: "check", OpMulti: "multi", OpCreate2: "create2", OpAuth: "auth",
	OpSetWatches: "setWatches", OpClose: "close",
}

func (t OpType) String() string {
	if name, ok := opNames[t]; ok {
		return name
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
	SessionExpired          Code = -112
	InvalidACL              Code = -114
	AuthFailed              Code = -115
)

var codeNames = map[Code]string{
	OK: "ok", RuntimeInconsistency: "another operation was refused", MarshallingError: "marshalling error",
	Unimplemented: "unimplemented", BadArguments: "bad arguments", NoNode: "no node", NoAuth: "no auth",
	BadVersion: "bad version", NoChildrenForEphemerals: "no children for ephemerals", NodeExists: "node exists",
	NotEmpty: "not empty", SessionExpired: "session expired", InvalidACL: "invalid ACL", AuthFailed: "auth failed",
}

func (c Code) String() string {
	if name, ok := codeNames[c]; ok {
		return name
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
