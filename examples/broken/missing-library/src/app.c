#include <stdio.h>

const char *greeting(void);

int main(void) { return puts(greeting()) < 0; }
