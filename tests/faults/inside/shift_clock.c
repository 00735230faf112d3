/* The wall clock of a server, ahead by the milliseconds in the file $SHIFT_CLOCK_FILE (eight bytes).
 *
 * Loaded with LD_PRELOAD. libfaketime cannot do this for Redis: it calls malloc while jemalloc asks
 * for the time. Monotonic clocks stay right.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile const int64_t *shift_ms;

__attribute__((constructor)) static void map_file(void)
{
    const char *path = getenv("SHIFT_CLOCK_FILE");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    void *found = mmap(NULL, sizeof *shift_ms, PROT_READ, MAP_SHARED, file, 0);

    shift_ms = found == MAP_FAILED ? NULL : found;
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    int failed = syscall(SYS_clock_gettime, clock, now);

    if (!failed && shift_ms && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
        int64_t ns = now->tv_nsec + *shift_ms % 1000 * 1000000;

        now->tv_sec += *shift_ms / 1000 + (ns >= 1000000000) - (ns < 0);
        now->tv_nsec = (ns + 1000000000) % 1000000000;
    }
    return failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
    struct timespec precise;
    int failed = clock_gettime(CLOCK_REALTIME, &precise);

    (void)zone;
    now->tv_sec = precise.tv_sec;
    now->tv_usec = precise.tv_nsec / 1000;
    return failed;
}

time_t time(time_t *now)
{
    struct timespec precise;

    clock_gettime(CLOCK_REALTIME, &precise);
    if (now) *now = precise.tv_sec;
    return precise.tv_sec;
}
