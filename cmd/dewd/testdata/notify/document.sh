#!/bin/sh
# The steps of the document of the notification service, in its order and with its
# names: from the client to a mail. Only these values are filled in: base_url, auth_url,
# client_id, secret, kind_id and the token of an administrator.
set -eu
call() { # method, URL, token, body
	curl -sS --fail-with-body -X "$1" "$2" -H "Authorization: bearer $3" -H 'Content-Type: application/json' ${4:+-d "$4"}
}

# Creating the client requires admin permissions on the deployment.
call POST "$auth_url/oauth/clients" "$admin_token" '{
	"client_id": "'"$client_id"'", "client_secret": "'"$secret"'",
	"authorized_grant_types": "client_credentials",
	"authorities": ["notifications.write", "notifications.manage", "notification_templates.write",
		"notification_templates.read", "critical_notifications.write"]
}' >/dev/null

# Callers authenticate with an access token obtained by the client credentials grant.
token=$(curl -sS --fail-with-body -u "$client_id:$secret" -d grant_type=client_credentials "$auth_url/oauth/token" |
	sed 's/.*"access_token":"\([^"]*\)".*/\1/')

# Register notifications.
call PUT "$base_url/notifications" "$token" '{
	"source_name": "Galactic Empire",
	"notifications": {"'"$kind_id"'": {"critical": true, "description": "Weather"}}
}'

# Create a template: the answer has one field, template-id.
made=$(call POST "$base_url/templates" "$token" '{
	"name": "site-maintenance", "subject": "Maintenance: {{.Subject}}",
	"text": "The site has gone down. {{.Text}}", "html": "<p>The site has gone down. {{.HTML}}</p>"
}')
template_id=$(printf %s "$made" | sed -n 's/^ *{"template-id": *"\([^"]*\)"} *$/\1/p')
[ -n "$template_id" ] || { echo "template: $made"; exit 1; }

# List templates.
call GET "$base_url/templates" "$token" | grep -q "$template_id"

# Associate the template with the notification.
call PUT "$base_url/clients/$client_id/notifications/$kind_id/template" "$token" '{"template": "'"$template_id"'"}'

# Send to all users.
call POST "$base_url/everyone" "$token" '{
	"kind_id": "'"$kind_id"'", "text": "This is the plain text", "html": "<h1>A header</h1><p>Some text</p>",
	"subject": "Urgent", "reply_to": "help@example.com"
}'
