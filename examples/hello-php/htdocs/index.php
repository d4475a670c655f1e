<?php
require __DIR__ . '/../lib/greeting.php';

echo greeting(), "\n";
