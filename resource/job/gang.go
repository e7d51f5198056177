package job

import (
	"encoding/json"
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
}

// The block of a gang, and the largest number of restarts.
const (
	GangBlock   = "gang"
	maxRestarts = 1_000_000
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
	return nil
}

// fields are those of the job that say of its gang. That it is one cannot change; the others can.
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
