package load

// Value is a value that was written through the API.
type Value struct {
	Acknowledged string   // newest value with an answer
	Pending      []string // values after it, without an answer
}
