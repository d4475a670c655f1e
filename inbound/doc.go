// Package inbound checks the input of clients before anything else reads it. A body
// must arrive at a minimum rate, its JSON must be unambiguous, and all text must be
// UTF-8.
//
// Each server (the v3 API, the authorization server, the notification service, the
// router) reports a refusal in its own format. A body that was too slow fails with
// os.ErrDeadlineExceeded.
package inbound
