/* Whole files and log lines, written so that a crash leaves nothing half-written.
 *
 * The one rule: a file is either as it was or whole and new. In-place writes are torn by a kill at
 * the wrong moment, hence temp + fsync + rename + fsync of the directory.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/host.h"
#include "io/file.h"

static int io_error(const char *what, const char *path) {
  return neap__error(NEAP_ERR_IO, "cannot %s '%s': %s", what, path, strerror(errno));
}

int neap__file_open(const char *path, int flags) {
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
int neap__file_close(int file) {
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

int64_t neap__file_read_at(int file, void *to, size_t bytes, uint64_t at) {
  size_t done = 0;
  while (done < bytes) {
    ssize_t n = pread(file, (char *)to + done, bytes - done, (off_t)(at + done));
    if (n < 0 && errno == EINTR) {
      continue;
    }
    if (n < 0) {
      return -1;
    }
    if (n == 0) {
      break;
    }
    done += (size_t)n;
  }
  return (int64_t)done;
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
  file = neap__file_open(directory, O_RDONLY | O_DIRECTORY);
  if (file < 0) {
    return -1;
  }
  /* some file systems cannot sync a directory: they say EINVAL and have nothing to sync */
  failure = sync_file(file) != 0 && errno != EINVAL ? errno : 0;
  neap__file_close(file);
  errno = failure;
  return failure != 0 ? -1 : 0;
}

int neap__new_file_begin(neap__new_file *made, const char *path) {
  made->path = path;
  made->file = -1;
  int length = snprintf(made->temp, sizeof made->temp, "%s.tmp-%ld", path, (long)getpid());
  if (length < 0 || length >= (int)sizeof made->temp) {
    errno = ENAMETOOLONG;
    return io_error("write", path);
  }
  /* a leftover of a killed process that had our number */
  if (unlink(made->temp) != 0 && errno != ENOENT) {
    return io_error("replace", made->temp);
  }
  made->file = neap__file_open(made->temp, O_WRONLY | O_CREAT | O_EXCL);
  if (made->file < 0) {
    return io_error("create", made->temp);
  }
  neap__signal_temp(made->temp);
  return NEAP_OK;
}

int neap__new_file_write(neap__new_file *made, const void *data, size_t bytes) {
  return write_all(made->file, data, bytes) != 0 ? io_error("write", made->path) : NEAP_OK;
}

int neap__new_file_commit(neap__new_file *made) {
  int failure = sync_file(made->file) != 0 ? errno : 0;
  if (neap__file_close(made->file) != 0 && failure == 0) {
    failure = errno;
  }
  made->file = -1;
  if (failure == 0 && rename(made->temp, made->path) != 0) {
    failure = errno;
  }
  if (failure != 0) {
    unlink(made->temp);
  }
  neap__signal_temp(NULL);
  if (failure != 0) {
    errno = failure;
    return io_error("write", made->path);
  }
  if (sync_directory_of(made->path) != 0) {
    return io_error("sync the directory of", made->path);
  }
  return NEAP_OK;
}

void neap__new_file_abandon(neap__new_file *made) {
  if (made->file >= 0) {
    neap__file_close(made->file);
    unlink(made->temp);
    neap__signal_temp(NULL);
    made->file = -1;
  }
}

int neap_file_write(const char *path, const void *data, size_t bytes) {
  neap__new_file made;
  if (path == NULL || path[0] == '\0' || (data == NULL && bytes > 0)) {
    return neap__error(NEAP_ERR_INVALID, "file_write: expected a path and data");
  }
  int code = neap__new_file_begin(&made, path);
  if (code == NEAP_OK) {
    code = neap__new_file_write(&made, data, bytes);
  }
  if (code == NEAP_OK) {
    return neap__new_file_commit(&made);
  }
  neap__new_file_abandon(&made);
  return code;
}

int neap_file_append(const char *path, const void *data, size_t bytes) {
  int file, failure = 0;
  ssize_t n;
  if (path == NULL || path[0] == '\0' || data == NULL || bytes == 0 ||
      ((const char *)data)[bytes - 1] != '\n') {
    return neap__error(NEAP_ERR_INVALID, "file_append: expected a path and whole lines");
  }
  file = neap__file_open(path, O_WRONLY | O_CREAT | O_APPEND);
  if (file < 0) {
    return io_error("append to", path);
  }
  do {
    n = write(file, data, bytes);
  } while (n < 0 && errno == EINTR);
  if (n < 0) {
    failure = errno;
  }
  if (neap__file_close(file) != 0 && failure == 0) {
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
