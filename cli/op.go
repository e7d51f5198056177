package cli

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"muster/member"
	"muster/text"
	"muster/wrap"
	"muster/wrap/command"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

func newOpCmd(p *process) *cobra.Command {
	var adopt bool
	cmd := &cobra.Command{
		Use:   "op NAME [--adopt] -- SCRIPT ARGS...",
		Short: "Inside a duty's command: an operation that the next holder resumes",
		Long: `Opens an operation, or resumes the one of this name that is open, and runs the
script. Inside it, "muster step" runs what must not be done again after it was
done. When the script ends with 0 the operation is closed; with any other code,
which is also the code of this command, it stays open. After 126 or 127, when
the script could not be executed, it does so only if a step has begun. Another
script, by its files and arguments, resumes it only with --adopt. Ends with 6
while another "muster op" runs the operation, and with 72 if the duty is lost.`,
		Example: `  muster op checkpoint -- ./checkpoint.sh
  muster op list
  muster op abort checkpoint`,
		Args: nameAndCommand("muster op NAME -- SCRIPT", "muster op needs the name of an operation, -- and a script",
			"muster op takes the name of one operation before --", znode.CheckOperation),
		RunE: func(cmd *cobra.Command, args []string) error {
			return runOp(cmd.Context(), p, args[0], adopt, args[1:])
		},
	}
	cmd.Flags().BoolVar(&adopt, "adopt", false, "resume it although another script opened it")
	cmd.AddCommand(newOpAbortCmd(p), newOpListCmd(p))
	return cmd
}

// nameAndCommand wants NAME -- COMMAND. needs is said if something is missing, takes if something is too much.
func nameAndCommand(next, needs, takes string, check func(string) error) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		dash := cmd.ArgsLenAtDash()
		switch {
		case dash < 0 || len(args) == dash:
			return usagef(next, "%s", needs)
		case dash != 1:
			return usagef(next, "%s", takes)
		case check(args[0]) != nil:
			return usagef(next, "%w", check(args[0]))
		}
		return nil
	}
}

func runOp(ctx context.Context, p *process, name string, adopt bool, script []string) error {
	c, u, err := p.dutyClient("op", "")
	if err != nil {
		return err
	}
	digest, err := p.scriptDigest(script)
	if err != nil {
		return err
	}
	o := wrap.OpenOperation{Use: u, Name: name, Script: digest, Adopt: adopt, Opened: func(r wrap.OperationRun) {
		if r.Resumed && !p.flags.quiet {
			fmt.Fprintf(p.err, "muster: resuming operation %s\n", name)
		}
	}}
	return p.runTask(ctx, script, holderError, func(ctx context.Context, t wrap.DutyCommand) command.Result {
		return c.RunOperation(ctx, o, t)
	})
}

// runTask runs a command with the standard streams and the signals of this process. explain adds the next step to an
// error of the member.
func (p *process) runTask(
	ctx context.Context, command []string, explain func(error) error,
	run func(context.Context, wrap.DutyCommand) command.Result,
) error {
	files, signals, release, err := p.streams()
	if err != nil {
		return err
	}
	defer release()
	result := run(ctx, wrap.DutyCommand{
		Command: command, Dir: p.flags.dir, Environ: p.environ, Files: files, Signals: signals,
	})
	if result.Err != nil && result.Code == 0 {
		return explain(result.Err)
	}
	return p.endCommand(ctx, result)
}

// scriptDigest is the SHA-256, in hex, of a script's words and of the bytes of those that are files.
func (p *process) scriptDigest(script []string) (string, error) {
	h := sha256.New()
	for _, word := range script {
		fmt.Fprintf(h, "%d:%s", len(word), word)
		info, err := os.Stat(p.path(word))
		if err != nil || !info.Mode().IsRegular() {
			continue
		}
		f, err := os.Open(p.path(word))
		if errors.Is(err, os.ErrPermission) { // a program that may only be run
			continue
		}
		if err != nil {
			return "", err
		}
		fmt.Fprintf(h, "%d:", info.Size())
		_, err = io.Copy(h, f)
		if err = errors.Join(err, f.Close()); err != nil {
			return "", err
		}
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

func newOpAbortCmd(p *process) *cobra.Command {
	return &cobra.Command{
		Use:   "abort NAME",
		Short: "Inside a duty's command: close an operation without its script",
		Long: `Closes an operation and forgets its steps; what they did remains. Ends with 74 if
it is not open, and with 6 while a "muster op" runs it.`,
		Example: `  muster op abort checkpoint`,
		Args:    argCount(1, 1, "the name of an operation"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := znode.CheckOperation(args[0]); err != nil {
				return usagef("muster op list", "%w", err)
			}
			return p.askHolder("op abort", "", func(c *wrap.Client, u wrap.UseOf) error {
				return c.AbortOperation(cmd.Context(), u, args[0])
			})
		},
	}
}

func newOpListCmd(p *process) *cobra.Command {
	return newDutyListCmd(p, &cobra.Command{
		Short: "List the open operations of a duty",
		Long: `Prints a line for each: its name, how many of the steps that have begun are done,
how often it was run, and by whom last.`,
		Example: `  muster op list --group shop --duty coordinator`,
	}, (*wrap.Client).Operations, func(
		ctx context.Context, s *zkconn.Session, root, g, duty string,
	) (wrap.Operations, error) {
		all, err := member.Operations(ctx, s, root, g, duty)
		return wrap.Operations{Operations: all}, err
	}, func(w io.Writer, found wrap.Operations) {
		for _, op := range found.Operations {
			if op.Problem != "" {
				fmt.Fprintf(w, "%s\t%s\n", op.Name, text.Escape(op.Problem))
				continue
			}
			fmt.Fprintf(w, "%s\t%d of %d steps\trun %d\t%s\t%s\n", op.Name, op.Done, op.Steps, op.Runs,
				op.Opened.UTC().Format(time.RFC3339), text.Escape(op.By))
		}
	})
}

func newStepCmd(p *process) *cobra.Command {
	return &cobra.Command{
		Use:   "step NAME -- COMMAND ARGS...",
		Short: "Inside the script of an operation: do something once",
		Long: `Runs a command of an operation, and records it and its standard output, of at
most 64 KiB, if it ends with 0. In a later run of the operation the step is
skipped and its output printed again. If an earlier attempt has begun and was
not recorded, the command is run again, with MUSTER_STEP_AGAIN=1. A step is its
name and its command with arguments: the same twice in one run is an error. The
exit code is the command's.`,
		Example: `  muster step snapshot -- ./snapshot.sh "$day"
  where=$(muster step upload -- ./upload.sh "$day")`,
		Args: nameAndCommand("muster step NAME -- COMMAND", "muster step needs a name, -- and a command",
			"muster step takes one name before --", znode.CheckStep),
		RunE: func(cmd *cobra.Command, args []string) error { return runStep(cmd.Context(), p, args[0], args[1:]) },
	}
}

func runStep(ctx context.Context, p *process, name string, argv []string) error {
	c, u, err := p.dutyClient("step", "")
	if err != nil {
		return err
	}
	of := wrap.RunOfOperation{
		Duty: u.Duty, Operation: p.environ.value(wrap.OperationVariable), Run: p.environ.value(wrap.RunVariable),
	}
	if of.Operation == "" || of.Run == "" {
		return usagef("muster op NAME -- SCRIPT", "muster step works inside the script of an operation, "+
			"and there is no %s here", wrap.RunVariable)
	}
	return p.runTask(ctx, argv, holderError, func(ctx context.Context, t wrap.DutyCommand) command.Result {
		return c.RunStep(ctx, of, name, t, p.out)
	})
}
