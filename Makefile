# The README's two commands are `make demo` and `make test`. Both install ZooKeeper when it is missing; `make test` also what
# single tests need: linters of scripts and manifests, and bash's completion.

GO ?= go
STATICCHECK = honnef.co/go/tools/cmd/staticcheck@v0.6.1

.PHONY: demo test race soak bench lint generate setup build

demo: build
	@./.ci/setup demo
	@./examples/demo.sh

test: setup
	$(GO) vet ./...
	$(GO) test -count=1 -timeout 30m ./...

# Everything again under the race detector (needs a C compiler).
race: setup
	$(GO) test -race -timeout 30m ./...

# The long forms of the tests that make test runs short: races, crashes, faults.
soak: setup
	MUSTER_SOAK=1 $(GO) test -count=1 -timeout 60m -v -run 'Race|Kill|Crash|Soak|TestIDsUnderFaults|DriftLoop' ./zkstate ./worker ./cli

bench: setup
	$(GO) test -run '^$$' -bench . -benchtime 1x -timeout 30m ./zkstate/... ./worker/... ./cli

lint:
	@test -z "$$(gofmt -l .)" || { gofmt -l .; echo "run gofmt -w on these"; exit 1; }
	$(GO) vet ./...
	$(GO) mod tidy -diff
	$(GO) run $(STATICCHECK) ./...
	$(GO) test -count=1 -run 'Clean$$' ./golden
	@if command -v systemd-analyze >/dev/null; then ./.ci/verify-units examples/pipelines/systemd; fi

generate:
	$(GO) generate ./zkstate/znode/...

# Where git answers, the binary knows its revision: muster version.
build:
	CGO_ENABLED=0 $(GO) build -trimpath -buildvcs=$(shell git rev-parse HEAD >/dev/null 2>&1 && echo true || echo false) -o muster .

setup:
	@./.ci/setup
