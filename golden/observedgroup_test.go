package golden

import (
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"muster/group"
	"muster/spec"
)

// group returns the recorded group. In its record, null removes a duty of the declaration, or all of a type.
func (f facts) group(at string, c *spec.Config) (group.Group, error) {
	g := group.Default()
	g.Root, g.Name = path.Dir(at), path.Base(at)
	g.Address = "group." + g.Name
	if i := slices.IndexFunc(c.Groups, func(d group.Group) bool { return d.Path() == at }); i >= 0 {
		g = c.Groups[i]
	}
	if _, ok := f.Record["labels"]; ok {
		g.Labels = nil
	}
	if err := knownFields(f.Record, ""); err != nil {
		return g, err
	}
	declared, err := json.Marshal(g)
	if err != nil {
		return g, err
	}
	object := map[string]any{}
	if err := json.Unmarshal(declared, &object); err != nil {
		return g, err
	}
	mergeObjects(object, f.Record)
	body, err := json.Marshal(object)
	if err != nil {
		return g, err
	}
	d, err := group.Kind().Decode(body, "")
	if err != nil {
		return g, err
	}
	if d.ID().Path() != at {
		return g, fmt.Errorf("its path is %s", d.ID().Path())
	}
	return d.(group.Group), nil
}

// mergeObjects puts what differs into a JSON object.
func mergeObjects(into, differs map[string]any) {
	for key, value := range differs {
		inner, ok := into[key].(map[string]any)
		nested, is := value.(map[string]any)
		switch {
		case value == nil:
			delete(into, key)
		case ok && is:
			mergeObjects(inner, nested)
		default:
			into[key] = value
		}
	}
}

// knownFields returns an error that names a key which a group does not have. section is the object in which the keys
// stand, with a dot at its end.
func knownFields(object map[string]any, section string) error {
	for _, key := range slices.Sorted(maps.Keys(object)) {
		name := section + key
		if section == "leader." || section == "cron." {
			name = section + "*"
		}
		nested, is := object[key].(map[string]any)
		none := object[key] == nil
		known := slices.ContainsFunc(group.Kind().Fields, func(f string) bool {
			return f == name || (is || none) && strings.HasPrefix(f, name+".")
		})
		switch {
		case !known:
			return fmt.Errorf("json: unknown field %q", key)
		case is && name != "labels":
			if err := knownFields(nested, name+"."); err != nil {
				return err
			}
		}
	}
	return nil
}
