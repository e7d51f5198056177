package spec

import (
	"fmt"
	"path"
	"strings"

	"muster/job"
)

// checkPaths reports jobs that would be one znode, or inside one another: a job znode's children are its workers.
func (l *loader) checkPaths(c *Config, d declared) {
	first := map[string]*job.Job{}
	for i := range c.Jobs {
		j := &c.Jobs[i]
		if prev := first[j.Path()]; prev != nil {
			l.samePath(j, prev, d)
			continue
		}
		first[j.Path()] = j
	}
	for i := range c.Jobs {
		j := &c.Jobs[i]
		for dir := path.Dir(j.Path()); len(dir) > 1; dir = path.Dir(dir) {
			if outer := first[dir]; outer != nil {
				f := l.jobFinding(codePathNested, j, d, "the path of %s lies inside another job", j.Address)
				f.Detail = fmt.Sprintf("%s is inside %s, and what is inside a job's znode is its workers", j.Path(), dir)
				f.Help = "give one of them another root or name"
				l.relate(f, d.places[outer.Address], outer.Address)
				break
			}
		}
		l.checkHomeOf(c, j, d)
	}
	l.checkRoots(c, first)
}

// jobFinding records a finding at the header of a job block.
func (l *loader) jobFinding(code string, j *job.Job, d declared, format string, args ...any) *Diagnostic {
	rng := d.places[j.Address]
	f := l.add(code, &rng, format, args...)
	label, _, _ := strings.Cut(strings.TrimPrefix(j.Address, "job."), "[")
	f.In, f.Address = "job "+quote(label), j.Address
	return f
}

func (l *loader) samePath(j, prev *job.Job, d declared) {
	if d.places[j.Address] == d.places[prev.Address] {
		f := l.jobFinding(codePathTwice, j, d, "the jobs of this for_each have one path, %s", j.Path())
		f.Address = ""
		f.Help = fmt.Sprintf("tell them apart: name = \"%s-${each.key}\"", j.Name)
		return
	}
	f := l.jobFinding(codePathTwice, j, d, "%s and %s have one path, %s", prev.Address, j.Address, j.Path())
	l.relate(f, d.places[prev.Address], "first declared here")
	f.Help = "give one of them another name or root"
}

// checkHomeOf reports a job that would stand in the way of muster's own znodes.
func (l *loader) checkHomeOf(c *Config, j *job.Job, d declared) {
	if !within(j.Path(), c.Home) && !within(c.Home, j.Path()) {
		return
	}
	f := l.jobFinding(codeHome, j, d, "the path of %s and muster's home overlap", j.Address)
	f.Detail = fmt.Sprintf("the job is %s, home is %s", j.Path(), c.Home)
	f.Help = "choose another home in the muster block, such as " + quote(DefaultHome)
}

// checkRoots reports a root of the muster block that is a job or lies inside one.
func (l *loader) checkRoots(c *Config, jobs map[string]*job.Job) {
	for _, root := range c.Roots {
		for dir := root; len(dir) > 1; dir = path.Dir(dir) {
			if j := jobs[dir]; j != nil {
				b := l.blocks["muster"][0]
				f := l.add(codePathNested, &b.DefRange, "the root %s is inside %s", root, j.Address)
				f.In = "muster"
				f.Help = "roots are folders of jobs; remove it from roots"
				break
			}
		}
	}
}

// within reports whether a path is dir or below it.
func within(p, dir string) bool { return p == dir || strings.HasPrefix(p, dir+"/") }

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
