package services

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
)

// CostsOf returns the prices in a plan's metadata.
func CostsOf(metadata json.RawMessage) (cs []Cost) {
	var known struct {
		Costs []struct {
			Amount map[string]float64 `json:"amount"`
			Unit   string             `json:"unit"`
		} `json:"costs"`
	}
	if json.Unmarshal(metadata, &known) != nil {
		return nil // no prices, or a wrong format
	}
	for _, c := range known.Costs {
		for _, currency := range slices.Sorted(maps.Keys(c.Amount)) {
			cs = append(cs, Cost{Amount: c.Amount[currency], Currency: strings.ToUpper(currency), Unit: c.Unit})
		}
	}
	return cs
}
