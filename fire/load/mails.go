package load

// Mail is a notification that dewd accepted.
type Mail struct{ Delivered int }
