package preview

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Basis is what decides what a run does, apart from the rows and the time.
type Basis struct {
	Version string `json:"Version"`
	// Options are the effective delays, by name. Mappings are the tables that the delivery mappings name, by column.
	Options     map[string]string   `json:"Options"`
	Mappings    map[string][]string `json:"Mappings"`
	MidSourcing []string            `json:"MidSourcing"`
	// External has the rules of policies and of tasks on other databases, by task.
	External map[string]string `json:"External,omitempty"`
	Holds    []string          `json:"Holds,omitempty"`
}

// Changes describes what differs; nil if nothing does.
func (b Basis) Changes(now Basis) (changes []string) {
	compare := func(name, before, after string) {
		if before != after {
			changes = append(changes, fmt.Sprintf("%s was %s, and is %s", name, before, after))
		}
	}
	compare("the program's version", b.Version, now.Version)
	for _, name := range slices.Sorted(maps.Keys(now.Options)) {
		compare("option "+name, b.Options[name], now.Options[name])
	}
	for _, name := range unionKeys(b.External, now.External) {
		compare("the task "+name, cmp.Or(b.External[name], "none"), cmp.Or(now.External[name], "none"))
	}
	for _, column := range unionKeys(b.Mappings, now.Mappings) {
		compare("NmsDeliveryMapping."+column, list(b.Mappings[column]), list(now.Mappings[column]))
	}
	if list(b.Holds) != list(now.Holds) { // only admins may see the holds
		changes = append(changes, "the holds have changed")
	}
	compare("--mid-sourcing", list(b.MidSourcing), list(now.MidSourcing))
	return changes
}

func unionKeys[V any](a, b map[string]V) []string {
	keys := slices.AppendSeq(slices.Collect(maps.Keys(a)), maps.Keys(b))
	slices.Sort(keys)
	return slices.Compact(keys)
}

func list(names []string) string {
	return cmp.Or(strings.Join(names, ", "), "none")
}
