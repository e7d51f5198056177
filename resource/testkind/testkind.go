// Package testkind is a kind with two fields, for tests only. It shows what a new kind needs, and that no other code
// must know it, except a caller's list of kinds.
package testkind

import (
	"fmt"

	"muster/resource"
)

// Lamp is one resource of the kind.
type Lamp struct {
	resource.Common
	Colour string `json:"colour"`
	Watts  int    `json:"watts"` // immutable
	resource.Labelled
}

// Properties is the table of a lamp's arguments.
func Properties() []resource.Property[Lamp] {
	return []resource.Property[Lamp]{
		resource.EnumOf("colour", "of its light", func(l *Lamp) *string { return &l.Colour }, "white", "red"),
		{
			Name: "watts", Doc: "how bright it is", Type: resource.TypeInt, Required: true, Min: 1, Max: 100,
			Immutable: true,
			Ref:       func(l *Lamp) any { return &l.Watts },
		},
	}
}

// Kind describes the kind of lamps.
func Kind() resource.Kind {
	return resource.KindOf(resource.Kind{
		Name: "lamp", Member: "reader", Statuses: []resource.Status{"off", "on"},
	}, Properties())
}

func (l Lamp) Kind() resource.Kind { return Kind() }

func (l Lamp) Fields() []resource.Field { return resource.DeclaredFields(Properties(), l) }

// Check returns an error that names the first invalid value, or nil.
func (l Lamp) Check() error { return resource.CheckDeclared(Properties(), l) }

func (l Lamp) Policy() resource.Policy { return resource.Policy{} }

// Classify implements resource.Declaration: a lamp is on while a reader is live.
func (l Lamp) Classify(o *resource.Observed) (resource.Class, resource.Status) {
	if o.Live > 0 {
		return resource.Live, "on"
	}
	return resource.Ready, "off"
}

func (l Lamp) Health(o *resource.Observed) string { return fmt.Sprintf("%d reading", o.Live) }

func (l Lamp) LiveText(o *resource.Observed) string { return fmt.Sprintf("%d are reading", o.Live) }

func (l Lamp) WouldBeLost(*resource.Observed) (string, bool) { return "", false }
