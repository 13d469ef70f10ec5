package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// noEmptyFlag refuses a flag that was given without a value: --tenant "$UNSET" means one
// tenant, and without the flag it would be all of them. --by "" means no dimension.
func noEmptyFlag(cmd *cobra.Command) (err error) {
	cmd.Flags().Visit(func(f *pflag.Flag) {
		values := []string{f.Value.String()}
		if list, ok := f.Value.(pflag.SliceValue); ok {
			values = list.GetSlice()
		}
		if f.Name != "by" && (len(values) == 0 || slices.Contains(values, "")) {
			err = usageError{fmt.Errorf("--%s is empty; give it a value or leave it out", f.Name)}
		}
	})
	return err
}

// helpOf prints the help of a command, by its name.
func helpOf(cmd *cobra.Command, args []string) error {
	c, rest, err := cmd.Root().Find(args)
	if err == nil && len(rest) > 0 {
		err = unknownCommand(c, rest[0])
	}
	if err != nil {
		return usageError{err}
	}
	c.InitDefaultHelpFlag()
	return c.Help()
}

func unknownCommand(c *cobra.Command, name string) error {
	if c.SuggestionsMinimumDistance <= 0 {
		c.SuggestionsMinimumDistance = 2
	}
	said := ""
	if near := c.SuggestionsFor(name); len(near) > 0 {
		said = ", did you mean " + strings.Join(near, " or ") + "?"
	}
	return fmt.Errorf("unknown command %q for %q%s", name, c.CommandPath(), said)
}

// wrapArgs makes every complaint about arguments a usage error, and a verb that is
// none of a command's an error too, where cobra prints its help.
func wrapArgs(c *cobra.Command) {
	if c.HasSubCommands() && !c.Runnable() && c.HasParent() {
		c.RunE = func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usageError{unknownCommand(cmd, args[0])}
			}
			return cmd.Help()
		}
	}
	if check := c.Args; check != nil {
		c.Args = func(cmd *cobra.Command, args []string) error {
			if err := check(cmd, args); err != nil {
				return usageError{fmt.Errorf("%w; usage: %s", err, cmd.UseLine())}
			}
			return nil
		}
	}
	for _, sub := range c.Commands() {
		wrapArgs(sub)
	}
}

// needs refuses a command line without these flags.
func needs(cmd *cobra.Command, names ...string) error {
	var missing []string
	for _, name := range names {
		if !cmd.Flags().Changed(name) {
			missing = append(missing, "--"+name)
		}
	}
	switch len(missing) {
	case 0:
		return nil
	case 1:
		return usageError{fmt.Errorf("%s is missing; see %s --help", missing[0], cmd.CommandPath())}
	}
	return usageError{fmt.Errorf("%s are missing; see %s --help", strings.Join(missing, " and "), cmd.CommandPath())}
}
