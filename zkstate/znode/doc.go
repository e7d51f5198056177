// Package znode says where each znode of muster lives and what its bytes mean: paths, the Record, claims, workers,
// the roll, marks, and how a job of the classic worker controller is recognised.
//
// Every decoder takes bytes that anybody may have written: it is bounded, never panics, and its error says what is
// damaged. Fields it does not know are skipped, so that an older muster reads what a newer one wrote; a layout that
// it must not touch announces itself by the Record's format (see ErrFormat). Every encoder refuses what its decoder
// would.
//
// The package talks to no server. Path functions do not check names: CheckIdentity, CheckToken and resource.CheckName
// do, and whoever takes a name from a user or from ZooKeeper calls them first.
package znode

// The messages need protoc (Debian: apt-get install protobuf-compiler) and its plugin on the PATH:
// go install google.golang.org/protobuf/cmd/protoc-gen-go@v1.36.12
//
//go:generate protoc -I ../.. --go_out=../.. --go_opt=module=muster zkstate/znode/internal/jobmaster/jobmaster.proto
