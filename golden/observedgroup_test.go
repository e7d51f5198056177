package golden

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"muster/resource"
	"muster/resource/group"
	"muster/resource/job"
	"muster/resource/queue"
	"muster/spec"
)

// merged returns the recorded group or queue: what is declared at the path, or else usual, with the fields of the
// record. In these, null removes a duty of the declaration, or all of a type.
func (f facts) merged(usual resource.Declaration, at string, c *spec.Config) (resource.Declaration, error) {
	kind, d := usual.Kind(), usual
	for _, declared := range c.Declared {
		if declared.ID().Path() == at && declared.Kind().Name == kind.Name {
			d = declared
		}
	}
	if err := knownFields(kind, f.Record, ""); err != nil {
		return nil, err
	}
	body, err := json.Marshal(d)
	if err != nil {
		return nil, err
	}
	object := map[string]any{}
	if err := json.Unmarshal(body, &object); err != nil {
		return nil, err
	}
	if _, ok := f.Record["labels"]; ok {
		delete(object, "labels")
	}
	mergeObjects(object, f.Record)
	if body, err = json.Marshal(object); err != nil {
		return nil, err
	}
	if d, err = kind.Decode(body, ""); err != nil {
		return nil, err
	}
	if d.ID().Path() != at {
		return nil, fmt.Errorf("its path is %s", d.ID().Path())
	}
	return d, nil
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

// known lists the dotted names of what a declaration of a kind may have; "*" in a name stands for every key.
func known(kind string) []string {
	names := []string{"name", "root", "address", "labels"}
	switch kind {
	case job.KindName:
		names = append(names, resource.Names(job.Properties())...)
	case queue.KindName:
		names = append(names, resource.Names(queue.Properties())...)
	case group.KindName:
		names = append(names, resource.Names(group.Properties())...)
		for _, t := range group.Types() {
			for _, name := range resource.Names(group.DutyProperties(t)) {
				names = append(names, string(t)+".*."+name)
			}
		}
	}
	return names
}

// knownFields returns an error that names a key which the kind does not have. section is the object in which the keys
// stand, with a dot at its end.
func knownFields(kind resource.Kind, object map[string]any, section string) error {
	for _, key := range slices.Sorted(maps.Keys(object)) {
		name := section + key
		if section == "leader." || section == "cron." {
			name = section + "*"
		}
		nested, is := object[key].(map[string]any)
		none := object[key] == nil
		known := slices.ContainsFunc(known(kind.Name), func(f string) bool {
			return f == name || (is || none) && strings.HasPrefix(f, name+".")
		})
		switch {
		case !known:
			return fmt.Errorf("json: unknown field %q", key)
		case is && name != "labels":
			if err := knownFields(kind, nested, name+"."); err != nil {
				return err
			}
		}
	}
	return nil
}
