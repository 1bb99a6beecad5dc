package main

import (
	"strings"
	"testing"
)

// What is wrong with the address of a MySQL database is told, and never its password.
func TestMySQLURL(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{
		"mysql://forms:PLANTED@db.example/forms":                     "",
		"mysql://forms:PLANTED@db.example:3307/forms?tls=true":       "",
		"mysql://forms:PLANTED@[2001:db8::1]/forms?tls=skip-verify":  "",
		"mysql://forms@/forms?socket=/run/mysqld/mysqld.sock":        "",
		"mysql://forms:PLANTED@db.example":                           "mysql://USER@HOST/DATABASE",
		"mysql://forms:PLANTED@db.example/a/b":                       "mysql://USER@HOST/DATABASE",
		"mysql://db.example/forms":                                   "mysql://USER@HOST/DATABASE",
		"mysql://forms:PLANTED@/forms":                               "mysql://USER@HOST/DATABASE",
		"mysql://forms:PLA/NTED@db.example/forms":                    "percent-encoded",
		"mysql://forms:PLANTED@db.example:x/forms":                   "percent-encoded",
		"mysql://forms:PLANTED@db.example/forms?tls=yes":             "tls is true, false, preferred or skip-verify",
		"mysql://forms:PLANTED@db.example/forms?sslmode=require":     `no parameter "sslmode"`,
		"mysql://forms:PLANTED@db.example/forms?ssl-ca=x&tls=false":  "ssl-ca needs tls=true",
		"mysql://forms:PLANTED@db.example/forms?ssl-ca=/nowhere.pem": "ssl-ca",
		"mysqls://forms:PLANTED@db.example/forms":                    "mysql://USER@HOST/DATABASE",
	} {
		setup, err := (&formsConfig{databaseURL: url}).check()
		switch {
		case want == "" && (err != nil || setup.mysql == nil):
			t.Errorf("%s: %v", url, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "NTED")):
			t.Errorf("%s: %v", url, err)
		}
	}
	setup, err := (&formsConfig{databaseURL: "mysql://forms:s%2Fcret@db.example/forms?tls=true"}).check()
	if err != nil || setup.mysql.Passwd != "s/cret" || setup.mysql.Addr != "db.example:3306" || setup.mysql.DBName != "forms" || setup.mysql.TLSConfig != "true" {
		t.Errorf("%+v %v", setup, err)
	}
}
