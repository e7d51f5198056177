package cli

import (
	"os"
	"path/filepath"
	"runtime"
	"syscall"

	"github.com/spf13/cobra"

	"muster/wrap"
)

// guardName is a hidden command: the process between a member and the command of a duty.
const guardName = "guard-command"

func newGuardCmd(p *process) *cobra.Command {
	return &cobra.Command{
		Use:                guardName + " FILE ARGS...",
		Short:              "For muster itself: end a command when its member is frozen or dead",
		Hidden:             true,
		DisableFlagParsing: true,
		PersistentPreRunE:  func(*cobra.Command, []string) error { return nil },
		Args:               argCount(2, 1<<20, "a file and its arguments"),
		RunE: func(_ *cobra.Command, args []string) error {
			files, signals, release, err := p.streams()
			if err != nil {
				return err
			}
			defer release()
			return finding(wrap.Guard(args[0], args[1:], p.environ, files, signals))
		},
	}
}

// guardGroupsName is a hidden command: the process beside an executor that ends its commands with it.
const guardGroupsName = "guard-groups"

func newGuardGroupsCmd(p *process) *cobra.Command {
	return &cobra.Command{
		Use:               guardGroupsName,
		Short:             "For muster itself: end the commands of an executor that has died",
		Hidden:            true,
		PersistentPreRunE: func(*cobra.Command, []string) error { return nil },
		Args:              argCount(0, 0, "nothing"),
		RunE: func(*cobra.Command, []string) error {
			signals, release := catchSignals(syscall.SIGTSTP)
			defer release()
			wrap.GuardGroups(p.in, signals)
			return nil
		},
	}
}

// guardCommand calls this program as a guard. It must be this very program, also if its file has been replaced.
func guardCommand(name string) []string {
	if runtime.GOOS == "linux" {
		return []string{"/proc/self/exe", name}
	}
	self, err := os.Executable()
	if err != nil {
		self = filepath.Clean(os.Args[0])
	}
	return []string{self, name}
}
