package spec

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strconv"

	"github.com/hashicorp/hcl/v2/hclwrite"
	"github.com/zclconf/go-cty/cty"

	"muster/resource"
	"muster/text"
)

// Export writes a configuration that declares exactly these jobs, groups and queues, as a start for people who have
// some already. Values that are the default are left out. Load reads it back to the same; a number of workers that is
// not known (a classic job without a roll) becomes 1 with a comment that says so. Home is that of the stack; "" is the
// default.
func Export(declared []resource.Declaration, stack, home string) []byte {
	declared = slices.Clone(declared)
	slices.SortFunc(declared, func(a, b resource.Declaration) int { return cmp.Compare(a.ID().Path(), b.ID().Path()) })
	names := text.Each(declared, func(d resource.Declaration) string { return d.Kind().Name })
	var b bytes.Buffer
	fmt.Fprintf(&b, "# %s as found in ZooKeeper. Read it, put it under version control, then: muster plan\n\n",
		cmp.Or(text.CountEach(names), "0 jobs"))
	fmt.Fprintf(&b, "muster {\n# The owner mark: apply changes only jobs of this stack.\nstack = %s\n", literal(stack))
	if home != "" && home != resource.DefaultHome {
		argument(&b, "home", home)
	}
	b.WriteString("}\n")

	usual := resource.DefaultRoot
	if roots := slices.Compact(rootsOf(declared)); len(roots) == 1 && roots[0] != usual {
		usual = roots[0]
		fmt.Fprintf(&b, "\ndefaults {\nroot = %s\n}\n", literal(usual))
	}
	for _, k := range kinds() {
		used := map[string]bool{}
		for _, d := range declared {
			k.export(&b, d, usual, used)
		}
	}
	return hclwrite.Format(b.Bytes())
}

func rootsOf(declared []resource.Declaration) []string {
	return text.Each(declared, func(d resource.Declaration) string { return d.ID().Root })
}

// label returns a block label that no other block of the kind has: the name of the declaration. If another root has
// one of that name, a number follows it.
func label(name string, used map[string]bool) string {
	l := name
	for i := 2; used[l]; i++ {
		suffix := "-" + strconv.Itoa(i)
		l = name[:min(len(name), resource.MaxName-len(suffix))] + suffix
	}
	used[l] = true
	return l
}

func (k kindOf[T, P]) export(b *bytes.Buffer, d resource.Declaration, root string, used map[string]bool) {
	t, ok := d.(T)
	if !ok {
		return
	}
	common := P(&t).CommonRef()
	l := label(common.Name, used)
	fmt.Fprintf(b, "\n%s %s {\n", k.blockType, literal(l))
	if l != common.Name {
		argument(b, "name", common.Name)
	}
	if common.Root != root {
		argument(b, "root", common.Root)
	}
	usual := k.initial
	k.table.export(b, &t, &usual)
	for _, p := range k.parts.types {
		p.export(b, &t)
	}
	if labels := P(&t).LabelsRef().Labels; len(labels) > 0 {
		b.WriteString("\nlabels = {\n")
		for _, key := range sortedKeys(labels) {
			fmt.Fprintf(b, "%s = %s\n", literal(key), literal(labels[key]))
		}
		b.WriteString("}\n")
	}
	b.WriteString("}\n")
}

func argument(b *bytes.Buffer, name, value string) { fmt.Fprintf(b, "%s = %s\n", name, literal(value)) }

// literal puts a string in quotes, so that HCL reads it back unchanged. It escapes ${ and %{ too.
func literal(s string) string {
	return string(hclwrite.TokensForValue(cty.StringVal(s)).Bytes())
}
