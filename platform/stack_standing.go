package platform

import (
	"github.com/dewrun/dew/app"
)

// MayStage refuses a build with a stack that the app may not use any more.
func (p *Platform) MayStage(a app.App) (warnings []string, err error) {
	if a.Docker() {
		return nil, nil
	}
	all, err := p.Usable()
	if err != nil {
		return nil, err
	}
	for _, k := range all {
		if !RunsOn(a, k) {
			continue
		}
		is, err := p.Stacks().Access(k.GUID)
		if err != nil {
			return nil, err
		}
		text, err := is.MayStage(k.Name, a.Droplet != "")
		if err != nil {
			return nil, Refuse("%v", err)
		}
		if text != "" {
			p.LogToApp(a.GUID, text)
			return []string{text}, nil
		}
	}
	return nil, nil
}
