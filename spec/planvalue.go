package spec

import (
	"cmp"
	"strings"
	"time"

	"github.com/zclconf/go-cty/cty"

	"muster/plan"
	"muster/resource"
)

// What expressions of policies and tests may refer to, behind "plan." and "row.".
var (
	planNames = []string{"stack", "home", "now", "weekday", "partial", "rows"}
	rowNames  = []string{
		"address", "kind", "path", "action", "reason", "status", "live", "joined", "before", "after", "labels", "changes",
	}
)

// planValue is a plan as policies and tests see it at a time, and its rows, in their order.
func planValue(p plan.Plan, at time.Time) (whole cty.Value, rows []cty.Value) {
	at = at.UTC()
	byAddress := make(map[string]cty.Value, len(p.Rows))
	all := kinds()
	for _, r := range p.Rows {
		v := rowValue(r, all)
		rows = append(rows, v)
		byAddress[r.Address()] = v
	}
	return cty.ObjectVal(map[string]cty.Value{
		"stack": cty.StringVal(p.Stack), "home": cty.StringVal(cmp.Or(p.Home, resource.DefaultHome)),
		"now": cty.StringVal(at.Format(time.RFC3339)), "weekday": cty.StringVal(at.Weekday().String()),
		"partial": cty.BoolVal(p.Partial), "rows": cty.ObjectVal(byAddress),
	}), rows
}

// fieldAt is the field of a declaration's value that has a name such as "timeouts.stale" or "labels.team"; text is the
// field as users write it, for a name that says nothing of where it is. A side that has no such field has null.
func fieldAt(of cty.Value, name string, text *string) cty.Value {
	if text == nil {
		return cty.NullVal(cty.DynamicPseudoType)
	}
	for !of.IsNull() {
		step, rest, more := strings.Cut(name, ".")
		switch ty := of.Type(); {
		case ty.IsMapType() && of.HasIndex(cty.StringVal(name)).True():
			return of.Index(cty.StringVal(name))
		case !ty.IsObjectType() || !ty.HasAttribute(step):
			return cty.StringVal(*text)
		}
		if of, name = of.GetAttr(step), rest; !more {
			return of
		}
	}
	return cty.StringVal(*text)
}

func rowValue(r plan.Row, all []kind) cty.Value {
	v := map[string]cty.Value{
		"address": cty.StringVal(r.Address()), "path": cty.StringVal(r.Path),
		"kind":   cty.StringVal(cmp.Or(r.Kind().Name, all[0].block())), // one of classic workers has no record
		"action": cty.StringVal(string(r.Action())), "reason": cty.StringVal(string(r.Reason)),
		"status": cty.StringVal(string(r.Old.Status())), "live": cty.Zero, "joined": cty.Zero,
		"before": cty.NullVal(cty.DynamicPseudoType), "after": cty.NullVal(cty.DynamicPseudoType),
		"labels": cty.MapValEmpty(cty.String), "changes": cty.EmptyObjectVal,
	}
	same := r.Reason == plan.Equal // most rows are
	if r.Old != nil {
		v["live"], v["joined"] = cty.NumberIntVal(int64(r.Old.Live)), cty.NumberIntVal(int64(r.Old.Count("joined")))
	}
	if r.Old != nil && r.Old.Record != nil && !same {
		v["before"] = declarationValue(r.Old.Record.Declaration, all)
		v["labels"] = labelsValue(r.Old.Record.Declaration)
	}
	if r.New != nil {
		v["after"] = declarationValue(r.New, all)
		v["labels"] = labelsValue(r.New)
	}
	if same {
		v["before"] = v["after"]
		return cty.ObjectVal(v)
	}
	changes := map[string]cty.Value{}
	for _, c := range r.Changes() {
		changes[c.Name] = cty.ObjectVal(map[string]cty.Value{
			"before": fieldAt(v["before"], c.Name, c.Old), "after": fieldAt(v["after"], c.Name, c.New),
		})
	}
	v["changes"] = cty.ObjectVal(changes)
	return cty.ObjectVal(v)
}

func labelsValue(d resource.Declaration) cty.Value {
	labels := map[string]cty.Value{}
	for k, v := range d.LabelMap() {
		labels[k] = cty.StringVal(v)
	}
	if len(labels) == 0 {
		return cty.MapValEmpty(cty.String)
	}
	return cty.MapVal(labels)
}

// declarationValue is a declaration as it could stand in HCL, with all its fields. A duration is a text, as there.
func declarationValue(d resource.Declaration, all []kind) cty.Value {
	for _, k := range all {
		if k.block() == d.Kind().Name {
			fields := k.values(d)
			fields["name"], fields["root"] = cty.StringVal(d.ID().Name), cty.StringVal(d.ID().Root)
			fields["labels"] = labelsValue(d)
			return cty.ObjectVal(fields)
		}
	}
	return cty.NullVal(cty.DynamicPseudoType)
}

// values are the fields of d, which is of this kind, and its parts.
func (k kindOf[T, P]) values(d resource.Declaration) map[string]cty.Value {
	t, _ := d.(T)
	fields := k.table.values(&t)
	for _, p := range k.parts.types {
		fields[p.schema.name] = p.value(&t)
	}
	return fields
}

// values are the properties of t by name. Those of a section are an object.
func (k table[T]) values(t *T) map[string]cty.Value {
	fields, sections := map[string]cty.Value{}, map[string]map[string]cty.Value{}
	for _, p := range k.properties {
		section, name, nested := strings.Cut(p.Name, ".")
		if !nested {
			fields[p.Name] = propertyValue(p, t)
			continue
		}
		if sections[section] == nil {
			sections[section] = map[string]cty.Value{}
		}
		sections[section][name] = propertyValue(p, t)
	}
	for name, in := range sections {
		fields[name] = cty.ObjectVal(in)
	}
	return fields
}

func propertyValue[T any](p resource.Property[T], t *T) cty.Value {
	switch v := p.Ref(t).(type) {
	case *int:
		return cty.NumberIntVal(int64(*v))
	case *bool:
		return cty.BoolVal(*v)
	case *resource.Codes:
		codes := make([]cty.Value, len(*v))
		for i, code := range *v {
			codes[i] = cty.NumberIntVal(int64(code))
		}
		if len(codes) == 0 {
			return cty.ListValEmpty(cty.Number)
		}
		return cty.ListVal(codes)
	}
	return cty.StringVal(p.Text(t))
}
