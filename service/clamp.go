package service

import (
	"bytes"
	"encoding/json"
	"math"
	"strconv"
)

// clamp makes numbers of a JSON object that no 32 bits hold the largest that they do, so that they are judged as others that are
// too large are, field by field. It is not ok when there are none.
func clamp(object []byte) (clamped []byte, ok bool) {
	var fields map[string]any
	d := json.NewDecoder(bytes.NewReader(object))
	d.UseNumber()
	if d.Decode(&fields) != nil {
		return nil, false
	}
	for name, value := range fields {
		text, isText := value.(string) // as which protobuf's JSON takes a number, too
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
		clamped, _ = json.Marshal(fields) // which came from JSON
	}
	return clamped, ok
}
