<?php
function greeting(): string
{
    return 'hello from PHP';
}
