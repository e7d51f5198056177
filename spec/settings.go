package spec

import (
	"maps"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"

	"muster/job"
	"muster/resource"
)

// settings are the arguments that a job and the defaults block share, and name and workers of a job, under the names
// of job.Fields: "timeouts.join".
type settings map[string]*hcl.Attribute

// sections are the blocks of a job that hold arguments.
func sections() map[string][]string {
	return map[string][]string{
		"timeouts":  {"session", "join", "barrier", "stale"},
		"lifecycle": {"on_complete", "on_running", "protect"},
	}
}

// settings flattens the sections of a block. ok is false if a section did not decode.
func (l *loader) settings(c content, in string) (set settings, ok bool) {
	set, ok = settings{}, c.ok
	for name, a := range c.args {
		set[name] = a
	}
	for _, kind := range []string{"timeouts", "lifecycle"} {
		b := l.single(c, kind, in)
		if b == nil {
			continue
		}
		inner := l.content(b.Body, schema{args: sections()[kind]}, kind+" of "+in)
		ok = ok && inner.ok
		for name, a := range inner.args {
			set[kind+"."+name] = a
		}
	}
	return set, ok
}

// origins says where each field of a job came from.
type origins map[string]string

// apply decodes set into j and notes where each value came from. A field that cannot be decoded keeps its value; the
// scope is then marked as failed.
func (s *scope) apply(set settings, j *job.Job, from origins, prefix string) {
	for _, name := range fieldOrder() {
		a := set[name]
		if a == nil {
			continue
		}
		if s.field(name, a, j) {
			from[name] = prefix + at(a.NameRange)
		}
	}
	if a := set["labels"]; a != nil {
		if labels, ok := s.labels(a); ok {
			s.merge(labels, a, j, from, prefix+at(a.NameRange))
		}
	}
}

// merge puts labels on top of those that j has.
func (s *scope) merge(labels map[string]*string, a *hcl.Attribute, j *job.Job, from origins, where string) {
	merged := maps.Clone(j.Labels)
	if merged == nil {
		merged = map[string]string{}
	}
	for k, v := range labels {
		if v == nil {
			delete(merged, k)
			delete(from, "labels."+k)
			continue
		}
		merged[k] = *v
		from["labels."+k] = where
	}
	if j.Labels = merged; len(merged) == 0 {
		j.Labels = nil
	}
	if len(merged) > maxLabels {
		s.wrong(codeLabels, a, cty.NilVal, "a job has at most %d labels; this one has %d", maxLabels, len(merged))
	}
}

// fieldOrder lists the settings but labels, in the order in which they are decoded.
func fieldOrder() []string {
	return []string{
		"name", "root", "workers", "roll_format", "timeouts.session", "timeouts.join", "timeouts.barrier", "timeouts.stale",
		"lifecycle.on_complete", "lifecycle.on_running", "lifecycle.protect",
	}
}

// field decodes one setting; false means that it is null or wrong.
func (s *scope) field(name string, a *hcl.Attribute, j *job.Job) (ok bool) {
	switch name {
	case "name":
		return set(s.jobName(a))(&j.Name)
	case "root":
		return set(s.znodePath(a, resource.CheckRoot))(&j.Root)
	case "workers":
		return set(s.workers(a))(&j.Workers)
	case "roll_format":
		v, ok := s.enum(a, string(job.Protobuf), string(job.Text))
		return set(job.RollFormat(v), ok)(&j.RollFormat)
	case "timeouts.session":
		return set(s.duration(a, minSession, maxSession))(&j.Timeouts.Session)
	case "timeouts.join":
		return set(s.duration(a, minDuration, maxDuration))(&j.Timeouts.Join)
	case "timeouts.barrier":
		return set(s.duration(a, minDuration, maxDuration))(&j.Timeouts.Barrier)
	case "timeouts.stale":
		return set(s.duration(a, minDuration, maxDuration))(&j.Timeouts.Stale)
	case "lifecycle.on_complete":
		v, ok := s.enum(a, string(job.Reset), string(job.Remove), string(job.Retain))
		return set(job.OnComplete(v), ok)(&j.Lifecycle.OnComplete)
	case "lifecycle.on_running":
		v, ok := s.enum(a, string(job.Keep), string(job.Fail))
		return set(job.OnRunning(v), ok)(&j.Lifecycle.OnRunning)
	case "lifecycle.protect":
		return set(s.boolean(a))(&j.Lifecycle.Protect)
	}
	return false
}

// set stores a decoded value if there is one.
func set[T any](v T, ok bool) func(*T) bool {
	return func(to *T) bool {
		if ok {
			*to = v
		}
		return ok
	}
}

func (s *scope) jobName(a *hcl.Attribute) (string, bool) {
	text, ok := s.text(a)
	if !ok {
		return "", false
	}
	return text, s.checked(codeName, a, text, func(name string) error { return resource.CheckName("job", name) })
}
