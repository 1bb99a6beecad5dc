package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"

	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/internal/campaigndb"
	"github.com/cleanupd/cleanupd/internal/formsdb"
	"github.com/cleanupd/cleanupd/internal/localpg"
)

// The demo's Forms database, its size, and the user whose data is erased.
const (
	formsDatabase  = "forms"
	formsInstances = 60
	formsUser      = "bob.smith@example.com"
	formsVariables = " --variable Loans/folder/sub/review --variable Claims/apply"
)

// fillForms creates a Forms database, and its document storage in a folder.
func fillForms(ctx context.Context, w io.Writer, pg *localpg.Server, folder string) (formsConfig, error) {
	c := formsConfig{databaseURL: pg.URL(campaigndb.Role, formsDatabase), folder: folder}
	fmt.Fprintf(w, "Making an AEM Forms database of %d process instances, and its document storage …\n", formsInstances)
	conn, err := campaigndb.Create(ctx, pg.URL, formsDatabase, formsdb.Schema)
	if err != nil {
		return c, err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	return c, formsdb.Generate(rand.New(rand.NewPCG(1, 0)), formsInstances, true).Load(ctx, conn, folder)
}

// runFormsDemo finds and erases a person's data, and searches again.
func runFormsDemo(ctx context.Context, w io.Writer, s *server) error {
	conn, err := (&target{address: s.grpc.Addr().String()}).dial()
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	client := cleanupv1.NewUserDataServiceClient(conn)
	variables := []*cleanupv1.WorkflowVariable{{Application: "Loans", Workflow: "folder/sub/review"}, {Application: "Claims", Workflow: "apply"}}
	find := func() error {
		fmt.Fprintf(w, "\n$ cleanupd userdata find %s%s --server %s\n", formsUser, formsVariables, s.grpc.Addr())
		found, err := client.FindUserData(ctx, &cleanupv1.FindUserDataRequest{UserId: formsUser, Variables: variables})
		if err != nil {
			return plain(err)
		}
		return screenOf(w).printFound(found)
	}
	if err := find(); err != nil {
		return err
	}
	fmt.Fprintf(w, "\n$ cleanupd userdata erase %s%s --yes --server %s\n", formsUser, formsVariables, s.grpc.Addr())
	if _, err := erase(ctx, w, asTable, client, &cleanupv1.EraseUserDataRequest{UserId: formsUser, Variables: variables}); err != nil {
		return plain(err)
	}
	return find()
}
