package platform

import (
	"github.com/dewrun/dew/logstream"
	"github.com/dewrun/dew/runtime"
)

// Exits reads the exit records. runtime.ExitLog is the real one.
type Exits interface {
	Process(process string) ([]runtime.ExitRecord, error)
}

// LogToApp puts a sentence of the platform into an app's log. A log that cannot be
// written must not undo a change that is stored already.
func (p *Platform) LogToApp(appGUID, text string) {
	l, err := p.Logs.App(appGUID)
	if err == nil {
		err = l.Append(logstream.Envelope{Source: logstream.Source{Type: "API"}, Stream: logstream.Out, Text: []byte(text)})
	}
	if err != nil {
		p.Log.Warn("cannot write to the app's log", "app", appGUID, "err", err)
	}
}
