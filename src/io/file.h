/* What the files of src/io share: calls that a signal does not end, and files that are made whole
 * or not at all. */
#ifndef NEAP_IO_FILE_H
#define NEAP_IO_FILE_H

#include <limits.h>

#include "backend.h"

int neap__file_open(const char *path, int flags); /* -1 with errno set */
int neap__file_close(int file);                   /* likewise */
/* Bytes read, fewer only at the file's end; -1 with errno set. */
int64_t neap__file_read_at(int file, void *to, size_t bytes, uint64_t at);

/* A file on its way: it is a temp file beside its path until commit renames it. */
typedef struct neap__new_file {
  const char *path; /* the caller's */
  int file;         /* -1: nothing to abandon */
  char temp[PATH_MAX];
} neap__new_file;

int neap__new_file_begin(neap__new_file *made, const char *path);
int neap__new_file_write(neap__new_file *made, const void *data, size_t bytes);
/* On an error before the rename the temp file is gone and the old file unaltered. */
int neap__new_file_commit(neap__new_file *made);
void neap__new_file_abandon(neap__new_file *made);

#endif
