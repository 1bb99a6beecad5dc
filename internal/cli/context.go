package cli

import (
	"encoding/json"
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/cleanupd/cleanupd/internal/cli/contexts"
	"github.com/cleanupd/cleanupd/internal/cli/format"
	"github.com/cleanupd/cleanupd/internal/cli/rpc"
	"github.com/cleanupd/cleanupd/internal/flags"
	"github.com/cleanupd/cleanupd/internal/terminal"
)

func NewContext() *cobra.Command {
	var output format.Output
	list := newListContexts(&output)
	cmd := &cobra.Command{
		Use:   "context [list | add NAME | use NAME | remove NAME]",
		Short: "Name the servers that you work with, and choose one",
		Long: "Name the servers that you work with, with their credentials, and choose the one that commands use:\n" +
			"the context of --context, or the current one. With --server a command uses no context, unless\n" +
			"--context names one. The contexts are in the file cleanupd/contexts.yaml of your configuration\n" +
			"folder. It names the files with keys and tokens, and has none itself.",
		Example: "  cleanupd context add prod --server db.example:9090 --tls-ca ca.pem --token-file token\n" +
			"  cleanupd context use prod\n  cleanupd runs --context prod\n  cleanupd context",
		Args: flags.OnlyCommands,
		RunE: list.RunE,
	}
	output.AddFlag(cmd)
	cmd.AddCommand(list, newAddContext(), newUseContext(), newRemoveContext())
	return cmd
}

func newListContexts(output *format.Output) *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Short:   "List the contexts; a star marks the current one",
		Example: "  cleanupd context list -o json",
		Args:    flags.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			file, err := contexts.Load()
			if err != nil {
				return err
			}
			w := cmd.OutOrStdout()
			if *output != format.Table {
				text, err := json.Marshal(file)
				if err != nil {
					return err
				}
				return output.PrintLine(w, text)
			}
			rows := []terminal.Row{{"", "CONTEXT", "SERVER", "TLS", "CLIENT CERT", "TOKEN FILE"}}
			for _, name := range file.Names() {
				c, mark, tls := file.Contexts[name], "", "no"
				if name == file.Current {
					mark = "*"
				}
				if c.TLS || c.CA != "" || c.Certificate != "" {
					tls = "yes"
				}
				rows = append(rows, terminal.Row{mark, name, c.Address, tls, c.Certificate, c.TokenFile})
			}
			return terminal.ScreenOf(w).PrintTable(rows)
		},
	}
}

func newAddContext() *cobra.Command {
	var c contexts.Context
	cmd := &cobra.Command{
		Use:   "add NAME --server HOST:PORT",
		Short: "Add a context, or replace it",
		Long: "Add a context, or replace it. The files must exist: the context has their names, and commands read\n" +
			"them when they connect.",
		Example: "  cleanupd context add test --server 127.0.0.1:9090\n" +
			"  cleanupd context add prod --server db.example:9090 --tls-ca ca.pem --token-file token",
		Args: flags.OneArgument("the name of a context"),
		RunE: func(cmd *cobra.Command, args []string) error {
			name := args[0]
			if err := contexts.CheckName(name); err != nil {
				return err
			}
			if c.Address == "" {
				return flags.Errorf("--server is required: the gRPC address of the server, HOST:PORT")
			}
			for _, file := range []*string{&c.CA, &c.Certificate, &c.Key, &c.TokenFile} {
				if err := makeAbsolute(file); err != nil {
					return err
				}
			}
			conn, err := (&rpc.Server{Context: c}).Dial() // Dial reads the files but does not connect yet
			if err != nil {
				return err
			}
			_ = conn.Close()
			done := "added"
			if err := contexts.Change(func(file *contexts.File) error {
				if file.Set(name, c) {
					done = "replaced"
				}
				if name != file.Current {
					done += "; cleanupd context use " + name + " makes it the current one"
				}
				return nil
			}); err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "The context %s is %s.\n", name, done)
			return err
		},
		ValidArgsFunction: rpc.FirstArgument(rpc.CompleteContexts),
	}
	f := cmd.Flags()
	rpc.AddContextFlags(f, &c)
	f.StringVar(&c.TokenFile, "token-file", "", "a file with the static token or the JWT to send")
	// a context has what its command says, and serve has another --token-file
	flags.WithoutVariable(f, "server", "tls", "tls-ca", "client-cert", "client-key", "token-file")
	return cmd
}

// makeAbsolute changes the name of a file so that it can be read from any folder. "" stays empty.
func makeAbsolute(file *string) (err error) {
	if *file != "" {
		*file, err = filepath.Abs(*file)
	}
	return err
}

func newUseContext() *cobra.Command {
	return changeContexts(&cobra.Command{
		Use:     "use NAME",
		Short:   "Make a context the current one, which commands use by default",
		Example: "  cleanupd context use prod",
	}, func(file *contexts.File, name string) string {
		file.Current = name
		return "the current one"
	})
}

func newRemoveContext() *cobra.Command {
	return changeContexts(&cobra.Command{
		Use:     "remove NAME",
		Short:   "Remove a context; the files that it names remain",
		Example: "  cleanupd context remove test",
	}, func(file *contexts.File, name string) string {
		file.Remove(name)
		return "removed"
	})
}

// changeContexts makes cmd change a context that must exist. change returns what was done to it, for the user.
func changeContexts(cmd *cobra.Command, change func(file *contexts.File, name string) string) *cobra.Command {
	cmd.Args = flags.OneArgument("the name of a context, as in cleanupd context")
	cmd.ValidArgsFunction = rpc.FirstArgument(rpc.CompleteContexts)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var done string
		if err := contexts.Change(func(file *contexts.File) error {
			_, err := file.Get(args[0])
			if err == nil {
				done = change(file, args[0])
			}
			return err
		}); err != nil {
			return err
		}
		_, err := fmt.Fprintf(cmd.OutOrStdout(), "The context %s is %s.\n", args[0], done)
		return err
	}
	return cmd
}
