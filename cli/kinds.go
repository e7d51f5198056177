package cli

import (
	"muster/resource"
	"muster/zkstate"
)

// kinds lists the kinds of things that muster keeps: a line each.
func kinds() []zkstate.Kind {
	return []zkstate.Kind{
		zkstate.Job(),
	}
}

// declarable is kinds without how they are kept.
func declarable() []resource.Kind {
	var ks []resource.Kind
	for _, k := range kinds() {
		ks = append(ks, k.Kind)
	}
	return ks
}
