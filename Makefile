# The README has two commands, make demo and make test. make demo needs Go and installs nothing. make test says what the
# tests need and this machine lacks, and installs it. It is make check: everything that CI runs, each test once, the
# cheapest first. make unit and make sim are the parts of it that need neither a server nor other programs.

GO ?= go
export GO

.PHONY: demo test check computing waiting lint vuln unit sim soak bench matrix generate setup build release image

demo: build
	@./examples/demo.sh

test: check

check: setup
	@./.ci/check lint vuln unit
	@$(MAKE) --no-print-directory -j2 computing waiting

# Side by side: tests with servers wait more than they compute, and simulations never wait. So those go first.
computing:
	@nice ./.ci/check pipelines release sim
waiting:
	@./.ci/check servers met

lint vuln unit sim:
	@./.ci/check $@

# Runs the tests of races, crashes and faults longer than make test does, all tests with servers under the race detector,
# the scripts of cli on the ZooKeeper in memory, and each world of the simulation for SIM_FOR, from a seed on that nobody
# has tried.
soak: SIM_FOR ?= 30s
soak: SOAKS = Race|Kill|Crash|Soak|Damage|Outages|IDsUnderFaults|DriftLoop|AnyRun|Anything|AreTheModel|OnTheModel|$\
	Reproducible|EveryOperation|CutConnection|AnothersGeneration|OperationIsResumed
soak: setup
	MUSTER_SOAK=1 $(GO) test -count=1 -timeout 60m -v -run '$(SOAKS)' ./...
	@./.ci/check race
	$(GO) test -count=1 ./cli -embedded -run TestScripts
	GOGC=800 $(GO) test -count=1 -timeout 0 -p 1 -v -run 'TestWorlds|TestSound' \
		$$($(GO) list ./sim/... | grep -v -E '/sim(/needs|/rig)?$$') -sim.for $(SIM_FOR) -sim.seed $$(date +%s)000000

# The tests with servers, in a short form, beside the ZooKeepers, Redis and Valkey of Debian 12 and 13, before a release. It
# takes root, and most of an hour, and writes the table of docs/install.md. ROWS=Redis is only these.
matrix:
	@./.ci/setup matrix
	@./.ci/matrix "$(ROWS)"

# The comparison of queues alone: make bench BENCH=./tasks/peers
bench: BENCH ?= ./...
bench:
	@./.ci/setup bench
	$(GO) test -run '^$$' -bench . -benchtime 1x -timeout 30m $(BENCH)
	$(if $(filter ./...,$(BENCH)),$(GO) test -run '^$$' -bench . -cpu 1 ./sim/... ./dev/zkmodel)

generate:
	$(GO) generate ./zkstate/znode/...

# In a git repository the binary gets the revision, which muster version prints. Without symbols and debug information
# it is a third smaller, and a panic still names each function.
build: buildvcs = $(shell git rev-parse HEAD >/dev/null 2>&1 && echo true || echo false)
build:
	CGO_ENABLED=0 $(GO) build -trimpath -buildvcs=$(buildvcs) -ldflags='-s -w' -o muster .

# Archives and packages in dist, and the image where the program that builds it keeps images: docs/install.md says what
# is in them.
release:
	@rm -rf dist
	@./cli/release/release.sh

image: IMAGE ?= registry.example.com/muster:latest
image: ENGINE ?= $(firstword $(foreach name,docker podman buildah,$(shell command -v $(name))) docker)
image:
	@./cli/release/release.sh image
	$(ENGINE) build -t $(IMAGE) -f Dockerfile dist/image

setup:
	@./.ci/setup
