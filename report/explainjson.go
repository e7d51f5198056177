package report

import (
	"io"
	"time"

	"muster/plan"
	"muster/plan/planfile"
	"muster/resource"
)

// explainJSON is a row and why it is so, for programs.
type explainJSON struct {
	FormatVersion string            `json:"format_version"`
	Path          string            `json:"path"`
	Address       string            `json:"address"`
	Kind          string            `json:"kind"`
	Status        resource.Status   `json:"status"`
	Meaning       string            `json:"meaning"` // of the status
	Action        plan.Action       `json:"action"`
	Because       string            `json:"because"`
	Loses         string            `json:"loses,omitempty"`
	ToProceed     string            `json:"to_proceed,omitempty"`
	DeclaredAt    string            `json:"declared_at,omitempty"` // absent: not declared
	Declared      []explainedField  `json:"declared,omitempty"`
	Differs       []changeJSON      `json:"differs,omitempty"`
	Observed      map[string]string `json:"observed"`        // as the text has it, by its labels
	Parts         []Part            `json:"parts,omitempty"` // of one that is damaged or unreadable
	Repair        string            `json:"repair,omitempty"`
	Group         *GroupDetail      `json:"group,omitempty"`
	Queue         *QueueDetail      `json:"queue,omitempty"`
	Workers       []Worker          `json:"workers,omitempty"`
	Barriers      []Barrier         `json:"barriers,omitempty"`
}

// explainedField is a declared value and where it comes from: "jobs.hcl:31", "default".
type explainedField struct {
	Name   string `json:"name"`
	Value  string `json:"value"`
	Origin string `json:"origin,omitempty"`
}

// ExplainJSON writes what Explain writes, as JSON.
func ExplainJSON(w io.Writer, r plan.Row, e Explanation) error {
	doc := explainJSON{
		FormatVersion: "1.0", Path: r.Path, Address: r.Address(), Kind: kindName(r), Status: r.Old.Status(),
		Meaning: meaning(r.Old, kindName(r)), Action: r.Action(), Because: r.Because(), Loses: r.LossText(),
		ToProceed: r.Proceed(), Observed: map[string]string{}, Parts: e.Parts, Repair: e.Repair,
		Group: e.Group, Queue: e.Queue, Workers: e.Workers, Barriers: e.Barriers,
	}
	for _, f := range observed(r.Old, kindName(r), e.since(), time.Time{}) {
		doc.Observed[f.key] = f.value
	}
	if r.New != nil {
		doc.DeclaredAt = r.At()
		for _, f := range r.New.Fields() {
			doc.Declared = append(doc.Declared, explainedField{f.Name, side(&f.Value), e.Origins[f.Name]})
		}
		doc.Differs = changesJSON(r.Changes())
	}
	return writeDocument(w, doc)
}

// ExplainDutyJSON writes what is known of a duty, as JSON. at is the path of its group.
func ExplainDutyJSON(w io.Writer, at string, o *resource.Observed, d GroupDetail, duty Duty) error {
	return writeDocument(w, struct {
		FormatVersion string          `json:"format_version"`
		Path          string          `json:"path"`
		Group         string          `json:"group"` // its path
		GroupStatus   resource.Status `json:"group_status"`
		Assigner      string          `json:"assigner,omitempty"`
		Duty
	}{"1.0", at + "/" + duty.Name, at, o.Status(), d.Assigner, duty})
}

// writeDocument writes a document for programs.
func writeDocument(w io.Writer, doc any) error {
	body, err := planfile.CanonicalJSON(doc)
	if err == nil {
		_, err = w.Write(append(body, '\n'))
	}
	return err
}
