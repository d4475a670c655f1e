package main

const statusHelp = `Exit status:
   0  ok
   1  failed
   2  usage: a flag, its value, an argument or a command is wrong
   3  staging failed
   4  the app crashed at its start, or was refused to start
   5  timed out, or the app never became healthy
   6  the daemon cannot be reached
   7  the app ran out of memory at its start
   8  an assertion does not hold
   9  infrastructure: something the machine should give is not there; dew doctor tells what
 130  interrupted by Ctrl-C (143: by SIGTERM); dew push says what goes on in the daemon`
