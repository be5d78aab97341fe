/* Has its memory locked by a call that waits: locked FILE CALLS
 *
 * FILE has several stripes, so a handle that reads and writes it goes past the kernel's pages while another one
 * writes. Says "ready". When its input has a line, a thread reads through the pages, another one maps past them,
 * for which the kernel takes the lock of the whole address space and waits for the page of the first, and so many
 * threads more ask for attributes of FILE. All threads are there before: one that begins needs memory. */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define BYTES (1 << 20)
#define TURN 300000

static const char *path;
static int pages, past;
static char byte;
static pthread_barrier_t begin;

static void *look(void *failed)
{
	pthread_barrier_wait(&begin);
	return pread(pages, &byte, 1, BYTES / 2) == 1 && byte == 7 ? NULL : failed;
}

static void *map(void *failed)
{
	pthread_barrier_wait(&begin);
	usleep(TURN);
	return mmap(NULL, BYTES, PROT_READ, MAP_SHARED, past, 0) == MAP_FAILED ? failed : NULL;
}

static void *call(void *failed)
{
	struct stat found;
	pthread_barrier_wait(&begin);
	usleep(2 * TURN);
	return stat(path, &found) ? failed : NULL;
}

int main(int count, char **words)
{
	char line[16];
	void *failed;
	int threads = count == 3 ? atoi(words[2]) + 2 : 0, wrong = 0, writes;
	pthread_t *all = calloc(threads + 1, sizeof(*all));
	if (!all || threads < 3)
		return 2;
	path = words[1];
	pages = open(path, O_RDONLY);
	writes = open(path, O_WRONLY);
	past = open(path, O_RDWR);
	if (pages < 0 || writes < 0 || past < 0 || pthread_barrier_init(&begin, NULL, threads + 1))
		return 3;
	for (int at = 0; at < threads; at++)
		if (pthread_create(&all[at], NULL, at == 0 ? look : at == 1 ? map : call, &begin))
			return 4;
	if (write(1, "ready\n", 6) != 6 || read(0, line, sizeof(line)) < 1)
		return 5;
	pthread_barrier_wait(&begin);
	for (int at = 0; at < threads; at++)
		wrong |= pthread_join(all[at], &failed) || failed;
	return wrong ? 6 : 0;
}
