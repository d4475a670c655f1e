<?php
// PHP's built-in server runs this script for each request. Without it, the server would
// serve every file under its root, including dot files and the files for the platform.
$path = rawurldecode((string) parse_url($_SERVER['REQUEST_URI'], PHP_URL_PATH));
$hidden = preg_match('~/\.~', $path)
	|| preg_match('~^/+(vendor/|composer\.(json|lock)$|Procfile$|manifest\.yml$)~i', $path);
if ($hidden) {
	http_response_code(404);
	echo "404 Not Found\n";
	return true;
}
return false; // PHP's server handles the request itself
