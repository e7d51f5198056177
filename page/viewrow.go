package page

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"muster/resource"
	"muster/resource/group"
	"muster/resource/job"
	"muster/resource/queue"
	"muster/text"
	"muster/view"
)

// rowKey is what a row of the overview shows. Rows are cached by it.
type rowKey struct {
	path, kind      string
	status          resource.Status
	classic         bool
	live            int    // -1: not known
	progress        string // of a group or a queue
	joined, n, done int    // of a job
	created         int64  // seconds; 0: not known
	last, lastID    string // run
}

// rowKeyOf reads what a row of j shows.
func rowKeyOf(j *view.Resource) rowKey {
	o := &j.Observed
	k := rowKey{path: j.Path, kind: view.KindOf(o).Name, status: o.Status(), classic: o.Classic, live: -1}
	if !o.Created.IsZero() {
		k.created = o.Created.Unix()
	}
	if view.HasCounts(o) {
		k.live = o.Live
		if k.kind == job.KindName {
			k.joined, k.n, k.done = job.Joined(o), job.Of(o.Record).Workers, job.Done(o)
		} else {
			k.progress = progressOf(o)
		}
	}
	if last := job.LastRun(o.Record); last != nil && k.kind == job.KindName {
		k.last, k.lastID = last.Completed, last.ID
	}
	return k
}

// progressOf counts what the members of a group or a queue do.
func progressOf(o *resource.Observed) string {
	switch view.KindOf(o).Name {
	case group.KindName:
		return fmt.Sprintf("%d of %d duties held", group.Held(o), len(group.Of(o.Record).Duties))
	case queue.KindName:
		f := queue.FoundOf(o)
		return fmt.Sprintf("%s, %s, %s", text.Plural(f.Executors, "executor", "executors"),
			text.Plural(f.Watchers, "watcher", "watchers"), text.Plural(f.Batches, "batch", "batches"))
	}
	return o.Record.Declaration.Health(o)
}

// rowView is a row as its template shows it.
type rowView struct {
	ID, Href     string
	Dir, Name    word
	Kind, Status word
	Class        string
	Classic      bool
	Live         string
	Progress     string
	Created      time.Time
	LastRun      time.Time
	LastID       word
}

// row is the fragment of a row. Its id follows from the path alone.
func (v *views) row(k rowKey) string {
	return v.rows.html(k, func() string {
		r := rowView{
			ID: hashID("r", k.path), Href: resourceURL(k.path), Kind: word(k.kind), Status: word(k.status),
			Class: statusClass(k.status), Classic: k.classic, Progress: k.progress, LastRun: parseTime(k.last),
			LastID: word(k.lastID), Live: "–",
		}
		r.Dir, r.Name = splitPath(k.path)
		if k.live >= 0 {
			r.Live = text.Thousands(k.live)
		}
		if k.created != 0 {
			r.Created = time.Unix(k.created, 0)
		}
		if k.kind == job.KindName && k.live >= 0 {
			r.Progress = text.Thousands(k.joined) + " joined"
			if k.n > 0 {
				r.Progress = text.Thousands(k.joined) + " of " + text.Thousands(k.n) + " joined"
			}
			if k.done > 0 {
				r.Progress += ", " + text.Thousands(k.done) + " done"
			}
		}
		return v.html("row", r)
	})
}

// splitPath splits a path into its folder with the slash, and its name.
func splitPath(path string) (dir, name word) {
	i := strings.LastIndexByte(path, '/') + 1
	return word(path[:i]), word(path[i:])
}

// statusClass is the class of a status in the style sheet: the status itself if that is known.
func statusClass(s resource.Status) string {
	if severity(s) < 0 {
		return "s-other"
	}
	return "s-" + string(s)
}

// severity orders statuses by how much they need somebody, the worst first; -1 is not known.
func severity(s resource.Status) int { return slices.Index(bySeverity(), s) }

func bySeverity() []resource.Status {
	return []resource.Status{
		resource.StatusDamaged, resource.StatusUnreadable, resource.StatusDegraded, resource.StatusStale,
		resource.StatusForeign, resource.StatusTerminating, resource.StatusMissing, job.Forming,
		resource.StatusReady, resource.StatusRunning, job.Completed,
	}
}

// needsSomebody reports whether a resource does not get better by itself. A group without members is one: nobody does
// its duties.
func needsSomebody(k rowKey) bool {
	switch k.status {
	case resource.StatusReady:
		return k.kind == group.KindName
	case resource.StatusMissing:
		return false
	}
	return severity(k.status) >= 0 && severity(k.status) <= severity(resource.StatusTerminating)
}

// sortRows sorts rows, which are in the order of their paths.
func sortRows(rows []rowKey, by string) {
	compare := map[string]func(a, b rowKey) int{
		"status": func(a, b rowKey) int { return cmp.Compare(severity(a.status), severity(b.status)) },
		"live":   func(a, b rowKey) int { return cmp.Compare(b.live, a.live) },
		"age":    func(a, b rowKey) int { return cmp.Compare(b.created, a.created) }, // the youngest first
		"last":   func(a, b rowKey) int { return cmp.Compare(b.last, a.last) },       // the latest first
	}[by]
	if compare != nil {
		slices.SortStableFunc(rows, compare)
	}
}

// matches reports whether each of the words, which are in lower case, is in what is known of j.
func matches(j *view.Resource, words []string) bool {
	if len(words) == 0 {
		return true
	}
	all := strings.ToLower(j.Path)
	if rec := j.Observed.Record; rec != nil {
		all += " " + strings.ToLower(rec.Stack+" "+rec.Declaration.ID().Address)
		if rec.Declaration.Kind().Name == job.KindName {
			for name, value := range job.Of(rec).Labels {
				all += " " + strings.ToLower(name+"="+value)
			}
		}
	}
	return !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(all, w) })
}
