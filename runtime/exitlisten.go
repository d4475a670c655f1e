package runtime

// Listen calls fn with every record that is added or completed, after it is on
// disk. fn should be quick: whoever writes the next one waits for it.
func (l *ExitLog) Listen(fn func(r ExitRecord)) {
	l.records.Listen(func(key string) {
		if r, err := l.records.Get(key); err == nil { // it may have been dropped meanwhile
			fn(r)
		}
	})
}
