package client

import (
	"context"
	"net/http"

	"github.com/dewrun/dew/api/v3"
)

// Env reads the variables that an instance of the app would get.
func (c *Client) Env(ctx context.Context, app string) (v3.Env, error) {
	var e v3.Env
	_, err := c.call(ctx, http.MethodGet, "/v3/apps/"+escape(app)+"/env", nil, &e)
	return e, err
}

// UpdateEnv sets variables of the app; nil unsets.
func (c *Client) UpdateEnv(ctx context.Context, app string, vars map[string]*string) error {
	_, err := c.call(ctx, http.MethodPatch, "/v3/apps/"+escape(app)+"/environment_variables", v3.UpdateEnvVars{Var: vars}, nil)
	return err
}
