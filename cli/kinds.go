package cli

import (
	"muster/resource"
	"muster/zkstate"
)

// kinds lists the kinds of resources. A new kind adds a line.
func kinds() []zkstate.Kind {
	return []zkstate.Kind{
		zkstate.Job(),
		zkstate.Group(),
		zkstate.Queue(),
	}
}

// declarable returns kinds without how zkstate stores them.
func declarable() []resource.Kind {
	var ks []resource.Kind
	for _, k := range kinds() {
		ks = append(ks, k.Kind)
	}
	return ks
}
