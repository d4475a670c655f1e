package app

import "testing"

func TestDestinationAt(t *testing.T) {
	h1 := func(port int) Former { return Former{Port: port, Protocol: ProtocolHTTP1} }
	for _, tt := range []struct {
		d     Destination
		has   []int
		want  int
		found bool
		lacks bool
	}{
		{Destination{}, []int{8080}, 0, true, false},
		{Destination{Port: 8080}, []int{8080}, 8080, true, false},
		{Destination{Port: 9000}, []int{8080}, 0, false, true},
		{Destination{Port: 9000, Former: []Former{h1(0)}}, []int{8080}, 0, true, true},
		{Destination{Port: 9000, Former: []Former{h1(0)}}, []int{8080, 9000}, 9000, true, false},
		{Destination{Port: 9000, Former: []Former{h1(9001), h1(0)}}, []int{8080, 9001}, 9001, true, true},
		{Destination{Port: 9000, Former: []Former{h1(9001)}}, []int{8080}, 0, false, true},
	} {
		got, ok := tt.d.At(tt.has)
		if got.Port != tt.want || ok != tt.found || tt.d.Lacks(tt.has) != tt.lacks {
			t.Errorf("%+v at %v: %d, %v, lacks %v; want %d, %v, %v", tt.d, tt.has, got.Port, ok, tt.d.Lacks(tt.has), tt.want, tt.found, tt.lacks)
		}
	}
}
