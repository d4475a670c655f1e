package auth

import "net/http"

func (s *Server) routes() http.Handler {
	return http.NotFoundHandler()
}
