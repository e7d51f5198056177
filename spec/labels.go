package spec

import (
	"maps"
	"strings"
	"unicode"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"
)

// Bounds of labels. They keep a record small enough for one znode.
const (
	maxLabels     = 64
	maxLabelKey   = 128
	maxLabelValue = 1024
)

// labels decodes labels. A label that is null has a nil value: it removes the label of that name from the defaults.
func (s *scope) labels(a *hcl.Attribute) (map[string]*string, bool) {
	v, ok := s.decode(a, cty.Map(cty.String), "a map of strings")
	if !ok {
		return nil, false
	}
	out := map[string]*string{}
	for it := v.ElementIterator(); it.Next(); {
		key, val := it.Element()
		name := key.AsString()
		at := cty.Path{cty.GetAttrStep{Name: name}}
		switch {
		case !labelKey(name):
			rng := keyRange(a.Expr, at)
			d := s.add(codeLabels, &rng,
				"a label's key may hold letters, digits, '.', '_', '-' and '/', at most %d", maxLabelKey)
			d.Note = "this is " + render(key)
			ok = false
		case val.IsNull():
			out[name] = nil
		case len(val.AsString()) > maxLabelValue || strings.ContainsFunc(val.AsString(), unicode.IsControl):
			rng, _ := narrow(a.Expr, at)
			s.add(codeLabels, &rng,
				"a label's value has at most %d characters and no control characters", maxLabelValue)
			ok = false
		default:
			text := val.AsString()
			out[name] = &text
		}
	}
	return out, ok
}

func labelKey(k string) bool {
	return k != "" && len(k) <= maxLabelKey && !strings.ContainsFunc(k, func(r rune) bool {
		return r >= 0x80 || !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("._-/", r)
	})
}

// mergeLabels returns the labels of base with others added or replaced. It notes in from where the others stand.
func mergeLabels(base map[string]string, others map[string]*string, from origins, where string) map[string]string {
	merged := map[string]string{}
	maps.Copy(merged, base)
	for k, v := range others {
		if v == nil {
			delete(merged, k)
			delete(from, "labels."+k)
			continue
		}
		merged[k] = *v
		from["labels."+k] = where
	}
	if len(merged) == 0 {
		return nil
	}
	return merged
}
