package transport

import (
	"bytes"
	"encoding/json"
	"math"
	"strconv"
)

// clamp limits the integers of a JSON object to 32 bits, so that numbers that are far too large are refused field
// by field like other values that are too large. ok is false if there was nothing to clamp.
func clamp(object []byte) (clamped []byte, ok bool) {
	var fields map[string]any
	d := json.NewDecoder(bytes.NewReader(object))
	d.UseNumber()
	if d.Decode(&fields) != nil {
		return nil, false
	}
	for name, value := range fields {
		text, isText := value.(string) // protobuf's JSON accepts numbers as strings, too
		if number, isNumber := value.(json.Number); isNumber {
			text = number.String()
		} else if !isText {
			continue
		}
		number, err := strconv.ParseFloat(text, 64)
		if err != nil || math.Trunc(number) != number {
			continue
		}
		if most := math.Min(math.Max(number, math.MinInt32), math.MaxInt32); most != number {
			fields[name], ok = int32(most), true
		}
	}
	if ok {
		clamped, _ = json.Marshal(fields) // never fails: fields came from JSON
	}
	return clamped, ok
}
