package osb

// testCatalog has one offering that supports all features, with a free and a paid plan,
// and one offering that supports few.
const testCatalog = `{"services": [
 {"id": "o1", "name": "cache", "description": "A cache", "bindable": true, "plan_updateable": true, "tags": ["kv"],
  "instances_retrievable": true, "bindings_retrievable": true, "allow_context_updates": true,
  "requires": ["syslog_drain", "volume_mount"],
  "metadata": {"shareable": true, "documentationUrl": "http://docs.example"},
  "plans": [
   {"id": "p1", "name": "small", "description": "A small one", "maintenance_info": {"version": "1.0.0"},
    "schemas": {"service_instance": {"create": {"parameters": {"type": "object", "properties": {"size": {"type": "integer", "maximum": 10}}}}}}},
   {"id": "p2", "name": "large", "description": "A large one", "free": false, "maximum_polling_duration": 600,
    "metadata": {"costs": [{"amount": {"usd": 9.5, "eur": 9}, "unit": "MONTHLY"}]}}]},
 {"id": "o2", "name": "plain", "description": "Plain", "bindable": false, "plans": [{"id": "p3", "name": "only", "description": "The only one"}]}
]}`

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
