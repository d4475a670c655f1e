package app

// Spelling is how the manifest writes a key: who shows a difference looks for the
// path in the text.
func (m *ManifestApp) Spelling(w ProcessSetting, k ProcessKey) string {
	prefix := ""
	if w.Index >= 0 {
		prefix = KeyOfProcess(Process{Type: w.Type}, "")
	}
	if k.other != "" && m.lines[prefix+k.other] > 0 {
		return k.other
	}
	return k.Name
}
