package cli

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"muster/resource"
	"muster/resource/job"
	"muster/spec"
	"muster/text"
)

type exportOptions struct {
	searchFlags
	stack string
}

func newExportCmd(p *process) *cobra.Command {
	var o exportOptions
	cmd := &cobra.Command{
		Use:   "export [DIR | FILE]",
		Short: "Write HCL that declares what is found in ZooKeeper",
		Long: `Writes HCL that declares the jobs, groups and queues found below a root, or
where a configuration looks. A plan of it has nothing to change, except that
classic jobs become muster's.`,
		Example: `  muster export --root /jobs/prod > jobs.hcl`,
		Args:    argCount(0, 1, "one directory or file"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 && o.config != "" {
				return usagef("name one of them", "%s and --file %s are two configurations", args[0], o.config)
			}
			o.config = cmp.Or(o.config, firstArg(args))
			return p.look(cmd.Context(), o.searchFlags, "", o.run)
		},
	}
	cmd.Flags().StringVar(&o.stack, "stack", "", "what stack `NAME` owns only")
	p.addSearch(cmd, &o.searchFlags, completeConfig)
	return cmd
}

// classic is the stack name for exported jobs that the classic controller made.
const classic = "classic"

func (o exportOptions) run(ctx context.Context, p *process, scope *searchScope, _ string) error {
	have, err := scope.reader().Read(ctx, scope.roots)
	if err != nil {
		return err
	}
	byStack, homes := map[string][]resource.Declaration{}, map[string][]string{}
	var leftOut []string
	for _, at := range slices.Sorted(maps.Keys(have.Found)) {
		switch o := have.Found[at]; {
		case o.Class() == resource.Unreadable, o.Foreign, o.Record == nil && !o.Classic:
			leftOut = append(leftOut, at)
		case o.Classic: // it has no record, but its roll says how many workers it had
			j := job.Default()
			j.Root, j.Name, j.Workers = path.Dir(at), path.Base(at), job.Joined(&o)
			byStack[classic] = append(byStack[classic], j)
		default:
			stack := o.Record.Stack
			byStack[stack] = append(byStack[stack], o.Record.Declaration)
			homes[stack] = append(homes[stack], o.Record.Home)
		}
	}
	if len(leftOut) > 0 {
		names := text.Escape(strings.Join(leftOut, ", "))
		fmt.Fprintf(p.err, "left out, because they cannot be read or are not muster's: %s\n", names)
	}
	stacks := slices.Sorted(maps.Keys(byStack))
	switch {
	case o.stack == "" && len(stacks) == 1:
		o.stack = stacks[0]
	case o.stack == "" && len(stacks) > 1:
		names := text.Escape(strings.Join(stacks, ", "))
		return usagef("the same command with --stack NAME", "several stacks own something there: %s", names)
	}
	if len(byStack[o.stack]) == 0 {
		err := fmt.Errorf("nothing to export below %s", strings.Join(scope.roots, ", "))
		return &problem{err: err, next: "muster status --root PATH shows what is there"}
	}
	// A configuration has one home. If what is found has two, a plan of the export shows that some are blocked.
	home := slices.Max(append(homes[o.stack], ""))
	_, err = p.out.Write(spec.Export(byStack[o.stack], o.stack, home))
	return err
}
