package cli

import (
	"embed"
	"path"
	"strings"

	"github.com/spf13/cobra"
)

// schemas are the JSON Schemas of what muster writes for other programs.
//
//go:embed schema/*.schema.json
var schemas embed.FS

const schemaSuffix = ".schema.json"

func newSchemaCmd(p *process) *cobra.Command {
	return &cobra.Command{
		Use:   "schema plan|apply|drift|history|validate",
		Short: "Print the JSON Schema of a document that muster writes",
		Long: `Prints the JSON Schema (draft 2020-12) of a saved plan, which is also what "plan
--format json" prints, of the json report of apply or drift, or of what
"history --json" or "validate --json" prints.`,
		Example:   `  muster schema plan > plan.schema.json`,
		ValidArgs: schemaNames(),
		Args:      argCount(1, 1, "the name of a document: "+strings.Join(schemaNames(), ", ")),
		RunE:      func(_ *cobra.Command, args []string) error { return runSchema(p, args[0]) },
	}
}

func schemaNames() []string { return []string{"apply", "drift", "history", "plan", "validate"} }

func runSchema(p *process, name string) error {
	body, err := schemas.ReadFile(path.Join("schema", name+schemaSuffix))
	if err != nil {
		return usagef("muster schema --help", "there is no schema of %q: %s", name, strings.Join(schemaNames(), ", "))
	}
	_, err = p.out.Write(body)
	return err
}
