package cli

import (
	"context"
	"fmt"
	"path"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"muster/resource"
	"muster/zkstate"
	"muster/zkstate/znode"
)

type pauseOptions struct {
	searchFlags
	stack   string
	limit   time.Duration
	because string
}

func newPauseReconcilerCmd(p *process) *cobra.Command {
	var o pauseOptions
	cmd := &cobra.Command{
		Use:   "pause [JOB | GROUP | QUEUE]...",
		Short: "Keep muster reconcile from changing a stack, or parts of it",
		Long: `Holds all that a stack has, or what is named: muster reconcile leaves that as it
is until "muster resume", or for the time of --for. muster apply goes on.`,
		Example: `  muster pause --because 'moving the racks'
  muster pause nightly --for 1h
  muster pause --stack etl-prod`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.limit < 0 {
				return usagef("muster pause --for 1h", "--for %s: a duration is not negative", o.limit)
			}
			return o.edit(cmd.Context(), p, args, o.hold)
		},
	}
	cmd.Flags().DurationVar(&o.limit, "for", 0, "end the hold after `DURATION`")
	cmd.Flags().StringVar(&o.because, "because", "", "`TEXT` for who wonders why")
	o.addTo(p, cmd)
	return cmd
}

func newResumeReconcilerCmd(p *process) *cobra.Command {
	var o pauseOptions
	cmd := &cobra.Command{
		Use:   "resume [JOB | GROUP | QUEUE]...",
		Short: "Let muster reconcile go on",
		Long: `Ends what holds what is named: muster pause, muster terminate, or that it was
changed too often. Without a name it ends the pause of the whole stack, opens
the guards, and lets the files count again where somebody has applied others.`,
		Example: `  muster resume
  muster resume nightly`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.edit(cmd.Context(), p, args, o.release)
		},
	}
	o.addTo(p, cmd)
	return cmd
}

func (o *pauseOptions) addTo(p *process, cmd *cobra.Command) {
	cmd.Flags().StringVar(&o.stack, "stack", "", "`NAME` of the stack; default that of the configuration here")
	p.addSearch(cmd, &o.searchFlags, p.completeJob(&o.searchFlags))
}

// edit changes what the reconcilers of the stack keep of what names name, or of all of it.
func (o *pauseOptions) edit(
	ctx context.Context, p *process, names []string,
	change func(ctx context.Context, p *process, store *zkstate.Store, paths []string) error,
) error {
	first := ""
	if len(names) > 0 {
		first = names[0]
	}
	return p.look(ctx, o.searchFlags, first, func(ctx context.Context, p *process, scope *searchScope, _ string) error {
		if o.stack == "" && scope.cfg == nil {
			return usagef(p.called.cmd.CommandPath()+" --stack NAME", "there is no configuration here that says which stack")
		}
		if o.stack == "" {
			o.stack = scope.cfg.Stack
		}
		if err := checkStacks([]string{o.stack}); err != nil {
			return err
		}
		kept, _, err := scope.reader().Reconcile(ctx, o.stack)
		if err != nil {
			return err
		}
		var paths []string
		for _, name := range names {
			at, err := scope.heldOrFound(ctx, name, o.stack, &kept)
			if err != nil {
				return err
			}
			paths = append(paths, at)
		}
		var acl []string
		if scope.cfg != nil {
			acl = scope.cfg.ZooKeeper.ACL
		}
		store, err := zkstate.NewStore(scope.session, p.storeConfig(scope.target, scope.home, o.stack, acl))
		if err != nil {
			return err
		}
		return change(ctx, p, store, paths)
	})
}

// heldOrFound is the path that a name names: also of something that is gone, and held.
func (scope *searchScope) heldOrFound(
	ctx context.Context, name, stack string, kept *znode.Reconcile,
) (string, error) {
	var held []string
	for at := range kept.Held {
		if path.Base(at) == name {
			held = append(held, at)
		}
	}
	if len(held) == 1 {
		return held[0], nil
	}
	at, err := scope.find(ctx, name, "")
	if err != nil {
		return at, err
	}
	o, err := scope.reader().Look(ctx, at)
	switch declared := slices.Contains(scope.paths, at); {
	case err != nil:
		return "", err
	case o != nil && o.Record != nil && o.Record.Stack != stack:
		err := fmt.Errorf("%s: %w: %s", at, zkstate.ErrOtherStack, o.Record.Stack)
		return "", &problem{errUsage, err, "name its owner: --stack NAME"}
	case o != nil || declared:
		return at, nil
	}
	err = fmt.Errorf("no job, group or queue %q is there, declared here, or held", name)
	return "", &problem{errAbsent, err, "muster status shows all"}
}

func (o *pauseOptions) hold(ctx context.Context, p *process, store *zkstate.Store, paths []string) error {
	now := time.Now()
	hold := znode.Hold{Why: znode.Paused, By: p.user(), Since: now, Because: o.because}
	until := "until muster resume"
	if o.limit > 0 {
		hold.Until = now.Add(o.limit)
		until = "for " + resource.Duration(o.limit).String()
	}
	_, err := store.EditReconcile(ctx, func(k *znode.Reconcile) bool {
		if len(paths) == 0 {
			k.All = &hold
		}
		for _, at := range paths {
			if k.Held == nil {
				k.Held = map[string]znode.Hold{}
			}
			if h := k.Held[at]; h.Why != znode.Terminated && h.Why != znode.Terminating { // which hold until somebody ends them
				k.Held[at] = hold
			}
		}
		return true
	})
	if err != nil {
		return err
	}
	for _, at := range paths {
		p.announce(at, "muster reconcile leaves it as it is, %s", until)
	}
	if len(paths) == 0 {
		p.announce("stack "+o.stack, "muster reconcile leaves it as it is, %s", until)
	}
	return nil
}

func (o *pauseOptions) release(ctx context.Context, p *process, store *zkstate.Store, paths []string) error {
	found, err := store.History(ctx, o.stack, znode.MaxApplies)
	if err != nil {
		return err
	}
	var ended []string
	_, err = store.EditReconcile(ctx, func(k *znode.Reconcile) bool {
		ended = nil
		for _, at := range paths {
			if _, held := k.Held[at]; held {
				ended = append(ended, at)
			}
			delete(k.Held, at)
			delete(k.Changed, at)
		}
		if len(paths) > 0 {
			return len(ended) > 0
		}
		by, left := k.LeftAs(found)
		changed := k.All != nil || len(k.Shut) > 0 || left
		if changed {
			ended = append(ended, "stack "+o.stack)
		}
		for word := range k.Shut {
			if k.Meant == nil {
				k.Meant = map[string]time.Time{}
			}
			k.Meant[word] = time.Now()
		}
		k.All, k.Shut = nil, nil
		if left {
			k.Seen = by.Number + 1
		}
		return changed
	})
	if err != nil {
		return err
	}
	for _, name := range ended {
		p.announce(name, "muster reconcile goes on")
	}
	if len(ended) == 0 {
		p.say("nothing is held")
	}
	return nil
}
