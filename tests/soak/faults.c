/* Lets writes and syncs of a store fail, or take long, now and then: loaded by LD_PRELOAD.

   KANAB_FAULTS is "seed:one in how many": a write, sync or truncation of a file whose name contains "store.db" fails
   with EIO or ENOSPC, is cut short, or waits. Files with other names, sockets and pipes are left alone. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static unsigned int state;
static unsigned int every;

static int is_store(int fd) {
    char link[64], name[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, name, sizeof name - 1);
    if (length < 0) return 0;
    name[length] = 0;
    return strstr(name, "store.db") != NULL;
}

/* 0: nothing; 1: EIO; 2: ENOSPC; 3: slow; 4: short */
static int fault(int fd) {
    if (!every) {
        const char *text = getenv("KANAB_FAULTS");
        if (!text) return 0; /* perhaps a process that forks those which shall fail */
        if (sscanf(text, "%u:%u", &state, &every) != 2 || !every) every = UINT_MAX;
        state ^= (unsigned int)getpid() * 2654435761u;
    }
    if (every == UINT_MAX || !is_store(fd)) return 0;
    state = state * 1664525u + 1013904223u;
    if ((state >> 8) % every) return 0;
    return 1 + (state >> 4) % 4;
}

static int fails(int kind) {
    if (kind == 1) errno = EIO;
    if (kind == 2) errno = ENOSPC;
    if (kind == 3) usleep(200000);
    return kind == 1 || kind == 2;
}

#define REAL(name) static __typeof__(&name) real; if (!real) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

ssize_t pwrite64(int fd, const void *data, size_t size, off64_t at) {
    REAL(pwrite64);
    int kind = fault(fd);
    if (fails(kind)) return -1;
    return real(fd, data, kind == 4 && size > 1 ? size / 2 : size, at);
}

ssize_t pwrite(int fd, const void *data, size_t size, off_t at) { return pwrite64(fd, data, size, at); }

ssize_t write(int fd, const void *data, size_t size) {
    REAL(write);
    int kind = fault(fd);
    if (fails(kind)) return -1;
    return real(fd, data, kind == 4 && size > 1 ? size / 2 : size);
}

int fsync(int fd) {
    REAL(fsync);
    return fails(fault(fd)) ? -1 : real(fd);
}

int fdatasync(int fd) {
    REAL(fdatasync);
    return fails(fault(fd)) ? -1 : real(fd);
}

int ftruncate64(int fd, off64_t size) {
    REAL(ftruncate64);
    return fails(fault(fd)) ? -1 : real(fd, size);
}

int ftruncate(int fd, off_t size) { return ftruncate64(fd, size); }
