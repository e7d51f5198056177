package job

import (
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"muster/resource"
)

// Gang says that the workers of a job live and die together: when one is lost, the commands of all stop, or begin
// again.
type Gang struct {
	Restarts int               `json:"restarts"`        // so often in a generation
	Final    resource.Codes    `json:"final,omitempty"` // exit codes of commands that no restart repairs
	Wait     resource.Duration `json:"wait"`            // those who are there wait so long for who is missing
	// So many more processes may wait in seats. When a worker has been gone for Replace, one of them takes its id.
	Spares  int               `json:"spares,omitempty"`
	Replace resource.Duration `json:"replace,omitempty"`
}

// The block of a gang, and the largest numbers of restarts and of spares.
const (
	GangBlock   = "gang"
	maxRestarts = 1_000_000
	maxSpares   = 1000
)

// DefaultGang is a gang with all defaults.
func DefaultGang() (g Gang) {
	resource.SetDefaults(GangProperties(), &g)
	return g
}

// GangProperties is the table of a gang's arguments. Do not change it.
func GangProperties() []resource.Property[Gang] { return gangProperties() }

var gangProperties = sync.OnceValue(func() []resource.Property[Gang] {
	return []resource.Property[Gang]{
		{
			Name: "restarts", Doc: "how often the commands of all begin again", Type: resource.TypeInt, Default: "0",
			Max: maxRestarts, Ref: func(g *Gang) any { return &g.Restarts },
		},
		{
			Name: "final", Doc: "exit codes after which all stop", Type: resource.TypeCodes, Default: "none",
			Min: 1, Max: 255, Ref: func(g *Gang) any { return &g.Final },
		},
		resource.DurationOf("wait", "10m", "how long those who are there wait for who is missing",
			func(g *Gang) *resource.Duration { return &g.Wait }),
		{
			Name: "spares", Doc: "how many processes more may wait to replace a worker", Type: resource.TypeInt,
			Default: "0", Max: maxSpares, Immutable: true, Ref: func(g *Gang) any { return &g.Spares },
		},
		{
			Name: "replace", Doc: "how long a worker that is gone may come back before a spare takes its id",
			Type: resource.TypeDuration, Default: "0s", Max: int64(resource.MaxDuration),
			Ref: func(g *Gang) any { return &g.Replace },
		},
	}
})

// UnmarshalJSON gives what is absent its default.
func (g *Gang) UnmarshalJSON(body []byte) error {
	type plain Gang
	with := plain(DefaultGang())
	err := json.Unmarshal(body, &with)
	*g = Gang(with)
	return err
}

func (g *Gang) check() error {
	if g == nil {
		return nil
	}
	if err := resource.Check(GangProperties(), g); err != nil {
		return fmt.Errorf("%s.%w", GangBlock, err)
	}
	return resource.InField(GangBlock, g.CheckReplace())
}

// CheckReplace refuses a time for spares that there are not, and one that is over only when the others have given up.
func (g *Gang) CheckReplace() error {
	switch {
	case g.Replace > 0 && g.Spares == 0:
		return errors.New("replace says when a spare takes an id, and there are no spares")
	case g.Spares > 0 && g.Replace >= g.Wait:
		return fmt.Errorf("replace must be less than wait, %s: else those who are there give up before", g.Wait)
	}
	return nil
}

// HasSpares reports whether processes may wait in seats.
func (g *Gang) HasSpares() bool { return g != nil && g.Spares > 0 }

// fields are those of the job that say of its gang. That it is one cannot change.
func (g *Gang) fields() []resource.Field {
	if g == nil {
		return nil
	}
	fs := []resource.Field{{Name: GangBlock, Value: "true", Immutable: true}}
	for _, f := range resource.FieldsOf(GangProperties(), g) {
		f.Name = GangBlock + "." + f.Name
		fs = append(fs, f)
	}
	return fs
}
