package apps

// maxSignal is the last signal that Linux has.
const maxSignal = 64
