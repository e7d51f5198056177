package golden

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "muster"

// room is what a package may import besides the standard library: ours by their path below the module, others by the
// start of their import path. A path that ends in /... stands for all packages of a folder. Tests may also import all
// of ours, and what testRoom lists.
type room struct{ ours, others []string }

// everything stands for all of our packages.
const everything = "*"

// floorPlan has a row for every package. Before you add a package, add its row: decide what it is for and what it may
// import.
func floorPlan() map[string]room {
	const (
		hcl      = "github.com/hashicorp/hcl/v2"
		cty      = "github.com/zclconf/go-cty"
		protobuf = "google.golang.org/protobuf"
		sync     = "golang.org/x/sync"

		levenshtein = "github.com/agext/levenshtein"
		width       = "golang.org/x/text/width"
		version     = "github.com/hashicorp/go-version"
		cron        = "github.com/netresearch/go-cron"
	)
	return map[string]room{
		"": {ours: []string{"cli"}},
		"cli": {ours: []string{everything}, others: []string{
			"github.com/mitchellh/go-wordwrap", "github.com/rogpeppe/go-internal/diff", "github.com/spf13/",
			"golang.org/x/term", "golang.org/x/sys", sync,
		}},
		"docs": {}, // the pages that muster prints
		// make release and make image. It is not linked into muster.
		"cli/release": {ours: []string{"cli", "docs"}, others: []string{
			"github.com/spf13/", version, "golang.org/x/crypto/x509roots/",
		}},
		"resource":       {},
		"resource/job":   {ours: []string{"resource", "text"}},
		"resource/group": {ours: []string{"resource", "resource/group/schedule", "text"}, others: []string{version}},
		"resource/queue": {ours: []string{"resource", "text"}},
		"plan":           {ours: []string{"resource", "text"}},
		"plan/planfile":  {ours: []string{"resource", "plan"}},
		"report": {
			ours: []string{
				"resource/...", "plan", "plan/planfile", "apply", "apply/history", "exitcode", "text", "view",
			},
			others: []string{"github.com/prometheus/client_golang", "github.com/prometheus/common/"},
		},
		// What was read, as data that reports, the page and the API show. It is filled by those that read.
		"view": {ours: []string{"resource/...", "text"}},
		// The page of muster serve.
		"page": {
			ours: []string{
				"resource/...", "plan", "apply", "apply/history", "member", "report", "text", "view", "zkstate",
				"zkstate/zkconn", "zkstate/znode",
			},
			others: []string{"github.com/prometheus/client_golang"},
		},
		"exitcode":      {},
		"apply/history": {ours: []string{"resource"}}, // what is known of an apply afterwards, as data
		// Plan and apply in a loop, for muster reconcile.
		"reconcile": {
			ours: []string{
				"resource", "plan", "apply", "apply/history", "text", "zkstate", "zkstate/election", "zkstate/zkconn",
				"zkstate/znode",
			},
			others: []string{"github.com/prometheus/client_golang"},
		},
		"apply": {ours: []string{"resource", "plan", "apply/history"}, others: []string{sync}},
		"spec": {
			ours: []string{"resource/...", "docs", "plan", "text"}, others: []string{hcl, cty, version},
		},
		// hcl imports the libraries for suggestions and character widths too, so they cost nothing more.
		"text":             {others: []string{levenshtein, width}},
		"zkstate/election": {ours: []string{"zkstate/zkconn"}},
		"zkstate": {
			ours: []string{
				"resource/...", "plan", "apply/history", "text", "view", "zkstate/election", "zkstate/zkconn", "zkstate/znode",
			},
			others: []string{sync},
		},
		// A process's place in a group or a queue.
		"zkstate/seat": {
			ours: []string{"resource", "zkstate", "zkstate/election", "zkstate/zkconn", "zkstate/znode"},
		},
		// How a session logs in to servers, and all that knows the library for Kerberos.
		"zkstate/sasl":   {ours: []string{"zkstate/zkconn"}, others: []string{"github.com/jcmturner/gokrb5/v8"}},
		"zkstate/zkconn": {others: []string{"github.com/go-zookeeper/zk"}},
		// What one participant can do to others: tests only.
		"zkstate/hostile": {},
		"zkstate/znode": {
			ours:   []string{"resource", "resource/job", "resource/queue", "apply/history"},
			others: []string{protobuf},
		},
		"worker": {
			ours:   []string{"resource", "resource/job", "text", "view", "zkstate", "zkstate/zkconn", "zkstate/znode"},
			others: []string{sync},
		},
		"resource/group/schedule": {others: []string{cron}},
		"member/ticks":            {ours: []string{"resource/group/schedule"}}, // pure, for member
		// Who has which duty of a group: a pure function.
		"member/roster": {others: []string{version}},
		"member": {
			ours: []string{
				"resource", "resource/group", "resource/group/schedule", "member/roster", "member/ticks", "text", "view", "zkstate",
				"zkstate/seat", "zkstate/zkconn", "zkstate/znode",
			},
			others: []string{sync, version},
		},
		// Real processes under faults: tests only.
		"member/faults": {},
		"worker/faults": {},
		"wrap": {
			ours: []string{
				"resource/...", "worker", "member", "member/ticks", "tasks", "tasks/store", "zkstate",
				"zkstate/zkconn", "zkstate/znode", "text", "wrap/command", "wrap/lines",
			},
			others: []string{"github.com/prometheus/client_golang"},
		},
		// The tasks of a queue as commands, and as lines of one.
		"wrap/lines": {ours: []string{
			"resource", "resource/queue", "tasks", "tasks/store", "text", "wrap/command", "zkstate/zkconn",
		}},
		// One command and its process group, for wrap.
		"wrap/command": {ours: []string{"text", "zkstate/zkconn"}, others: []string{"golang.org/x/sys/unix"}},
		// A process's side of a queue, and what it keeps in Redis.
		"tasks/store": {
			ours:   []string{"resource", "resource/queue", "tasks/store/lua", "text"},
			others: []string{"github.com/redis/go-redis/v9"},
		},
		// The scripts in Go, and a Redis in memory: tests only.
		"tasks/store/lua":        {},
		"tasks/store/storemodel": {ours: []string{"tasks/store/lua"}},
		"tasks": {
			ours: []string{
				"resource", "resource/queue", "tasks/store", "text", "zkstate", "zkstate/seat", "zkstate/zkconn",
				"zkstate/znode",
			},
			others: []string{"github.com/redis/go-redis/v9"},
		},
		// Real processes under faults: tests only.
		"tasks/faults": {},
		// Queues side by side: tests only.
		"tasks/peers":         {},
		"examples/checkpoint": {ours: []string{"member", "zkstate/zkconn"}},
		"examples/gang":       {},
		"examples/primes":     {},
		// Tests of the pipelines' scripts only.
		"examples/pipelines": {},

		// The page in a real browser, and under attack: tests only.
		"page/browser": {others: []string{sync}},

		// A ZooKeeper in memory: muster dev --embedded, and simulation.
		"dev/zkmodel": {},
		// The model against real servers: tests only.
		"dev/zkmodel/differ": {},
		// Simulation: the scheduler, and a package of worlds for each part of muster. Tests only.
		"sim":         {ours: []string{"dev/zkmodel", "zkstate/zkconn"}},
		"sim/recipes": {},
		"sim/jobs":    {},
		"sim/stacks":  {},
		"sim/groups":  {},
		"sim/queues":  {},
		"sim/watches": {},

		"dev/daemon":   {}, // runs the servers of both
		"dev/zkserver": {ours: []string{"dev/daemon"}, others: []string{sync}},
		// Real Redis servers for tests.
		"dev/redisserver": {ours: []string{"dev/daemon"}},
		"dev/fault":       {}, // a proxy that causes faults: only tests import it
		"sim/needs":       {}, // for tests only
		// What tests with real servers share.
		"sim/rig": {ours: []string{
			"dev/daemon", "dev/fault", "dev/redisserver", "dev/zkserver", "plan", "resource", "sim/needs",
			"tasks/store/storemodel", "zkstate", "zkstate/zkconn",
		}},
		"golden": {},
		// A kind for tests.
		"resource/testkind": {ours: []string{"resource"}},
	}
}

// testRoom lists what the tests of every package may import of others. Benchmarks compare with the raw client. Tests
// check with the library of JSON Schemas what muster writes, and drive a browser.
func testRoom() []string {
	return []string{
		"github.com/google/go-cmp", "github.com/rogpeppe/go-internal", "github.com/go-zookeeper/zk", "golang.org/x/sys",
		"github.com/redis/go-redis/v9", "github.com/chromedp/",
		"github.com/santhosh-tekuri/jsonschema/v6", "go.yaml.in/yaml/v3",
		"golang.org/x/net/html", "github.com/prometheus/client_model/go",
	}
}

// listed is what go list prints about a package.
type listed struct {
	ImportPath                         string
	Standard                           bool
	Imports, TestImports, XTestImports []string
}

// goList runs go list in the module.
func goList(t *testing.T, args ...string) []listed {
	t.Helper()
	const fields = "-json=ImportPath,Standard,Imports,TestImports,XTestImports"
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"list", fields}, args...)...)
	cmd.Dir = ".."
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, stderr.String())
	}
	var all []listed
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var l listed
		if err := dec.Decode(&l); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, l)
	}
}

// ours returns the path below the module.
func ours(importPath string) (string, bool) {
	if importPath == module {
		return "", true
	}
	return strings.CutPrefix(importPath, module+"/")
}

func TestFloorPlan(t *testing.T) {
	standard := map[string]bool{"C": true}
	for _, l := range goList(t, "std") {
		standard[l.ImportPath] = true
	}
	rooms := floorPlan()
	for _, l := range goList(t, "./...") {
		name, _ := ours(l.ImportPath)
		r, ok := rooms[name]
		if !ok {
			t.Errorf("package %s has no row in the floor plan", l.ImportPath)
			continue
		}
		for _, path := range l.Imports {
			if !standard[path] && !r.allows(path) {
				t.Errorf("%s imports %s, which its row in the floor plan does not allow", l.ImportPath, path)
			}
		}
		r.ours, r.others = []string{everything}, append(r.others, testRoom()...)
		for _, path := range slices.Concat(l.TestImports, l.XTestImports) {
			if !standard[path] && !r.allows(path) {
				t.Errorf("tests of %s import %s, which the floor plan does not allow", l.ImportPath, path)
			}
		}
	}
}

func (r room) allows(path string) bool {
	if name, ok := ours(path); ok {
		return slices.ContainsFunc(r.ours, func(allowed string) bool {
			folder, below := strings.CutSuffix(allowed, "/...")
			return allowed == everything || allowed == name || below && (name == folder || strings.HasPrefix(name, folder+"/"))
		})
	}
	return slices.ContainsFunc(r.others, func(start string) bool { return strings.HasPrefix(path, start) })
}

// TestWhatIsNotLinked: the library packages and a worker do not link HCL, and package plan does not link ZooKeeper.
func TestWhatIsNotLinked(t *testing.T) {
	for _, c := range []struct{ packages, never []string }{
		{
			packages: []string{"./plan", "./apply", "./zkstate", "./worker"},
			never:    []string{"github.com/hashicorp/hcl", "github.com/zclconf/go-cty"},
		},
		{
			packages: []string{"./plan", "./apply", "./report", "./spec", "./zkstate", "./worker", "./member"},
			never:    []string{"github.com/redis/go-redis"},
		},
		{
			packages: []string{"./plan", "./apply", "./report", "./spec"},
			never:    []string{"github.com/go-zookeeper/zk", module + "/zkstate"},
		},
		{packages: []string{".", "./dev/zkserver", "./dev/redisserver"}, never: []string{"testing"}},
	} {
		for _, l := range goList(t, append([]string{"-deps"}, c.packages...)...) {
			for _, never := range c.never {
				if l.ImportPath == never || strings.HasPrefix(l.ImportPath, never+"/") {
					t.Errorf("%q link %s", c.packages, l.ImportPath)
				}
			}
		}
	}
}
