/* One process at a time in a run's directory. The kernel drops the lock when the process ends,
 * however. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "backend.h"

int neap_file_lock(const char *path) {
  if (path == NULL) {
    return neap__error(NEAP_ERR_INVALID, "lock: expected a path");
  }
  int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (file < 0) {
    return neap__error(NEAP_ERR_IO, "cannot open '%s': %s", path, strerror(errno));
  }
  if (flock(file, LOCK_EX | LOCK_NB) != 0) {
    int why = errno;
    close(file);
    return why == EWOULDBLOCK
               ? neap__error(NEAP_ERR_STATE, "'%s' is in use by another process", path)
               : neap__error(NEAP_ERR_IO, "cannot lock '%s': %s", path, strerror(why));
  }
  return NEAP_OK; /* the descriptor stays open: it is the lock */
}
