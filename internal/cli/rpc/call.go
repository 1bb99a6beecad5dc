package rpc

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/cleanupd/cleanupd"
)

func WithClient(server *Server, do func(cmd *cobra.Command, client cleanupd.Client, args []string) error) func(
	*cobra.Command, []string,
) error {
	return func(cmd *cobra.Command, args []string) (err error) {
		notice, err := server.useContext(cmd)
		if err != nil {
			return err
		}
		conn, err := server.connect(cmd)
		if err != nil {
			return err
		}
		if notice != "" {
			fmt.Fprintln(cmd.ErrOrStderr(), notice)
		}
		defer func() { err = errors.Join(err, conn.Close()) }()
		return PlainError(nameFields(cmd, server.Explain(do(cmd, cleanupd.NewClient(conn), args))))
	}
}
