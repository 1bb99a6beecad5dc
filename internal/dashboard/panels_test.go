package dashboard

import (
	"encoding/json"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/promql/parser"
)

const dashboardFile = "../../deploy/grafana/cleanupd.json"

// The part of Grafana's dashboard model that is used here.
type board struct {
	Title, UID    string
	SchemaVersion int
	Templating    struct {
		List []struct{ Name, Type string }
	}
	Panels []panel
}

type panel struct {
	ID                       int
	Type, Title, Description string
	GridPos                  struct{ H, W, X, Y int }
	Datasource               datasource
	FieldConfig              struct{ Defaults struct{ Unit string } }
	Targets                  []target
}

type datasource struct{ Type, UID string }

type target struct {
	RefID, Expr, LegendFormat string
	Datasource                datasource
	Instant                   bool
}

func readBoard(t *testing.T) (b board) {
	t.Helper()
	raw, err := os.ReadFile(dashboardFile)
	if err == nil {
		err = json.Unmarshal(raw, &b)
	}
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func (b board) queried() (panels []panel) {
	for _, p := range b.Panels {
		if p.Type != "row" {
			panels = append(panels, p)
		}
	}
	return panels
}

// As Grafana sends the query for a time range.
func (q target) query(scrape, shown time.Duration) string {
	return strings.NewReplacer("$__rate_interval", (4 * scrape).String(),
		"$__range", strconv.Itoa(int(shown.Seconds()))+"s", "$job", "cleanupd").
		Replace(q.Expr)
}

var legendLabel = regexp.MustCompile(`\{\{(\w+)\}\}`)

// Each panel has a title, a description, a unit and a place; their queries are valid PromQL for the data
// source that the dashboard asks for.
func TestPanels(t *testing.T) {
	b := readBoard(t)
	if b.Title == "" || b.UID == "" || b.SchemaVersion < 36 || len(b.Templating.List) != 2 ||
		b.Templating.List[0].Type != "datasource" ||
		b.Templating.List[0].Name != "datasource" {
		t.Errorf("the dashboard: %+v", b)
	}
	types := map[string]bool{"row": true, "timeseries": true, "stat": true, "bargauge": true}
	ids := map[int]bool{}
	taken := map[[2]int]string{}
	for _, p := range b.Panels {
		if ids[p.ID] || p.ID == 0 || p.Title == "" || !types[p.Type] {
			t.Errorf("panel %d %q of type %q", p.ID, p.Title, p.Type)
		}
		ids[p.ID] = true
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other := taken[[2]int{x, y}]; other != "" || x >= 24 {
					t.Fatalf("%q is at %+v, where %q is", p.Title, p.GridPos, other)
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
	}
	for _, p := range b.queried() {
		if p.Description == "" || p.FieldConfig.Defaults.Unit == "" || len(p.Targets) == 0 {
			t.Errorf("%q has no description, unit or query", p.Title)
		}
		refs := map[string]bool{}
		for _, q := range p.Targets {
			if want := (datasource{"prometheus", "${datasource}"}); q.Datasource != want || p.Datasource != want ||
				refs[q.RefID] ||
				q.LegendFormat == "" {
				t.Errorf("%q: %+v", p.Title, q)
			}
			refs[q.RefID] = true
			if _, err := parser.NewParser(parser.Options{}).ParseExpr(q.query(15*time.Second, time.Hour)); err != nil {
				t.Errorf("%q: %v", p.Title, err)
			}
		}
	}
}
