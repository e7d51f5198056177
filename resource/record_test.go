package resource_test

import (
	"encoding/json"
	"strings"
	"testing"

	"muster/resource"
	"muster/resource/job"
)

func declared() job.Job {
	j := job.Default()
	j.Name, j.Root, j.Workers, j.Labels = "a", "/jobs", 4, map[string]string{"team": "data"}
	return j
}

func TestAnEditedRecordDoesNotVerify(t *testing.T) {
	r := resource.Record{Stack: "etl", Generation: "g1", State: resource.StateOpen}
	if err := r.Declare(declared()); err != nil {
		t.Fatal(err)
	}
	if r.Edited() {
		t.Error("a record as it was declared counts as edited")
	}
	r.State, r.Generation, r.ACL = resource.StateTerminating, "g2", []string{}
	if r.Edited() {
		t.Error("state and generation are not the declaration's")
	}
	for name, edit := range map[string]func(*resource.Record){
		"body":  func(r *resource.Record) { r.Body = json.RawMessage(strings.Replace(string(r.Body), "4", "5", 1)) },
		"stack": func(r *resource.Record) { r.Stack = "other" },
		"acl":   func(r *resource.Record) { r.ACL = []string{"world:anyone:r"} },
	} {
		edited := r
		if edit(&edited); !edited.Edited() {
			t.Errorf("a record with another %s verifies", name)
		}
	}
}

// TestMissingFieldsGetDefaults: fields that an older Record lacks get their defaults, which are no change.
func TestMissingFieldsGetDefaults(t *testing.T) {
	back, err := job.Kind().Decode([]byte(`{"name":"a","root":"/jobs","workers":4,"labels":{"team":"data"}}`), "")
	if err != nil {
		t.Fatal(err)
	}
	if cs := resource.Changes(declared(), back); len(cs) > 0 {
		t.Errorf("an older record differs: %+v", cs)
	}
}

// TestPropertiesAreConsistent: every default can be parsed, is within the limits, and is recognised as the default.
func TestPropertiesAreConsistent(t *testing.T) {
	j := declared()
	if err := j.Check(); err != nil {
		t.Error(err)
	}
	for _, p := range job.Properties() {
		if p.Doc == "" || p.Limits() == "" {
			t.Errorf("%s has no documentation or no limits", p.Name)
		}
		if f := p.Text(&j); !p.Required && f == "" {
			t.Errorf("%s has no default", p.Name)
		}
	}
	for _, f := range job.Default().Fields() {
		if f.IsDefault == (f.Name == "workers") {
			t.Errorf("%s: is default: %v", f.Name, f.IsDefault)
		}
	}
}
