# The README's two commands are make demo and make test. Both install ZooKeeper when it is missing; make test also what single tests
# need. make test is make check: everything that CI runs, the cheapest first. make unit is the part of it that needs no server.

GO ?= go
export GO

.PHONY: demo test check lint unit soak bench generate setup build

demo: build
	@./.ci/setup demo
	@./examples/demo.sh

test: check

check: setup
	@./.ci/check lint unit servers

lint unit:
	@./.ci/check $@

# The long forms of the tests that make test runs short: races, crashes, faults.
soak: setup
	MUSTER_SOAK=1 $(GO) test -count=1 -timeout 60m -v -run 'Race|Kill|Crash|Soak|TestIDsUnderFaults|DriftLoop|AnyRun|Anything' ./...

bench: setup
	$(GO) test -run '^$$' -bench . -benchtime 1x -timeout 30m ./...

generate:
	$(GO) generate ./zkstate/znode/...

# Where git answers, the binary knows its revision: muster version.
build:
	CGO_ENABLED=0 $(GO) build -trimpath -buildvcs=$(shell git rev-parse HEAD >/dev/null 2>&1 && echo true || echo false) -o muster .

setup:
	@./.ci/setup
