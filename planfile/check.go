package planfile

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"muster/plan"
	"muster/resource"
)

// check returns an error if the fields of c contradict each other, or if no plan of w has such a row.
func (c change) check(r plan.Row, kind resource.Kind, w plan.Want) error {
	switch {
	case !slices.Contains(plan.Reasons(), r.Reason):
		return fmt.Errorf("action_reason %q is not known", r.Reason)
	case r.Old == nil && r.New == nil:
		return errors.New("it is neither declared nor observed")
	}
	if err := checkNames(r); err != nil {
		return err
	}
	is, err := encodeRow(r, kind)
	if err != nil {
		return err
	}
	for _, f := range []struct {
		name      string
		got, want any
	}{
		{"address", c.Address, is.Address}, {"name", c.Name, is.Name}, {"status", c.Status, is.Status},
		{"change.actions", c.Change.Actions, is.Change.Actions}, {"blocked_by", c.BlockedBy, is.BlockedBy},
	} {
		if got, want := fmt.Sprint(f.got), fmt.Sprint(f.want); got != want {
			return fmt.Errorf("%s is %q, which contradicts the row's facts: they say %q", f.name, got, want)
		}
	}
	// The file does not say which stacks may be taken over, so both reasons are possible.
	takingOver := w
	if r.Old != nil && r.Old.Record != nil {
		takingOver.TakeOver = []string{r.Old.Record.Stack}
	}
	if r.Reason != takingOver.Reason(r) && r.Reason != w.Reason(r) {
		return fmt.Errorf("action_reason %q contradicts the row's facts: they say %q", r.Reason, takingOver.Reason(r))
	}
	return nil
}

// checkNames refuses names with which a commit would change znodes outside the row's path.
func checkNames(r plan.Row) error {
	if !r.Action().Changes() && r.New == nil {
		return nil // only shown
	}
	slash := strings.LastIndex(r.Path, "/") + 1
	root, name := strings.TrimSuffix(r.Path[:slash], "/"), r.Path[slash:]
	if err := cmp.Or(resource.CheckName(r.Kind().Name, name), resource.CheckRoot(root)); err != nil {
		return err
	}
	if r.New != nil && r.New.ID().Path() != r.Path {
		return fmt.Errorf("it declares %s and changes %s", r.New.ID().Path(), r.Path)
	}
	if r.Old == nil {
		return nil
	}
	if rec := r.Old.Record; rec != nil {
		if err := resource.CheckName("generation", rec.Generation); err != nil && r.Action().Changes() {
			return fmt.Errorf("generation %q cannot be: %w", rec.Generation, err)
		}
		if at := rec.Declaration.ID().Path(); at != r.Path {
			return fmt.Errorf("it observed %s and changes %s", at, r.Path)
		}
	}
	for _, c := range r.Old.Companions {
		if rest, ok := strings.CutPrefix(c, r.Path+"-"); !ok || strings.Contains(rest, "/") {
			return fmt.Errorf("%s is no companion of %s", c, r.Path)
		}
	}
	return nil
}
