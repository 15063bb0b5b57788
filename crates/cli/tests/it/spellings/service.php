<?php
// A service of PHP that says whom it takes the sender of a request for.
header('Content-Type: application/json');
$list = fn ($value) => is_array($value) ? array_values($value) : [$value];
$user = $_SERVER['PHP_AUTH_USER'] ?? null;
$words = explode(' ', $_SERVER['HTTP_AUTHORIZATION'] ?? '');
echo json_encode([
    'key' => [$_SERVER['HTTP_X_API_KEY'] ?? null, ...$list($_GET['api_key'] ?? null)],
    'session' => [$_COOKIE['session'] ?? null],
    'auth' => [$user === null ? null : $user . ':' . $_SERVER['PHP_AUTH_PW'], $words[1] ?? null],
    'user' => [],
    'path' => [parse_url($_SERVER['REQUEST_URI'], PHP_URL_PATH)],
], JSON_INVALID_UTF8_SUBSTITUTE);
