// Package znode defines the paths of muster's znodes and the bytes in them: the Record, claims, workers, the roll and
// marks. It also recognises a job of the classic controller.
//
// Anybody may have written the bytes that a decoder gets. So a decoder limits their size, never panics, and its error
// says what is damaged. It skips unknown fields, so that an older muster reads what a newer one wrote. A layout that an
// older muster must not change has another format in the Record (see ErrFormat). An encoder refuses what its decoder
// refuses.
//
// The package talks to no server. Path functions do not check names: call CheckIdentity, CheckToken or
// resource.CheckName first with every name from a user or from ZooKeeper.
package znode

// The messages need protoc (Debian: apt-get install protobuf-compiler) and its plugin on the PATH:
// go install google.golang.org/protobuf/cmd/protoc-gen-go@v1.36.12
//
//go:generate protoc -I ../.. --go_out=../.. --go_opt=module=muster zkstate/znode/internal/jobmaster/jobmaster.proto
