// Package campaigndb makes Campaign databases for the demo and the tests: the tables of schema.sql, and lifelike
// rows in them.
package campaigndb

import (
	"context"
	_ "embed" // for Schema
	"fmt"

	"github.com/jackc/pgx/v5"
)

// Schema is the SQL of the tables that a cleanup run touches.
//
//go:embed schema.sql
var Schema string

// Role is the application's role: no superuser, and the owner of its tables.
const Role = "neolane"

// Prepare creates, as a superuser, the application's role, unless it is there, and a database that it owns.
func Prepare(ctx context.Context, superuser *pgx.Conn, database string) error {
	for _, sql := range []string{
		"DO $$ BEGIN CREATE ROLE " + Role + " LOGIN; EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END $$",
		fmt.Sprintf("CREATE DATABASE %s OWNER %s", pgx.Identifier{database}.Sanitize(), Role),
	} {
		if _, err := superuser.Exec(ctx, sql); err != nil {
			return err
		}
	}
	return nil
}
