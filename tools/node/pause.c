/* The process that holds a pod's namespaces: waits until it is told to end, and takes in orphans. Statically linked. */

#include <signal.h>
#include <stddef.h>
#include <sys/wait.h>
#include <unistd.h>

static void end(int signal_number) {
    (void)signal_number;
    _exit(0);
}

static void take_in(int signal_number) {
    (void)signal_number;
    while (waitpid(-1, NULL, WNOHANG) > 0)
        ;
}

int main(void) {
    signal(SIGTERM, end);
    signal(SIGINT, end);
    signal(SIGCHLD, take_in);
    for (;;)
        pause();
}
