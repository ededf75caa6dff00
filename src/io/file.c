/* Whole files and log lines, written so that a crash leaves nothing half-written.
 *
 * The one rule: a file is either as it was or whole and new. In-place writes are torn by a kill at
 * the wrong moment, hence temp + fsync + rename + fsync of the directory.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "backend.h"

static int io_error(const char *what, const char *path) {
  return neap__error(NEAP_ERR_IO, "cannot %s '%s': %s", what, path, strerror(errno));
}

/* open, again after a signal */
static int open_file(const char *path, int flags) {
  int file;
  do {
    file = open(path, flags | O_CLOEXEC, 0666);
  } while (file < 0 && errno == EINTR);
  return file;
}

static int sync_file(int file) {
  int result;
  do {
    result = fsync(file);
  } while (result != 0 && errno == EINTR);
  return result;
}

/* Linux closes also when it says EINTR; once more would close what another thread has opened */
static int close_file(int file) {
  return close(file) != 0 && errno != EINTR ? -1 : 0;
}

/* 0, or -1 with errno set */
static int write_all(int file, const char *data, size_t bytes) {
  while (bytes > 0) {
    ssize_t n = write(file, data, bytes);
    if (n < 0 && errno == EINTR) {
      continue;
    }
    if (n < 0) {
      return -1;
    }
    data += n;
    bytes -= (size_t)n;
  }
  return 0;
}

static int sync_directory_of(const char *path) {
  char directory[PATH_MAX];
  const char *slash = strrchr(path, '/');
  size_t length = slash == NULL ? 0 : (size_t)(slash - path);
  int file, failure;
  if (slash == path) {
    length = 1;
  }
  memcpy(directory, length == 0 ? "." : path, length == 0 ? 1 : length);
  directory[length == 0 ? 1 : length] = '\0';
  file = open_file(directory, O_RDONLY | O_DIRECTORY);
  if (file < 0) {
    return -1;
  }
  /* some file systems cannot sync a directory: they say EINVAL and have nothing to sync */
  failure = sync_file(file) != 0 && errno != EINVAL ? errno : 0;
  close_file(file);
  errno = failure;
  return failure != 0 ? -1 : 0;
}

int neap_file_write(const char *path, const void *data, size_t bytes) {
  char temp[PATH_MAX];
  int file, length, failure;
  if (path == NULL || path[0] == '\0' || (data == NULL && bytes > 0)) {
    return neap__error(NEAP_ERR_INVALID, "file_write: expected a path and data");
  }
  length = snprintf(temp, sizeof temp, "%s.tmp-%ld", path, (long)getpid());
  if (length < 0 || length >= (int)sizeof temp) {
    errno = ENAMETOOLONG;
    return io_error("write", path);
  }
  /* a leftover of a killed process that had our number */
  if (unlink(temp) != 0 && errno != ENOENT) {
    return io_error("replace", temp);
  }
  file = open_file(temp, O_WRONLY | O_CREAT | O_EXCL);
  if (file < 0) {
    return io_error("create", temp);
  }
  failure = write_all(file, data, bytes) != 0 || sync_file(file) != 0 ? errno : 0;
  if (close_file(file) != 0 && failure == 0) {
    failure = errno;
  }
  if (failure == 0 && rename(temp, path) != 0) {
    failure = errno;
  }
  if (failure != 0) {
    unlink(temp);
    errno = failure;
    return io_error("write", path);
  }
  if (sync_directory_of(path) != 0) {
    return io_error("sync the directory of", path);
  }
  return NEAP_OK;
}

int neap_file_append(const char *path, const void *data, size_t bytes) {
  int file, failure = 0;
  ssize_t n;
  if (path == NULL || path[0] == '\0' || data == NULL || bytes == 0 ||
      ((const char *)data)[bytes - 1] != '\n') {
    return neap__error(NEAP_ERR_INVALID, "file_append: expected a path and whole lines");
  }
  file = open_file(path, O_WRONLY | O_CREAT | O_APPEND);
  if (file < 0) {
    return io_error("append to", path);
  }
  do {
    n = write(file, data, bytes);
  } while (n < 0 && errno == EINTR);
  if (n < 0) {
    failure = errno;
  }
  if (close_file(file) != 0 && failure == 0) {
    failure = errno;
  }
  if (failure != 0) {
    errno = failure;
    return io_error("append to", path);
  }
  if ((size_t)n != bytes) {
    return neap__error(NEAP_ERR_IO, "cannot append to '%s': wrote %zd of %zu bytes", path, n,
                       bytes);
  }
  return NEAP_OK;
}
