package rpc

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/cleanupd/cleanupd"
	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
)

// PrintTarget prints the server and the database that it cleans, before the user is asked to confirm a change.
func PrintTarget(cmd *cobra.Command, server *Server, client cleanupd.Client) error {
	about, err := client.GetServer(cmd.Context(), &cleanupv1.GetServerRequest{})
	if err != nil {
		return err
	}
	database := about.GetDatabase()
	if about.GetDatabaseHost() != "" { // an older server does not have it
		database += " on " + about.GetDatabaseHost()
	}
	if about.GetInstance() != "" {
		database += ", instance " + about.GetInstance()
	}
	w := cmd.ErrOrStderr()
	PrintFact(w, "Server", server.String())
	PrintFact(w, "Database", database)
	return nil
}

func PrintFact(w io.Writer, name, text string) { fmt.Fprintf(w, "%-9s %s\n", name, text) }
