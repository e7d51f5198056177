// Package spec reads a directory of HCL files and returns the jobs, groups and queues they declare, or diagnostics.
// Each has a stable code, a place in the source, the values that led to it, and what to do.
//
// It reads files below that directory and the variable files it is given, and nothing else: no environment but the one
// passed in, no network, no clock. The same inputs give the same Config on every machine.
//
// A problem in HCL is always a Diagnostic, never an error. One run reports all of them, each once, and none that only
// follows from another: what depends on a bad value is not looked at.
package spec

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclwrite"
	"github.com/zclconf/go-cty/cty/function"

	"muster/resource"
)

// Options are the inputs besides the files. The zero value loads a configuration as `validate` on a bare machine
// would.
type Options struct {
	Vars           []VarInput // in command-line order
	Environ        []string   // as os.Environ; only MUSTER_VAR_name is looked at
	Version        string     // of muster, for required_version; not a version: not checked
	Now            time.Time  // for the expiry of drift ignores; zero: not checked
	HasCredentials bool       // whether the session will authenticate; without, an open ACL is worth a warning
	Limits         Limits     // of what loading may cost
}

// VarInput is one --var or --var-file. Exactly one field is set.
type VarInput struct {
	Flag string // name=value
	File string // path
}

// Config is what a configuration declares, with every default filled in.
type Config struct {
	Stack     string
	StackAt   string // "main.hcl:2"
	Home      string
	Roots     []string // also searched; see Searched
	Default   string   // root that the defaults block names; "" if it names none
	TakeOver  []string
	ZooKeeper ZooKeeper
	// Declared are first the jobs, then the other kinds. Those of one kind are in source order, those of a for_each in the
	// order of its keys. No two paths are equal or nested. They may share maps of labels.
	Declared []resource.Declaration
	Ignores  []resource.Ignore
	Digest   string // of everything above but the places; the same on every machine
	// Origins says where each value came from, by address and field ("workers", "timeouts.join", "labels.team", also
	// "name" and "root"): "jobs.hcl:31", "defaults at jobs.hcl:12" or "default". Several addresses may share a map.
	Origins map[string]map[string]string
}

// Of lists what c declares of one kind.
func Of[T resource.Declaration](c *Config) (all []T) {
	for _, d := range c.Declared {
		if t, ok := d.(T); ok {
			all = append(all, t)
		}
	}
	return all
}

// ZooKeeper is where and how to connect.
type ZooKeeper struct {
	Servers        []string // host:port
	SessionTimeout resource.Duration
	ACL            []string // scheme:id:perms; nil: not declared
	TLS            resource.TLS
	SASL           resource.SASL
}

// Defaults of the zookeeper block.
const (
	DefaultServer         = "127.0.0.1:2181"
	DefaultSessionTimeout = resource.Duration(10 * time.Second)
)

// Load reads the configuration at path: all files of a directory or, if path is a file, that one alone. Config is nil
// if there are errors; warnings may stand beside one.
func Load(path string, o Options) (*Config, Diagnostics) {
	l := newLoader(path, o)
	var c *Config
	var ds Diagnostics
	if over := limited(o.Limits, func() { c = l.load(); ds = l.sorted() }); over != nil {
		return nil, over
	}
	if ds.HasErrors() {
		return nil, ds
	}
	return c, ds
}

func newLoader(path string, o Options) *loader {
	dir, file := splitPath(path)
	return &loader{
		findings: findings{sources: map[string][]byte{}},
		dir:      cmp.Or(dir, "."),
		file:     file,
		opts:     o,
		blocks:   blocks{},
		vars:     map[string]*variable{},
		locals:   map[string]*local{},
		badRefs:  map[any]bool{},
	}
}

type loader struct {
	findings
	dir        string // what names in the configuration are relative to
	file       string // in dir, of a configuration that is one file; else empty
	opts       Options
	given      []*hcl.Attribute // values that win over all others: those of a test
	incomplete bool             // a file or block could not be read: what is not declared elsewhere may be declared there
	valueless  bool             // a value could not be read: a variable without one may have it there
	blocks     blocks
	vars       map[string]*variable
	locals     map[string]*local
	funcs      map[string]function.Function
	ctx        *hcl.EvalContext // see global
	badRefs    map[any]bool     // expressions whose references have been reported
}

func (l *loader) load() *Config {
	files, ok := l.files()
	if !ok {
		return nil
	}
	for _, name := range files.config {
		l.parseFile(filepath.Join(l.dir, name), name)
	}
	if !l.checkVersion() {
		return nil // whatever else is wrong may be right for the version that is asked for
	}
	root, err := os.OpenRoot(l.dir)
	if err != nil {
		l.directory(l.dir, err)
		return nil
	}
	defer root.Close()
	l.funcs = functions(root)

	l.declareVariables()
	l.readValues(files.autoVars)
	l.settleVariables(files.vars)
	l.settleLocals()
	l.validateVariables()

	c := &Config{Origins: map[string]map[string]string{}}
	l.readMuster(c)
	l.readZooKeeper(c)
	d := l.readDeclared(c)
	l.readDrift(c, d)
	l.checkPaths(c, d)
	if len(l.list) == 0 {
		l.warnOpen(c)
	}
	c.Digest = c.digest()
	return c
}

// digest is a hash of what the configuration means. Places, spelling and credentials do not change it.
func (c *Config) digest() string {
	sum := sha256.New()
	meaning := map[string]any{
		"stack": c.Stack, "home": c.Home, "roots": sorted(c.Roots), "take_over": sorted(c.TakeOver),
		"servers": c.ZooKeeper.Servers, "session_timeout": c.ZooKeeper.SessionTimeout, "acl": sorted(c.ZooKeeper.ACL),
		"tls": c.ZooKeeper.TLS, "ignores": append([]resource.Ignore{}, c.Ignores...),
	}
	if c.ZooKeeper.SASL != (resource.SASL{}) {
		meaning["sasl"] = c.ZooKeeper.SASL
	}
	byAddress := slices.SortedStableFunc(slices.Values(c.Declared), func(a, b resource.Declaration) int {
		return cmp.Compare(a.ID().Address, b.ID().Address)
	})
	for _, k := range kinds() {
		var all []resource.Declaration
		for _, d := range byAddress {
			if d.Kind().Name == k.block() {
				all = append(all, d)
			}
		}
		meaning[k.block()+"s"] = all
	}
	_ = json.NewEncoder(sum).Encode(meaning) // plain data into a hash: neither can fail
	return hex.EncodeToString(sum.Sum(nil))
}

// sorted copies and sorts a list whose order means nothing. A nil list becomes like an empty one.
func sorted(list []string) []string { return slices.Sorted(slices.Values(list)) }

// Format arranges the white space of an HCL file and changes nothing else: not the order, the line endings, nor a byte
// order mark. A file that does not parse gets diagnostics instead. JSON is checked and left as it is.
func Format(src []byte, filename string) ([]byte, Diagnostics) {
	l := &loader{findings: findings{sources: map[string][]byte{}}}
	var out []byte
	var ds Diagnostics
	if over := limited(Limits{}, func() { out, ds = l.format(src, filename) }); over != nil {
		return nil, over
	}
	return out, ds
}

func (l *loader) format(src []byte, filename string) ([]byte, Diagnostics) {
	text, ok := l.accept(src, filename)
	if ok {
		_, ok = l.parse(text, filename)
	}
	if !ok {
		return nil, l.sorted()
	}
	if strings.HasSuffix(filename, ".json") {
		return src, nil
	}
	out := hclwrite.Format(text)
	if mark := []byte("\ufeff"); bytes.HasPrefix(src, mark) {
		out = append(mark, out...)
	}
	return out, nil
}
