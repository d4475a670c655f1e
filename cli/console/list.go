package console

import (
	"strings"
)

// NonNil is a copy of a list that is never nil, because JSON shows nil as null.
func NonNil(all []string) []string { return append([]string{}, all...) }

// Names are the names of all items.
func Names[T any](all []T, name func(T) string) []string {
	out := make([]string, len(all))
	for i, one := range all {
		out[i] = name(one)
	}
	return out
}

// Capitalize makes the first letter upper case.
func Capitalize(noun string) string { return strings.ToUpper(noun[:1]) + noun[1:] }

// List is a list that is shown as a table or as JSON.
type List struct {
	Rows  any
	Table [][]string // the first row is the head
	Empty string     // message if the table has only its head
}

// Show writes the list as a table, or as JSON.
func (l List) Show(out *Console) error {
	switch {
	case out.JSON:
		return out.Encode(l.Rows)
	case len(l.Table) < 2:
		out.Say("%s", l.Empty)
		return nil
	default:
		return out.Table(l.Table)
	}
}

// YesNo writes a bool in a table.
func YesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
