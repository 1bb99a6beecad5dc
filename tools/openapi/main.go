// Command openapi writes the description of the REST API as OpenAPI 3.1 to stdout. It converts the Swagger 2
// document that a generator made from proto/, and adds what an overlay says beyond that. Its arguments are the names
// of both files.
package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/getkin/kin-openapi/openapi2"
	"github.com/getkin/kin-openapi/openapi2conv"
	"sigs.k8s.io/yaml"
)

func main() {
	text, err := describe(os.Args[1], os.Args[2])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	_, _ = os.Stdout.Write(text)
}

func describe(swagger, overlay string) ([]byte, error) {
	converted, err := convert(swagger)
	if err != nil {
		return nil, err
	}
	patch, err := os.ReadFile(overlay)
	if err != nil {
		return nil, err
	}
	if patch, err = yaml.YAMLToJSON(patch); err != nil {
		return nil, err
	}
	merged, err := jsonpatch.MergePatch(converted, patch)
	if err != nil {
		return nil, err
	}
	var api map[string]any
	if err := json.Unmarshal(merged, &api); err != nil {
		return nil, err
	}
	complete(api)
	written, err := json.MarshalIndent(api, "", "  ")
	schemas := at(api, "components", "schemas")
	for name := range schemas {
		if !strings.Contains(
			string(written), reference(name)["$ref"].(string)+`"`,
		) { // such as an enum that is written out where it's used
			delete(schemas, name)
		}
	}
	if err == nil {
		written, err = json.MarshalIndent(api, "", "  ")
	}
	return append(written, '\n'), err
}

// convert turns Swagger 2 into OpenAPI 3.
func convert(file string) ([]byte, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var document any
	if err := json.Unmarshal(text, &document); err != nil {
		return nil, err
	}
	describeReferences(document)
	if text, err = json.Marshal(document); err != nil {
		return nil, err
	}
	var v2 openapi2.T
	if err := json.Unmarshal(text, &v2); err != nil {
		return nil, err
	}
	v3, err := openapi2conv.ToV3(&v2)
	if err != nil {
		return nil, err
	}
	return v3.MarshalJSON()
}

// describeReferences keeps the description of a field that stands beside a reference, where Swagger 2 does not allow
// it.
func describeReferences(document any) {
	switch value := document.(type) {
	case []any:
		for _, element := range value {
			describeReferences(element)
		}
	case map[string]any:
		if to, ok := value["$ref"].(string); ok && value["description"] != nil {
			delete(value, "$ref")
			value["allOf"] = []any{map[string]any{"$ref": to}}
		}
		for _, element := range value {
			describeReferences(element)
		}
	}
}

// titleOfStreams begins the title that the generator gives to the schema of a stream's messages.
const titleOfStreams = "Stream result of"

// complete adds to every operation what is the same for all: streams have one message per line, with errors inside
// such a line; the summary is one sentence; a PUT has no mask, since it replaces everything; null in the body of a
// PATCH resets a field.
func complete(api map[string]any) {
	schemas := at(api, "components", "schemas")
	failed := map[string]any{
		"description": "What was wrong: a google.rpc.Status.",
		"content":     jsonOf(reference("rpcStatus")),
	}
	for _, path := range sorted(at(api, "paths")) {
		for _, method := range sorted(at(api, "paths", path)) {
			operation := at(api, "paths", path, method)
			whole := strings.TrimSpace(text(operation["summary"]) + "\n\n" + text(operation["description"]))
			first, _, _ := strings.Cut(strings.ReplaceAll(whole, "\n", " ")+" ", ". ")
			operation["summary"], operation["description"] = strings.TrimSuffix(strings.TrimSpace(first), "."), whole
			responses := at(operation, "responses")
			if responses["default"] == nil {
				continue // it's not an RPC's
			}
			delete(responses, "default")
			responses["4XX"], responses["5XX"] = failed, failed
			content := at(responses, "200", "content")
			if schema := at(content, "application/json", "schema"); strings.HasPrefix(
				text(schema["title"]), titleOfStreams,
			) {
				content["application/x-ndjson"] = content["application/json"]
				inLine := map[string]any{
					"description": failed["description"],
					"content": jsonOf(map[string]any{
						"type":       "object",
						"required":   []string{"error"},
						"properties": map[string]any{"error": reference("rpcStatus")},
					}),
				}
				responses["4XX"], responses["5XX"] = inLine, inLine
			}
			if parameters, ok := operation["parameters"].([]any); ok && method == "put" {
				operation["parameters"] = slices.DeleteFunc(parameters, func(p any) bool {
					return p.(map[string]any)["name"] == "updateMask"
				})
			}
			if method == "patch" {
				body := at(operation, "requestBody", "content", "application/json", "schema")
				name := strings.TrimPrefix(text(body["$ref"]), "#/components/schemas/")
				schemas[name+"Patch"] = nullable(schemas[name].(map[string]any))
				body["$ref"] = "#/components/schemas/" + name + "Patch"
			}
		}
	}
}

// nullable returns an object whose properties may be null.
func nullable(schema map[string]any) map[string]any {
	clone := maps.Clone(schema)
	properties := map[string]any{}
	for name, property := range at(schema, "properties") {
		property := maps.Clone(property.(map[string]any))
		if kind := property["type"]; kind != nil {
			property["type"] = []any{kind, "null"}
		} else {
			property = map[string]any{"oneOf": []any{property, map[string]any{"type": "null"}}}
		}
		properties[name] = property
	}
	clone["properties"] = properties
	return clone
}

// at follows the names from object to object, and returns an empty object if one of them does not exist.
func at(object map[string]any, names ...string) map[string]any {
	for _, name := range names {
		object, _ = object[name].(map[string]any)
	}
	if object == nil {
		return map[string]any{}
	}
	return object
}

func reference(schema string) map[string]any {
	return map[string]any{"$ref": "#/components/schemas/" + schema}
}

func jsonOf(schema any) map[string]any {
	return map[string]any{"application/json": map[string]any{"schema": schema}}
}

func text(value any) string {
	s, _ := value.(string)
	return s
}

func sorted(object map[string]any) []string { return slices.Sorted(maps.Keys(object)) }
