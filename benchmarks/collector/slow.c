/* A slower disk: every fsync and fdatasync takes KANAB_SLOW_US microseconds more. For LD_PRELOAD.
 *
 *     cc -shared -fPIC -O2 -o slow.so slow.c -ldl
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>

static int slowly(const char *name, int file) {
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, name);
    int result = real(file);
    const char *text = getenv("KANAB_SLOW_US");
    long more = text ? atol(text) : 0;
    struct timespec pause = {more / 1000000, (more % 1000000) * 1000};
    nanosleep(&pause, NULL);
    return result;
}

int fsync(int file) { return slowly("fsync", file); }
int fdatasync(int file) { return slowly("fdatasync", file); }
