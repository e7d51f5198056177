package spec

import (
	"fmt"
	"path"
	"strings"
)

// checkPaths reports declarations that have the same path, or whose paths lie inside one another.
func (l *loader) checkPaths(c *Config, d declared) {
	first := map[string]thing{}
	for _, t := range d.things {
		if prev, twice := first[t.path]; twice {
			l.samePath(t, prev, d)
			continue
		}
		first[t.path] = t
	}
	for _, t := range d.things {
		for dir := path.Dir(t.path); len(dir) > 1; dir = path.Dir(dir) {
			if outer, inside := first[dir]; inside {
				outerKind, below := outer.kind.block(), outer.kind.below()
				f := l.about(codePathNested, t, d, "the path of %s lies inside another %s", t.address, outerKind)
				f.Detail = fmt.Sprintf("%s is inside %s, and what is inside a %s's znode is its %s",
					t.path, dir, outerKind, below)
				f.Help = "give one of them another root or name"
				l.relate(f, d.places[outer.address], outer.address)
				break
			}
		}
		l.checkHomeOf(c, t, d)
	}
	l.checkRoots(c, first)
}

// about records a finding at the header of a block.
func (l *loader) about(code string, t thing, d declared, format string, args ...any) *Diagnostic {
	rng := d.places[t.address]
	f := l.add(code, &rng, format, args...)
	f.In, f.Address = t.kind.block()+" "+quote(t.label), t.address
	return f
}

func (l *loader) samePath(t, prev thing, d declared) {
	if d.places[t.address] == d.places[prev.address] {
		f := l.about(codePathTwice, t, d, "the %ss of this for_each have one path, %s", t.kind.block(), t.path)
		f.Address = ""
		f.Help = fmt.Sprintf("tell them apart: name = \"%s-${each.key}\"", t.name)
		return
	}
	f := l.about(codePathTwice, t, d, "%s and %s have one path, %s", prev.address, t.address, t.path)
	l.relate(f, d.places[prev.address], "first declared here")
	f.Help = "give one of them another name or root"
}

// checkHomeOf reports a declaration whose path and muster's home overlap.
func (l *loader) checkHomeOf(c *Config, t thing, d declared) {
	if !within(t.path, c.Home) && !within(c.Home, t.path) {
		return
	}
	f := l.about(codeHome, t, d, "the path of %s and muster's home overlap", t.address)
	f.Detail = fmt.Sprintf("the %s is %s, home is %s", t.kind.block(), t.path, c.Home)
	f.Help = "choose another home in the muster block, such as " + quote(DefaultHome)
}

// checkRoots reports a root of the muster block that is one of things or lies inside one.
func (l *loader) checkRoots(c *Config, things map[string]thing) {
	for _, root := range c.Roots {
		for dir := root; len(dir) > 1; dir = path.Dir(dir) {
			if t, inside := things[dir]; inside {
				b := l.blocks["muster"][0]
				f := l.add(codePathNested, &b.DefRange, "the root %s is inside %s", root, t.address)
				f.In = "muster"
				f.Help = "roots are folders of jobs; remove it from roots"
				break
			}
		}
	}
}

// within reports whether a path is dir or below it.
func within(p, dir string) bool { return p == dir || strings.HasPrefix(p, dir+"/") }
