/* stamp FILE: its first instruction reads the clock; then it writes nanoseconds since 1970 and a newline to FILE, which may be a
   named pipe. */
#include <fcntl.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

int main(int argc, char **argv) {
	struct timespec t;
	clock_gettime(CLOCK_REALTIME, &t);
	char line[32];
	int n = snprintf(line, sizeof line, "%lld\n", (long long)t.tv_sec * 1000000000LL + t.tv_nsec);
	int fd = argc == 2 ? open(argv[1], O_WRONLY | O_CREAT, 0644) : 1;
	return fd < 0 || write(fd, line, n) != n;
}
