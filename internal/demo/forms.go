package demo

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"math/rand/v2"
	"os"

	"github.com/go-sql-driver/mysql"

	"github.com/cleanupd/cleanupd/internal/campaigndb"
	"github.com/cleanupd/cleanupd/internal/cli/forms"
	"github.com/cleanupd/cleanupd/internal/formsdb"
	"github.com/cleanupd/cleanupd/internal/localmysql"
	"github.com/cleanupd/cleanupd/internal/localpg"
	"github.com/cleanupd/cleanupd/internal/serve"
	"github.com/cleanupd/cleanupd/internal/tempdir"
)

const (
	formsDatabase  = "forms"
	formsInstances = 60
	formsUser      = "bob.smith@example.com"
	formsVariables = " --variable Loans/folder/sub/review --variable Claims/apply"
	mysqlUser      = "root"
)

const (
	enginePostgres = "postgres"
	engineMySQL    = "mysql"
)

// createForms makes an AEM Forms database, and its document storage in a folder. remove removes everything that is
// not in pg.
func createForms(
	ctx context.Context, pg *localpg.Server, engine string,
) (c serve.FormsConfig, remove func(), err error) {
	folder, removeFolder, err := tempdir.New(os.TempDir(), "cleanupd-gds-")
	if err != nil {
		return c, nil, err
	}
	data := formsdb.Generate(rand.New(rand.NewPCG(1, 0)), formsInstances, true)
	remove = removeFolder
	if engine == engineMySQL {
		server, startErr := localmysql.Start(ctx)
		if startErr != nil {
			remove()
			return c, nil, startErr
		}
		remove = func() {
			server.Stop()
			removeFolder()
		}
		c.DatabaseURL = server.URL(mysqlUser, formsDatabase)
		err = loadMySQL(ctx, server, data, folder)
	} else {
		c.DatabaseURL = pg.URL(campaigndb.Role, formsDatabase)
		err = loadPostgres(ctx, pg, data, folder)
	}
	if err != nil {
		remove()
		return c, nil, err
	}
	c.Folder = folder
	return c, remove, nil
}

func loadMySQL(ctx context.Context, server *localmysql.Server, data *formsdb.Data, folder string) error {
	config := server.Config(mysqlUser, "")
	config.MultiStatements = true
	config.Params = map[string]string{"sql_mode": "'ANSI,TRADITIONAL'"}
	connector, err := mysql.NewConnector(config)
	if err != nil {
		return err
	}
	db := sql.OpenDB(connector)
	defer func() { _ = db.Close() }()
	db.SetMaxOpenConns(1) // USE applies to one connection only
	if _, err := db.ExecContext(
		ctx, "CREATE DATABASE "+formsDatabase+" CHARACTER SET utf8mb4; USE "+formsDatabase+"; "+formsdb.MySQLSchema,
	); err != nil {
		return err
	}
	if err := data.LoadMySQL(ctx, db, folder); err != nil {
		return err
	}
	_, err = db.ExecContext(ctx, "ALTER TABLE tb_process_instance ADD complete_time datetime; "+
		"UPDATE tb_process_instance SET complete_time = now() - INTERVAL id * 20 DAY")
	return err
}

func loadPostgres(ctx context.Context, pg *localpg.Server, data *formsdb.Data, folder string) error {
	conn, err := campaigndb.Create(ctx, pg.URL, formsDatabase, formsdb.Schema)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	if err := data.Load(ctx, conn, folder); err != nil {
		return err
	}
	_, err = conn.Exec(ctx, "ALTER TABLE tb_process_instance ADD complete_time timestamp; "+
		"UPDATE tb_process_instance SET complete_time = now() - id * interval '20 days'")
	return err
}

// eraseUser finds a user's data, erases it, and searches again. It runs the commands that it prints.
func eraseUser(ctx context.Context, out io.Writer, s *serve.Server) error {
	find := "find " + formsUser + formsVariables
	for _, command := range []string{find, "erase " + formsUser + formsVariables + " --yes", find} {
		command += " --server " + s.GRPC.Addr().String()
		fmt.Fprintf(out, "\n$ cleanupd userdata %s\n", command)
		if err := execute(ctx, out, forms.NewCommand(), command); err != nil {
			return err
		}
	}
	return nil
}
