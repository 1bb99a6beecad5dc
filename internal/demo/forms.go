package demo

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"

	"github.com/go-sql-driver/mysql"

	"github.com/cleanupd/cleanupd/internal/campaigndb"
	"github.com/cleanupd/cleanupd/internal/cli"
	"github.com/cleanupd/cleanupd/internal/formsdb"
	"github.com/cleanupd/cleanupd/internal/localmysql"
	"github.com/cleanupd/cleanupd/internal/localpg"
	"github.com/cleanupd/cleanupd/internal/serve"
)

// formsMySQLUser is the user of a private MariaDB.
const formsMySQLUser = "root"

// The demo's Forms database, its size, and the user whose data is erased.
const (
	formsDatabase  = "forms"
	formsInstances = 60
	formsUser      = "bob.smith@example.com"
	formsVariables = " --variable Loans/folder/sub/review --variable Claims/apply"
)

// What a Forms database may be in.
const (
	enginePostgres = "postgres"
	engineMySQL    = "mysql"
)

// generateForms makes the content of a Forms database, with its document storage in a folder.
func generateFormsData() *formsdb.Data {
	return formsdb.Generate(rand.New(rand.NewPCG(1, 0)), formsInstances, true)
}

// fillFormsInMySQL creates a Forms database in MySQL, and its document storage in a folder.
func createFormsInMySQL(ctx context.Context, server *localmysql.Server, folder string) (serve.FormsConfig, error) {
	c := serve.FormsConfig{DatabaseURL: server.URL(formsMySQLUser, formsDatabase), Folder: folder}
	config := server.Config(formsMySQLUser, "")
	config.MultiStatements = true
	config.Params = map[string]string{"sql_mode": "'ANSI,TRADITIONAL'"}
	connector, err := mysql.NewConnector(config)
	if err != nil {
		return c, err
	}
	db := sql.OpenDB(connector)
	defer func() { _ = db.Close() }()
	db.SetMaxOpenConns(1) // for USE
	if _, err := db.ExecContext(
		ctx,
		"CREATE DATABASE "+formsDatabase+" CHARACTER SET utf8mb4; USE "+formsDatabase+"; "+formsdb.MySQLSchema,
	); err != nil {
		return c, err
	}
	if err := generateFormsData().LoadMySQL(ctx, db, folder); err != nil {
		return c, err
	}
	_, err = db.ExecContext(
		ctx,
		"ALTER TABLE tb_process_instance ADD complete_time datetime; UPDATE tb_process_instance SET complete_time = "+
			"now() - INTERVAL id * 20 DAY",
	)
	return c, err
}

// fillForms creates a Forms database in PostgreSQL, and its document storage in a folder.
func createFormsInPostgres(ctx context.Context, pg *localpg.Server, folder string) (serve.FormsConfig, error) {
	c := serve.FormsConfig{DatabaseURL: pg.URL(campaigndb.Role, formsDatabase), Folder: folder}
	conn, err := campaigndb.Create(ctx, pg.URL, formsDatabase, formsdb.Schema)
	if err != nil {
		return c, err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	if err := generateFormsData().Load(ctx, conn, folder); err != nil {
		return c, err
	}
	_, err = conn.Exec(
		ctx,
		"ALTER TABLE tb_process_instance ADD complete_time timestamp; UPDATE tb_process_instance SET complete_time = "+
			"now() - id * interval '20 days'",
	)
	return c, err
}

// runFormsDemo finds and erases a person's data, and searches again, by the commands that it prints.
func eraseUser(ctx context.Context, w io.Writer, s *serve.Server) error {
	find := "find " + formsUser + formsVariables
	for _, command := range []string{find, "erase " + formsUser + formsVariables + " --yes", find} {
		command += " --server " + s.GRPC.Addr().String()
		fmt.Fprintf(w, "\n$ cleanupd userdata %s\n", command)
		cmd := cli.NewUserData()
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		cmd.SetArgs(strings.Fields(command))
		cmd.SetOut(w)
		if err := cmd.ExecuteContext(ctx); err != nil {
			return err
		}
	}
	return nil
}
