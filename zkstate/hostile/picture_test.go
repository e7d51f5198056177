package hostile_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	"muster/zkstate/zkconn"
)

// node is a znode of a picture.
type node struct {
	path  string
	data  []byte
	acl   []zkconn.ACL // nil: not read
	czxid int64
	owner int64 // of an ephemeral one
}

// picture is every znode of a place but ZooKeeper's own, in the order in which they were created.
type picture []node

// take reads a picture. What goes meanwhile is not in it.
func take(ctx context.Context, s *zkconn.Session) (picture, error) {
	var pic picture
	level := []string{"/"}
	for len(level) > 0 {
		found, err := each(level, func(at string) ([]node, error) { return childrenOf(ctx, s, at) })
		if err != nil {
			return nil, err
		}
		level = nil
		for _, n := range slices.Concat(found...) {
			pic, level = append(pic, n), append(level, n.path)
		}
	}
	slices.SortFunc(pic, func(a, b node) int {
		return cmp.Or(cmp.Compare(a.czxid, b.czxid), strings.Compare(a.path, b.path))
	})
	return pic, nil
}

func childrenOf(ctx context.Context, s *zkconn.Session, at string) ([]node, error) {
	names, _, err := s.Children(ctx, at)
	if errors.Is(err, zkconn.ErrNoNode) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if at == "/" {
		names = slices.DeleteFunc(names, func(name string) bool { return name == "zookeeper" })
	}
	nodes, err := each(names, func(name string) (node, error) {
		n := node{path: below(at, name)}
		data, stat, err := s.Get(ctx, n.path)
		if err == nil {
			n.data, n.czxid, n.owner = data, stat.Czxid, stat.EphemeralOwner
			n.acl, _, err = s.ACL(ctx, n.path)
		}
		if errors.Is(err, zkconn.ErrNoNode) {
			return node{}, nil
		}
		return n, err
	})
	return slices.DeleteFunc(nodes, func(n node) bool { return n.path == "" }), err
}

// each calls f for all of these at once.
func each[A, B any](all []A, f func(A) (B, error)) ([]B, error) {
	results, failed := make([]B, len(all)), make([]error, len(all))
	done := make(chan struct{})
	for i, one := range all {
		go func() {
			results[i], failed[i] = f(one)
			done <- struct{}{}
		}()
	}
	for range all {
		<-done
	}
	return results, errors.Join(failed...)
}

// atOnce is how many znodes one transaction creates or deletes.
const atOnce = 300

// plant makes a place hold a picture. What one transaction has created, one transaction creates: claims and ids belong
// together by that. All ephemeral znodes are those of the session that it returns.
func (pic picture) plant(ctx context.Context, p *place) (*zkconn.Session, error) {
	s, err := p.dial(ctx, ops)
	if err != nil {
		return nil, err
	}
	var ops []zkconn.Op
	send := func() {
		if err == nil && len(ops) > 0 {
			_, err = s.Multi(ctx, ops...)
		}
		ops = nil
	}
	for i, n := range pic {
		mode := zkconn.Persistent
		if n.owner != 0 {
			mode = zkconn.Ephemeral
		}
		if len(ops) >= atOnce || i > 0 && n.czxid != pic[i-1].czxid && n.apart(pic[i-1]) {
			send()
		}
		ops = append(ops, zkconn.CreateOp(n.path, n.data, mode, n.acl))
	}
	send()
	if err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// apart reports whether the czxid of n or of the znode before it tells something: those of claims, ids and seats do.
func (n node) apart(before node) bool { return n.numbered() || before.numbered() }

func (n node) numbered() bool {
	for _, part := range []string{"/id/", "/by/", "/seat/"} {
		if strings.Contains(n.path, part) {
			return true
		}
	}
	return false
}

// facts is what a place and Redis hold, and what commands have said, in words that do not depend on what is random.
type facts map[string]string

// namer replaces random names: of generations by the path of their resource, others by a mark.
type namer struct{ generations map[string]string }

var ids = regexp.MustCompile(`\b[0-9a-f]{32}\b`)

// varying is what differs from time to time in a body or an answer: times, versions, zxids.
var varying = regexp.MustCompile(
	`\d{4}-\d\d-\d\dT[0-9:.]+(Z|[+-]\d\d:\d\d)|` +
		`"(?i:pzxid|version|recordversion|seat|first|epoch|zxid|nonce|by|since|applied|next_tick|digest|born)":("[^"]*"|\d+)`)

func (n namer) name(s string) string {
	s = ids.ReplaceAllStringFunc(s, func(id string) string {
		if name := n.generations[id]; name != "" {
			return name
		}
		return "ID"
	})
	return varying.ReplaceAllString(s, "*")
}

// namerOf knows the generations that the records of a picture name. was knows those of the estate.
func namerOf(pic picture, was namer) namer {
	n := namer{maps.Clone(was.generations)}
	if n.generations == nil {
		n.generations = map[string]string{}
	}
	for _, z := range pic {
		kind := path.Base(path.Dir(z.path))
		var record struct{ Generation string }
		if kind != "job" && kind != "group" && kind != "queue" || json.Unmarshal(z.data, &record) != nil {
			continue
		}
		if n.generations[record.Generation] == "" {
			n.generations[record.Generation] = "generation-of-" + path.Base(z.path)
			if was.generations != nil {
				n.generations[record.Generation] += "-new"
			}
		}
	}
	return n
}

// named is a body, and what a namer makes of it.
type named struct{ raw, named string }

// observe reads the facts of all but what belongs to one stack: what its users may not write.
func (e *estate) observe(
	ctx context.Context, p *place, s *zkconn.Session, attacker stack, spoken said,
) (facts, error) {
	pic, err := p.look(ctx, s)
	if err != nil {
		return nil, err
	}
	held, err := e.dump(ctx)
	if err != nil {
		return nil, err
	}
	names := namerOf(pic, e.names)
	f := facts{}
	for _, z := range pic {
		at := names.name(z.path)
		if e.ofStack(at, attacker) || strings.Contains(at, "/history/") || strings.Contains(at, "/applied/") {
			continue
		}
		body, known := e.planted[z.path]
		if !known || body.raw != string(z.data) {
			body.named = names.name(string(z.data))
		}
		f[at] = fmt.Sprintf("%s ephemeral=%t acl=%v", body.named, z.owner != 0, z.acl)
	}
	for key := range held {
		if at := names.name(key); !e.ofStack(at, attacker) {
			f["redis "+at] = "there"
			if held[key] != e.redis[key] {
				f["redis "+at] = "changed"
			}
		}
	}
	for what, words := range spoken {
		f[names.name(what)] = names.name(words)
	}
	return f, e.refill(ctx, held)
}

// ofStack reports whether a znode or a key, with its names replaced, is of a stack.
func (e *estate) ofStack(at string, s stack) bool {
	for _, part := range []string{"/" + s.name + "-", "-of-" + s.name + "-", "/stack/" + s.name, "/lock/" + s.name} {
		if strings.Contains(at, part) {
			return true
		}
	}
	return false
}

// forgive takes out two differences from want that harm nobody: what is left of generations that have ended and that
// the attacker's records name, because somebody could mean it, and nobody deletes that; and what is said of a resource
// that is not there yet before it is created, and that the attacker's copies name.
func (e *estate) forgive(f, want facts, do attack, other stack) {
	if at := other.at("new"); do.names(path.Base(at)) {
		for _, command := range []string{"plan ", "drift ", "status ", "serve "} {
			delete(f, command+at)
			if words, said := want[command+at]; said {
				f[command+at] = words
			}
		}
	}
	for id, name := range e.names.generations {
		if !do.names(id) {
			continue
		}
		for at := range f {
			if _, expected := want[at]; !expected && strings.Contains(at, name) {
				delete(f, at)
			}
		}
	}
}

// differs lists what is other than expected. Of a tree that is gone or new it names the top.
func (f facts) differs(want facts) []string {
	var all []string
	for at := range want {
		if now, there := f[at]; !there && !under(at, want, f) {
			all = append(all, fmt.Sprintf("%s is gone; it was %.300q", at, want[at]))
		} else if there && now != want[at] {
			all = append(all, fmt.Sprintf("%s is\n    %.600q, not\n    %.600q", at, now, want[at]))
		}
	}
	for at := range f {
		if _, there := want[at]; !there && !under(at, f, want) {
			all = append(all, fmt.Sprintf("%s is new: %.300q", at, f[at]))
		}
	}
	slices.Sort(all)
	return all
}

// under reports whether the parent of a znode is in these facts, and not in the others.
func under(at string, these, others facts) bool {
	_, here := these[path.Dir(at)]
	_, there := others[path.Dir(at)]
	return here && !there
}
