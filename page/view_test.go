package page

import (
	"bytes"
	"testing"

	"muster/report"
)

func TestEveryViewCanBeShown(t *testing.T) {
	v := newViews()
	b := &Board{Resources: []report.JobStatus{{Path: "/a"}}}
	for _, r := range []Request{{View: Overview}, {View: Resource, Path: "/a"}, {View: History}} {
		var out bytes.Buffer
		if err := v.document(&out, r, v.render(r, b, nil)); err != nil {
			t.Error(err)
		}
		if out.Len() == 0 {
			t.Errorf("%v shows nothing", r)
		}
	}
}
