package report

import (
	"cmp"

	"muster/plan"
	"muster/resource"
	"muster/resource/job"
	"muster/text"
)

// kindName is the name of a row's kind. A row of which nobody knows the kind is taken for a job.
func kindName(r plan.Row) string { return cmp.Or(r.Kind().Name, job.KindName) }

// kindOf is the kind of what was observed: that of its Record, or else of jobs.
func kindOf(o *resource.Observed) resource.Kind {
	if o == nil || o.Record == nil {
		return job.Kind()
	}
	return o.Record.Declaration.Kind()
}

// isJob reports whether o is shown as a job.
func isJob(o *resource.Observed) bool { return kindOf(o).Name == job.KindName }

// countRows counts rows by kind: "1 group and 2 jobs".
func countRows(rows []plan.Row) string {
	names := make([]string, len(rows))
	for i, r := range rows {
		names[i] = kindName(r)
	}
	return cmp.Or(text.CountEach(names), "0 jobs")
}

// are is the verb for so many things.
func are(n int) string {
	if n == 1 {
		return " is "
	}
	return " are "
}
