package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"muster/member"
	"muster/text"
	"muster/wrap"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

func newStateCmd(p *process) *cobra.Command {
	cmd := newNounCmd("state", "What the holder of a duty saves for the next one",
		`Values that the holder of a duty leaves to the next one. Only the holder writes:
inside its command. Anybody reads, with --group and --duty. A key has at most
512 KiB, a group 64 MiB: for large data save a name or an address.`,
		newStateGetCmd(p), newStateListCmd(p), newStatePutCmd(p), newStateRmCmd(p))
	cmd.Example = `  muster state put checkpoint position.json
  muster state get checkpoint
  muster state list --group shop --duty coordinator --root /apps`
	return cmd
}

func newStateGetCmd(p *process) *cobra.Command {
	var o dutyFlags
	cmd := &cobra.Command{
		Use:     "get KEY",
		Short:   "Write a saved value to standard output",
		Long:    `Writes the value as it was saved. Ends with 74 if there is no such key.`,
		Example: `  muster state get checkpoint > position.json`,
		Args:    argCount(1, 1, "a key"),
		RunE:    func(cmd *cobra.Command, args []string) error { return runStateGet(cmd.Context(), p, o, args[0]) },
	}
	o.addTo(cmd)
	return cmd
}

func runStateGet(ctx context.Context, p *process, o dutyFlags, key string) error {
	if err := checkKey("muster state --help", key); err != nil {
		return err
	}
	value, err := readDuty(ctx, p, "state get", o, func(
		c *wrap.Client, ctx context.Context, u wrap.UseOf,
	) ([]byte, error) {
		return c.State(ctx, u, key)
	}, func(ctx context.Context, s *zkconn.Session, root, g, duty string) ([]byte, error) {
		return member.ReadState(ctx, s, root, g, duty, key)
	})
	if err != nil {
		return err
	}
	_, err = p.out.Write(value)
	return err
}

func newStateListCmd(p *process) *cobra.Command {
	return newDutyListCmd(p, &cobra.Command{
		Short:   "List the saved keys of a duty",
		Long:    `Prints a line for each key: its name, its bytes, when it was saved and by whom.`,
		Example: `  muster state list --group shop --duty coordinator`,
	}, (*wrap.Client).StateKeys, func(
		ctx context.Context, s *zkconn.Session, root, g, duty string,
	) (wrap.StateKeys, error) {
		all, err := member.Keys(ctx, s, root, g, duty)
		return wrap.StateKeys{Keys: all}, err
	}, func(w io.Writer, found wrap.StateKeys) {
		for _, k := range found.Keys {
			saved := k.Saved.UTC().Format(time.RFC3339)
			if k.Problem != "" {
				fmt.Fprintf(w, "%s\t-\t%s\t%s\n", k.Key, saved, text.Escape(k.Problem))
				continue
			}
			fmt.Fprintf(w, "%s\t%d\t%s\t%s\n", k.Key, k.Bytes, saved, text.Escape(k.By))
		}
	})
}

func newStatePutCmd(p *process) *cobra.Command {
	return &cobra.Command{
		Use:   "put KEY [FILE]",
		Short: "Inside a duty's command: save a value",
		Long: `Saves the file, or standard input, under a key. Ends with 72 if this process is
not the holder any more, and with 73 if the value is too large.`,
		Example: `  muster state put checkpoint position.json
  date | muster state put began`,
		Args: argCount(1, 2, "a key, and a file"),
		RunE: func(cmd *cobra.Command, args []string) error { return runStatePut(cmd.Context(), p, args[0], args[1:]) },
	}
}

func runStatePut(ctx context.Context, p *process, key string, file []string) error {
	if err := checkKey("muster state --help", key); err != nil {
		return err
	}
	return p.askHolder("state put", "", func(c *wrap.Client, u wrap.UseOf) error {
		in := p.in
		if len(file) > 0 {
			f, err := os.Open(p.path(file[0]))
			if err != nil {
				return err
			}
			defer f.Close()
			in = f
		}
		value, err := io.ReadAll(io.LimitReader(in, member.MaxStateValue+1))
		if err != nil {
			return err
		}
		return c.PutState(ctx, u, key, value)
	})
}

func newStateRmCmd(p *process) *cobra.Command {
	return &cobra.Command{
		Use:     "rm KEY",
		Short:   "Inside a duty's command: remove a key",
		Long:    `Removes a key. Ends with 74 if there is none.`,
		Example: `  muster state rm checkpoint`,
		Args:    argCount(1, 1, "a key"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkKey("muster state --help", args[0]); err != nil {
				return err
			}
			return p.askHolder("state rm", "", func(c *wrap.Client, u wrap.UseOf) error {
				return c.RemoveState(cmd.Context(), u, args[0])
			})
		},
	}
}

func checkKey(next, key string) error {
	if err := znode.CheckKey(key); err != nil {
		return usagef(next, "%w", err)
	}
	return nil
}
