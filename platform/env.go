package platform

// Hidden stands for values that are not for everybody who may read events.
const Hidden = "[PRIVATE DATA HIDDEN]"
