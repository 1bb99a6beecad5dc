package cli

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"

	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
)

// The rows of a hold are a table, columns and values. The error for a mistake says what is expected, with an example.
func TestHeldRows(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"orders.user_id=17":                           "orders | user_id | 17",
		"shop.orders.user_id=17,region=EU":            "shop.orders | user_id | 17 | region | EU",
		"orders.a= x.y=z ":                            "orders | a |  x.y=z ",
		`orders.name=Doe,"town=London, UK",state=new`: "orders | name | Doe | town | London, UK | state | new",
		`"Loyalty Club"."Point.Log"."User=Id"=3,"Created At"=x,a=b`: "" +
			`"Loyalty Club"."Point.Log" | User=Id | 3 | Created At | x | a | b`,
		`orders.name="Doe"`:             "TABLE.COLUMN=VALUE, such as orders.user_id=17",
		`orders.size=5" pipe,region=EU`: "TABLE.COLUMN=VALUE, such as orders.user_id=17",
		`orders.id=1,"size=5"" pipe"`:   `orders | id | 1 | size | 5" pipe`,
		`orders."a""b"=5`:               `orders | a"b | 5`,
		"orders.note=":                  "orders | note | ",
		"orders=17":                     "TABLE.COLUMN=VALUE, such as orders.user_id=17",
		"orders.user_id":                "TABLE.COLUMN=VALUE, such as orders.user_id=17",
		".user_id=17":                   "TABLE.COLUMN=VALUE, such as orders.user_id=17",
		"orders.=17":                    "TABLE.COLUMN=VALUE, such as orders.user_id=17",
		"orders.name=Doe, John":         "COLUMN=VALUE, such as region=EU",
		"orders.name=Doe,=x":            "COLUMN=VALUE, such as region=EU",
	} {
		var values []string
		cmd := &cobra.Command{}
		cmd.Flags().StringArrayVar(&values, "rows", nil, "")
		if err := cmd.ParseFlags([]string{"--rows", text}); err != nil {
			t.Fatal(err)
		}
		rows, err := parseHeldRows(values)
		if err != nil {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %s", text, err, want)
			}
			continue
		}
		got := []string{rows.GetTable()}
		for _, c := range rows.GetColumns() {
			got = append(got, c.GetColumn(), c.GetValue())
		}
		if strings.Join(got, " | ") != want {
			t.Errorf("%s is %q, want %q", text, got, want)
		}
		hold := &cleanupv1.Hold{What: &cleanupv1.Hold_Rows{Rows: rows}}
		if subject := holdSubject(hold); !strings.HasPrefix(subject, "rows "+rows.GetTable()+"."+got[1]+"="+got[2]) {
			t.Errorf("%s is shown as %s", text, subject)
		}
	}
}
