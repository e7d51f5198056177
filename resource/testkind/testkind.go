// Package testkind is a kind with two fields, for tests only. It shows what a new kind needs, and that no other code
// must know it, except a caller's list of kinds.
package testkind

import (
	"encoding/json"
	"fmt"

	"muster/resource"
)

// Lamp is one resource of the kind.
type Lamp struct {
	Name    string `json:"name"`
	Root    string `json:"root"`
	Address string `json:"address,omitempty"`
	At      string `json:"-"`
	Colour  string `json:"colour"`
	Watts   int    `json:"watts"` // immutable
}

// Properties is the table of a lamp's arguments.
func Properties() []resource.Property[Lamp] {
	return []resource.Property[Lamp]{
		{
			Name: "colour", Doc: "of its light", Type: resource.TypeEnum, Default: "white",
			Choices: []string{"white", "red"},
			Ref:     func(l *Lamp) any { return &l.Colour },
		},
		{
			Name: "watts", Doc: "how bright it is", Type: resource.TypeInt, Required: true, Min: 1, Max: 100,
			Immutable: true,
			Ref:       func(l *Lamp) any { return &l.Watts },
		},
	}
}

// Kind describes the kind of lamps.
func Kind() resource.Kind {
	return resource.Kind{
		Name: "lamp", Member: "reader", Fields: append(resource.Names(Properties()), "name", "root", "address"),
		Statuses: []resource.Status{"off", "on", resource.StatusDamaged, resource.StatusMissing},
		Decode: func(body []byte, at string) (resource.Declaration, error) {
			l := Lamp{At: at}
			if err := json.Unmarshal(body, &l); err != nil {
				return nil, err
			}
			resource.FillMissing(Properties(), &l)
			return l, resource.Check(Properties(), &l)
		},
	}
}

// Kind implements resource.Declaration.
func (l Lamp) Kind() resource.Kind { return Kind() }

// ID implements resource.Declaration.
func (l Lamp) ID() resource.ID {
	return resource.ID{Name: l.Name, Root: l.Root, Address: l.Address, At: l.At}
}

// Fields implements resource.Declaration.
func (l Lamp) Fields() []resource.Field { return resource.FieldsOf(Properties(), &l) }

// Policy implements resource.Declaration.
func (l Lamp) Policy() resource.Policy { return resource.Policy{} }

// Classify implements resource.Declaration: a lamp is on while a reader is live.
func (l Lamp) Classify(o *resource.Observed) (resource.Class, resource.Status) {
	if o.Live > 0 {
		return resource.Live, "on"
	}
	return resource.Ready, "off"
}

// Health implements resource.Declaration.
func (l Lamp) Health(o *resource.Observed) string { return fmt.Sprintf("%d reading", o.Live) }

// LiveText implements resource.Declaration.
func (l Lamp) LiveText(o *resource.Observed) string { return fmt.Sprintf("%d are reading", o.Live) }

// Progress implements resource.Declaration.
func (l Lamp) Progress(*resource.Observed) (string, bool) { return "", false }
