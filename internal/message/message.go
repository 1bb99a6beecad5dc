// Package message is the catalogue of the messages about policies and the schedule, in the logs of runs and in the
// results of tasks. The texts are English; the console translates them by code. docs/reference/messages.md is generated
// from it.
package message

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/dustin/go-humanize"

	"github.com/cleanupd/cleanupd/internal/sqlstate"
)

// Message is a text for people, which programs can recognize and translate.
type Message struct {
	Level Severity `json:"Level,omitempty"`
	// Code is the code of its Kind; "" if it has none.
	Code string `json:"Code,omitempty"`
	// Params are the values in the text, by name.
	Params map[string]string `json:"Params,omitempty"`
	Text   string            `json:"Text"`
}

type Severity string

const (
	Info    Severity = "INFO"
	Warning Severity = "WARNING"
	Error   Severity = "ERROR"
)

// Kind is an entry of the catalogue.
type Kind struct {
	// Code never changes.
	Code  string
	Theme string
	Level Severity
	// Template is the text. {name} becomes the value of a parameter, and {name|word|words} the first word if that value
	// is 1, otherwise the second.
	Template string
	// For administrators: why the message appears, and what to do.
	Cause, Remedy string
}

// theme is the title of a group of kinds.
type theme string

var catalog []*Kind

func (t theme) warning(code, template, cause, remedy string) *Kind {
	return t.add(Warning, code, template, cause, remedy)
}

func (t theme) info(code, template, cause, remedy string) *Kind {
	return t.add(Info, code, template, cause, remedy)
}

func (t theme) add(level Severity, code, template, cause, remedy string) *Kind {
	k := &Kind{Code: code, Theme: string(t), Level: level, Template: template, Cause: cause, Remedy: remedy}
	catalog = append(catalog, k)
	return k
}

func Catalog() []*Kind { return slices.Clone(catalog) }

// With returns a message; params are names, each followed by its value.
func (k *Kind) With(params ...any) Message {
	m := Message{Level: k.Level, Code: k.Code, Params: map[string]string{}}
	for i := 0; i+1 < len(params); i += 2 {
		value := params[i+1]
		if err, ok := value.(error); ok {
			value = sqlstate.Text(err)
		}
		m.Params[fmt.Sprint(params[i])] = fmt.Sprint(value)
	}
	m.Text = placeholder.ReplaceAllStringFunc(k.Template, func(text string) string {
		part := placeholder.FindStringSubmatch(text)
		switch value := m.Params[part[1]]; {
		case part[2] == "":
			return shown(part[1], value)
		case value == "1":
			return part[3]
		}
		return part[4]
	})
	return m
}

// placeholder matches the name of a parameter and, with the bars, two words.
var placeholder = regexp.MustCompile(`\{(\w+)(\|([^|}]*)\|([^|}]*))?\}`)

// counts are the parameters that are counts. The text shows them with separators; the console adds those of its own
// language.
var counts = []string{"rows", "tables", "partitions"}

func shown(name, value string) string {
	if n, err := strconv.ParseInt(value, 10, 64); err == nil && slices.Contains(counts, name) {
		return humanize.Comma(n)
	}
	return value
}

// Placeholders returns the sorted names of the parameters that a template uses.
func Placeholders(template string) []string {
	var names []string
	for _, part := range placeholder.FindAllStringSubmatch(template, -1) {
		names = append(names, part[1])
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func Plural(template string) string {
	return placeholder.ReplaceAllStringFunc(template, func(text string) string {
		if part := placeholder.FindStringSubmatch(text); part[2] != "" {
			return part[4]
		}
		return text
	})
}

// Infof returns a message without a code.
func Infof(format string, args ...any) Message {
	return Message{Level: Info, Text: fmt.Sprintf(format, args...)}
}

// Infos returns messages without a code.
func Infos(texts ...string) (list []Message) {
	for _, text := range texts {
		list = append(list, Message{Level: Info, Text: text})
	}
	return list
}

// OnServer names the mid-sourcing server in the text and in the parameter server.
func (m Message) OnServer(account string) Message {
	m.Params = maps.Clone(m.Params)
	if m.Params == nil {
		m.Params = map[string]string{}
	}
	m.Params["server"] = account
	m.Text = fmt.Sprintf("mid-sourcing server %q: %s", account, m.Text)
	return m
}

func Join(list []Message) string {
	var texts []string
	for _, m := range list {
		texts = append(texts, m.Text)
	}
	return strings.Join(texts, "; ")
}
