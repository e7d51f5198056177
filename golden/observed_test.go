package golden

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"muster/plan"
	"muster/resource"
	"muster/spec"
)

// readObserved reads the section "observed" of a case whose configuration is c. The section is YAML: by path, what
// spec.Found has, or {unlisted: true} for a root that could not be listed. A path that is not there does not exist.
func readObserved(text string, c *spec.Config) (plan.State, error) {
	said := map[string]map[string]any{}
	if err := yaml.Unmarshal([]byte(text), &said); err != nil {
		return plan.State{}, err
	}
	homeless := *c // to keep plan.json short
	homeless.Home = ""
	have := plan.State{Ensemble: "e0c3b1", Found: map[string]resource.Observed{}}
	for _, at := range slices.Sorted(maps.Keys(said)) {
		if !strings.HasPrefix(at, "/") {
			return plan.State{}, fmt.Errorf("key %q is not the path of a znode", at)
		}
		if said[at]["unlisted"] == true {
			have.Unlisted = append(have.Unlisted, at)
			continue
		}
		if said[at] == nil {
			said[at] = map[string]any{}
		}
		body, err := json.Marshal(said[at])
		if err != nil {
			return plan.State{}, err
		}
		found, err := spec.DecodeFound(body)
		if err == nil {
			have.Found[at], err = found.Observed(at, &homeless)
		}
		if err != nil {
			return plan.State{}, fmt.Errorf("%s: %w", at, err)
		}
	}
	return have, nil
}
