package cli

import (
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"muster/plan"
	"muster/report"
	"muster/spec"
)

// policyFlags are --policy. MUSTER_POLICY names further ones: a flag takes none of them away.
type policyFlags struct{ paths []string }

func (f *policyFlags) addTo(cmd *cobra.Command) {
	cmd.Flags().StringArrayVar(&f.paths, "policy", nil,
		"refuse what the policies in `DIR` or a *.policy.hcl file deny; may be repeated (also MUSTER_POLICY)")
	_ = cmd.MarkFlagFilename("policy", "policy.hcl")
}

// policies reads the policies that f and MUSTER_POLICY name. It is nil if none is named.
func (p *process) policies(f policyFlags) (*spec.Policies, error) {
	ps, diags, err := p.readPolicies(f)
	if err != nil {
		return nil, err
	}
	if diags.HasErrors() {
		return nil, p.printDiagnostics("", diags)
	}
	return ps, nil
}

// readPolicies is policies that prints nothing. MUSTER_POLICY is relative to where muster runs, and not to -C: there is
// the configuration, whose authors do not choose the policies.
func (p *process) readPolicies(f policyFlags) (*spec.Policies, spec.Diagnostics, error) {
	named := p.environ.value("MUSTER_POLICY")
	paths := filepath.SplitList(named)
	if slices.Contains(paths, "") {
		return nil, nil, usagef("is a variable of the shell unset?", "MUSTER_POLICY=%s has a name that is empty", named)
	}
	for _, path := range f.paths {
		paths = append(paths, p.path(path))
	}
	if len(paths) == 0 {
		return nil, nil, nil
	}
	ps, diags := spec.LoadPolicies(paths)
	return ps, diags, nil
}

// judge asks the policies about a plan, now, and notes for reports what they say.
func (p *process) judge(ps *spec.Policies, pl plan.Plan, run *report.Run) spec.Verdict {
	v := ps.Judge(pl, time.Now())
	if ps == nil {
		return v
	}
	at := map[string]string{}
	for _, r := range pl.Rows {
		at[r.Address()] = r.At()
	}
	run.Policies, run.Judged = ps.Names, nil
	for _, d := range v.Diagnostics {
		if d.In == "" { // of all of them
			run.Policies = nil
		}
		found := diagnosticProblem(d)
		found.Policy, found.At = d.In, at[d.Address] // a policy is not in the files of who reads the report
		run.Judged = append(run.Judged, found)
	}
	return v
}

// printVerdict prints what policies deny and advise against.
func (p *process) printVerdict(v spec.Verdict) error {
	if len(v.Diagnostics) == 0 {
		return nil
	}
	fmt.Fprintln(p.err)
	return v.Diagnostics.Text(p.err, p.color(p.err))
}

// refusal is the problem of a plan that policies deny; nil if none does.
func refusal(v spec.Verdict) error {
	if err := v.Err(); err != nil {
		return &problem{errDeclined, err, "change the declarations, or ask whoever wrote the policy"}
	}
	return nil
}
