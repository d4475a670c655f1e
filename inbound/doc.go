// Package inbound checks what clients send before anything else reads it: a body
// must arrive at a sensible rate, its JSON must have one meaning, and all text must
// be UTF-8.
//
// Each dialect (the v3 API, the authorization server, the notification service, the
// router) answers a refusal in its own words. A body that was too slow fails with
// os.ErrDeadlineExceeded.
package inbound
