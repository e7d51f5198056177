package spec

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/hcl/v2/hclwrite"
	"github.com/zclconf/go-cty/cty"

	"muster/job"
	"muster/resource"
	"muster/text"
)

// Export writes a configuration that declares exactly these jobs, as a start for people who have jobs already. Values
// that are the default are left out. Load reads it back to the same jobs; a number of workers that is not known (a
// classic job without a roll) becomes 1 with a comment that says so. Home is that of the stack; "" is the default.
func Export(jobs []job.Job, stack, home string) []byte {
	jobs = slices.Clone(jobs)
	slices.SortFunc(jobs, func(a, b job.Job) int { return cmp.Compare(a.Path(), b.Path()) })
	var b bytes.Buffer
	fmt.Fprintf(&b, "# %s as found in ZooKeeper. Read it, put it under version control, then: muster plan\n\n",
		text.Count(len(jobs), "job"))
	fmt.Fprintf(&b, "muster {\n# The owner mark: apply changes only jobs of this stack.\nstack = %s\n", literal(stack))
	if home != "" && home != resource.DefaultHome {
		argument(&b, "home", home)
	}
	b.WriteString("}\n")

	base := job.Default()
	if root, same := oneRoot(jobs); same && root != base.Root {
		base.Root = root
		fmt.Fprintf(&b, "\ndefaults {\nroot = %s\n}\n", literal(root))
	}
	used := map[string]bool{}
	for _, j := range jobs {
		exportJob(&b, j, base, label(j.Name, used))
	}
	return hclwrite.Format(b.Bytes())
}

// oneRoot is the root of all jobs, if they have the same.
func oneRoot(jobs []job.Job) (root string, same bool) {
	for i, j := range jobs {
		if i > 0 && j.Root != root {
			return "", false
		}
		root = j.Root
	}
	return root, len(jobs) > 0
}

// label returns a block label that no other job has: the name of the job. If two roots have a job of that name, a
// number follows it.
func label(name string, used map[string]bool) string {
	l := name
	for i := 2; used[l]; i++ {
		suffix := "-" + strconv.Itoa(i)
		l = name[:min(len(name), resource.MaxName-len(suffix))] + suffix
	}
	used[l] = true
	return l
}

func exportJob(b *bytes.Buffer, j, base job.Job, label string) {
	fmt.Fprintf(b, "\njob %s {\n", literal(label))
	if label != j.Name {
		argument(b, "name", j.Name)
	}
	if j.Root != base.Root {
		argument(b, "root", j.Root)
	}
	exportProperties(b, j, base)
	if len(j.Labels) > 0 {
		b.WriteString("\nlabels = {\n")
		for _, k := range sortedKeys(j.Labels) {
			fmt.Fprintf(b, "%s = %s\n", literal(k), literal(j.Labels[k]))
		}
		b.WriteString("}\n")
	}
	b.WriteString("}\n")
}

// exportProperties writes the properties that differ from the default. An empty one was not recorded, and is left out.
func exportProperties(b *bytes.Buffer, j, base job.Job) {
	open := ""
	for _, p := range job.Properties() {
		section, name, nested := strings.Cut(p.Name, ".")
		if !nested {
			section, name = "", p.Name
		}
		value, usual := inHCL(p.Ref(&j)), inHCL(p.Ref(&base))
		switch {
		case p.Required && value == "":
			value = "1 # not recorded: how many workers does this job have?"
		case value == "", value == usual:
			continue
		}
		if section != open {
			if open != "" {
				b.WriteString("}\n")
			}
			fmt.Fprintf(b, "\n%s {\n", section)
			open = section
		}
		fmt.Fprintf(b, "%s = %s\n", name, value)
	}
	if open != "" {
		b.WriteString("}\n")
	}
}

// inHCL is the value of a property as it stands in HCL, "" if it has none.
func inHCL(ref any) string {
	switch v := ref.(type) {
	case *int:
		if *v > 0 {
			return strconv.Itoa(*v)
		}
	case *resource.Duration:
		if *v != 0 {
			return literal(v.String())
		}
	case *string:
		if *v != "" {
			return literal(*v)
		}
	case *bool:
		return strconv.FormatBool(*v)
	}
	return ""
}

func argument(b *bytes.Buffer, name, value string) { fmt.Fprintf(b, "%s = %s\n", name, literal(value)) }

// literal puts a string in quotes, so that HCL reads it back unchanged. It escapes ${ and %{ too.
func literal(s string) string {
	return string(hclwrite.TokensForValue(cty.StringVal(s)).Bytes())
}
