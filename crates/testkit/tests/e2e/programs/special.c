/* What no crate of the tests offers without unsafe code: file handles, and special files as another user.
 *
 *   special save PATH FILE     the handle of PATH into FILE
 *   special open MNT FILE      opens that handle: "links LINKS CONTENT", or the error
 *   special connect PATH       connects to a socket: "connected", or the error
 *   special take PATH          what a pipe has: "got CONTENT", or the error
 *   special reopen PATH        the same through a descriptor that was opened with O_PATH
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

static int fail(void)
{
	puts(strerror(errno));
	return 0;
}

static int save(const char *path, const char *file)
{
	struct file_handle *handle = calloc(1, sizeof *handle + MAX_HANDLE_SZ);
	int mount, fd;

	handle->handle_bytes = MAX_HANDLE_SZ;
	if (name_to_handle_at(AT_FDCWD, path, handle, &mount, 0))
		return fail();
	fd = open(file, O_CREAT | O_TRUNC | O_WRONLY, 0600);
	if (fd < 0 || write(fd, handle, sizeof *handle + handle->handle_bytes) < 0)
		return fail();
	puts("saved");
	return 0;
}

static int by_handle(const char *mount, const char *file)
{
	struct file_handle *handle = calloc(1, sizeof *handle + MAX_HANDLE_SZ);
	int fd = open(file, O_RDONLY), root = open(mount, O_RDONLY | O_DIRECTORY);
	char content[64] = "";
	struct stat known;

	if (fd < 0 || root < 0 || read(fd, handle, sizeof *handle + MAX_HANDLE_SZ) < 0)
		return fail();
	fd = open_by_handle_at(root, handle, O_RDONLY);
	if (fd < 0 || fstat(fd, &known))
		return fail();
	if (S_ISREG(known.st_mode) && read(fd, content, sizeof content - 1) < 0)
		return fail();
	printf("links %d %s\n", (int)known.st_nlink, content);
	return 0;
}

static int joined(const char *path)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);

	strncpy(address.sun_path, path, sizeof address.sun_path - 1);
	if (connect(fd, (struct sockaddr *)&address, sizeof address))
		return fail();
	puts("connected");
	return 0;
}

static int take(const char *path)
{
	char content[64] = "";
	int fd = open(path, O_RDWR | O_NONBLOCK);

	if (fd < 0 || read(fd, content, sizeof content - 1) < 0)
		return fail();
	printf("got %s\n", content);
	return 0;
}

static int reopen(const char *path)
{
	char link[64];
	int fd = open(path, O_PATH);

	if (fd < 0)
		return fail();
	snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
	return take(link);
}

int main(int count, char **words)
{
	if (count == 4 && !strcmp(words[1], "save"))
		return save(words[2], words[3]);
	if (count == 4 && !strcmp(words[1], "open"))
		return by_handle(words[2], words[3]);
	if (count == 3 && !strcmp(words[1], "connect"))
		return joined(words[2]);
	if (count == 3 && !strcmp(words[1], "take"))
		return take(words[2]);
	if (count == 3 && !strcmp(words[1], "reopen"))
		return reopen(words[2]);
	return 2;
}
